"""The same clients for the fakes and for boto3 with an emulator, for tests that compare the two."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from prismline_localstack.state import make_client
from tests.simulation.aws import Aws, Instance, PlainHub

T = TypeVar("T")

#: Longest time, in seconds, for background work of an emulator.
PATIENCE = 10.0
_POLL_SECONDS = 0.05


class Backend:
    """Clients with boto3's names, and a clock."""

    #: `fake` or `emulator`.
    name = ""
    dynamodb: Any
    sqs: Any
    s3: Any
    events: Any
    stepfunctions: Any
    ssm: Any
    ec2: Any

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin a test. Its resources have `unique` in their names, because tests share an emulator."""
        self.unique = f"c{secrets.token_hex(4)}"

    def wait(self, seconds: float) -> None:
        """Let `seconds` pass."""
        raise AssertionError

    def eventually(self, look: Callable[[], T | None], patience: float = PATIENCE) -> T:
        """Poll `look` and return its first true result. Raises AssertionError after `patience` seconds."""
        raise AssertionError

    def new_instance(self, **tags: str) -> str:
        """Start an instance with these tags. Return its id."""
        raise AssertionError

    def stop_instance(self, instance_id: str) -> None:
        """Stop an instance."""
        raise AssertionError

    def queue(self, suffix: str = "", **attributes: str) -> str:
        """Make a queue. Return its URL."""
        created = self.sqs.create_queue(QueueName=f"{self.unique}{suffix}", Attributes=attributes)
        return str(created["QueueUrl"])

    def queue_arn(self, url: str) -> str:
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def receive(self, url: str, **parameters: Any) -> list[dict[str, Any]]:
        """The messages of one receive, with all attributes."""
        asked = {"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        return list(self.sqs.receive_message(QueueUrl=url, **(asked | parameters)).get("Messages", []))

    def receive_one(self, url: str, **parameters: Any) -> dict[str, Any]:
        """The message that is in the queue now or shortly."""
        return self.eventually(lambda: self.receive(url, MaxNumberOfMessages=1, **parameters))[0]


class Fake(Backend):
    """The fakes, in virtual time."""

    name = "fake"

    def __init__(self) -> None:
        super().__init__()
        self.hub = PlainHub()
        self.aws = Aws(self.hub)
        for service in ("dynamodb", "sqs", "s3", "events", "stepfunctions", "ssm", "ec2"):
            setattr(self, service, getattr(self.aws, service))

    def wait(self, seconds: float) -> None:
        self.hub.advance(seconds)

    def eventually(self, look: Callable[[], T | None], patience: float = PATIENCE) -> T:
        for _ in range(round(patience / _POLL_SECONDS)):
            found = look()
            if found:
                return found
            self.hub.advance(_POLL_SECONDS)
        raise AssertionError("it did not happen")

    def new_instance(self, **tags: str) -> str:
        self.aws.instances["i-0123456789abcdef0"] = Instance("running", "10.0.0.7", tags)
        return "i-0123456789abcdef0"

    def stop_instance(self, instance_id: str) -> None:
        self.aws.instances[instance_id].state = "stopped"


class Emulated(Backend):
    """boto3's clients at an emulator, in real time."""

    name = "emulator"

    def __init__(self, emulator: dict[str, str]) -> None:
        super().__init__()
        # On AWS the default stays: a download requests the size first.
        environment = emulator | {"AWS_RESPONSE_CHECKSUM_VALIDATION": "when_supported"}
        for service in ("dynamodb", "sqs", "s3", "events", "stepfunctions", "ssm", "ec2"):
            setattr(self, service, make_client(service, environment))

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # real time has to pass

    def eventually(self, look: Callable[[], T | None], patience: float = PATIENCE) -> T:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            found = look()
            if found:
                return found
            time.sleep(_POLL_SECONDS)
        raise AssertionError("it did not happen")

    def new_instance(self, **tags: str) -> str:
        made = self.ec2.run_instances(
            ImageId="ami-12345678",
            MinCount=1,
            MaxCount=1,
            InstanceType="t3.micro",
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            ],
        )
        return str(made["Instances"][0]["InstanceId"])

    def stop_instance(self, instance_id: str) -> None:
        self.ec2.stop_instances(InstanceIds=[instance_id])


def refusal(call: Callable[..., Any], **parameters: Any) -> str:
    """The error code of a refused call. "" if the call succeeds."""
    try:
        call(**parameters)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return ""
