"""Publish the queue depths to an emulator that the harness does not run: `python -m prismline_localstack.metrics`.

If the harness runs the emulator, its supervisor does this. `AWS_ENDPOINT_URL` names the emulator, and `ENVIRONMENT` the
environment of the queues.
"""

from __future__ import annotations

import signal
import sys
import threading

from botocore.exceptions import BotoCoreError, ClientError

from prismline_localstack.queues import METRICS_SECONDS, depths, publish_depths
from prismline_localstack.settings import HarnessSettings, client_environment
from prismline_localstack.state import make_client
from prismline_runtime import ServiceSettings, service_logger


def main() -> None:
    """Publish until SIGTERM. An error is logged and does not end the process."""
    endpoint, environment = HarnessSettings().endpoint, ServiceSettings().environment
    if endpoint is None:
        sys.exit("AWS_ENDPOINT_URL is not set. Set it to the endpoint of the emulator with the queues.")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    env, logger = client_environment(endpoint), service_logger("metrics")
    sqs, cloudwatch = make_client("sqs", env), make_client("cloudwatch", env)
    while not stopping.is_set():
        try:
            publish_depths(cloudwatch, depths(sqs, environment))
        except (ClientError, BotoCoreError) as error:
            logger.warning("depths_not_published", extra={"reason": str(error)})
        stopping.wait(METRICS_SECONDS)


if __name__ == "__main__":
    main()
