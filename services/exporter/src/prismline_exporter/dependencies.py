"""The exporter's dependencies: clients and settings, made once per process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from aws_lambda_powertools import Logger

from prismline_contracts.jobs import jobs_table_name
from prismline_exporter.exports import Exports
from prismline_exporter.settings import ExporterSettings
from prismline_ledger import Ledger
from prismline_runtime import Transport, clients, service_logger

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Name of the service in logs and as the source of messages.
SERVICE = "exporter"


@dataclass(frozen=True)
class Dependencies:
    """What the exporter's functions use."""

    settings: ExporterSettings
    ledger: Ledger
    exports: Exports
    s3: S3Client
    transport: Transport
    logger: Logger
    monotonic: Callable[[], float] = time.monotonic

    @classmethod
    def from_environment(cls) -> Self:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = ExporterSettings()
        lease = timedelta(seconds=settings.export_lease_seconds)
        return cls(
            settings=settings,
            ledger=Ledger(clients.dynamodb(), settings.runs_table),
            exports=Exports(clients.dynamodb(), jobs_table_name(settings.environment), lease),
            s3=clients.s3(),
            transport=Transport.connect(settings.environment, SERVICE),
            logger=service_logger(SERVICE),
        )
