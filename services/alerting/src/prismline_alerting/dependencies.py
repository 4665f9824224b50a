"""The alerting service's dependencies: clients and settings, made once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

import boto3
import httpx
from aws_lambda_powertools import Logger
from botocore.config import Config

from prismline_alerting.alarms import Alarms
from prismline_alerting.commands import Authority
from prismline_alerting.discord import Webhook, quiet_http_logs
from prismline_alerting.facts import FactFinder
from prismline_alerting.parameters import AlertParameters
from prismline_alerting.posts import Posts
from prismline_alerting.settings import InteractionSettings, NotifierSettings
from prismline_alerting.signatures import PublicKey
from prismline_ledger import Ledger
from prismline_runtime import Bucket, Delivery, Transport, aws_errors, clients, service_logger

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: Name of the service in logs and as the source of messages.
SERVICE = "alerting"
#: Message attribute of messages that the notifier sends to itself to check a muted alarm again.
RECHECK = "recheck"

#: Configuration of clients for optional facts. The timeouts are short: an invocation has time for all calls to fail.
HELP_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=1, read_timeout=2)
#: Configuration of clients for slash commands. Discord waits three seconds, and a command needs up to three calls.
PROMPT_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=0.5, read_timeout=0.6)


def utc_now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class NotifierDependencies:
    """What the notifier's functions use."""

    settings: NotifierSettings
    transport: Transport
    parameters: AlertParameters
    posts: Posts
    alarms: Alarms
    facts: FactFinder
    ledger: Ledger
    webhook: Webhook
    sqs: SQSClient
    logger: Logger
    clock: Callable[[], datetime] = utc_now

    def webhook_url(self) -> str | None:
        """The URL of the Discord webhook. None if it is not configured."""
        given = self.settings.discord_webhook_url
        return (given.get_secret_value() if given else None) or self.parameters.webhook_url()

    def recheck(self, delivery: Delivery, *, seconds: int) -> None:
        """Send a message to the notifier again, in at most `seconds`.

        It is a new message with a new age and receive count, because a mute may be longer than the queue's retention.
        It comes early, because a mute may be ended early.
        """
        with aws_errors(f"send to {delivery.queue}"):
            self.sqs.send_message(
                QueueUrl=self.sqs.get_queue_url(QueueName=delivery.queue)["QueueUrl"],
                MessageBody=delivery.body,
                MessageAttributes={RECHECK: {"DataType": "String", "StringValue": "true"}},
                DelaySeconds=max(1, min(seconds, self.settings.recheck_seconds)),
            )

    @classmethod
    def from_environment(cls) -> Self:
        """Make the notifier's dependencies with real clients and the settings in the environment."""
        quiet_http_logs()
        settings = NotifierSettings()
        logger = service_logger(SERVICE)
        ledger = Ledger(boto3.client("dynamodb", config=HELP_CONFIG), settings.runs_table)
        return cls(
            settings=settings,
            transport=Transport.connect(settings.environment, SERVICE),
            parameters=AlertParameters(boto3.client("ssm", config=HELP_CONFIG), settings.environment, logger),
            posts=Posts(Bucket(clients.s3(), settings.bucket), settings.claim_seconds),
            alarms=Alarms(boto3.client("cloudwatch", config=HELP_CONFIG)),
            facts=FactFinder(boto3.client("sqs", config=HELP_CONFIG), ledger, settings.environment, logger),
            ledger=ledger,
            webhook=Webhook(httpx.Client(), settings.post_seconds),
            sqs=clients.sqs(),
            logger=logger,
        )


@dataclass(frozen=True)
class InteractionDependencies:
    """What the endpoint of the slash commands uses."""

    parameters: AlertParameters
    public_key: PublicKey
    #: Who may mute alerts.
    authority: Authority
    logger: Logger
    clock: Callable[[], datetime] = utc_now

    @classmethod
    def from_environment(cls) -> Self:
        """Make the endpoint's dependencies with real clients and the settings in the environment."""
        settings = InteractionSettings()
        logger = service_logger(SERVICE)
        parameters = AlertParameters(boto3.client("ssm", config=PROMPT_CONFIG), settings.environment, logger)
        return cls(
            parameters=parameters,
            public_key=PublicKey(settings.discord_public_key, parameters.public_key),
            authority=Authority(settings.discord_guild_id, frozenset(settings.discord_allowed_roles)),
            logger=logger,
        )
