"""A notifier over real queues, parameters, a real table and a real bucket of the emulator."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from prismline_alerting.dependencies import NotifierDependencies
from prismline_alerting.handler import build_handler
from prismline_contracts.alerts import muted_until_parameter
from prismline_ledger import Ledger, NewChunk, NewRun
from prismline_ledger.testing import Context, lambda_event
from prismline_localstack.testing import create_environment

#: Name of the alarm that most tests are about, after the environment.
BACKLOG = "chunks-dlq-backlog"
QUEUES = ("alerts", "alerts-dlq", "chunks-dlq")
#: The default time of everything that happens in a test.
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class AlertingWorld:
    environment: str
    deps: NotifierDependencies
    sqs: Any
    ssm: Any
    cloudwatch: Any
    urls: dict[str, str]
    #: The notifier's current time.
    now: datetime = field(default=NOON)

    @classmethod
    def create(cls, environment: str, patch: pytest.MonkeyPatch) -> AlertingWorld:
        """Create queues, a table and a bucket, and a notifier that uses them."""
        create_environment(environment, patch, QUEUES)
        world = cls.connect(environment)
        world.deps = replace(world.deps, clock=lambda: world.now)
        return world

    @classmethod
    def connect(cls, environment: str) -> AlertingWorld:
        """A notifier that uses existing resources, as the environment variables name them."""
        sqs = boto3.client("sqs")
        urls = {queue: sqs.get_queue_url(QueueName=f"prismline-{environment}-{queue}")["QueueUrl"] for queue in QUEUES}
        return cls(
            environment,
            NotifierDependencies.from_environment(),
            sqs,
            boto3.client("ssm"),
            boto3.client("cloudwatch"),
            urls,
        )

    @property
    def ledger(self) -> Ledger:
        return Ledger(boto3.client("dynamodb"), self.deps.settings.runs_table)

    def set(self, **settings: Any) -> None:
        """Replace settings."""
        self.deps = replace(self.deps, settings=self.deps.settings.model_copy(update=settings))

    def mute(self, value: str | datetime) -> None:
        """Set the mute parameter to a time, or to any text."""
        text = value if isinstance(value, str) else str(int(value.timestamp()))
        name = muted_until_parameter(self.environment)
        self.ssm.put_parameter(Name=name, Value=text, Type="String", Overwrite=True)

    def alarm(self, state: str = "ALARM", *, at: datetime = NOON, name: str = BACKLOG, **fields: Any) -> str:
        """The message that SNS delivers when an alarm changes its state."""
        change = {
            "AlarmName": f"prismline-{self.environment}-{name}",
            "AlarmDescription": "Chunks pile up.",
            "NewStateValue": state,
            "NewStateReason": "Threshold Crossed",
            "StateChangeTime": at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000",
            "Trigger": {
                "Dimensions": [{"name": "QueueName", "value": f"prismline-{self.environment}-chunks-dlq"}],
                "Threshold": 100.0,
            },
        } | fields
        topic = f"arn:aws:sns:us-east-1:000000000000:prismline-{self.environment}-alarms"
        return json.dumps({"Type": "Notification", "TopicArn": topic, "Message": json.dumps(change)})

    def put_alarm(self, state: str, name: str = BACKLOG) -> None:
        """Create the alarm in CloudWatch, in this state."""
        full = f"prismline-{self.environment}-{name}"
        self.cloudwatch.put_metric_alarm(
            AlarmName=full,
            AlarmDescription="Chunks pile up.",
            Namespace="Prismline/Queues",
            MetricName=f"prismline-{self.environment}-chunks-dlq",
            Dimensions=[{"Name": "QueueName", "Value": f"prismline-{self.environment}-chunks-dlq"}],
            Statistic="Maximum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=100,
            ComparisonOperator="GreaterThanThreshold",
        )
        self.cloudwatch.set_alarm_state(AlarmName=full, StateValue=state, StateReason="set by a test")

    def send(self, body: str) -> None:
        """Put a message into the notifier's queue."""
        self.sqs.send_message(QueueUrl=self.urls["alerts"], MessageBody=body)

    def handle(self, deps: NotifierDependencies | None = None, *, wait: int = 0, batch: int = 10) -> list[str] | None:
        """Let the notifier handle a batch. Returns the message ids that it leaves, or None if the queue is empty."""
        messages = self.sqs.receive_message(
            QueueUrl=self.urls["alerts"],
            MaxNumberOfMessages=batch,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            WaitTimeSeconds=wait,
        ).get("Messages", [])
        if not messages:
            return None
        answer = build_handler(deps or self.deps)(lambda_event(messages, self.environment, "alerts"), Context(60.0))
        left = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        for message in messages:
            if message["MessageId"] not in left:
                self.sqs.delete_message(QueueUrl=self.urls["alerts"], ReceiptHandle=message["ReceiptHandle"])
        return left

    def deliver(self, body: str) -> list[str] | None:
        """Send a message and let the notifier handle it. Returns the message ids that it leaves."""
        self.send(body)
        return self.handle()

    def dead_letters(self) -> list[dict[str, Any]]:
        """Receive up to 10 messages from the dead-letter queue."""
        answer = self.sqs.receive_message(
            QueueUrl=self.urls["alerts-dlq"], MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))

    def run(self, run_id: str, errors: dict[str, str]) -> None:
        """Make a run with one failed attempt at each chunk. errors: by chunk id."""
        ledger = self.ledger
        ledger.open_run(NewRun(run_id=run_id, survey="grs", job_id="j", workload="captions"))
        ledger.add_chunks(run_id, [NewChunk(chunk, f"chunks/{chunk}", 1) for chunk in errors])
        for chunk, error in errors.items():
            ledger.end_attempt(ledger.start_chunk(run_id, chunk).chunk, error, interrupted=False)

    def fill(self, queue: str, number: int) -> None:
        """Put messages into a queue."""
        for _ in range(number):
            self.sqs.send_message(QueueUrl=self.urls[queue], MessageBody="x")


def later(**units: float) -> datetime:
    """NOON plus a duration."""
    return NOON + timedelta(**units)
