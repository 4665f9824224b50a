"""Ingestion that dies, is delivered twice or is stopped: every line of a list is one task, sent and counted once."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from splitter_world import SplitterWorld, die

from prismline_contracts.commands import Queue, run_queue_name
from prismline_contracts.delivery import LIMITS
from prismline_contracts.jobs import job_run_key, rejects_key
from prismline_contracts.tasks import partition, shard_of, task_id
from prismline_ledger import NewRun, TaskEnding, Tolerance
from prismline_ledger.testing import ingest_run
from prismline_splitter import ingestion, submission

pytestmark = pytest.mark.emulator

RUN, KEY = "run-1", "jobs/job/manifest-run-1.json"
#: The fault points of every block of an ingestion, in their order.
BLOCK_POINTS = ("ingest.tasks_written", "ingest.messages_sent", "ingest.rejects_written", "ingest.checkpointed")
#: All fault points of an ingestion in their order, one between each pair of steps.
POINTS = (
    "split.run_opened",
    "ingest.queue_created",
    *BLOCK_POINTS,
    "ingest.rejects_merged",
    "ingest.total_set",
    "ingest.latched",
    "split.answered",
    "split.announced",
)
#: Every seventh line of the list is bad.
LINES = [f"https://example.org/{n}" if n % 7 else f"nonsense {n}" for n in range(100)]
URLS = [line for line in LINES if line.startswith("https")]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a list of a hundred lines three blocks, four shards and its own queue."""
    monkeypatch.setattr(ingestion, "LEAST_BLOCK_TASKS", 40)
    monkeypatch.setattr(ingestion, "BLOCK_TASKS_PER_SHARD", 10)
    monkeypatch.setattr(ingestion, "TASKS_OF_ONE_SHARD", 50)
    monkeypatch.setenv("OWN_QUEUE_TASKS", "50")


@pytest.fixture
def listed(world: SplitterWorld) -> SplitterWorld:
    """A world in which a manifest names a list."""
    world.put_urls(list=world.put_list("\n".join(LINES).encode()))
    return world


def own_queue(world: SplitterWorld, run_id: str = RUN) -> str:
    return run_queue_name(world.deps.transport.environment, run_id)


def assert_ingested(world: SplitterWorld, urls: list[str], *, queue: str, run_id: str = RUN) -> None:
    """Each URL is one task, has been sent and is counted, and the waiting task was answered."""
    run, tasks = world.ledger.run(run_id), world.tasks(run_id)
    assert [task.source for task in tasks] == urls
    assert [task.index for task in tasks] == list(range(len(urls)))
    assert [task.task_id for task in tasks] == [task_id(run_id, index) for index in range(len(urls))]
    assert run.latched_at is not None
    assert run.chunks_total == len(urls)
    if run.shard_count > 1:
        totals = [shard.total for shard in world.ledger.shards(run)]
        assert totals == [sum(partition(run_id, n, run.shard_count) == task.PK for task in tasks) for n in range(4)]
    messages = world.task_messages(queue)
    assert {name for message in messages for name in message.task_ids} == {task.task_id for task in tasks}
    for message in messages:
        assert {shard_of(name, run.shard_count) for name in message.task_ids} == {message.shard}
        assert (message.workload, message.shard_count, message.job_id) == ("urls", run.shard_count, "job")
    assert world.state_machine.refusals == []
    assert {answer["jobs_total"] for answer in world.state_machine.answers} == {len(urls)}
    world.end_tasks(run_id)
    run = world.ledger.run(run_id)
    assert run.drained_at is not None
    assert (run.chunks_completed, run.chunks_failed) == (len(urls), 0)


def rejects(world: SplitterWorld, run_id: str = RUN) -> list[dict[str, Any]]:
    body = world.s3.get_object(Bucket=world.bucket, Key=rejects_key("job", run_id))["Body"].read()
    return [json.loads(line) for line in body.splitlines()]


def assert_rejects(world: SplitterWorld) -> None:
    """The reject file has every bad line once, with its number and the reason; the run shows how many there are."""
    found = rejects(world)
    assert [(each["line"], each["text"]) for each in found] == [(n + 1, f"nonsense {n}") for n in range(0, 100, 7)]
    assert {each["reason"] for each in found} == {
        "the URL contains a space or a control character; it must be percent-encoded"
    }
    run = world.ledger.run(RUN)
    assert (run.n_rejected, run.rejects_key) == (len(found), rejects_key("job", RUN))


# ---- lists


