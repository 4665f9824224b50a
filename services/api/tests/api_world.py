"""The api over real queues, tables, a bus and a bucket of the emulator, and clients of two tenants."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import boto3
import httpx
import pytest
from fastapi.testclient import TestClient

from prismline_api.app import build_app
from prismline_api.dependencies import Dependencies
from prismline_api.store import encoded
from prismline_contracts.base import timestamp
from prismline_contracts.commands import RunSplit, dead_letter_queue_name, queue_name
from prismline_contracts.items import RunItem
from prismline_contracts.jobs import Scope, new_api_key
from prismline_contracts.tasks import TaskResult, result_key
from prismline_ledger import NewRun, TaskEnding
from prismline_localstack.testing import create_runs_table, drained, observe_bus
from prismline_runtime import Bucket, Change, Table, UnavailableError, Work, decode

ALL_SCOPES: tuple[Scope, ...] = ("read", "submit", "operate")
QUEUES = ("split", "tasks")


@dataclass
class ApiWorld:
    environment: str
    deps: Dependencies
    client: TestClient
    #: The queue that receives every event on the bus.
    observer: str

    @classmethod
    def create(cls, environment: str, patch: pytest.MonkeyPatch) -> ApiWorld:
        """Create tables, queues, a bus and a bucket, and an api that uses them."""
        dynamodb, sqs, events = boto3.client("dynamodb"), boto3.client("sqs"), boto3.client("events")
        boto3.client("s3").create_bucket(Bucket=f"bucket-{environment}")
        for table in ("runs", "jobs"):
            create_runs_table(dynamodb, f"{table}-{environment}")
        dynamodb.create_table(
            TableName=f"states-{environment}",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "run_id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "run_id", "KeyType": "HASH"}],
        )
        for queue in QUEUES:
            name = queue_name(environment, queue)
            sqs.create_queue(QueueName=dead_letter_queue_name(name))
            sqs.create_queue(QueueName=name)
        bus = f"prismline-{environment}"
        events.create_event_bus(Name=bus)
        for name, value in {
            "RUNS_TABLE": f"runs-{environment}",
            "JOBS_TABLE": f"jobs-{environment}",
            "WORKFLOW_STATE_TABLE": f"states-{environment}",
            "BUCKET": f"bucket-{environment}",
            "KEY_CACHE_SECONDS": "0",
            "DEFAULT_TENANT": "acme",
        }.items():
            patch.setenv(name, value)
        deps = Dependencies.from_environment()
        client = TestClient(build_app(deps), raise_server_exceptions=False)
        return cls(environment, deps, client, observe_bus(sqs, events, bus))

    def key(self, tenant: str = "acme", scopes: Sequence[Scope] = ALL_SCOPES) -> str:
        """A new API key."""
        key, item = new_api_key(tenant, "test", scopes, timestamp())
        table = Table(boto3.client("dynamodb"), self.deps.settings.jobs_table)
        assert table.create(encoded(item), key="PK")
        return key

    def caller(self, tenant: str = "acme", scopes: Sequence[Scope] = ALL_SCOPES) -> Api:
        """A client with a key of `tenant`."""
        return Api(self.client, self.key(tenant, scopes))

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items of the table `jobs` or `runs`."""
        found = boto3.client("dynamodb").scan(TableName=f"{table}-{self.environment}")["Items"]
        return [decode(item) for item in found]

    def put(self, table: str, item: dict[str, Any]) -> None:
        """Write a new item of the table `jobs` or `runs`."""
        assert Table(boto3.client("dynamodb"), f"{table}-{self.environment}").create(item, key="PK")

    def change(self, table: str, item_key: dict[str, str], /, **sets: Any) -> None:
        """Set attributes of an item."""
        Table(boto3.client("dynamodb"), f"{table}-{self.environment}").update(item_key, Change(sets))

    def open_run(self, job: dict[str, Any], shard_count: int = 1) -> RunItem:
        """Open the latest run of a job in the ledger, as the splitter does."""
        return self.deps.ledger.open_run(
            NewRun(
                run_id=job["run"]["run_id"],
                survey=job["name"],
                job_id=job["job_id"],
                workload=job["workload"],
                unit=job["run"]["unit"],
                shard_count=shard_count,
            )
        )

    def keys(self, prefix: str) -> list[str]:
        """The keys of the objects below a prefix of the bucket."""
        listing = self.deps.s3.list_objects_v2(Bucket=self.deps.bucket.name, Prefix=prefix)
        return [entry["Key"] for entry in listing.get("Contents", [])]

    def raise_errors(self, run_id: str, times: int) -> None:
        """Raise an unexpected error when the run is split, as a splitter does."""
        for _ in range(times):
            work = Work(run_id, RunSplit.TYPE)
            self.deps.ledger.note_error(work, service="splitter", error="ZeroDivisionError: division by zero")

    def set_status(self, run_id: str, status: str) -> None:
        """Set the status of a run, as the status service does."""
        self.deps.states.create({"run_id": run_id, "status": status, "updated_at": timestamp()}, key="run_id")

    def state(self, run_id: str, **fields: str) -> None:
        """Write the status service's item of a running run."""
        item = {"run_id": run_id, "status": "running", "updated_at": timestamp(), **fields}
        self.deps.states.create(item, key="run_id")

    def complete(self, run_id: str, name: str, body: bytes, content_type: str | None = None) -> None:
        """Complete a task with `body`, as a worker of the first release does."""
        ledger, key = self.deps.ledger, result_key(run_id, name)
        self.deps.s3.put_object(
            Bucket=self.deps.bucket.name, Key=key, Body=body, ContentType=content_type or "binary/octet-stream"
        )
        run = ledger.run(run_id)
        (task,) = ledger.start_tasks(run, ledger.read_tasks(run, [name]).values())
        digest = hashlib.sha256(body).hexdigest()
        result = TaskResult(
            key=key,
            http_status=200,
            content_type=content_type,
            length=len(body),
            sha256=digest,
            final_url=task.source,
            headers={},
        )
        ledger.end_tasks(run, [TaskEnding(task, result=result)])

    @staticmethod
    def download(url: str) -> bytes:
        """The content behind a presigned link."""
        answer = httpx.get(url)
        assert answer.status_code == 200, answer.text
        return answer.content

    def example(self, schema: dict[str, Any]) -> Any:
        """The first example of a body in the OpenAPI document."""
        while "$ref" in schema:
            schema = self.client.get("/openapi.json").json()["components"]["schemas"][schema["$ref"].split("/")[-1]]
        return self.example(schema["oneOf"][0]) if "oneOf" in schema else schema["examples"][0]

    def received(self, queue: str) -> list[dict[str, Any]]:
        """Take all messages out of a queue."""
        sqs = boto3.client("sqs")
        return drained(sqs, sqs.get_queue_url(QueueName=queue_name(self.environment, queue))["QueueUrl"])

    def announced(self) -> list[dict[str, Any]]:
        """The events published since the last call."""
        return drained(boto3.client("sqs"), self.observer)


