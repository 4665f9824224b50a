"""Settings of the dead-letter consumer, from the environment."""

from __future__ import annotations

from pydantic import Field

from prismline_dlq_consumer.decisions import LONGEST_DELAY_SECONDS, LetterPatience
from prismline_dlq_consumer.sweep_decisions import SweepLimits
from prismline_ledger import Patience
from prismline_runtime import ServiceSettings


class DlqConsumerSettings(ServiceSettings):
    """Settings of the dead-letter consumer."""

    runs_table: str = Field(description="The ledger's table.")
    bucket: str = Field(description="The bucket that holds the archive.")
    max_attempts: int = Field(
        default=Patience.max_attempts, ge=1, description="Attempts at a chunk before it is given up."
    )
    patience_seconds: float = Field(
        default=Patience.seconds, ge=0, description="Seconds since a chunk's first attempt before that."
    )
    message_patience_seconds: float = Field(
        default=LetterPatience.message_seconds,
        ge=0,
        description="Age, in seconds, at which any other message is given up.",
    )
    resend_seconds: int = Field(
        default=LetterPatience.first_delay_seconds,
        ge=0,
        le=LONGEST_DELAY_SECONDS,
        description="Seconds before the second dispatch of a dead letter; doubled with each dispatch.",
    )
    deferral_seconds: int = Field(
        default=LetterPatience.deferral_seconds,
        ge=0,
        le=43_200,
        description="Seconds before the resource that a message waits for is checked again.",
    )
    workload_resources: dict[str, str] = Field(
        default={"captions": "gpu"}, description="The resource that a workload needs to be up, by workload, as JSON."
    )
    recovery_concurrency: int = Field(default=24, ge=1, le=64, description="Parallel reads and sends of a recovery.")
    recovery_window: int = Field(default=200, ge=1, le=1000, description="Records in one window of a recovery.")
    recovery_lease_seconds: int = Field(
        default=60, ge=1, description="After this time without progress another process may continue a recovery."
    )
    deadline_margin_seconds: float = Field(
        default=60.0, ge=0, description="Seconds of an invocation that are reserved for handing a recovery on."
    )
    sweep_lease_seconds: float = Field(
        default=Patience.lease_seconds, gt=0, description="How long a worker may take over a chunk."
    )
    sweep_workload_lease_seconds: dict[str, float] = Field(
        default_factory=dict, description="The same for single workloads, by workload, as JSON."
    )
    sweep_idle_seconds: float = Field(
        default=SweepLimits.idle_seconds,
        gt=0,
        description="After this time a message counts as lost, if its queue and dead-letter queue are empty.",
    )
    sweep_deferred_seconds: float = Field(
        default=SweepLimits.deferred_seconds, gt=0, description="The same if only its queue is empty."
    )
    sweep_retention_seconds: float = Field(
        default=SweepLimits.backlog_seconds,
        gt=0,
        description="The same if its queue has a backlog; doubled with each resend.",
    )
    sweep_split_seconds: float = Field(
        default=SweepLimits.split_seconds, gt=0, description="How long a run may take to be split."
    )
    sweep_check_seconds: float = Field(
        default=SweepLimits.check_seconds,
        gt=0,
        description="How often the status service checks a run that has not ended.",
    )

    @property
    def patience(self) -> Patience:
        """The limits after which a chunk is given up."""
        return Patience(
            max_attempts=self.max_attempts, seconds=self.patience_seconds, lease_seconds=self.sweep_lease_seconds
        )

    @property
    def letter_patience(self) -> LetterPatience:
        """The limits for dead letters."""
        return LetterPatience(
            chunk=self.patience,
            message_seconds=self.message_patience_seconds,
            deferral_seconds=self.deferral_seconds,
            first_delay_seconds=self.resend_seconds,
            workload_lease_seconds=self.sweep_workload_lease_seconds,
        )

    @property
    def sweep_limits(self) -> SweepLimits:
        """The limits of the sweeper."""
        return SweepLimits(
            idle_seconds=self.sweep_idle_seconds,
            deferred_seconds=self.sweep_deferred_seconds,
            backlog_seconds=self.sweep_retention_seconds,
            split_seconds=self.sweep_split_seconds,
            check_seconds=self.sweep_check_seconds,
            workload_lease_seconds=self.sweep_workload_lease_seconds,
        )
