"""Connect the command to a system: one that runs on this machine, or the one that the AWS environment variables name.

An entry point of the group `prismline.connections` names a function without arguments that knows a system on this
machine. The function points the AWS environment variables at the system and returns None. If it cannot, it returns the
reason as a sentence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from prismline_cli.output import ExitCode, fail
from prismline_ledger import Ledger
from prismline_runtime import ServiceSettings, clients

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

#: Group of the entry points that find a system on this machine.
ENTRY_POINTS = "prismline.connections"
#: If one of these variables is set, the user means a particular AWS account or emulator.
AWS_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")


@dataclass(frozen=True)
class Connection:
    """The system of one environment: its resources' names and clients for them."""

    environment: str

    @classmethod
    def open(cls) -> Connection:
        """Connect to the system that runs on this machine, or else to the one that the AWS settings name."""
        reasons = connect_here()
        if reasons is not None and not any(name in os.environ for name in AWS_VARIABLES):
            fail(
                " ".join([*reasons, "Or set AWS credentials." if reasons else "Set AWS credentials."]),
                ExitCode.UNREACHABLE,
            )
        return cls(ServiceSettings().environment)

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        """DynamoDB."""
        return clients.dynamodb()

    @cached_property
    def s3(self) -> S3Client:
        """S3."""
        return clients.s3()

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of runs and chunks."""
        return Ledger(self.dynamodb, self.runs_table)

    @cached_property
    def runs_table(self) -> str:
        """Name of the ledger's table."""
        return f"prismline-{self.environment}-runs"

    @cached_property
    def workflow_state_table(self) -> str:
        """Name of the status service's table."""
        return f"prismline-{self.environment}-workflow-state"

    @cached_property
    def bucket(self) -> str:
        """Name of the bucket, as the platform stack published it."""
        return clients.ssm().get_parameter(Name=f"/prismline/{self.environment}/platform/bucket")["Parameter"]["Value"]


def connect_here() -> list[str] | None:
    """Point the AWS environment variables at a system on this machine. Return None, or the reason if that fails."""
    reasons = []
    for entry_point in entry_points(group=ENTRY_POINTS):
        reason = entry_point.load()()
        if reason is None:
            return None
        reasons.append(reason)
    return reasons
