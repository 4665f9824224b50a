"""Settings of the runtime, from the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings


class ServiceSettings(BaseSettings):
    """Settings of every service. The settings class of a service inherits from this one."""

    environment: str = Field(default="dev", description="Which deployment this is; part of every resource's name.")


class ConsumerSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of the consumer."""

    wait_seconds: int = Field(default=10, ge=0, le=20, description="Long-poll time of one receive.")
    visibility_seconds: int = Field(
        default=60,
        ge=2,
        le=43_200,
        description="How long a received message stays hidden; renewed while it is worked on.",
    )
    invocation_seconds: int = Field(default=900, ge=1, description="Time one invocation may take, as Lambda's timeout.")
    grace_seconds: float = Field(default=20.0, ge=0, description="How long work in flight may go on after SIGTERM.")
    heartbeat_file: Path | None = Field(
        default=None, description="A file that is touched every second while all is well; none unless set."
    )


class TransportSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of what a service sends."""

    fair_queues: bool = Field(
        default=False,
        description="Whether messages of tasks name their run as message group, so that SQS serves runs in turn. Not"
        " every emulator takes groups in standard queues.",
    )


class FaultSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of fault injection. It is off unless the file is set."""

    faults_file: Path | None = None
