"""Prismline's tables and bucket in the emulator, and the api. Each test adds the runs that it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from boto3.dynamodb.types import TypeSerializer
from typer.testing import CliRunner, Result

from prismline_api.app import create_app
from prismline_cli.connection import Connection
from prismline_cli.whole import app
from prismline_contracts.jobs import DEFAULT_TENANT, Scope, jobs_table_name, new_api_key
from prismline_contracts.tasks import partition, shard_of, task_id
from prismline_localstack.state import make_client
from prismline_localstack.testing import create_runs_table, serving
from prismline_runtime import Table

#: The time of every event in these worlds.
MOMENT = "2026-03-10T12:00:00.000Z"


@dataclass
class CliWorld:
    """An environment of the emulator, and the command that runs against it."""

    connection: Connection
    home: Path

    @classmethod
    def create(cls, aws_env: dict[str, str], home: Path) -> CliWorld:
        """An environment with empty tables and an empty bucket. The harness has its files in `home`."""
        environment = aws_env["ENVIRONMENT"]
        dynamodb: Any = make_client("dynamodb", aws_env)
        connection = Connection(environment)
        create_runs_table(dynamodb, connection.runs_table)
        dynamodb.create_table(
            TableName=connection.workflow_state_table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "run_id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "run_id", "KeyType": "HASH"}],
        )
        bucket = f"prismline-{environment}"
        make_client("s3", aws_env).create_bucket(Bucket=bucket)
        name = f"/prismline/{environment}/platform/bucket"
        make_client("ssm", aws_env).put_parameter(Name=name, Value=bucket, Type="String")
        world = cls(connection, home)
        world.create_jobs_table()
        return world

    @contextmanager
    def serving_api(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Serve the api in a thread, and give the command its address and a key."""
        environment = self.connection.environment
        for name, value in {
            "RUNS_TABLE": self.connection.runs_table,
            "JOBS_TABLE": jobs_table_name(environment),
            "WORKFLOW_STATE_TABLE": self.connection.workflow_state_table,
            "BUCKET": self.connection.bucket,
            "REQUESTS_PER_SECOND": "10000",
            "FUNCTIONS_LOCAL": "true",
        }.items():
            patch.setenv(name, value)
        key, item = new_api_key(DEFAULT_TENANT, "test", get_args(Scope), MOMENT)
        Table(self.connection.dynamodb, jobs_table_name(environment)).create(
            item.model_dump(exclude_none=True), key="PK"
        )
        patch.setattr("prismline_api.recent.SECONDS", 0.0)
        patch.setattr("prismline_api.all_runs.SCAN_SECONDS", 0.0)
        patch.setattr("prismline_api.all_runs.SCAN_SHARE", 0)
        with serving(create_app()) as url:
            patch.setenv("PRISMLINE_API_URL", url)
            patch.setenv("PRISMLINE_API_KEY", key)
            yield

    def run(self, *arguments: str, expect: int | None = 0) -> Result:
        """Run the command. `expect` is its exit code, or None for any."""
        result = CliRunner(env={"COLUMNS": "300", "PRISMLINE_HOME": str(self.home)}).invoke(app, list(arguments))
        if expect is not None:
            assert result.exit_code == expect, f"{result.output}\n{result.exception!r}"
        return result

    def json(self, *arguments: str, expect: int = 0) -> Any:
        """The document that the command prints."""
        return json.loads(self.run(*arguments, "--json", expect=expect).stdout)

    def add_run(self, run_id: str, *, status: str = "completed", **fields: Any) -> None:
        """Add a run to both tables. `error_message` and `state` go to its status, all other fields to the run item."""
        error, more = fields.pop("error_message", None), fields.pop("state", {})
        state = {"run_id": run_id, "status": status, "survey": "s", "created_at": MOMENT, "updated_at": MOMENT}
        self._put(self.connection.workflow_state_table, state | more | ({"error_message": error} if error else {}))
        base = {
            "PK": run_id,
            "SK": "RUN",
            "GSI1_PK": "s",
            "GSI1_SK": MOMENT,
            "survey": "s",
            "workload": "spectra",
            "job_id": "job",
            "created_at": MOMENT,
            "jobs_total": 0,
        }
        self._put(self.connection.runs_table, base | fields)

    def add_chunk(self, run_id: str, start: int, **fields: Any) -> str:
        """Add a chunk to the run. Returns its id."""
        name = f"chunk-{start:07d}"
        base = {
            "PK": run_id,
            "SK": f"CHUNK#{name}",
            "status": "COMPLETED",
            "chunk_key": f"chunks/{run_id}/{name}.npz",
            "n_spectra": 2,
            "n_items": 2,
            "created_at": MOMENT,
        }
        self._put(self.connection.runs_table, base | fields)
        return name

    def create_jobs_table(self) -> None:
        """Create the table of jobs and API keys."""
        create_runs_table(self.connection.dynamodb, jobs_table_name(self.connection.environment))

    def add_task(self, run_id: str, index: int, *, shard_count: int = 1, **fields: Any) -> str:
        """Add a task to the run. Returns its id."""
        name = task_id(run_id, index)
        base = {
            "PK": partition(run_id, shard_of(name, shard_count), shard_count),
            "SK": f"TASK#{name}",
            "index": index,
            "source": f"https://example.org/{index}",
            "status": "COMPLETED",
            "created_at": MOMENT,
        }
        self._put(self.connection.runs_table, base | fields)
        return name

    def add_shard(self, run_id: str, shard: int, **counters: int) -> None:
        """Add the item with the counters of a shard of the run."""
        self._put(self.connection.runs_table, {"PK": f"{run_id}#{shard}", "SK": "SHARD"} | counters)

    def _put(self, table: str, item: dict[str, Any]) -> None:
        serialize = TypeSerializer().serialize
        self.connection.dynamodb.put_item(
            TableName=table, Item={name: serialize(value) for name, value in item.items()}
        )
