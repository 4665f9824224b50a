"""Fixtures and helpers for tests: an emulator, an environment, stacks, a ledger table, a bus observer, Valkey."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sqs import SQSClient

    from prismline_localstack.standins.discord import DiscordStandIn
    from prismline_localstack.standins.site import Site


@pytest.fixture(scope="session")
def emulator_env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment variables that point AWS clients at an emulator that the whole test session shares."""
    from prismline_localstack.emulator import Emulator  # noqa: PLC0415  the plugin is imported in every test session

    folder = tmp_path_factory.mktemp("emulator")
    emulator = Emulator.start(folder, folder / "emulator.log", functions=True)
    yield emulator.environment
    emulator.stop()


@pytest.fixture
def aws_env(emulator_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Point `os.environ` at the emulator, with an `ENVIRONMENT` that no other test has.

    Resource names contain the environment, so tests can share the emulator. Returns the variables that were set.
    """
    import boto3  # noqa: PLC0415

    from prismline_localstack.state import new_session  # noqa: PLC0415

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    environment = emulator_env | {"ENVIRONMENT": f"t{secrets.token_hex(4)}"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # The session before keeps the credentials of another emulator.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", new_session())
    return environment


def create_runs_table(dynamodb: DynamoDBClient, table: str) -> None:
    """A table with the keys and indexes of the ledger's in `platform/template.yaml`."""
    indexes = ("GSI1", "GSI2")
    names = ["PK", "SK", *(f"{index}_{key}" for index in indexes for key in ("PK", "SK"))]
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": index,
                "KeySchema": [
                    {"AttributeName": f"{index}_PK", "KeyType": "HASH"},
                    {"AttributeName": f"{index}_SK", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
            for index in indexes
        ],
    )


def create_environment(environment: str, patch: pytest.MonkeyPatch, queues: Iterable[str]) -> str:
    """Create the resources that most services use: a bucket, a ledger table, a bus and queues, by their short names.

    Sets `RUNS_TABLE` and `BUCKET`. Returns the name of the bucket.
    """
    import boto3  # noqa: PLC0415

    bucket, table = f"bucket-{environment}", f"runs-{environment}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    create_runs_table(boto3.client("dynamodb"), table)
    boto3.client("events").create_event_bus(Name=f"prismline-{environment}")
    for queue in queues:
        boto3.client("sqs").create_queue(QueueName=f"prismline-{environment}-{queue}")
    patch.setenv("RUNS_TABLE", table)
    patch.setenv("BUCKET", bucket)
    return bucket


def stacks_around(service: Path, folder: Path, stacks: Collection[str] | None = None) -> Path:
    """Copy templates and state machines of a checkout into `folder`, so that stacks can be deployed from it. Return it.

    service: the folder of the service under test, whose own template is used. The other templates are those of the
    harness, which in a sparse checkout is a wheel. stacks: the folders of the stacks, if not all are needed.
    """
    from prismline_localstack.settings import REPOSITORY  # noqa: PLC0415

    own = f"services/{service.name}"
    for path in (REPOSITORY / "platform" / "template.yaml", *REPOSITORY.glob("services/*/template.yaml")):
        stack = str(path.parent.relative_to(REPOSITORY))
        if stacks is None or stack in stacks:
            source = service if stack == own else path.parent
            (folder / stack).mkdir(parents=True)
            shutil.copy(source / "template.yaml", folder / stack)
            if (source / "statemachine").exists():
                shutil.copytree(source / "statemachine", folder / stack / "statemachine")
    return folder


def observe_bus(sqs: SQSClient, events: EventBridgeClient, bus: str) -> str:
    """The URL of a new queue that receives every event of Prismline on the bus."""
    url = sqs.create_queue(QueueName=f"{bus}-observer")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = json.dumps({"source": [{"prefix": "prismline/"}]})
    events.put_rule(Name="observer", EventBusName=bus, EventPattern=pattern)
    target = {"Id": "observer", "Arn": arn, "InputPath": "$.detail"}
    events.put_targets(Rule="observer", EventBusName=bus, Targets=[target])  # type: ignore[list-item]
    return url


def drained(sqs: SQSClient, url: str, *, wait_seconds: int = 0) -> list[Any]:
    """The bodies of all messages of a queue, parsed from JSON. The queue is empty afterwards.

    wait_seconds: how long to wait for the first message. For another one it waits a second at most.
    """
    found: list[Any] = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_seconds).get(
        "Messages"
    ):
        wait_seconds = min(wait_seconds, 1)
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            found.append(json.loads(message["Body"]))
    return found


def metric_values(cloudwatch: CloudWatchClient, queue: str, namespace: str, metric: str) -> list[float]:
    """The largest value of each minute of a queue's metric. queue: its full name."""
    now = datetime.now(UTC)
    answer = cloudwatch.get_metric_statistics(
        Namespace=namespace,
        MetricName=metric,
        Dimensions=[{"Name": "QueueName", "Value": queue}],
        StartTime=now - timedelta(minutes=5),
        EndTime=now + timedelta(minutes=5),
        Period=60,
        Statistics=["Maximum"],
    )
    return [point["Maximum"] for point in answer["Datapoints"]]


class ValkeyServer:
    """A Valkey server that a test may kill and start again, always at the same URL."""

    def __init__(self, log: Path) -> None:
        from prismline_emulator.endpoints import LOOPBACK, free_port  # noqa: PLC0415

        self._port = free_port()
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        self.url = f"valkey://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Start an empty server, and wait until it accepts connections."""
        from prismline_emulator.endpoints import accepts  # noqa: PLC0415
        from prismline_localstack.processes import spawn  # noqa: PLC0415
        from prismline_localstack.standins.valkey import command  # noqa: PLC0415
        from prismline_localstack.waiting import wait_until  # noqa: PLC0415

        self._child = spawn(command(self._port), environment=dict(os.environ), log=self._log)
        assert wait_until(lambda: accepts(self.url), 30), self._log.read_text()

    def kill(self) -> None:
        """Kill the server. Its content is lost."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


@pytest.fixture
def valkey_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A running Valkey server."""
    server = ValkeyServer(tmp_path / "valkey.log")
    server.start()
    yield server
    server.kill()


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application in a thread. Yields its URL."""
    import uvicorn  # noqa: PLC0415

    from prismline_emulator.endpoints import listen, url_of  # noqa: PLC0415
    from prismline_localstack.waiting import wait_until  # noqa: PLC0415

    listener = listen()
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    assert wait_until(lambda: server.started, 30)
    try:
        yield url_of(listener)
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="session")
def discord_server() -> Iterator[DiscordStandIn]:
    """The stand-in for Discord that the whole test session shares."""
    from prismline_localstack.standins.discord import DiscordStandIn  # noqa: PLC0415

    with DiscordStandIn() as server:
        yield server


@pytest.fixture
def discord(discord_server: DiscordStandIn) -> DiscordStandIn:
    """The stand-in for Discord. It works, and its channel is empty."""
    discord_server.recover()
    discord_server.messages.clear()
    discord_server.posts = 0
    return discord_server


@pytest.fixture
def site() -> Iterator[tuple[str, Site]]:
    """The stand-in for the web: its URL, and the application, which counts its requests."""
    from prismline_localstack.standins.site import Site  # noqa: PLC0415

    app = Site()
    with serving(app) as url:
        yield url, app
