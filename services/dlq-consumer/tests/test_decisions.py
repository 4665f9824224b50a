"""What happens to a dead letter: every case, without AWS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dlq_world import chunk_message
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts import ChunkItem, ChunkStatus, Envelope, FitParams, RunSplit, SpectraRefit
from prismline_dlq_consumer.dead_letter import DeadLetter, parse, read_dead_letter
from prismline_dlq_consumer.decisions import MAX_ATTEMPTS, Action, Resource, attempts_used, decide
from prismline_dlq_consumer.healing import sent_back

UP, DOWN = Resource("gpu", up=True), Resource("gpu", up=False)


def letter(body: str | None = None, **fields: Any) -> DeadLetter:
    body = chunk_message("r", "chunk-0000000") if body is None else body
    envelope, command, invalid = parse(body)
    base = {"message_id": "m", "source_queue": "chunks", "receive_count": 1}
    return DeadLetter(body=body, envelope=envelope, command=command, invalid=invalid, **(base | fields))


def item(status: str = "IN_PROGRESS", **fields: Any) -> ChunkItem:
    base = {
        "PK": "r",
        "SK": "CHUNK#chunk-0000000",
        "status": status,
        "chunk_key": "k",
        "n_spectra": 1,
        "n_items": 1,
        "created_at": "2026-03-01T12:00:00.000Z",
    }
    return ChunkItem.model_validate(base | fields)


def refit() -> str:
    command = SpectraRefit(
        run_id="r",
        survey="s",
        chunk_id="chunk-0000000",
        bucket="b",
        chunk_key="k",
        output_key="o",
        params=FitParams(),
        rows=[1],
    )
    return Envelope.wrap(command, source="prismline/test", traceparent=None).to_json()


def test_dlq_consumer_marks_failed_after_5_receives() -> None:
    decision = decide(letter(receive_count=6), item(last_error="S3 said 503.", attempts=5), None)
    assert decision.action is Action.FAIL
    assert decision.reason == "S3 said 503. Given up after 5 attempts."
    assert decide(letter(receive_count=5), item(), None).action is Action.RESEND


def test_dlq_consumer_gpu_down_extends_visibility() -> None:
    decision = decide(letter(), item(), DOWN)
    assert (decision.action, decision.reason) == (Action.DEFER, "The resource gpu is down.")


def test_dlq_consumer_gpu_up_invokes_handler() -> None:
    assert decide(letter(), item(), UP).action is Action.RESEND


def test_a_chunk_that_waited_for_a_resource_all_day_has_used_up_nothing() -> None:
    assert decide(letter(receive_count=97), item(deferrals=96), UP).action is Action.RESEND


def test_deferrals_before_this_dispatch_do_not_make_up_for_its_receipts() -> None:
    body = chunk_message("r", "chunk-0000000", deferrals=96, attempt=2)
    message = read_dead_letter({"messageId": "m", "body": body, "attributes": {"ApproximateReceiveCount": "6"}}, "t")
    assert decide(message, item(deferrals=96), UP).action is Action.FAIL


def test_a_resource_that_is_down_does_not_save_a_chunk_whose_attempts_are_used_up() -> None:
    assert decide(letter(attempt=6), item(), DOWN).action is Action.FAIL


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_a_chunk_that_has_ended_needs_nothing(status: str) -> None:
    assert decide(letter(receive_count=9), item(status), DOWN).action is Action.SETTLE


def test_a_cancelled_run_needs_nothing() -> None:
    assert decide(letter(), item(), DOWN, cancelled=True).action is Action.SETTLE


def test_what_is_no_message_is_only_archived_with_what_is_wrong_with_it() -> None:
    decision = decide(letter("{not json"), None, None)
    assert (decision.action, decision.reason) == (Action.ARCHIVE, "It is not a JSON object.")


def test_a_message_of_a_chunk_that_the_ledger_does_not_know_is_only_archived() -> None:
    decision = decide(letter(), None, None)
    assert decision.action is Action.ARCHIVE
    assert decision.reason == "There is no chunk-0000000 of run r in the ledger."


def test_what_its_service_gave_up_on_for_good_is_not_tried_again() -> None:
    decision = decide(letter(error="The chunk file is no archive."), item(), UP)
    assert (decision.action, decision.reason) == (Action.FAIL, "The chunk file is no archive.")


def test_a_refit_goes_on_although_its_chunk_is_completed() -> None:
    assert decide(letter(refit()), item("COMPLETED", n_timed_out=1), None).action is Action.RESEND
    assert decide(letter(refit()), item("COMPLETED", n_timed_out=0), None).action is Action.SETTLE


def test_a_recovery_tries_a_failed_chunk_once_more_but_not_a_completed_one() -> None:
    assert decide(letter(), item("FAILED"), None, recovering=True).action is Action.RESEND
    assert decide(letter(), item("COMPLETED"), None, recovering=True).action is Action.SETTLE


def test_messages_without_a_chunk_are_sent_back_and_given_up_too() -> None:
    split = RunSplit(run_id="r", job_id="j", bucket="b", manifest_key="m")
    body = Envelope.wrap(split, source="prismline/test", traceparent=None).to_json()
    assert decide(letter(body), None, None).action is Action.RESEND
    assert decide(letter(body, attempt=6), None, None).action is Action.FAIL
    assert sent_back(letter(body, attempt=2), None) == (body, {"attempt": "3"})


@given(
    attempt=st.integers(1, 10),
    receives=st.integers(1, 200),
    deferrals=st.integers(0, 300),
    status=st.sampled_from(ChunkStatus),
    up=st.booleans(),
)
def test_a_message_sent_back_has_always_used_up_more_than_before(
    attempt: int, receives: int, deferrals: int, status: ChunkStatus, up: bool
) -> None:
    """So there can be no loop: after at most MAX_ATTEMPTS times it is given up."""
    message = letter(chunk_message("r", "chunk-0000000", attempt=attempt), attempt=attempt, receive_count=receives)
    chunk = item(status.value, deferrals=deferrals)
    decision = decide(message, chunk, Resource("gpu", up=up))
    if decision.action is not Action.RESEND:
        return
    assert attempts_used(message, chunk) <= MAX_ATTEMPTS
    assert attempt <= MAX_ATTEMPTS
    body, _ = sent_back(message, chunk)
    again = read_dead_letter({"messageId": "n", "body": body}, "t")
    assert again.attempt == attempt + 1
    assert attempts_used(again, chunk) >= attempt + 1


def test_a_message_sent_back_is_otherwise_the_same() -> None:
    message = letter()
    body, attributes = sent_back(message, item(deferrals=4))
    before, after = json.loads(message.body), json.loads(body)
    assert after["data"].pop("attempt") == 2
    assert after["data"].pop("deferrals") == 4
    assert before["data"].pop("attempt") == 1
    assert before["data"].pop("deferrals") == 0
    assert after == before
    assert attributes == {"attempt": "2"}


def test_receipts_by_the_queue_that_gave_up_do_not_count() -> None:
    """SQS counts on when it moves a message: the first receipt of the consumer is the sixth."""
    moved = {"ApproximateReceiveCount": "6", "DeadLetterQueueSourceArn": "arn:aws:sqs:::chunks"}
    record = {"messageId": "m", "body": "{}", "attributes": moved}
    assert read_dead_letter(record, "t").receive_count == 1