@dataclass(frozen=True)
class Api:
    """A client with an API key."""

    client: TestClient
    api_key: str

    def __call__(self, method: str, path: str, body: Any = None, *, key: str | None = None, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.api_key}"} | ({"Idempotency-Key": key} if key else {})
        return self.client.request(method, f"/v1{path}", json=body, headers=headers, **options)

    def get(self, path: str, expect: int = 200, **params: Any) -> Any:
        """The document at `path`."""
        answer = self("GET", path, params=params)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, expect: int = 201, key: str | None = None) -> Any:
        """The document that answers a POST."""
        answer = self("POST", path, body, key=key)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def walk(self, path: str, limit: int, **params: Any) -> list[Any]:
        """All items of a list, part by part."""
        items, cursor = [], None
        while True:
            page = self.get(path, limit=limit, **params, **({"cursor": cursor} if cursor else {}))
            items += page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return items


def refuse_reads(patch: pytest.MonkeyPatch, refused: str) -> None:
    """Let S3 refuse to give the object with this key, as it does if the role does not allow it."""
    read = Bucket.read

    def refusing(bucket: Bucket, key: str, **options: Any) -> bytes:
        if key == refused:
            raise UnavailableError(f"Could not read {key}: AccessDenied.")
        return read(bucket, key, **options)

    patch.setattr(Bucket, "read", refusing)


def urls(number: int, start: int = 0) -> list[str]:
    return [f"https://example.org/{n}" for n in range(start, start + number)]


def urls_job(number: int = 3, **fields: Any) -> dict[str, Any]:
    return {"workload": "urls", "name": "pages", "urls": urls(number), **fields}
