"""Settings of the status service, from the environment."""

from __future__ import annotations

from pydantic import Field

from prismline_runtime import ServiceSettings


class UpdateStatusSettings(ServiceSettings):
    """Settings of direct status updates."""

    workflow_state_table: str = Field(description="The table of runs' status.")


class StatusSettings(UpdateStatusSettings):
    """Settings of the service's queue handler."""

    runs_table: str = Field(description="The ledger's table.")
    state_machine_arn: str = Field(description="The state machine that drives a run.")
