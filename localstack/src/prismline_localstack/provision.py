"""Deploy the stacks to an emulator that the harness does not run, and exit: the `deploy` job of `docker-compose.yml`.

`AWS_ENDPOINT_URL` names the emulator, and `ENVIRONMENT` the environment to deploy.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

from botocore.exceptions import BotoCoreError, ClientError

from prismline_deploy.errors import DeployError
from prismline_emulator.endpoints import answers
from prismline_localstack.errors import HarnessError
from prismline_localstack.settings import REPOSITORY, HarnessSettings, client_environment
from prismline_localstack.stacks import create_stacks
from prismline_localstack.state import make_client
from prismline_localstack.waiting import wait_until
from prismline_runtime import ServiceSettings, service_logger

#: Time limit for the first answer of the emulator, in seconds.
ANSWER_SECONDS = 60.0


def provision(endpoint: str, environment: str, pools: Collection[str] = ()) -> dict[str, str]:
    """Wait for the emulator, deploy to it, also the stacks of `pools`, and return the outputs as environment variables.

    Raises HarnessError if the emulator does not answer, and DeployError if a stack fails.
    """
    if not wait_until(lambda: answers(endpoint), ANSWER_SECONDS):
        raise HarnessError(f"Nothing answers at {endpoint}. Start the emulator, or correct AWS_ENDPOINT_URL.")
    env = client_environment(endpoint)
    try:
        cloudformation, s3 = make_client("cloudformation", env), make_client("s3", env)
        return create_stacks(cloudformation, s3, REPOSITORY, environment, pools=pools)
    except (ClientError, BotoCoreError) as error:
        raise DeployError(f"The stacks were not deployed to {endpoint}: {error}") from error


def main() -> None:
    """Deploy the stacks. If that fails, print a sentence and exit with code 1."""
    endpoint, environment = HarnessSettings().endpoint, ServiceSettings().environment
    pools = [name for name in HarnessSettings().prismline_pools.split(",") if name]
    if endpoint is None:
        sys.exit("AWS_ENDPOINT_URL is not set. Set it to the endpoint of the emulator to deploy to.")
    try:
        outputs = provision(endpoint, environment, pools)
    except DeployError as error:
        sys.exit(str(error))
    service_logger("deploy").info("deployed", extra={"environment": environment, "outputs": outputs})


if __name__ == "__main__":
    main()
