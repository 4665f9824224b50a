"""The status service's dependencies: clients and settings, made once per process."""

from __future__ import annotations

from dataclasses import dataclass

from aws_lambda_powertools import Logger

from prismline_ledger import Ledger
from prismline_runtime import Transport, clients, service_logger
from prismline_status.executions import Executions
from prismline_status.settings import StatusSettings, UpdateStatusSettings
from prismline_status.workflow_state import WorkflowStateTable


@dataclass(frozen=True)
class UpdateDependencies:
    """What a direct status update uses."""

    table: WorkflowStateTable
    transport: Transport
    logger: Logger

    @classmethod
    def from_environment(cls) -> UpdateDependencies:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = UpdateStatusSettings()
        return UpdateDependencies(
            table=WorkflowStateTable(clients.dynamodb(), settings.workflow_state_table),
            transport=Transport.connect(settings.environment, "status"),
            logger=service_logger("status"),
        )


@dataclass(frozen=True)
class Dependencies(UpdateDependencies):
    """What the service's queue handler uses: also the ledger and the executions."""

    ledger: Ledger
    executions: Executions

    @classmethod
    def from_environment(cls) -> Dependencies:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = StatusSettings()
        update = UpdateDependencies.from_environment()
        return Dependencies(
            table=update.table,
            transport=update.transport,
            logger=update.logger,
            ledger=Ledger(clients.dynamodb(), settings.runs_table),
            executions=Executions(clients.stepfunctions(), settings.state_machine_arn),
        )
