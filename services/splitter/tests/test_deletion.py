"""Deletion of jobs: nothing of the job is left and no other job is touched, however often the splitter dies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from splitter_world import SplitterWorld

from prismline_contracts.base import now, timestamp
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import JobDeleteRequested
from prismline_contracts.jobs import (
    batch_key,
    export_key,
    job_key,
    job_run_key,
    jobs_table_name,
    upload_item_key,
    upload_key,
)
from prismline_contracts.objects import output_key
from prismline_contracts.tasks import result_key
from prismline_ledger.testing import ingest_run
from prismline_runtime import Change

pytestmark = pytest.mark.emulator

POINTS = ("delete.cancelled", "delete.objects_deleted", "delete.items_deleted", "delete.job_objects_deleted")
RUNS = ("run-1", "run-2")
KEY = "jobs/job/manifest-run-1.json"


@pytest.fixture
def jobs(world: SplitterWorld) -> SplitterWorld:
    """A job with two runs that have ended, one of tasks and one of chunks, and another such job."""
    for job_id, run_ids in (("job", RUNS), ("other", ("other-1", "other-2"))):
        put_job(world, job_id, *run_ids)
    return world


def put_job(world: SplitterWorld, job_id: str, tasks: str, chunks: str) -> None:
    world.put_urls(f"jobs/{job_id}/manifest-{tasks}.json", urls=[f"https://example.org/{n}" for n in range(30)])
    assert world.split(tasks, f"jobs/{job_id}/manifest-{tasks}.json")
    for task in world.tasks(tasks)[:3]:
        world.s3.put_object(Bucket=world.bucket, Key=result_key(tasks, task.task_id), Body=b"body")
    world.end_tasks(tasks)
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(f"jobs/{job_id}/manifest-{chunks}.json", chunk_size=2)
    assert world.split(chunks, f"jobs/{job_id}/manifest-{chunks}.json")
    world.work_off(chunks)
    world.s3.put_object(Bucket=world.bucket, Key=output_key("grs", chunks, "chunk-0000000"), Body=b"rows")
    for run_id in (tasks, chunks):
        world.ledger.record_end(world.ledger.run(run_id), "completed")
        world.s3.put_object(Bucket=world.bucket, Key=f"exports/{run_id}/e.zip", Body=b"zip")
    table = boto3.resource("dynamodb").Table(jobs_table_name(world.deps.transport.environment))
    for key in (
        *map(job_run_key, (tasks, chunks)),
        export_key(tasks, "e"),
        job_key("acme", job_id),
        batch_key("acme", job_id, 0),
    ):
        table.put_item(Item=key)


def delete(world: SplitterWorld, *, age: timedelta = timedelta(), job_id: str = "job", **attributes: str) -> bool:
    runs = list(RUNS) if job_id == "job" else [f"{job_id}-1", f"{job_id}-2"]
    request = JobDeleteRequested(run_id=runs[-1], job_id=job_id, run_ids=runs, tenant="acme")
    envelope = Envelope.wrap(request, source="test", traceparent=None)
    return world.deliver(envelope.model_copy(update={"time": timestamp(now() - age)}).to_json(), **attributes)


def left(world: SplitterWorld) -> set[str]:
    """All objects and the keys of all items. The record that a run is stopped stays, against late messages."""
    dynamodb, environment = boto3.client("dynamodb"), world.deps.transport.environment
    found = set(world.objects(""))
    for table in (f"runs-{environment}", jobs_table_name(environment)):
        found |= {f"{item['PK']['S']} {item['SK']['S']}" for item in dynamodb.scan(TableName=table)["Items"]}
    return {each for each in found if not each.endswith(" STOP")}


def of_others(found: set[str]) -> set[str]:
    """What does not belong to the deleted job."""
    return {each for each in found if not any(word in each for word in (*RUNS, "/job/", "JOB#job"))}


def test_deleting_a_job_leaves_nothing_of_it_and_touches_no_other_job(jobs: SplitterWorld) -> None:
    before = left(jobs)
    assert len(of_others(before)) > 40
    assert delete(jobs)
    assert left(jobs) == of_others(before)


@pytest.mark.parametrize("point", POINTS)
def test_the_next_delivery_continues_a_deletion_that_died(jobs: SplitterWorld, point: str) -> None:
    before = left(jobs)
    jobs.die_at(point)
    assert not delete(jobs)
    assert delete(jobs)
    assert left(jobs) == of_others(before)


def test_the_api_can_show_the_job_until_its_objects_are_deleted(jobs: SplitterWorld) -> None:
    """The api reads the job and its latest run."""
    jobs.die_at("delete.job_objects_deleted")
    assert not delete(jobs)
    shown = {f"{key['PK']} {key['SK']}" for key in (job_key("acme", "job"), *map(job_run_key, RUNS))}
    assert shown <= left(jobs)


def test_a_deletion_cancels_runs_and_waits_for_their_end(world: SplitterWorld, sends: Callable[[], list[int]]) -> None:
    world.put_urls(urls=["https://example.org/"])
    assert world.split("run-1", KEY)
    assert delete(world)
    assert "run-1" in {event["runid"] for event in world.events("run.cancel.requested")}
    assert world.ledger.get_run("run-1") is not None
    assert sends() == [15]
    world.ledger.stop_run("run-1", "cancelled")
    assert world.ledger.record_end(world.ledger.run("run-1"), "cancelled")
    assert delete(world)
    assert world.ledger.get_run("run-1") is None
    assert world.objects("jobs/job/") == []


def test_a_deletion_waits_for_an_hour_at_most(world: SplitterWorld) -> None:
    world.put_urls(urls=["https://example.org/"])
    assert world.split("run-1", KEY)
    assert delete(world, age=timedelta(minutes=61))
    assert world.ledger.get_run("run-1") is None


def test_the_run_of_an_open_job_is_deleted_at_once(world: SplitterWorld, sends: Callable[[], list[int]]) -> None:
    """Nobody has announced it yet, so the status service could not cancel it."""
    ingest_run(world.ledger, "run-1", ["https://example.org/"], latch=False, manifest_key=None)
    assert delete(world)
    assert world.ledger.get_run("run-1") is None
    assert world.events("run.cancel.requested") == []
    assert sends() == [900], "the next pass"


def test_a_deletion_is_repeated_for_what_workers_wrote_in_the_meantime(
    jobs: SplitterWorld, sends: Callable[[], list[int]]
) -> None:
    before = left(jobs)
    assert delete(jobs)
    assert sends() == [900]
    for passes in (1, 4):
        jobs.s3.put_object(Bucket=jobs.bucket, Key=result_key("run-1", "0" * 64), Body=b"late")
        assert delete(jobs, passes=str(passes))
        assert left(jobs) == of_others(before)
        assert sends() == ([900] if passes < 4 else []), "an hour later it is over"


def test_a_deletion_that_waited_in_the_dead_letter_queue_is_repeated_too(
    jobs: SplitterWorld, sends: Callable[[], list[int]]
) -> None:
    assert delete(jobs, attempt="5")
    assert sends() == [900]


@pytest.mark.parametrize("shards", [1, 4])
def test_a_deletion_is_repeated_for_tasks_that_a_hanging_ingestion_wrote_in_the_meantime(
    world: SplitterWorld, shards: int
) -> None:
    """The tasks of a block are written without a look at the run. By then the run's item is gone."""
    ingest_run(world.ledger, "run-1", ["https://example.org/"], shard_count=shards)
    run = world.ledger.run("run-1")
    world.end_tasks("run-1")
    assert world.ledger.record_end(world.ledger.run("run-1"), "completed")
    assert delete(world)
    world.ledger.add_tasks(run, 0, [f"https://example.org/{n}" for n in range(20)])
    assert delete(world, passes="1")
    assert left(world) == set()


