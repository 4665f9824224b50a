"""Settings of the dead-letter consumer, from the environment."""

from __future__ import annotations

from pydantic import Field

from prismline_dlq_consumer.decisions import MAX_ATTEMPTS
from prismline_dlq_consumer.sweeper import SweepLimits
from prismline_runtime import ServiceSettings


class DlqConsumerSettings(ServiceSettings):
    """What the dead-letter consumer is told."""

    runs_table: str = Field(description="The ledger's table.")
    bucket: str = Field(description="The bucket that holds the archive.")
    max_attempts: int = Field(
        default=MAX_ATTEMPTS, ge=1, description="Receipts of a dead letter before it is given up."
    )
    deferral_seconds: int = Field(
        default=900, ge=0, le=43_200, description="How long a message waits before its resource is looked at again."
    )
    workload_resources: dict[str, str] = Field(
        default={"captions": "gpu"}, description="The resource that a workload needs to be up, by workload, as JSON."
    )
    recovery_concurrency: int = Field(default=8, ge=1, le=64, description="Reads and sends of a recovery at a time.")
    recovery_window: int = Field(default=200, ge=1, le=1000, description="Records that a recovery counts together.")
    recovery_lease_seconds: int = Field(
        default=60, ge=1, description="After this time without progress somebody else may go on with a recovery."
    )
    deadline_margin_seconds: float = Field(
        default=60.0, ge=0, description="Time kept back from an invocation's for handing a recovery on."
    )
    sweep_lease_seconds: float = Field(
        default=SweepLimits.lease_seconds, gt=0, description="How long a worker may take over a chunk."
    )
    sweep_workload_lease_seconds: dict[str, float] = Field(
        default_factory=dict, description="The same for particular workloads, as JSON."
    )
    sweep_idle_seconds: float = Field(
        default=SweepLimits.idle_seconds,
        gt=0,
        description="After this time a waiting chunk has lost its message, if no message is left in its queues.",
    )
    sweep_retention_seconds: float = Field(
        default=SweepLimits.retention_seconds, gt=0, description="The same while there are messages left."
    )
    sweep_split_seconds: float = Field(
        default=SweepLimits.split_seconds, gt=0, description="How long a run may take to be split."
    )

    @property
    def sweep_limits(self) -> SweepLimits:
        """What the sweeper goes by."""
        return SweepLimits(
            lease_seconds=self.sweep_lease_seconds,
            workload_lease_seconds=self.sweep_workload_lease_seconds,
            idle_seconds=self.sweep_idle_seconds,
            retention_seconds=self.sweep_retention_seconds,
            split_seconds=self.sweep_split_seconds,
            max_attempts=self.max_attempts,
        )
