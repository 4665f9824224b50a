"""Runs of functions: their items become tasks, and the run keeps the code that is registered when it is split."""

from __future__ import annotations

import gzip
import io
import json
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from splitter_world import SplitterWorld

from prismline_contracts.commands import queue_name
from prismline_contracts.finalization import finalization_of
from prismline_contracts.pools import in_pool, pool_queue
from prismline_contracts.workloads import RegisteredWorkload, latest_workload_key, workload_key
from prismline_splitter import ingestion

pytestmark = pytest.mark.emulator

RUN, KEY = "run-1", "jobs/job/manifest-run-1.json"
OLD, NEW = "a" * 64, "b" * 64


def register(world: SplitterWorld, code: str, *, batch: int = 20, finalize: bool = False) -> None:
    limits = {"timeout": 60.0, "attempts": 3, "batch": batch, "memory": 2048, "processes": 64, "files": 1024}
    document = {"name": "measure", "code": code, "item": {}, "parameters": {"type": "object"}, "limits": limits}
    document["finalize"] = finalize
    registered = RegisteredWorkload.model_validate({**document, "registered_at": "2026-03-01T12:00:00.000Z"})
    for key in (workload_key("measure", code), latest_workload_key("measure")):
        world.s3.put_object(Bucket=world.bucket, Key=key, Body=registered.model_dump_json().encode())


def submit(world: SplitterWorld, **fields: Any) -> None:
    source = {"kind": "inline", "items": [{"b": 1, "a": 2}, "text", None, 7]}
    document = {"workload": "measure", "survey": "sky", "source": source, **fields}
    world.s3.put_object(Bucket=world.bucket, Key=KEY, Body=json.dumps(document).encode())


def test_each_item_is_a_task_with_the_item_as_its_source(world: SplitterWorld) -> None:
    register(world, OLD, batch=3)
    submit(world, params={"threshold": None, "band": "r"})
    assert world.split(RUN, KEY)
    assert [task.source for task in world.tasks(RUN)] == ['{"a":2,"b":1}', '"text"', "null", "7"]
    run = world.ledger.run(RUN)
    assert (run.unit, run.workload, run.code) == ("task", "measure", OLD)
    assert run.message_params == {"threshold": None, "band": "r"}, "None is a value of a parameter like any other"
    messages = world.task_messages()
    assert sorted(len(message.task_ids) for message in messages) == [2, 2], "at most `batch` in each"


def test_the_items_of_a_pool_are_sent_to_its_queue_however_many_they_are(
    world: SplitterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_QUEUE_TASKS", "1")
    queue = queue_name(world.deps.transport.environment, pool_queue("red"))
    world.sqs.create_queue(QueueName=queue)
    register(world, OLD)
    submit(world, pool="red")
    run_id = in_pool(RUN, "red")
    assert world.split(run_id, KEY)
    run = world.ledger.run(run_id)
    assert (run.chunks_total, run.task_queue) == (4, None)
    assert sum(len(message.task_ids) for message in world.task_messages(queue)) == 4
    assert world.task_messages() == []


@pytest.mark.parametrize(
    ("run_id", "reason"),
    [
        (in_pool(RUN, "red"), "There is no pool red in this environment."),
        (in_pool(RUN, "blue"), "does not belong to the pool of its manifest, red."),
        (RUN, "does not belong to the pool of its manifest, red."),
    ],
)
def test_a_run_whose_pool_cannot_process_it_fails_with_the_reason(
    world: SplitterWorld, run_id: str, reason: str
) -> None:
    register(world, OLD)
    submit(world, pool="red")
    assert world.split(run_id, KEY)
    ((_, cause),) = world.state_machine.refusals
    assert reason in cause


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        *product(["csv", "parquet", "prefix", "inventory"], ["ingest.tasks_written", "ingest.checkpointed"]),
        ("inventory", "ingest.rejects_written"),
    ],
)
def test_a_delivery_that_dies_changes_neither_the_items_nor_the_rejected_rows(
    world: SplitterWorld, monkeypatch: pytest.MonkeyPatch, kind: str, point: str
) -> None:
    """The source changes after the death. A delivery that takes over reads what the first one began to read."""
    monkeypatch.setattr(ingestion, "LEAST_BLOCK_TASKS", 3)
    register(world, OLD)
    for n in range(8):
        world.s3.put_object(Bucket=world.bucket, Key=f"sources/in/{n}", Body=b"" if n == 5 else b"x" * (n + 1))
    rows = [{"key": f"sources/in/{n}", "size": None if n == 5 else n + 1} for n in range(8)]
    source: dict[str, Any] = {"kind": "prefix", "prefix": "sources/in/"}
    if kind != "prefix":
        source = {"kind": "object", "key": put_table(world, kind, rows), "format": kind}
    if kind == "inventory":
        source = {"kind": "inventory", "key": put_inventory(world, rows)}
    select = {"name": "/key", "size": "/size", "unit": {"constant": "bytes"}}
    submit(world, source={**source, "select": select, "max_items": 7})
    world.die_at(point)
    assert not world.split(RUN, KEY)
    world.s3.put_object(Bucket=world.bucket, Key="sources/in/00", Body=b"later")
    assert world.split(RUN, KEY)
    tasks = sorted(world.tasks(RUN), key=lambda task: task.index)
    assert [task.index for task in tasks] == list(range(7))
    rejected = [5] if kind == "inventory" else []
    wanted = [n for n in range(8) if n not in rejected][:7]
    assert [json.loads(task.source)["name"] for task in tasks] == [f"sources/in/{n}" for n in wanted]
    run = world.ledger.run(RUN)
    assert (run.chunks_total, run.n_rejected) == (7, len(rejected))


