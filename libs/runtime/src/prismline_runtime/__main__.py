"""Run a handler on queues: `prismline-runtime --queue chunks --batch-size 1 prismline_worker.handler:handler`.

On SIGTERM or SIGINT the process stops receiving. Messages in flight have the grace time to finish. After that the
process makes them visible again and exits.

`--more-queues module:function` names a function that returns the names and priorities of other queues to poll.
`--parallel 4` processes four batches of a queue at a time, in threads; the handler must be thread-safe. The first of
the four does not poll the other queues.

`PRISMLINE_HEARTBEAT_FILE` names a file for health checks. The process touches it every second while all queues answer
and no invocation exceeds its time limit. A health check looks at the file's age.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import time
from typing import Any

from prismline_contracts.commands import polled_queues, queue_name
from prismline_runtime import clients
from prismline_runtime.consumer import Consumer, Handler, MoreQueues, polled_in_turns
from prismline_runtime.settings import ConsumerSettings, ServiceSettings
from prismline_runtime.telemetry import service_logger


def load(path: str) -> Any:
    """Import and return the function `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> None:
    """Entry point of `prismline-runtime`."""
    parser = argparse.ArgumentParser(prog="prismline-runtime", description="Run a Lambda handler on SQS queues.")
    parser.add_argument("handler", help="module:function")
    parser.add_argument(
        "--queue",
        action="append",
        required=True,
        help="short name of a queue; may be repeated; *-dlq: all dead-letter queues",
    )
    parser.add_argument("--batch-size", type=int, default=10, choices=range(1, 11), metavar="1..10")
    parser.add_argument("--parallel", type=int, default=1, help="batches of each queue at a time (default: 1)")
    parser.add_argument("--more-queues", help="module:function that returns names and priorities of more queues")
    arguments = parser.parse_args()
    queues = polled_queues(arguments.queue)

    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    settings = ConsumerSettings()
    environment = ServiceSettings().environment
    logger = service_logger("runtime")
    handler: Handler = load(arguments.handler)
    more_queues: MoreQueues | None = load(arguments.more_queues) if arguments.more_queues else None
    turns = polled_in_turns(
        [queue_name(environment, queue) for queue in queues],
        batch_size=arguments.batch_size,
        parallel=arguments.parallel,
        more_queues=more_queues,
    )
    consumers = []
    for of_turn in turns:
        turn = threading.Lock()
        consumers += [
            Consumer(sqs=clients.sqs(), polled=polled, handler=handler, settings=settings, logger=logger, turn=turn)
            for polled in of_turn
        ]
    threads = [threading.Thread(target=consumer.run, daemon=True) for consumer in consumers]
    for thread in threads:
        thread.start()
    logger.info("consumer_started", extra={"queues": queues, "handler": arguments.handler})
    while not stopping.wait(1.0):
        if not all(thread.is_alive() for thread in threads):
            logger.error("consumer_died")
            sys.exit(1)
        if settings.heartbeat_file is not None and all(consumer.healthy for consumer in consumers):
            settings.heartbeat_file.touch()
    _shut_down(consumers, threads, settings.grace_seconds)
    logger.info("consumer_stopped")
    sys.stdout.flush()
    os._exit(0)  # a handler that exceeds the grace time must not keep the process alive


def _shut_down(consumers: list[Consumer], threads: list[threading.Thread], grace_seconds: float) -> None:
    for consumer in consumers:
        consumer.stop()
    deadline = time.monotonic() + grace_seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for consumer, thread in zip(consumers, threads, strict=True):
        if thread.is_alive():
            consumer.release()


if __name__ == "__main__":
    main()
