"""Settings of the runtime, from the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings


class ServiceSettings(BaseSettings):
    """Settings of every service. The settings class of a service inherits from this one."""

    environment: str = Field(default="dev", description="Name of the deployment; part of every resource's name.")


class ConsumerSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of the consumer."""

    wait_seconds: int = Field(default=10, ge=0, le=20, description="Long-poll time of one receive.")
    visibility_seconds: int = Field(
        default=60,
        ge=2,
        le=43_200,
        description="How long a received message stays hidden; renewed while it is processed.",
    )
    invocation_seconds: int = Field(default=900, ge=1, description="Time that an invocation may take, as in Lambda.")
    grace_seconds: float = Field(default=20.0, ge=0, description="How long work in flight may continue after SIGTERM.")
    heartbeat_file: Path | None = Field(
        default=None, description="A file that the consumer touches every second while it is healthy; unset: none."
    )


class ProcessSettings(BaseSettings, env_ignore_empty=True):
    """The name of a process."""

    process_name: str | None = Field(
        default=None,
        validation_alias=AliasChoices("PRISMLINE_PROCESS_NAME", "AWS_LAMBDA_LOG_STREAM_NAME"),
        description="Name of the process in the attempts that it makes; default: its log stream, or host and number.",
    )


class ServerSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of the HTTP server."""

    request_seconds: float = Field(
        default=20.0, gt=0, description="How long a client may take to send a whole request, its body included."
    )
    max_connections: int = Field(
        default=2000,
        ge=1,
        description="Most connections, or half as many as the process may open files. A new one closes the one that has"
        " waited longest for its request.",
    )


class TransportSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of what a service sends."""

    fair_queues: bool = Field(
        default=False,
        description="Whether messages of tasks have their run as message group, so that SQS serves runs in turn. Not"
        " every emulator accepts groups in standard queues.",
    )


class DynamoDBSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """What the DynamoDB of the endpoint accepts. The defaults are those of AWS; an emulator may accept less."""

    writes_per_transaction: int = Field(
        default=100, ge=3, le=100, description="Most writes of one transaction. DynamoDB Local of 2020 accepts 10."
    )


class FaultSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of fault injection. It is off unless the file is set."""

    faults_file: Path | None = None
