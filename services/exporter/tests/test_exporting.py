"""Exports over real queues, tables and objects: their content, which a crash does not change."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import EndpointConnectionError
from export_world import EXPORT_ID, RUN_ID, ExportWorld, body_of

from prismline_contracts.base import chunk_id, timestamp
from prismline_contracts.captions import caption_key
from prismline_contracts.decomposition import MetadataKey, arrow_schema
from prismline_contracts.events import ExportRequested
from prismline_contracts.jobs import export_key, export_object_key, jobs_table_name
from prismline_contracts.objects import output_key
from prismline_contracts.tasks import task_address
from prismline_exporter import exporting, objects, parquet_file, zip_archive
from prismline_exporter.exports import LeaseLostError
from prismline_ledger import NewChunk, Outcome, Started
from prismline_ledger.testing import split_run
from prismline_localstack.testing import drained
from prismline_localstack.waiting import wait_until

pytestmark = pytest.mark.emulator


@pytest.fixture
def small_parts(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each part hold a few results. The emulator accepts parts that S3 would refuse as too short."""
    world.set(export_part_bytes=2000)
    monkeypatch.setattr(exporting, "MIN_PART_BYTES", 500)
    monkeypatch.setattr(exporting, "TASKS_PER_PAGE", 7)
    monkeypatch.setattr(zip_archive, "LINES_PER_SEGMENT", 5)
    monkeypatch.setattr(zip_archive, "SLICE_BYTES", 600)
    monkeypatch.setattr(objects, "SLICE_BYTES", 600)


BODIES = [None if n % 11 == 5 else body_of(n) for n in range(120)]


@pytest.mark.parametrize("suffix", ["zip", "parquet"])
def test_an_export_is_stored_as_an_attachment(world: ExportWorld, suffix: Literal["zip", "parquet"]) -> None:
    if suffix == "zip":
        world.run_of_tasks([b"<html>"])
    else:
        _spectra(world, chunks=2, lack=1)
    world.request()
    assert world.handle() == []
    stored = world.s3.head_object(Bucket=world.bucket, Key=export_object_key(RUN_ID, EXPORT_ID, suffix))
    assert stored["ContentDisposition"] == "attachment"


@pytest.mark.parametrize("shard_count", [1, 4])
@pytest.mark.usefixtures("small_parts")
def test_an_export_holds_every_body_and_says_what_failed(world: ExportWorld, shard_count: int) -> None:
    run = world.run_of_tasks(BODIES, shard_count=shard_count)
    world.request()
    assert world.handle() == []
    files, lines = world.archive()
    assert files == {f"bodies/{n:09d}.html": body for n, body in enumerate(BODIES) if body is not None}
    assert sorted(line["index"] for line in lines) == list(range(len(BODIES)))
    by_index = {line["index"]: line for line in lines}
    assert by_index[5]["outcome"] == "failed"
    assert by_index[5]["error"] == "HTTP 404: there is no such page."
    assert by_index[6] == {
        "task_id": by_index[6]["task_id"],
        "index": 6,
        "url": "https://example.org/6",
        "outcome": "succeeded",
        "attempts": 1,
        "http_status": 200,
        "content_type": "text/html; charset=utf-8",
        "length": len(body_of(6)),
        "sha256": sha256(body_of(6)).hexdigest(),
        "final_url": "https://example.org/6",
        "headers": {},
        "file": "bodies/000000006.html",
    }
    assert by_index[6]["task_id"].startswith(task_address(run.run_id, ""))
    item = world.item()
    key = export_object_key(RUN_ID, EXPORT_ID, "zip")
    size = len(world.get(key))
    assert (item.status, item.key, item.bytes, item.entries, item.entries_total) == ("COMPLETED", key, size, 120, 120)
    (event,) = world.announced()
    assert event | {"id": "", "type": event["type"]} == {
        "run_id": RUN_ID,
        "export_id": EXPORT_ID,
        "key": key,
        "bytes": size,
        "entries": 120,
        "id": "",
        "type": "prismline.export.completed.v1",
    }
    assert world.keys(f"exports/{RUN_ID}/") == [key], "the segments are deleted"