@pytest.mark.parametrize("compressed", [False, True])
def test_a_staged_list_becomes_tasks_and_a_file_of_rejected_lines(world: SplitterWorld, compressed: bool) -> None:
    body = "\n".join(LINES).encode()
    world.put_urls(list=world.put_list(gzip.compress(body) if compressed else body) | {"gzip": compressed})
    assert world.split(RUN, KEY)
    assert world.ledger.run(RUN).shard_count == 4
    assert_ingested(world, URLS, queue=own_queue(world))
    assert_rejects(world)
    (event,) = world.events("run.split.completed")
    assert event["data"]["jobs_total"] == len(URLS)


@pytest.mark.parametrize(
    ("list_format", "render"),
    [("text", str), ("jsonl", lambda url: json.dumps({"url": url})), ("csv", lambda url: f"1,{url}")],
)
def test_a_small_list_has_one_partition_and_the_shared_queue(
    world: SplitterWorld, list_format: str, render: Any
) -> None:
    header = ["id,url"] if list_format == "csv" else []
    body = "\n".join([*header, *map(render, URLS[:30])])
    world.put_urls(list=world.put_list(body.encode(), list_format=list_format))
    assert world.split(RUN, KEY)
    run = world.ledger.run(RUN)
    assert (run.shard_count, run.unit, run.task_queue, run.n_rejected) == (1, "task", None, 0)
    assert_ingested(world, URLS[:30], queue="tasks")