def put_table(world: SplitterWorld, kind: str, rows: list[dict[str, Any]]) -> str:
    """Put a table with these rows below `sources/`. Return its key."""
    if kind == "parquet":
        file = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=2)
        body = file.getvalue()
    else:
        body = "".join(
            f"{row['key']},{row['size'] or ''}\n" for row in [{"key": "key", "size": "size"}, *rows]
        ).encode()
    world.s3.put_object(Bucket=world.bucket, Key="sources/table", Body=body)
    return "sources/table"


def put_inventory(world: SplitterWorld, rows: list[dict[str, Any]]) -> str:
    """Put an inventory with two files. The row without a size is rejected. Return the key of its manifest."""
    files = []
    for part in (rows[:3], rows[3:]):
        lines = [f'"{world.bucket}","{row["key"]}","{row["size"] or "unknown"}"' for row in part]
        key, body = f"sources/inventory/{len(files)}.csv.gz", gzip.compress("\n".join(lines).encode(), mtime=0)
        world.s3.put_object(Bucket=world.bucket, Key=key, Body=body)
        files.append({"key": key, "size": len(body)})
    manifest = {"sourceBucket": world.bucket, "fileFormat": "CSV", "fileSchema": "Bucket, Key, Size", "files": files}
    world.s3.put_object(Bucket=world.bucket, Key="sources/inventory/m.json", Body=json.dumps(manifest).encode())
    return "sources/inventory/m.json"


def test_a_run_keeps_the_code_that_was_the_latest_when_it_was_split(world: SplitterWorld) -> None:
    register(world, OLD)
    submit(world)
    assert world.split(RUN, KEY)
    register(world, NEW)
    assert world.split(RUN, KEY)
    assert world.ledger.run(RUN).code == OLD


def test_a_manifest_may_name_the_code(world: SplitterWorld) -> None:
    register(world, OLD)
    register(world, NEW)
    submit(world, code=OLD)
    assert world.split(RUN, KEY)
    assert world.ledger.run(RUN).code == OLD


def test_a_function_that_nobody_registered_is_refused(world: SplitterWorld) -> None:
    submit(world)
    assert world.split(RUN, KEY, token=None)
    (letter,) = world.dead_letters()
    assert letter["data"]["run_id"] == RUN
    assert world.ledger.get_run(RUN) is None


def test_a_rerun_takes_the_items_of_the_earlier_run(world: SplitterWorld) -> None:
    register(world, OLD)
    submit(world)
    assert world.split(RUN, KEY)
    document = {"workload": "measure", "survey": "sky", "rerun": {"run_id": RUN, "only": "all"}}
    key = "jobs/job/manifest-run-2.json"
    world.s3.put_object(Bucket=world.bucket, Key=key, Body=json.dumps(document).encode())
    assert world.split("run-2", key)
    assert sorted(task.source for task in world.tasks("run-2")) == sorted(task.source for task in world.tasks(RUN))


@pytest.mark.parametrize("finalize", [True, False])
def test_a_run_is_to_be_finalized_if_its_function_has_a_finalize(world: SplitterWorld, finalize: bool) -> None:
    register(world, OLD, finalize=finalize)
    submit(world)
    assert world.split(RUN, KEY)
    found = finalization_of(world.ledger.run(RUN))
    assert (found is not None) is finalize
    assert found is None or (found.status, found.attempts) == ("PENDING", 0)
