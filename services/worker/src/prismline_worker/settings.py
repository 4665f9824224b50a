"""Settings of the worker, from the environment."""

from __future__ import annotations

from pydantic import Field

from prismline_runtime import ServiceSettings


class WorkerSettings(ServiceSettings):
    """What the worker is told."""

    runs_table: str = Field(description="The ledger's table.")
    spectrum_budget_seconds: float = Field(default=5.0, gt=0, description="Time one spectrum may take in a chunk.")
    deadline_margin_seconds: float = Field(
        default=60.0, ge=0, description="Time kept back from an invocation's for writing the output and the ledger."
    )