def test_the_queue_of_a_large_run_has_its_limits_its_dead_letter_queue_and_a_tag(listed: SplitterWorld) -> None:
    assert listed.split(RUN, KEY)
    assert listed.ledger.run(RUN).task_queue == own_queue(listed)
    url = listed.sqs.get_queue_url(QueueName=own_queue(listed))["QueueUrl"]
    attributes = listed.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    limits = LIMITS[Queue.TASKS]
    assert int(attributes["VisibilityTimeout"]) == limits.visibility_seconds
    assert int(attributes["MessageRetentionPeriod"]) == limits.retention_seconds
    redrive = json.loads(attributes["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"].endswith("-tasks-dlq")
    assert int(redrive["maxReceiveCount"]) == 5
    assert listed.sqs.list_queue_tags(QueueUrl=url)["Tags"]["prismline:run_id"] == RUN


def test_a_list_that_was_replaced_after_it_was_submitted_fails_the_run(listed: SplitterWorld) -> None:
    listed.put_list(b"https://example.org/other")
    assert listed.split(RUN, KEY)
    ((error, cause),) = listed.state_machine.refusals
    assert error == "ValidationFailed"
    assert cause.endswith("uploads/t/list was replaced after the run had been submitted; submit it again.")


def test_a_list_without_a_version_is_read_as_it_was_first_found(world: SplitterWorld) -> None:
    del (listed := world.put_list("\n".join(LINES).encode()))["etag"]
    world.put_urls(list=listed)
    world.die_at("ingest.checkpointed")
    assert not world.split(RUN, KEY)
    world.put_list("\n".join(LINES * 2).encode())
    assert world.split(RUN, KEY)
    assert [error for error, _ in world.state_machine.refusals] == ["ValidationFailed"]


def test_a_list_without_any_url_fails_the_run_with_the_first_reason(world: SplitterWorld) -> None:
    world.put_urls(list=world.put_list(b"\n\nexample.org\n" + b"nonsense\n" * 100))
    assert world.split(RUN, KEY)
    ((_, cause),) = world.state_machine.refusals
    assert cause == (
        "None of the list's 101 lines is a task; the first one: line 3, it is not an absolute http or https URL."
    )


def test_a_truncated_upload_fails_the_run_and_the_reason_says_what_to_do(world: SplitterWorld) -> None:
    body = gzip.compress("\n".join(f"{url}?{hash(url)}" for url in URLS * 500).encode())
    world.put_urls(list=world.put_list(body[: len(body) // 2]))
    assert world.split(RUN, KEY)
    ((error, cause),) = world.state_machine.refusals
    assert (error, cause) == (
        "ValidationFailed",
        "uploads/t/list is truncated: its gzip stream has no end. Upload it again.",
    )
    assert world.ledger.run(RUN).latched_at is None


# ---- deliveries that die or are repeated


@pytest.mark.parametrize("point", ["ingest.queue_created", "ingest.checkpointed"])
def test_an_ingestion_whose_queue_is_gone_creates_it_again(listed: SplitterWorld, point: str) -> None:
    """The queue and its messages are lost. The tasks of blocks that were checkpointed are left to the sweeper."""
    listed.die_at(point)
    assert not listed.split(RUN, KEY)
    url = listed.sqs.get_queue_url(QueueName=own_queue(listed))["QueueUrl"]
    listed.sqs.delete_queue(QueueUrl=url)
    assert listed.split(RUN, KEY)
    assert listed.ledger.run(RUN).latched_at is not None
    assert listed.task_messages(own_queue(listed))


@pytest.mark.parametrize(
    ("point", "block"),
    [(point, 1) for point in POINTS] + [(point, block) for point in BLOCK_POINTS for block in (2, 3)],
)
def test_an_ingestion_that_dies_is_continued_by_the_next_delivery(
    listed: SplitterWorld, point: str, block: int
) -> None:
    die_at_nth(listed, point, block)
    assert not listed.split(RUN, KEY)
    assert listed.split(RUN, KEY)
    assert_ingested(listed, URLS, queue=own_queue(listed))
    assert_rejects(listed)
    assert len({event["id"] for event in listed.events("run.split.completed")}) == 1


def test_an_ingestion_that_dies_at_every_step_completes_in_the_end(listed: SplitterWorld) -> None:
    deaths = 0
    for point in POINTS:
        for _ in range(3 if point in BLOCK_POINTS else 1):
            listed.die_at(point)
            deaths += not listed.split(RUN, KEY)
            listed.hooks.clear()
    assert deaths > len(POINTS)
    assert listed.split(RUN, KEY)
    assert_ingested(listed, URLS, queue=own_queue(listed))
    assert_rejects(listed)


@pytest.mark.parametrize("point", POINTS)
def test_an_ingestion_that_is_delivered_twice_counts_once(listed: SplitterWorld, point: str) -> None:
    """The second delivery runs while the first one is at `point`."""
    listed.hooks[point] = lambda: listed.assert_split_by_another(RUN, KEY)
    if not listed.split(RUN, KEY):  # it found that another delivery is ingesting the run
        assert listed.split(RUN, KEY)
    assert listed.split(RUN, KEY)
    assert_ingested(listed, URLS, queue=own_queue(listed))
    assert_rejects(listed)
    assert listed.dead_letters() == []


def test_a_redelivery_reads_and_sends_only_what_the_checkpoint_does_not_have(listed: SplitterWorld) -> None:
    die_at_nth(listed, "ingest.checkpointed", 2)
    assert not listed.split(RUN, KEY)
    sent = {name for message in listed.task_messages(own_queue(listed)) for name in message.task_ids}
    assert len(sent) == sum(line.startswith("https") for line in LINES[:80])
    assert listed.split(RUN, KEY)
    again = {name for message in listed.task_messages(own_queue(listed)) for name in message.task_ids}
    assert sent.isdisjoint(again)
    assert len(sent | again) == len(URLS)


def test_tasks_that_have_ended_before_a_block_is_repeated_stay_ended(listed: SplitterWorld) -> None:
    def work_and_die() -> None:
        listed.end_tasks(RUN)
        die()

    listed.hooks["ingest.messages_sent"] = work_and_die
    assert not listed.split(RUN, KEY)
    done = {task.index: task.completed_at for task in listed.tasks(RUN)}
    assert done
    assert listed.split(RUN, KEY)
    assert {task.index: task.completed_at for task in listed.tasks(RUN) if task.index in done} == done
    assert_ingested(listed, URLS, queue=own_queue(listed))


@pytest.mark.parametrize("point", ["split.run_opened", "ingest.queue_created", "ingest.checkpointed"])
def test_an_ingestion_that_continues_after_another_one_undoes_nothing(listed: SplitterWorld, point: str) -> None:
    """It is about to write a block that the other ingestion has written and sent, and whose tasks have ended."""
    ended: list[Any] = []

    def sleep_while_another_works() -> None:
        listed.assert_split_by_another(RUN, KEY)
        listed.end_tasks(RUN)
        ended.extend(listed.tasks(RUN))

    listed.hooks[point] = sleep_while_another_works
    listed.split(RUN, KEY)
    assert len(ended) == len(URLS)
    assert listed.tasks(RUN) == ended
    run = listed.ledger.run(RUN)
    assert (run.chunks_completed, run.chunks_failed) == (len(URLS), 0)


@pytest.mark.parametrize("point", ["split.run_opened", "ingest.tasks_written", "ingest.messages_sent"])
def test_an_ingestion_notices_after_a_block_that_its_run_is_stopped(listed: SplitterWorld, point: str) -> None:
    listed.hooks[point] = lambda: listed.ledger.stop_run(RUN, "cancelled")
    assert listed.split(RUN, KEY)
    assert len(listed.tasks(RUN)) <= 40
    assert [error for error, _ in listed.state_machine.refusals] == ["RunEnded"]
    assert listed.ledger.run(RUN).latched_at is None
    assert listed.events("run.split.completed", "run.drained") == []


def test_an_ingestion_lets_other_commands_run_after_each_slice(listed: SplitterWorld) -> None:
    listed.deps = replace(listed.deps, slice_seconds=0.0)
    listed.put_urls("jobs/small.json", urls=URLS[:3])
    assert listed.split(RUN, KEY)
    assert listed.ledger.run(RUN).latched_at is None
    assert listed.split("small", "jobs/small.json")
    assert listed.ledger.run("small").latched_at is None, "its only block is done, but the next delivery latches it"
    listed.state_machine.answers.clear()
    listed.task_messages()
    deliveries = listed.deliver_all()
    assert deliveries == 4
    assert listed.ledger.run("small").chunks_total == 3
    listed.state_machine.answers = [each for each in listed.state_machine.answers if each["jobs_total"] > 3]
    assert_ingested(listed, URLS, queue=own_queue(listed))
    assert_rejects(listed)


def test_small_runs_are_split_while_a_long_list_is_ingested(listed: SplitterWorld) -> None:
    """A splitter process takes several commands at a time, so this happens in one process."""
    small = [f"small-{number}" for number in range(4)]
    for run_id in small:
        listed.put_urls(f"jobs/{run_id}.json", urls=URLS[:30])
    latched: list[bool] = []

    def split_the_small_ones() -> None:
        with ThreadPoolExecutor(len(small)) as pool:
            assert all(pool.map(lambda run_id: listed.split(run_id, f"jobs/{run_id}.json"), small))
        latched.extend(listed.ledger.run(run_id).latched_at is not None for run_id in [RUN, *small])

    listed.hooks["ingest.checkpointed"] = split_the_small_ones
    assert listed.split(RUN, KEY)
    assert latched == [False, True, True, True, True]
    for run_id in small:
        assert [task.source for task in listed.tasks(run_id)] == URLS[:30]


def test_an_ingestion_that_dies_after_it_sent_its_command_again_counts_once(listed: SplitterWorld) -> None:
    listed.deps = replace(listed.deps, slice_seconds=0.0)
    listed.die_at("split.handed_on")
    assert not listed.split(RUN, KEY)
    assert listed.split(RUN, KEY), "its message is redelivered, in addition to the one that was sent"
    listed.deliver_all()
    assert_ingested(listed, URLS, queue=own_queue(listed))
    assert_rejects(listed)


# ---- manifests, batches, reruns


def test_a_job_is_announced_once_however_often_its_command_is_delivered(world: SplitterWorld) -> None:
    world.put_urls(urls=URLS[:3], tolerated_failure_percent=5.0)
    assert world.ingest_job(RUN, KEY)
    assert world.ingest_job(RUN, KEY)
    first, second = world.events("run.submitted")
    assert first == second | {"time": first["time"]}
    assert first["data"] | {"bucket": ""} == {
        "run_id": RUN,
        "job_id": "job",
        "bucket": "",
        "manifest_key": KEY,
        "survey": "pages",
        "workload": "urls",
        "tolerated_failure_percent": 5.0,
    }


def test_the_run_of_an_open_job_gets_to_know_its_manifest_when_the_job_is_closed(world: SplitterWorld) -> None:
    """The api opened the run with the first batch, when there was no manifest. The sweeper needs it."""
    ingest_run(world.ledger, RUN, URLS[:3], latch=False)
    assert world.ledger.run(RUN).manifest_key is None
    world.put_urls(batches={"prefix": "jobs/job/batches/", "count": 3})
    assert world.ingest_job(RUN, KEY)
    assert world.ledger.run(RUN).manifest_key == KEY
    assert world.ledger.run(RUN).latched_at is None


def test_a_job_whose_request_was_cut_off_is_started_if_it_was_written(world: SplitterWorld) -> None:
    world.put_urls(urls=URLS[:3])
    item = {"PK": {"S": job_run_key(RUN)["PK"]}, "SK": {"S": job_run_key(RUN)["SK"]}}
    boto3.client("dynamodb").put_item(TableName=world.deps.jobs.name, Item=item)
    assert world.ingest_job(RUN, KEY, in_advance=True)
    (submitted,) = world.events("run.submitted")
    assert submitted["data"]["run_id"] == RUN


def test_a_job_whose_request_was_cut_off_before_it_was_written_does_not_exist(world: SplitterWorld) -> None:
    world.put_urls(urls=URLS[:3])
    assert world.ingest_job(RUN, KEY, in_advance=True, age=1000)
    assert world.ingest_job(RUN, KEY, in_advance=True, age=1000)
    assert world.events("run.submitted") == []
    assert KEY not in list(world.deps.bucket.list("jobs/"))


def test_a_job_is_started_that_is_written_later_than_its_command_arrives(
    world: SplitterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request took longer than the delay of the command that it had sent in advance."""
    monkeypatch.setattr(submission, "LOOK_AGAIN_SECONDS", 0)
    world.put_urls(urls=URLS[:3])
    assert world.ingest_job(RUN, KEY, in_advance=True, age=120)
    item = {"PK": {"S": job_run_key(RUN)["PK"]}, "SK": {"S": job_run_key(RUN)["SK"]}}
    boto3.client("dynamodb").put_item(TableName=world.deps.jobs.name, Item=item)
    assert world.deliver_all() == 1
    (submitted,) = world.events("run.submitted")
    assert submitted["data"]["run_id"] == RUN


def test_a_run_with_slots_is_refused_where_nothing_counts_them(world: SplitterWorld) -> None:
    world.put_urls(urls=URLS[:3], max_concurrency=2)
    assert world.split(RUN, KEY)
    ((error, reason),) = world.state_machine.refusals
    assert error == "ValidationFailed"
    assert "has no Valkey server" in reason
    assert "without max_concurrency" in reason
    assert world.task_messages() == []


def test_where_no_run_has_a_queue_of_its_own_all_tasks_are_in_the_shared_one(
    aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OWN_QUEUE_TASKS", "0")
    world = SplitterWorld.create(aws_env["ENVIRONMENT"], monkeypatch, tmp_path)
    world.put_urls(list=world.put_list("\n".join(LINES).encode()))
    assert world.split(RUN, KEY)
    assert world.ledger.run(RUN).task_queue is None
    assert_ingested(world, URLS, queue="tasks")


def test_the_urls_of_a_manifest_are_tasks(
    aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRISMLINE_VALKEY_URL", "valkey://slots.example:6379")
    world = SplitterWorld.create(aws_env["ENVIRONMENT"], monkeypatch, tmp_path)
    limits = {"max_concurrency": 3, "priority": 7, "tenant": "acme", "deadline_at": "2030-01-01T00:00:00Z"}
    world.put_urls(urls=URLS[:30], params={"timeout_s": 5.0}, **limits)
    assert world.split(RUN, KEY)
    run = world.ledger.run(RUN)
    assert {name: getattr(run, name) for name in limits} == limits
    (message,) = world.task_messages()
    assert (message.max_concurrency, message.params["timeout_s"]) == (3, 5.0)
    assert world.split(RUN, KEY)
    assert [task.source for task in world.tasks(RUN)] == URLS[:30]


def put_batches(world: SplitterWorld, sizes: list[int]) -> Iterator[str]:
    first = 0
    for size in sizes:
        batch = [f"https://example.org/{n}" for n in range(first, first + size)]
        body = "\n".join(json.dumps({"url": url}) for url in batch).encode()
        world.s3.put_object(Bucket=world.bucket, Key=f"jobs/job/batches/{first:012d}.jsonl", Body=body)
        first += size
        yield from batch


@pytest.mark.parametrize("point", [None, "ingest.tasks_written", "ingest.messages_sent", "ingest.checkpointed"])
def test_the_tasks_of_a_closed_job_have_the_indices_that_its_batches_reserved(
    world: SplitterWorld, point: str | None
) -> None:
    urls = list(put_batches(world, [40, 1, 30]))
    world.put_urls(batches={"prefix": "jobs/job/batches/", "count": len(urls)})
    if point is not None:
        die_at_nth(world, point, 2)
        assert not world.split(RUN, KEY)
    assert world.split(RUN, KEY)
    assert_ingested(world, urls, queue=own_queue(world))


def test_the_close_of_an_open_job_sends_only_tasks_that_no_worker_has_begun(world: SplitterWorld) -> None:
    urls = list(put_batches(world, [30, 30]))
    new = NewRun(run_id=RUN, survey="pages", job_id="job", workload="urls", unit="task", shard_count=4)
    run = world.ledger.open_run(new)
    world.ledger.add_tasks(run, 0, urls[:30])
    world.end_tasks(RUN)
    world.ledger.add_tasks(run, 30, urls[30:58])
    world.ledger.start_tasks(run, [task for task in world.tasks(RUN) if task.index >= 30])
    world.put_urls(batches={"prefix": "jobs/job/batches/", "count": len(urls)})
    assert world.split(RUN, KEY)
    sent = sorted(name for message in world.task_messages(own_queue(world)) for name in message.task_ids)
    assert sent == sorted(task_id(RUN, index) for index in (58, 59))
    assert world.ledger.run(RUN).chunks_total == 60


def test_a_run_that_a_slow_request_opens_after_its_job_is_closed_gets_its_manifest(world: SplitterWorld) -> None:
    """The sweeper and a deletion look only after runs that have a manifest."""
    world.put_urls(batches={"prefix": "jobs/job/batches/", "count": len(list(put_batches(world, [3])))})
    world.ledger.open_run(NewRun(run_id=RUN, survey="pages", job_id="job", workload="urls", unit="task"))
    assert world.split(RUN, KEY)
    assert world.ledger.run(RUN).manifest_key == KEY


@pytest.mark.parametrize("only", ["all", "failed"])
@pytest.mark.parametrize("point", [None, "ingest.tasks_written", "ingest.messages_sent", "ingest.checkpointed"])
def test_a_rerun_has_the_tasks_of_the_earlier_run(listed: SplitterWorld, only: str, point: str | None) -> None:
    """A recovery completes failed tasks while the rerun reads them. That does not change a block that was read."""
    assert listed.split(RUN, KEY)
    listed.end_tasks(RUN, failing=lambda task: task.index % 2 == 0)
    again, key = "run-2", "jobs/job/manifest-run-2.json"
    listed.put_urls(key, rerun={"run_id": RUN, "only": only})
    if point is not None:
        listed.die_at(point)
        assert not listed.split(again, key)
        sent = {task.source for task in listed.tasks(again)}
        listed.complete_late(RUN, [task for task in listed.tasks(RUN) if task.source in sent and task.error])
    assert listed.split(again, key)
    wanted = URLS if only == "all" else URLS[::2]
    tasks = listed.tasks(again)
    assert sorted(task.source for task in tasks) == sorted(wanted)
    assert [task.index for task in tasks] == list(range(len(wanted)))
    run = listed.ledger.run(again)
    assert run.chunks_total == len(wanted)
    listed.end_tasks(again)
    assert listed.ledger.run(again).chunks_completed == len(wanted)


def test_a_rerun_of_the_rest_has_what_failed_and_what_a_stopped_run_skipped(world: SplitterWorld) -> None:
    world.put_urls(urls=URLS[:9], tolerated_failures=2, tolerated_failure_percent=50.0)
    assert world.split(RUN, KEY)
    run = world.ledger.run(RUN)
    assert Tolerance.of(run) == Tolerance(percent=50.0, failures=2)
    ended = [task for task in world.tasks(RUN) if task.index < 6]
    world.ledger.end_tasks(run, [TaskEnding(task, error="spoiled") for task in ended])
    world.complete_late(RUN, [task for task in world.tasks(RUN) if 3 <= task.index < 6])
    world.ledger.stop_run(RUN, "failed")
    world.put_urls("jobs/job/m2.json", rerun={"run_id": RUN, "only": "rest"})
    assert world.split("run-2", "jobs/job/m2.json")
    assert sorted(task.source for task in world.tasks("run-2")) == sorted([*URLS[:3], *URLS[6:9]])


def test_a_rerun_of_failed_tasks_where_none_failed_is_done_at_once(world: SplitterWorld) -> None:
    world.put_urls(urls=URLS[:3])
    assert world.split(RUN, KEY)
    world.end_tasks(RUN)
    world.put_urls("jobs/job/m2.json", rerun={"run_id": RUN, "only": "failed"})
    assert world.split("run-2", "jobs/job/m2.json")
    run = world.ledger.run("run-2")
    assert run.chunks_total == 0
    assert run.drained_at is not None


def die_at_nth(world: SplitterWorld, point: str, n: int) -> None:
    """Make the next delivery die when it is at `point` for the n-th time."""
    if n == 1:
        world.die_at(point)
    else:
        world.hooks[point] = lambda: die_at_nth(world, point, n - 1)
