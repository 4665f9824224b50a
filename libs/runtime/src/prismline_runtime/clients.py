"""AWS clients with one configuration. boto3 reads `AWS_ENDPOINT_URL`, which points all of them at an emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_stepfunctions import SFNClient

#: Timeouts in seconds: to connect, and to wait for the next bytes of an answer.
CONNECT_SECONDS, READ_SECONDS = 5, 60
#: Connections that one client keeps open, at most.
CONNECTIONS = 25
#: Retries of botocore's standard mode: throttling and connection errors, exponential backoff with jitter.
CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 5},
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    max_pool_connections=CONNECTIONS,
    s3={"addressing_style": "path"},
)


def dynamodb() -> DynamoDBClient:
    """A DynamoDB client.

    botocore does not validate its requests, because that takes a third of the time of a large write. `Table` builds
    them, and DynamoDB refuses a wrong one itself.
    """
    return boto3.client("dynamodb", config=CONFIG.merge(Config(parameter_validation=False)))


def ec2() -> Any:
    """An EC2 client."""
    return boto3.client("ec2", config=CONFIG)


def events() -> EventBridgeClient:
    """An EventBridge client."""
    return boto3.client("events", config=CONFIG)


def s3() -> S3Client:
    """An S3 client. It uses path-style addresses, because every emulator supports them.

    Its presigned URLs use Signature Version 4, because new buckets accept no other.
    """
    return boto3.client("s3", config=CONFIG.merge(Config(signature_version="s3v4")))


def sqs() -> SQSClient:
    """An SQS client."""
    return boto3.client("sqs", config=CONFIG)


def stepfunctions() -> SFNClient:
    """A Step Functions client."""
    return boto3.client("stepfunctions", config=CONFIG)


def ssm() -> SSMClient:
    """A Systems Manager client."""
    return boto3.client("ssm", config=CONFIG)
