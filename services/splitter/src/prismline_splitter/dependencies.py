"""The splitter's dependencies: clients and settings, made once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aws_lambda_powertools import Logger

from prismline_contracts.jobs import jobs_table_name
from prismline_ledger import Ledger
from prismline_runtime import Bucket, RunQueues, Table, Transport, clients, service_logger
from prismline_splitter.settings import SplitterSettings


@dataclass(frozen=True)
class Dependencies:
    """What the splitter's functions use. `open_bucket` returns the bucket with a given name."""

    ledger: Ledger
    transport: Transport
    run_queues: RunQueues
    open_bucket: Callable[[str], Bucket]
    #: The bucket of the deployment, and the table of jobs. A deletion removes objects and items from them.
    bucket: Bucket
    jobs: Table
    workdir: Path
    #: Seconds per ranged request while 16 are under way.
    request_seconds: float
    #: How long one delivery ingests, in seconds.
    slice_seconds: float
    #: A run with more tasks has a queue of its own. 0: no run has.
    own_queue_tasks: int
    logger: Logger
    #: Whether the workers have a Valkey server, which counts the slots of runs with `max_concurrency`.
    with_slots: bool = True

    @classmethod
    def from_environment(cls) -> Self:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = SplitterSettings()
        s3, dynamodb = clients.s3(), clients.dynamodb()
        return cls(
            ledger=Ledger(dynamodb, settings.runs_table, calls_at_a_time=settings.write_calls),
            transport=Transport.connect(settings.environment, "splitter"),
            run_queues=RunQueues(clients.sqs(), settings.environment),
            open_bucket=lambda name: Bucket(s3, name),
            bucket=Bucket(s3, settings.bucket),
            jobs=Table(dynamodb, settings.jobs_table or jobs_table_name(settings.environment)),
            workdir=settings.workdir,
            request_seconds=settings.request_milliseconds / 1000,
            slice_seconds=settings.slice_seconds,
            own_queue_tasks=settings.own_queue_tasks,
            logger=service_logger("splitter"),
            with_slots=settings.prismline_valkey_url not in {None, "", "none"},
        )