def test_a_run_of_a_deleted_job_that_is_opened_late_is_stopped(world: SplitterWorld) -> None:
    assert delete(world)
    world.put_urls(urls=["https://example.org/"])
    assert world.split("run-1", KEY)
    assert [error for error, _ in world.state_machine.refusals] == ["RunEnded"]
    assert world.tasks("run-1") == []


UPLOAD_ID = "0" * 32
UPLOAD = upload_key("acme", UPLOAD_ID)


def put_upload(world: SplitterWorld, *job_ids: str) -> None:
    """An upload that these jobs have taken."""
    world.s3.put_object(Bucket=world.bucket, Key=UPLOAD, Body=b"cube")
    key = upload_item_key("acme", UPLOAD_ID)
    world.deps.jobs.create({**key, "job_ids": set(job_ids)}, key="PK")
    for job_id in job_ids:
        world.deps.jobs.update(job_key("acme", job_id), Change({"upload_id": UPLOAD_ID}))


def test_a_job_is_deleted_with_its_upload(jobs: SplitterWorld) -> None:
    put_upload(jobs, "job")
    before = left(jobs)
    assert delete(jobs)
    assert left(jobs) == of_others(before) - {UPLOAD}
    (item,) = jobs.deps.jobs.query(Key("PK").eq(upload_item_key("acme", UPLOAD_ID)["PK"]))
    assert "deleted_at" in item, "no job takes a file that is sent again"
    assert now().timestamp() < item["expires_at"] < now().timestamp() + 100_000


def test_an_upload_stays_until_the_last_job_that_has_taken_it_is_deleted(jobs: SplitterWorld) -> None:
    put_upload(jobs, "job", "other")
    assert delete(jobs)
    assert jobs.objects(UPLOAD) == [UPLOAD]
    assert delete(jobs, job_id="other")
    assert jobs.objects(UPLOAD) == []


@pytest.mark.parametrize("point", ["delete.upload_released", "delete.upload_marked", "delete.upload_deleted"])
def test_the_next_delivery_continues_the_deletion_of_an_upload(jobs: SplitterWorld, point: str) -> None:
    put_upload(jobs, "job")
    jobs.die_at(point)
    assert not delete(jobs)
    assert delete(jobs)
    assert jobs.objects(UPLOAD) == []


def test_an_upload_that_a_job_takes_during_the_deletion_of_another_one_stays(jobs: SplitterWorld) -> None:
    put_upload(jobs, "job")

    def take() -> None:
        jobs.deps.jobs.update(upload_item_key("acme", UPLOAD_ID), Change(includes={"job_ids": {"late"}}))

    jobs.hooks["delete.upload_released"] = take
    assert delete(jobs)
    assert jobs.objects(UPLOAD) == [UPLOAD]


@pytest.fixture
def sends(world: SplitterWorld) -> Callable[[], list[int]]:
    """The delays of the messages that were sent to the queue `split` since the last call."""
    delays: list[int] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        if params["QueueUrl"] == world.urls["split"]:
            delays.extend(entry["DelaySeconds"] for entry in params["Entries"])

    def look() -> list[int]:
        found, delays[:] = list(delays), []
        return found

    world.sqs.meta.events.register("provide-client-params.sqs.SendMessageBatch", note)
    return look