class Crash(BaseException):
    """The process dies here."""


def _die_at(point: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Kill the process when it first reaches this point with each part, and once after the last part.

    Returns the parts at which it died so far.
    """
    died: set[str] = set()

    def die(name: str, *, part: str = "", **_: str) -> None:
        if name == point and part not in died:
            died.add(part)
            raise Crash

    monkeypatch.setattr(exporting, "fault_point", die)
    return died


@pytest.mark.parametrize(
    "point", ["export.part_uploaded", "export.part_recorded", "export.assembled", "export.recorded"]
)
@pytest.mark.usefixtures("small_parts")
def test_an_export_continues_after_a_crash_at_any_point(
    world: ExportWorld, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run_of_tasks(BODIES)
    died = _die_at(point, monkeypatch)
    reads = _count_reads(world)
    crashes = 0
    while True:
        world.request()
        try:
            assert world.handle() == []
            break
        except Crash:
            crashes += 1
            assert crashes < 100
            world.clock.advance(61)
    assert crashes == len(died) > (5 if ".part_" in point else 0)
    files, lines = world.archive()
    assert files == {f"bodies/{n:09d}.html": body for n, body in enumerate(BODIES) if body is not None}
    assert sorted(line["index"] for line in lines) == list(range(120))
    first, *repeats = world.announced()
    assert all(event == first for event in repeats), "the event is the same one"
    if point == "export.part_recorded":
        assert len(reads) < 3 * len(files) + 64 * crashes, "it continues, and does not start again"


def _count_reads(world: ExportWorld) -> list[str]:
    """The list to which every key is added that the exporter reads from now on."""
    reads: list[str] = []
    event = "before-parameter-build.s3.GetObject"
    world.deps.s3.meta.events.register(event, lambda params, **_: reads.append(params["Key"]))
    return reads


@pytest.mark.usefixtures("small_parts")
def test_an_export_that_takes_longer_than_an_invocation_sends_itself_a_message(world: ExportWorld) -> None:
    bodies = BODIES[:50]
    world.run_of_tasks(bodies)
    world.request()
    invocations = 0
    while world.handle(seconds=0.0) is not None:
        invocations += 1
    assert invocations > 10
    assert world.item().status == "COMPLETED"
    files, _ = world.archive()
    assert len(files) == sum(body is not None for body in bodies)
    assert len(world.announced()) == 1


@pytest.mark.usefixtures("small_parts")
def test_an_export_that_continues_is_not_given_up_for_its_age(world: ExportWorld) -> None:
    world.run_of_tasks(BODIES[:50])
    world.request()
    requested = timestamp()
    assert world.handle(seconds=0.0) == []
    (again,) = drained(
        world.sqs, world.sqs.get_queue_url(QueueName=f"prismline-{world.environment}-exports")["QueueUrl"]
    )
    assert again["time"] > requested, "the age of a message is counted from its time"


@pytest.mark.usefixtures("small_parts")
def test_progress_is_seen_while_an_export_is_written(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run_of_tasks(BODIES)
    seen = []

    def look(name: str, **_: str) -> None:
        if name == "export.part_recorded":
            item = world.item()
            seen.append((item.status, item.entries, item.entries_total))

    monkeypatch.setattr(exporting, "fault_point", look)
    world.request()
    world.handle()
    assert [entries for _, entries, _ in seen] == sorted(entries for _, entries, _ in seen)
    assert {(status, total) for status, _, total in seen} == {("RUNNING", 120)}
    assert 0 < seen[0][1] < 60


@pytest.mark.usefixtures("small_parts")
def test_of_two_processes_one_writes(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second message waits while the lease lasts. A process whose lease was taken over stops."""
    world.run_of_tasks(BODIES)
    request = ExportRequested(run_id=RUN_ID, export_id=EXPORT_ID)
    taken = []

    def meddle(name: str, *, part: str = "", **_: str) -> None:
        if name == "export.part_uploaded" and part == "2":
            with pytest.raises(LeaseLostError) as lost:
                world.deps.exports.claim(request, "other")
            assert lost.value.retry_after == 61
        if name == "export.part_uploaded" and part == "3":
            world.clock.advance(61)
            taken.append(world.deps.exports.claim(request, "other"))

    monkeypatch.setattr(exporting, "fault_point", meddle)
    world.request()
    assert len(world.handle() or ()) == 1, "the message is left"
    assert world.item() == taken[0]
    assert len(world.item().etags) == 2


@pytest.mark.usefixtures("small_parts")
def test_an_outage_of_s3_delays_an_export(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run_of_tasks(BODIES)
    monkeypatch.setattr("prismline_runtime.routing.backoff_seconds", lambda _: 0)
    out = [3]

    def fail(**_: Any) -> None:
        if out[0]:
            out[0] -= 1
            raise EndpointConnectionError(endpoint_url="s3")

    world.deps.s3.meta.events.register("before-call.s3.UploadPart", fail)
    world.request()
    left = [world.handle() for _ in range(4)]
    assert [len(each or ()) for each in left] == [1, 1, 1, 0]
    assert len(world.archive()[1]) == 120


def test_a_run_that_has_not_ended_is_not_exported(world: ExportWorld) -> None:
    world.run_of_tasks([b"x"], end=False)
    world.request()
    assert world.handle() == []
    assert (world.item().status, world.item().error) == (
        "FAILED",
        f"Run {RUN_ID} has not ended. Request the export after its end.",
    )
    assert [event["error"] for event in world.announced()] == [world.item().error]


def test_tasks_that_a_stopped_run_did_not_process_are_skipped(world: ExportWorld) -> None:
    run = world.run_of_tasks([b"x", b"y"], end=False)
    world.ledger.stop_run(run.run_id, "cancelled")
    world.request()
    world.handle()
    files, lines = world.archive()
    assert files == {}
    assert [(line["outcome"], line["error"]) for line in lines] == [
        ("skipped", "The run ended before the task did.")
    ] * 2


def test_an_export_of_a_run_that_does_not_exist_fails(world: ExportWorld) -> None:
    world.request("nobody")
    assert world.handle() == []
    (event,) = world.announced()
    assert event["error"] == "There is no run nobody in the ledger."


@pytest.mark.usefixtures("small_parts")
def test_the_deletion_of_a_job_during_its_export_leaves_no_export_behind(
    world: ExportWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.run_of_tasks(BODIES)

    def delete(name: str, *, part: str = "", **_: str) -> None:
        if name == "export.part_uploaded" and part == "2":
            list(world.ledger.delete_run(run))
            jobs = jobs_table_name(world.environment)
            key = {name: {"S": value} for name, value in export_key(RUN_ID, EXPORT_ID).items()}
            boto3.client("dynamodb").delete_item(TableName=jobs, Key=key)

    monkeypatch.setattr(exporting, "fault_point", delete)
    world.request()
    assert len(world.handle() or ()) == 1, "the message is left"
    world.request()
    assert world.handle() == []
    assert world.deps.exports.get(RUN_ID, EXPORT_ID) is None
    assert {event["error"] for event in world.announced()} == {f"There is no run {RUN_ID} in the ledger."}


def test_a_long_export_holds_up_no_other_one_of_its_process(world: ExportWorld, tmp_path: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    (process,) = project["tool"]["prismline"]["processes"]
    options = ["--batch-size", str(process["batch_size"]), "--parallel", str(process.get("parallel", 1))]
    faults = tmp_path / "faults.json"
    hang = {"point": "export.part_uploaded", "where": {"run_id": "long"}, "action": "hang", "seconds": 60}
    faults.write_text(json.dumps([hang]))
    for run_id in ("long", "short"):
        world.run_of_tasks([b"x"], run_id=run_id)
    environment = os.environ | {"PRISMLINE_FAULTS_FILE": str(faults)}
    command = [sys.executable, "-m", "prismline_runtime", "--queue", "exports", *options, process["handler"]]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as exporter:
        try:
            world.request("long")
            assert wait_until(lambda: world.begun("long"), 30)
            world.request("short")
            assert wait_until(lambda: world.archived("short"), 30)
            assert not world.archived("long")
        finally:
            exporter.kill()


@pytest.mark.usefixtures("small_parts")
def test_an_export_that_was_given_up_has_failed_and_leaves_nothing_behind(
    world: ExportWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str, **_: str) -> None:
        if name == "export.part_recorded":
            raise Crash

    world.run_of_tasks(BODIES)
    world.request()
    monkeypatch.setattr(exporting, "fault_point", die)
    with pytest.raises(Crash):
        world.handle()
    assert world.item().upload_id is not None
    world.clock.advance(61)
    world.request(given_up="Given up after 3.0 days.")
    assert world.handle() == []
    item = world.item()
    assert (item.status, item.error, item.upload_id) == ("FAILED", "Given up after 3.0 days.", None)
    assert [event["error"] for event in world.announced()] == ["Given up after 3.0 days."]
    assert world.s3.list_multipart_uploads(Bucket=world.bucket).get("Uploads", []) == []


def test_an_export_that_was_written_after_all_is_not_given_up(world: ExportWorld) -> None:
    world.run_of_tasks([b"x"])
    world.request()
    assert world.handle() == []
    world.request(given_up="Given up after 3.0 days.")
    assert world.handle() == []
    assert world.item().status == "COMPLETED"


def test_a_repeated_request_is_answered_again_with_the_same_event(world: ExportWorld) -> None:
    world.run_of_tasks([b"x"])
    for _ in range(2):
        world.request()
        assert world.handle() == []
    first, second = world.announced()
    assert first == second


# ---- runs of chunks


def test_captions_are_exported_as_they_are(world: ExportWorld) -> None:
    names = split_run(world.ledger, RUN_ID, 3, workload="captions")
    for name in names[:2]:
        key = caption_key("grs", RUN_ID, name)
        world.put(key, json.dumps({"caption": name}).encode())
        _complete(world, name, key)
    started = world.ledger.start_chunk(RUN_ID, names[2])
    assert isinstance(started, Started)
    world.ledger.fail_chunk(started.chunk, "no frames")
    world.request()
    world.handle()
    files, lines = world.archive()
    assert files == {f"results/{name}.json": json.dumps({"caption": name}).encode() for name in names[:2]}
    assert [(line["chunk_id"], line["outcome"], line.get("error")) for line in lines] == [
        (names[0], "succeeded", None),
        (names[1], "succeeded", None),
        (names[2], "failed", "no frames"),
    ]


def _complete(world: ExportWorld, name: str, key: str) -> None:
    started = world.ledger.start_chunk(RUN_ID, name)
    assert isinstance(started, Started)
    world.ledger.complete_chunk(started.chunk, Outcome(key), duration_ms=1)


WIDTH, ROWS = 40, 25


def _spectra(world: ExportWorld, *, chunks: int, lack: int) -> list[tuple[int, int, float]]:
    """Make a run whose chunks hold pixels row by row, unordered. Returns the table's rows, without the chunk `lack`."""
    new = [NewChunk(chunk_id(n * ROWS), f"chunks/{RUN_ID}/{n}.npz", ROWS) for n in range(chunks)]
    split_run(world.ledger, RUN_ID, new)
    schema = arrow_schema().with_metadata(
        {MetadataKey.RUN_ID.value: RUN_ID, MetadataKey.CHUNK_ID.value: "each", MetadataKey.VERSION.value: "2"}
    )
    expected = []
    for n, chunk in enumerate(new):
        if n == lack:
            started = world.ledger.start_chunk(RUN_ID, chunk.chunk_id)
            assert isinstance(started, Started)
            world.ledger.fail_chunk(started.chunk, "out of memory")
            continue
        rows = [
            {"x": i % WIDTH, "y": i // WIDTH, "rms": i / 7, "status": "fitted", "component_means": [i / 3] * (i % 4)}
            for i in range(n * ROWS, (n + 1) * ROWS)
        ]
        expected += [(row["y"], row["x"], row["rms"]) for row in rows]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows[::-1], schema=schema), sink)
        key = output_key("grs", RUN_ID, chunk.chunk_id)
        world.put(key, sink.getvalue())
        _complete(world, chunk.chunk_id, key)
    return expected  # type: ignore[return-value]


@pytest.fixture
def small_groups(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set(export_part_bytes=3000)
    monkeypatch.setattr(exporting, "MIN_PART_BYTES", 500)
    monkeypatch.setattr(parquet_file, "ROW_GROUP_BYTES", 20_000)


def _table(world: ExportWorld) -> pa.Table:
    return pq.read_table(io.BytesIO(world.get(export_object_key(RUN_ID, EXPORT_ID, "parquet"))))


def _rows(table: pa.Table) -> list[tuple[int, int, float]]:
    return [(row["y"], row["x"], row["rms"]) for row in table.select(["y", "x", "rms"]).to_pylist()]


@pytest.mark.usefixtures("small_groups")
def test_spectra_become_one_sorted_table(world: ExportWorld) -> None:
    expected = _spectra(world, chunks=40, lack=7)
    world.request()
    assert world.handle() == []
    table = _table(world)
    assert _rows(table) == expected == sorted(expected)
    assert table.schema.metadata[b"prismline.run_id"] == RUN_ID.encode()
    assert MetadataKey.CHUNK_ID.value.encode() not in table.schema.metadata
    assert json.loads(table.schema.metadata[b"prismline.missing_chunks"]) == {chunk_id(7 * ROWS): "out of memory"}
    item = world.item()
    assert (item.status, item.entries, item.entries_total) == ("COMPLETED", 39, 40)


@pytest.mark.parametrize("point", ["export.part_uploaded", "export.part_recorded", "export.assembled"])
@pytest.mark.usefixtures("small_groups")
def test_a_table_continues_after_a_crash(world: ExportWorld, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _spectra(world, chunks=40, lack=-1)
    died = _die_at(point, monkeypatch)
    puts: list[int] = []
    event = "before-parameter-build.s3.UploadPart"
    world.deps.s3.meta.events.register(event, lambda params, **_: puts.append(params["PartNumber"]))
    for _ in range(50):
        world.request()
        try:
            world.handle()
            break
        except Crash:
            world.clock.advance(61)
    assert _rows(_table(world)) == expected
    assert len(died) >= (3 if ".part_" in point else 1)
    if point == "export.part_recorded":
        assert puts == sorted(set(puts)), "no part is uploaded twice"


@pytest.mark.usefixtures("small_groups")
def test_a_table_starts_again_if_a_chunk_was_fitted_again_meanwhile(
    world: ExportWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _spectra(world, chunks=40, lack=-1)

    def die(name: str, *, part: str = "", **_: str) -> None:
        if name == "export.part_recorded" and part == "2":
            raise Crash

    monkeypatch.setattr(exporting, "fault_point", die)
    world.request()
    with pytest.raises(Crash):
        world.handle()
    monkeypatch.undo()
    key = output_key("grs", RUN_ID, chunk_id(0))
    fitted = pq.read_table(io.BytesIO(world.get(key)))
    sink = io.BytesIO()
    refit = pa.array([-1.0] * ROWS)
    pq.write_table(fitted.set_column(fitted.column_names.index("rms"), fitted.schema.field("rms"), refit), sink)
    world.put(key, sink.getvalue())
    world.clock.advance(61)
    world.request()
    assert world.handle() == []
    rows = _rows(_table(world))
    assert [rms for _, _, rms in rows[:ROWS]] == [-1.0] * ROWS
    assert rows[ROWS:] == expected[ROWS:]


@pytest.mark.usefixtures("small_groups")
def test_a_run_without_any_result_has_no_table(world: ExportWorld) -> None:
    _spectra(world, chunks=1, lack=0)
    world.request()
    assert world.handle() == []
    assert world.item().error == "The run has no result to export: none of its chunks completed."
