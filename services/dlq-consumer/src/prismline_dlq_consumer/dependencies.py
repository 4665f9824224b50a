"""The dead-letter consumer's dependencies: clients and settings, made once per process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from aws_lambda_powertools import Logger

from prismline_dlq_consumer.archive import Archive
from prismline_dlq_consumer.resources import Ec2Resources, Resources
from prismline_dlq_consumer.settings import DlqConsumerSettings
from prismline_dlq_consumer.sweeper import SweeperDependencies
from prismline_ledger import Ledger, Operations
from prismline_runtime import Bucket, Instances, RunQueues, Transport, clients, service_logger

#: Name of the service in logs and as the source of messages.
SERVICE = "dlq-consumer"


@dataclass(frozen=True)
class Dependencies:
    """What the dead-letter consumer's functions use."""

    settings: DlqConsumerSettings
    ledger: Ledger
    operations: Operations
    transport: Transport
    archive: Archive
    resources: Resources
    sweeper: SweeperDependencies
    logger: Logger

    @classmethod
    def from_environment(cls) -> Self:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = DlqConsumerSettings()
        dynamodb, s3, sqs = clients.dynamodb(), clients.s3(), clients.sqs()
        ledger = Ledger(dynamodb, settings.runs_table)
        transport = Transport.connect(settings.environment, SERVICE)
        logger = service_logger(SERVICE)
        return cls(
            settings=settings,
            ledger=ledger,
            operations=Operations(dynamodb, settings.runs_table),
            transport=transport,
            archive=Archive(Bucket(s3, settings.bucket), s3),
            resources=Ec2Resources(Instances(clients.ec2(), settings.environment)),
            sweeper=SweeperDependencies(
                ledger=ledger,
                transport=transport,
                sqs=sqs,
                run_queues=RunQueues(sqs, settings.environment),
                bucket_name=settings.bucket,
                patience=settings.patience,
                limits=settings.sweep_limits,
                logger=logger,
            ),
            logger=logger,
        )
