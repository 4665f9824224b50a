"""The worker's dependencies: clients and settings, made once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from aws_lambda_powertools import Logger

from prismline_coordination import CoordinationServer
from prismline_ledger import Ledger
from prismline_runtime import Bucket, PresignedRanges, Transport, clients, process_name, service_logger
from prismline_worker.fit_process import FitProcess
from prismline_worker.settings import WorkerSettings


@dataclass(frozen=True)
class Dependencies:
    """What the worker's functions use. `open_bucket` returns the bucket with a given name."""

    settings: WorkerSettings
    ledger: Ledger
    transport: Transport
    open_bucket: Callable[[str], Bucket]
    fitter: FitProcess
    logger: Logger
    #: Valkey. Without it, runs with `max_concurrency` wait; the splitter begins none.
    valkey: CoordinationServer = field(default_factory=lambda: CoordinationServer(None))
    #: The name of this process, for the attempts that it makes.
    name: str | None = None

    @classmethod
    def from_environment(cls) -> Self:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = WorkerSettings()
        s3 = clients.s3()
        presigned = PresignedRanges(s3)
        return cls(
            settings=settings,
            ledger=Ledger(clients.dynamodb(), settings.runs_table),
            transport=Transport.connect(settings.environment, "worker"),
            open_bucket=lambda name: Bucket(s3, name, presigned),
            fitter=FitProcess(),
            logger=service_logger("worker"),
            valkey=CoordinationServer.from_environment(),
            name=process_name(),
        )
