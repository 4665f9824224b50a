"""The splitter's dependencies: clients and settings, made once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aws_lambda_powertools import Logger

from prismline_ledger import Ledger
from prismline_runtime import Bucket, Transport, clients, service_logger
from prismline_splitter.settings import SplitterSettings


@dataclass(frozen=True)
class Dependencies:
    """What the splitter's functions use. `bucket` returns the bucket with a given name."""

    ledger: Ledger
    transport: Transport
    bucket: Callable[[str], Bucket]
    workdir: Path
    logger: Logger


def from_environment() -> Dependencies:
    """Make the dependencies with real clients and the settings in the environment."""
    settings = SplitterSettings()
    s3 = clients.s3()
    return Dependencies(
        ledger=Ledger(clients.dynamodb(), settings.runs_table),
        transport=Transport.connect(settings.environment, "splitter"),
        bucket=lambda name: Bucket(s3, name),
        workdir=settings.workdir,
        logger=service_logger("splitter"),
    )
