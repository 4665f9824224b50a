"""What a run does or waits for in each of its states, as people read it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from prismline_contracts.items import ChunkItem, RunItem
from prismline_contracts.pools import in_pool
from prismline_contracts.tasks import TaskItem
from prismline_ledger import Counts, Observed, QueueLook, Retries, conditions_of, pace, queue_of, retry_of

MOMENT = "2026-03-10T12:00:00.000Z"
NOW = datetime(2026, 3, 10, 12, 0, 10, tzinfo=UTC)
RUNNING = Observed("r", MOMENT, "running")


def run(**fields: Any) -> RunItem:
    base = {"PK": "r", "GSI1_PK": "s", "GSI1_SK": MOMENT, "survey": "s", "job_id": "j", "workload": "spectra"}
    return RunItem.model_validate(base | {"created_at": MOMENT, "latched_at": MOMENT} | fields)


def chunk(**fields: Any) -> ChunkItem:
    base = {"PK": "r", "SK": "CHUNK#chunk-0000010", "status": "PENDING", "chunk_key": "chunks/r/c.npz", "n_items": 1}
    base |= {"reference_n_items": 1, "created_at": MOMENT}
    return ChunkItem.model_validate(base | fields, by_name=True)


def said(observed: Observed, item: RunItem | None, counts: Counts | None = None) -> dict[str, str]:
    return {each.name.value: each.sentence for each in conditions_of(observed, item, counts, NOW)}


def test_a_run_that_the_status_service_does_not_know_is_accepted() -> None:
    assert said(Observed("r", MOMENT, None), None) == {
        "accepted": f"Accepted at {MOMENT}, not announced yet: the status service has not recorded the run."
    }


@pytest.mark.parametrize("item", [None, run(latched_at=None, unit="task")])
def test_a_run_whose_job_is_open_is_not_announced_until_it_is_closed(item: RunItem | None) -> None:
    found = said(Observed("r", MOMENT, None, job_is_open=True), item, Counts(None, 0, 0))
    assert found == {"open": "Its job is open: it takes tasks until it is closed."}


@pytest.mark.parametrize(
    ("item", "counts", "name", "sentence"),
    [
        (None, None, "splitting", "Its source is being read. No chunk or task is written yet."),
        (
            run(latched_at=None),
            Counts(None, 0, 0),
            "splitting",
            "Its source is being divided into chunks. Their number is not final.",
        ),
        (
            run(latched_at=None, unit="task", manifest_key="m.json", checkpoint='{"next_index": 60000}'),
            Counts(None, 5, 0),
            "ingesting",
            "Its list is being read: at least 60,000 tasks so far.",
        ),
        (run(n_timed_out=3), Counts(2, 2, 0), "refitting", "3 spectra ran out of time and wait to be fitted again."),
        (
            run(waiting_for="All 4 slots are taken.", waiting_at=MOMENT),
            Counts(2, 0, 0),
            "waiting",
            "All 4 slots are taken.",
        ),
    ],
)
def test_each_state_has_a_sentence(item: RunItem | None, counts: Counts | None, name: str, sentence: str) -> None:
    assert said(RUNNING, item, counts) == {name: sentence}


@pytest.mark.parametrize(
    ("status", "item"),
    [
        ("cancelled", run()),
        ("cancelled", run(cancelled_at=MOMENT, stop_reason="cancelled")),
        ("running", run(cancelled_at=MOMENT, stop_reason="cancelled")),
    ],
)
def test_a_run_is_cancelling_until_its_end_is_recorded(status: str, item: RunItem) -> None:
    observed = replace(RUNNING, status=status)
    assert said(observed, item, Counts(4, 1, 0))["cancelling"].startswith("Being cancelled: nothing more is begun.")
    assert said(observed, item.model_copy(update={"ended_at": MOMENT}), Counts(4, 1, 0)) == {}


@pytest.mark.parametrize(
    ("status", "item", "cancelling"),
    [
        ("running", run(), True),
        ("pending", None, True),
        ("cancelled", None, False),
        ("completed", run(drained_at=MOMENT), False),
        ("cancelled", run(uncancelled_at="2026-03-10T11:00:00.000Z"), True),
        ("cancelled", run(uncancelled_at="2026-03-10T13:00:00.000Z"), False),
    ],
)
def test_a_run_is_cancelling_from_the_request_on(status: str, item: RunItem | None, cancelling: bool) -> None:
    observed = replace(RUNNING, status=status, cancel_requested_at=MOMENT)
    assert ("cancelling" in said(observed, item, Counts(4, 1, 0))) == cancelling


def test_a_failed_run_whose_chunks_are_tried_again_says_how_many() -> None:
    found = said(replace(RUNNING, status="failed"), run(resumed_at=MOMENT, drains=1), Counts(10, 8, 0))
    assert found["continued"].startswith("The run had failed and is being retried: 2 of its chunks")


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (QueueLook("chunks", 40, 2), "Waiting behind other runs: at least 37 of their messages wait in the queue"),
        (QueueLook("chunks", 3, 0), None),
        (QueueLook("chunks", 0, 0, consumers=0), None),
        (QueueLook("chunks", 3, 0, consumers=2), None),
        (
            QueueLook("chunks", 1, 0, consumers=0),
            "The queue chunks has no consumer: 1 message waits in it. Start the service that reads it.",
        ),
    ],
)
def test_a_run_says_what_its_messages_wait_for(queue: QueueLook, expected: str | None) -> None:
    (found,) = said(replace(RUNNING, queue=queue), run(), Counts(4, 1, 0)).values() or ("",)
    assert found.startswith(expected or "")
    assert bool(found) == (expected is not None)


def test_a_run_that_has_ended_waits_for_nothing() -> None:
    seen = replace(RUNNING, status="completed", queue=QueueLook("chunks", 40, 2))
    assert said(seen, run(drained_at=MOMENT), Counts(4, 4, 0)) == {}


def test_the_queue_is_that_of_the_next_message() -> None:
    task_run = run(unit="task")
    found = [
        queue_of(None, None),
        queue_of(None, "pending"),
        queue_of(run(latched_at=None), "running"),
        queue_of(run(), "running"),
        queue_of(task_run, "running"),
        queue_of(task_run.model_copy(update={"task_queue": "prismline-dev-tasks-1"}), "running"),
        queue_of(task_run.model_copy(update={"PK": in_pool("r", "red")}), "running"),
    ]
    assert found == ["runs", "split", "split", "chunks", "tasks", "prismline-dev-tasks-1", "pool-red"]


def test_a_chunk_that_is_tried_again_says_which_try_and_when() -> None:
    waiting = chunk(attempts=4, interruptions=1, attempt_ended_at="2026-03-10T12:00:08.000Z", last_error="It broke.")
    retry = retry_of(waiting, run())
    assert retry is not None
    assert retry.sentence(NOW) == (
        "Being retried after an error (3 of 5, next try at 2026-03-10T12:00:12.000Z): It broke."
    )
    assert "the next try is due" in retry.sentence(datetime(2026, 3, 10, 12, 1, tzinfo=UTC))
    assert said(replace(RUNNING, retries=Retries(2, retry, more=True)), run(), Counts(4, 0, 0))["retried"].startswith(
        "At least 2 chunks are not finished after an error. chunk-0000010: Being retried after an error (3 of 5"
    )


@pytest.mark.parametrize("fields", [{"attempts": 0}, {"status": "FAILED"}, {"status": "IN_PROGRESS"}])
def test_a_chunk_that_has_not_failed_yet_or_has_ended_is_not_being_retried(fields: dict[str, Any]) -> None:
    assert retry_of(chunk(**{"attempts": 1, "last_error": "It broke.", **fields}), run()) is None


def test_a_task_is_tried_again_at_its_time_and_as_often_as_its_run_says() -> None:
    fields = {"SK": f"TASK#{'0' * 64}", "index": 0, "source": "https://example.org/", "status": "PENDING"}
    fields |= {"PK": "r", "created_at": MOMENT, "attempts": 1, "last_error": "503", "not_before": MOMENT}
    task = TaskItem.model_validate(fields)
    retry = retry_of(task, run(unit="task", workload="urls", params='{"max_attempts": 3}'))
    assert retry is not None
    assert (retry.of, retry.attempts, retry.at_least, retry.next_at) == ("https://example.org/", 1, 3, MOMENT)
    assert retry.sentence(NOW) == "Being retried after an error (1 of 3, the next try is due): 503."


def test_the_rest_takes_as_long_as_it_did_on_average() -> None:
    found = pace(Counts(30, 9, 1), MOMENT, NOW)
    assert found is not None
    assert (found.per_second, found.remaining_seconds) == (1.0, 20.0)
    assert pace(Counts(None, 9, 1), MOMENT, NOW).remaining_seconds is None  # type: ignore[union-attr]
    assert pace(Counts(30, 0, 0), MOMENT, NOW) is None


@pytest.mark.parametrize(
    ("fields", "latest", "expected"),
    [
        ({}, "b" * 64, True),
        ({}, "a" * 64, False),
        ({}, None, False),
        ({"drained_at": MOMENT}, "b" * 64, False),
        ({"drained_at": MOMENT, "finalization": "{}"}, "b" * 64, True),
        ({"cancelled_at": MOMENT}, "b" * 64, False),
    ],
    ids=["older", "same", "unknown", "drained", "not finalized", "stopped"],
)
def test_a_run_that_has_not_ended_says_that_it_keeps_an_earlier_code_alive(
    fields: dict[str, Any], latest: str | None, expected: bool
) -> None:
    item = run(unit="task", workload="measure", code="a" * 64, **fields)
    found = said(replace(RUNNING, latest_code=latest), item, Counts(2, 1, 0))
    assert ("keeps_code" in found) is expected
    if expected:
        assert found["keeps_code"].startswith(
            "It began with the code aaaaaaaaaaaa of measure, which has bbbbbbbbbbbb now."
        )
