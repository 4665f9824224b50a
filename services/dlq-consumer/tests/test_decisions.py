"""What happens to a dead letter: every case, without AWS."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dlq_world import chunk_message
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.base import timestamp
from prismline_contracts.commands import RunSplit, SpectraRefit
from prismline_contracts.deadletters import DeadlettersRecover
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunDrained
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_contracts.manifest import RefitParams
from prismline_dlq_consumer.dead_letter import DeadLetterMessage, read_archived, read_dead_letter
from prismline_dlq_consumer.decisions import (
    Action,
    Decision,
    Facts,
    LetterPatience,
    Resource,
    ResumeDecision,
    Step,
    judge,
    judge_record,
    judge_resume,
    next_step,
)
from prismline_dlq_consumer.sending import Dispatch
from prismline_ledger import Patience
from prismline_ledger import testing as kit

UP, DOWN = Resource("gpu", up=True), Resource("gpu", up=False)
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PATIENCE = LetterPatience(Patience(max_attempts=5, seconds=7200.0))


def letter(
    body: str | None = None, *, age: timedelta = HOUR, queue: str = "chunks", **attributes: str
) -> DeadLetterMessage:
    """A letter whose message was sent some time ago."""
    record = {
        "messageId": "m",
        "body": chunk_message("r", "chunk-0000000") if body is None else body,
        "attributes": {"SentTimestamp": str(round((NOW - age).timestamp() * 1000))},
        "messageAttributes": {name: {"stringValue": text, "dataType": "String"} for name, text in attributes.items()},
    }
    return read_dead_letter(record, queue)


def item(status: str = "PENDING", **fields: Any) -> ChunkItem:
    return kit.chunk_item(status, **{"created_at": timestamp(NOW - 10 * DAY)} | fields)


def used_up(*, since: timedelta = DAY, **fields: Any) -> ChunkItem:
    """A chunk whose attempts are used up, the first of them begun some time ago."""
    began = timestamp(NOW - since)
    return item(
        **{"attempts": 5, "first_started_at": began, "started_at": began, "last_error": "S3 said 503."} | fields
    )


def run_item(**fields: Any) -> RunItem:
    moment = timestamp(NOW - 10 * DAY)
    base = {"PK": "r", "GSI1_PK": "s", "GSI1_SK": moment, "survey": "s", "workload": "spectra", "job_id": "j"}
    return RunItem.model_validate(base | {"created_at": moment} | fields)


def wrapped(data: Any, *, age: timedelta = HOUR) -> str:
    message = Envelope.wrap(data, source="prismline/test", traceparent=None)
    return message.model_copy(update={"time": timestamp(NOW - age)}).to_json()


def refit(*, age: timedelta = HOUR) -> str:
    command = SpectraRefit(
        run_id="r",
        survey="s",
        chunk_id="chunk-0000000",
        bucket="b",
        chunk_key="k",
        output_key="o",
        params=RefitParams(),
    )
    return wrapped(command, age=age)


def split(*, age: timedelta = HOUR) -> str:
    return wrapped(RunSplit(run_id="r", job_id="j", bucket="b", manifest_key="m"), age=age)


def drained(*, age: timedelta = HOUR) -> str:
    moment = timestamp(NOW)
    event = RunDrained(
        run_id="r", chunks_total=1, chunks_completed=1, chunks_failed=0, failed_percent=0.0, drained_at=moment
    )
    return wrapped(event, age=age)


def decided(
    message: DeadLetterMessage,
    chunk: ChunkItem | None = None,
    run: RunItem | None = None,
    resource: Resource | None = None,
    patience: LetterPatience = PATIENCE,
) -> Decision:
    return judge(message, Facts(chunk, run, resource), NOW, patience)


class TestChunks:
    def test_a_chunk_whose_attempts_are_used_up_and_that_had_time_is_given_up(self) -> None:
        decision = decided(letter(), used_up())
        assert decision == Decision(Action.FAIL, "S3 said 503. Given up after 5 attempts.")

    @given(receives=st.integers(1, 1000), attempt=st.integers(1, 1000))
    def test_no_number_of_receipts_or_dispatches_gives_up_a_chunk(self, receives: int, attempt: int) -> None:
        """Five receives while DynamoDB was down do not count as attempts."""
        message = replace(letter(chunk_message("r", "chunk-0000000", attempt=attempt)), receive_count=receives)
        assert decided(message, item()).action is Action.RESEND

    def test_a_chunk_is_not_given_up_while_a_bad_deployment_may_be_rolled_back(self) -> None:
        assert decided(letter(), used_up(since=HOUR)).action is Action.RESEND

    def test_attempts_that_an_outage_cut_short_do_not_count(self) -> None:
        assert decided(letter(), used_up(interruptions=1)).action is Action.RESEND

    def test_a_chunk_that_kills_each_of_its_workers_is_not_sent_back_within_the_lease_of_the_last_one(self) -> None:
        """The visibility timeout of its queue is shorter than the lease, so it would be sent back for ever."""
        chunk = used_up(status="IN_PROGRESS", started_at=timestamp(NOW - timedelta(seconds=960)))
        decision = decided(letter(), chunk)
        assert (decision.action, decision.delay) == (Action.WAIT, 241)
        assert decided(letter(), used_up(status="IN_PROGRESS")).action is Action.FAIL
        few = used_up(status="IN_PROGRESS", attempts=4, started_at=timestamp(NOW))
        assert decided(letter(), few).action is Action.RESEND

    def test_the_lease_of_its_workload_counts(self) -> None:
        """Captions of long windows may take an hour."""
        chunk = used_up(status="IN_PROGRESS", started_at=timestamp(NOW - HOUR / 2))
        assert decided(letter(), chunk).action is Action.FAIL
        long = replace(PATIENCE, workload_lease_seconds={"spectra": 3600.0})
        assert decided(letter(), chunk, patience=long) == Decision(
            Action.WAIT, "Its last attempt may still be under way.", 900
        )

    @pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
    def test_a_chunk_that_has_ended_needs_nothing(self, status: str) -> None:
        assert decided(letter(), used_up(status=status), resource=DOWN).action is Action.SETTLE

    @pytest.mark.parametrize("reason", ["cancelled", "failed"])
    @pytest.mark.parametrize("body", [None, refit(), split()])
    def test_a_message_of_a_stopped_run_is_deleted(self, body: str | None, reason: str) -> None:
        run = run_item(cancelled_at=timestamp(NOW), stop_reason=reason)
        assert decided(letter(body), item(), run, DOWN).action is Action.SETTLE

    def test_a_message_of_a_chunk_that_the_ledger_does_not_know_is_only_archived(self) -> None:
        decision = decided(letter())
        assert decision == Decision(Action.ARCHIVE, "There is no chunk-0000000 of run r in the ledger.")

    def test_what_its_service_gave_up_on_for_good_is_not_tried_again(self) -> None:
        decision = decided(letter(error="The chunk file is no archive."), item())
        assert decision == Decision(Action.FAIL, "The chunk file is no archive.")

    def test_an_error_from_before_a_recovery_does_not_fail_what_the_recovery_reopened(self) -> None:
        late, again = letter(error="no"), letter(chunk_message("r", "chunk-0000000", recovery="op"), error="no")
        assert decided(late, item(recovery="op")).action is Action.RESEND
        assert decided(again, item(recovery="op")).action is Action.FAIL

    def test_a_chunk_never_gets_too_old(self) -> None:
        old = Envelope.model_validate_json(chunk_message("r", "chunk-0000000"))
        body = old.model_copy(update={"time": timestamp(NOW - 14 * DAY)}).to_json()
        assert decided(letter(body, age=14 * DAY), item()).action is Action.RESEND


class TestResources:
    def test_a_letter_of_a_resource_that_is_down_is_deferred(self) -> None:
        assert decided(letter(), item(), resource=DOWN) == Decision(Action.DEFER, "The resource gpu is down.", 900)

    def test_dlq_consumer_gpu_up_invokes_handler(self) -> None:
        assert decided(letter(), item(), resource=UP).action is Action.RESEND

    def test_a_chunk_that_waited_for_a_resource_all_day_has_used_up_nothing(self) -> None:
        waited = item(deferrals=96, deferred_at=timestamp(NOW))
        assert decided(replace(letter(waits_for="gpu", age=DAY), receive_count=97), waited, resource=UP).delay == 0

    def test_a_resource_that_runs_but_failed_a_moment_ago_is_not_tried_again_at_once(self) -> None:
        """The worker moved the message a moment ago because the model did not answer; EC2 says `running`."""
        just_moved = decided(letter(waits_for="gpu", age=timedelta(seconds=10)), item(), resource=UP)
        assert just_moved.action is Action.DEFER
        assert 889 <= just_moved.delay <= 900
        waited = decided(letter(waits_for="gpu", age=timedelta(seconds=900)), item(), resource=UP)
        assert (waited.action, waited.delay) == (Action.RESEND, 0)


class TestPatience:
    def test_an_error_that_a_message_raised_at_its_last_receive_does_not_give_it_up(self) -> None:
        assert decided(letter(split(), raised="ZeroDivisionError: division by zero")).action is Action.RESEND

    @pytest.mark.parametrize("body", [split, refit, drained])
    def test_any_other_message_is_tried_for_three_days(self, body: Any) -> None:
        chunk = item("COMPLETED", n_timed_out=1)
        for age in (timedelta(0), DAY, 2.9 * DAY):
            assert decided(letter(body(age=age)), chunk).action is Action.RESEND
        late = decided(letter(body(age=3.1 * DAY)), chunk)
        assert late == Decision(Action.FAIL, "Given up after 3.0 days.")
        raising = decided(letter(body(age=3.1 * DAY), raised="ZeroDivisionError: division by zero"), chunk)
        assert raising == Decision(Action.FAIL, "ZeroDivisionError: division by zero. Given up after 3.0 days.")

    def test_a_message_that_does_not_say_when_it_was_sent_is_as_old_as_sqs_says(self) -> None:
        alert = json.dumps({"Type": "Notification", "Message": "{}"})
        assert decided(letter(alert, age=2 * DAY, queue="alerts")).action is Action.RESEND
        assert decided(letter(alert, age=4 * DAY, queue="alerts")).action is Action.FAIL

    def test_an_aws_event_is_as_old_as_it_says(self) -> None:
        event = {"source": "aws.s3", "detail-type": "Object Created", "time": timestamp(NOW - 4 * DAY), "detail": {}}
        assert decided(letter(json.dumps(event), queue="split")).action is Action.FAIL

    def test_what_the_sweeper_says_again_is_sent_back_once_and_no_more(self) -> None:
        """An outage of a day would pile up more than a thousand of them, and each would be sent back for ever."""
        tick = json.dumps({"source": "aws.events", "detail-type": "Scheduled Event", "time": timestamp(NOW)})
        for first in (letter(drained(age=HOUR), queue="runs"), letter(tick, queue="sweeps")):
            assert decided(first).action is Action.RESEND
            assert decided(replace(first, attempt=2)).action is Action.SETTLE

    @given(dispatch=st.integers(1, 400))
    def test_the_age_of_a_message_goes_with_it_so_that_no_message_is_sent_back_for_ever(self, dispatch: int) -> None:
        alert = letter(json.dumps({"Type": "Notification"}), age=4 * DAY, queue="alerts")
        body, carried = Dispatch.next_of(replace(alert, attempt=dispatch), None, "key").message()
        again = letter(body, age=timedelta(0), queue="alerts", **carried)
        assert again.first_sent == alert.first_sent
        assert again.attempt == dispatch + 1
        assert decided(again).action is Action.FAIL

    def test_an_alert_that_was_received_a_hundred_times_by_its_own_queue_is_tried_again(self) -> None:
        moved = {"ApproximateReceiveCount": "101", "DeadLetterQueueSourceArn": "arn:aws:sqs:::alerts"}
        moved["SentTimestamp"] = str(round((NOW - 3 * HOUR).timestamp() * 1000))
        body = json.dumps({"Type": "Notification", "Message": "{}"})
        message = read_dead_letter({"messageId": "m", "body": body, "attributes": moved}, "alerts")
        assert message.receive_count == 1
        assert decided(message).action is Action.RESEND

    def test_a_recovery_is_not_thrown_away_even_if_its_service_says_that_it_cannot_be_done(self) -> None:
        request = DeadlettersRecover(operation_id="op", requested_at=timestamp(NOW))
        message = letter(wrapped(request), queue="recoveries", error="The bucket does not exist.")
        assert decided(message).action is Action.RESEND
        late = letter(wrapped(request, age=4 * DAY), queue="recoveries", error="The bucket does not exist.")
        assert decided(late) == Decision(Action.FAIL, "The bucket does not exist. Given up after 3.0 days.")

    def test_what_its_service_gave_up_on_for_good_is_given_up(self) -> None:
        assert decided(letter(split(), error="There is no cube.")) == Decision(Action.FAIL, "There is no cube.")

    def test_the_delay_doubles_with_each_dispatch_up_to_a_quarter_of_an_hour(self) -> None:
        chunks = [decided(letter(chunk_message("r", "chunk-0000000", attempt=n)), item()).delay for n in range(1, 9)]
        assert chunks == [15, 30, 60, 120, 240, 480, 900, 900]
        others = [decided(letter(split(), attempt=str(n))).delay for n in (1, 2, 8, 10**9)]
        assert others == [15, 30, 900, 900]


class TestWhatIsNotUnderstood:
    def test_a_body_that_is_not_a_message_is_only_archived_with_the_reason(self) -> None:
        assert decided(letter("{not json")) == Decision(Action.ARCHIVE, "It is not a JSON object.")
        decision = decided(letter(drained().replace('"jobs_total":1', '"jobs_total":"many"')))
        assert decision.action is Action.ARCHIVE
        assert "jobs_total" in decision.reason

    @pytest.mark.parametrize("change", [(".v1", ".v2"), ("run.drained", "run.rested")])
    def test_a_message_of_a_newer_release_waits_for_a_consumer_that_knows_it(self, change: tuple[str, str]) -> None:
        for age, action in ((DAY, Action.RESEND), (4 * DAY, Action.FAIL)):
            decision = decided(letter(drained(age=age).replace(*change), queue="runs"))
            assert decision.action is action
            assert "is not known here" in decision.reason

    def test_a_message_that_only_its_service_is_too_old_for_waits_too(self) -> None:
        assert decided(letter(drained(), queue="runs", unknown="not one that this service takes")).delay == 15
        assert decided(letter(unknown="not one that this service takes"), item()).action is Action.RESEND

    def test_a_chunk_with_a_status_of_a_newer_release_waits_however_often_it_was_tried(self) -> None:
        decision = decided(letter(age=4 * DAY, unknown="not known to this worker"), used_up(status="ARCHIVED"))
        assert (decision.action, decision.reason) == (Action.RESEND, "not known to this worker")

    def test_an_event_that_eventbridge_could_not_deliver_goes_on_as_its_envelope(self) -> None:
        envelope = json.loads(drained())
        event = {"version": "0", "detail-type": envelope["type"], "source": "prismline/dev/worker", "detail": envelope}
        message = letter(json.dumps(event), queue="runs", ERROR_CODE="NO_PERMISSIONS")
        assert decided(message).action is Action.RESEND
        body, _ = Dispatch.next_of(message, None, "key").message()
        assert json.loads(body) == envelope

    @pytest.mark.parametrize(("source", "kind"), [("aws.s3", "Object Created"), ("aws.events", "Scheduled Event")])
    def test_an_event_of_aws_goes_on_as_it_came(self, source: str, kind: str) -> None:
        body = json.dumps({"source": source, "detail-type": kind, "time": timestamp(NOW), "detail": {"a": 1}})
        message = letter(body, queue="split")
        assert decided(message).action is Action.RESEND
        assert Dispatch.next_of(message, None, "key").message()[0] == body


class TestRefits:
    def test_a_refit_goes_on_while_rows_wait_for_it(self) -> None:
        assert decided(letter(refit()), item("COMPLETED", n_timed_out=1)).action is Action.RESEND
        assert decided(letter(refit()), item("COMPLETED")).action is Action.SETTLE
        assert decided(letter(refit()), item("COMPLETED", n_refit_failed=1)).action is Action.SETTLE

    def test_a_refit_that_overtook_the_end_of_its_chunk_waits(self) -> None:
        assert decided(letter(refit()), item("IN_PROGRESS")).action is Action.RESEND

    def test_a_refit_of_a_chunk_that_failed_is_not_sent_round_until_it_is_given_up(self) -> None:
        assert decided(letter(refit()), item("FAILED", error="It is broken.")).action is Action.SETTLE
        assert judge_record(letter(refit()), Facts(item("FAILED", error="It is broken."))).action is Action.SETTLE

    def test_a_refit_that_fails_for_good_is_given_up(self) -> None:
        decision = decided(letter(refit(), error="The output is gone."), item("COMPLETED", n_timed_out=1))
        assert decision == Decision(Action.FAIL, "The output is gone.")

    def test_a_recovery_has_rows_fitted_that_were_given_up(self) -> None:
        given_up = item("COMPLETED", n_refit_failed=1)
        assert judge_record(letter(refit()), Facts(given_up)).action is Action.RESEND
        assert decided(letter(refit(), recovery="op"), given_up).action is Action.RESEND
        assert judge_record(letter(refit()), Facts(item("COMPLETED"))).action is Action.SETTLE


class TestRecovery:
    def test_a_recovery_tries_a_failed_chunk_once_more_but_not_a_completed_one(self) -> None:
        assert judge_record(letter(error="no"), Facts(item("FAILED"))).action is Action.RESEND
        assert judge_record(letter(waits_for="gpu"), Facts(item(), resource=DOWN)).action is Action.RESEND
        assert judge_record(letter(), Facts(item("COMPLETED"))).action is Action.SETTLE

    def test_a_recovery_resumes_a_run_that_had_failed_and_leaves_one_that_somebody_cancelled(self) -> None:
        failed, stopped = (
            run_item(cancelled_at=timestamp(NOW), stop_reason=reason) for reason in ("failed", "cancelled")
        )
        assert judge_record(letter(), Facts(item(), failed)).action is Action.RESEND
        assert judge_record(letter(), Facts(item(), stopped)).action is Action.LEAVE

    @pytest.mark.parametrize(
        ("run", "decision"),
        [
            ({"cancelled_at": "2026-03-01T12:00:00Z", "ended_status": "cancelled"}, ResumeDecision.RESUME),
            ({"cancelled_at": "2026-03-01T12:00:00Z"}, ResumeDecision.WAIT),
            ({"cancelled_at": "2026-03-01T12:00:00Z", "ended_status": "failed"}, ResumeDecision.LEAVE),
            ({"cancelled_at": "2026-03-01T13:00:00Z", "ended_status": "cancelled"}, ResumeDecision.LEAVE),
            ({"uncancelled_at": "2026-03-01T12:30:00Z"}, ResumeDecision.DONE),
            ({"uncancelled_at": "2026-03-01T11:00:00Z"}, ResumeDecision.LEAVE),
            ({}, ResumeDecision.LEAVE),
        ],
    )
    def test_a_cancelled_run_goes_on_from_the_stop_that_the_person_saw(
        self, run: dict[str, str], decision: ResumeDecision
    ) -> None:
        assert judge_resume(run_item(**run), "2026-03-01T12:00:00Z") is decision

    def test_a_record_that_can_never_be_processed_is_not_sent(self) -> None:
        assert judge_record(letter("garbage"), Facts()).action is Action.ARCHIVE
        assert judge_record(letter(), Facts()).action is Action.ARCHIVE

    @pytest.mark.parametrize(
        ("chunk", "sent", "step"),
        [
            (item(), False, Step.SEND),
            (item("FAILED"), False, Step.SEND),
            (item("FAILED", recovery="another"), False, Step.SEND),
            (item(recovery="op"), False, Step.SEND),
            (item(recovery="op"), True, Step.WAIT),
            (item("IN_PROGRESS", recovery="op"), True, Step.WAIT),
            (item(recovery="another"), True, Step.WAIT),
            (item("COMPLETED"), True, Step.DONE),
            (item("FAILED", recovery="op"), True, Step.FAILED),
            (item("FAILED", recovery="another"), True, Step.FAILED),
            (None, True, Step.FAILED),
        ],
    )
    def test_a_record_is_kept_until_its_chunk_has_ended(self, chunk: ChunkItem | None, sent: bool, step: Step) -> None:
        assert next_step(chunk, run_item(), "op", sent=sent) is step

    def test_a_run_that_is_cancelled_during_its_recovery_is_not_waited_for(self) -> None:
        run = run_item(cancelled_at=timestamp(NOW), stop_reason="cancelled")
        assert next_step(item(recovery="op"), run, "op", sent=True) is Step.PUT_BACK

    @given(status=st.sampled_from(ChunkStatus), mine=st.booleans(), stopped=st.sampled_from([None, "failed"]))
    def test_two_recoveries_of_one_chunk_do_not_reopen_it_for_ever(
        self, status: ChunkStatus, mine: bool, stopped: str | None
    ) -> None:
        """An operation never sends the same message twice."""
        run = run_item(**({"cancelled_at": timestamp(NOW), "stop_reason": stopped} if stopped else {}))
        chunk = item(status.value, recovery="op" if mine else "another")
        assert next_step(chunk, run, "op", sent=True) is not Step.SEND


def test_a_message_sent_back_is_otherwise_the_same() -> None:
    message = letter()
    body, attributes = Dispatch.next_of(message, item(deferrals=4), "key").message()
    before, after = json.loads(message.body), json.loads(body)
    assert after["data"].pop("attempt") == 2
    assert after["data"].pop("deferrals") == 4
    assert before["data"].pop("attempt") == 1
    assert before["data"].pop("deferrals") == 0
    assert after == before
    assert attributes == {"attempt": "2", "first_sent": timestamp(message.first_sent)}


def test_a_recovered_message_has_all_its_time_and_attempts_again() -> None:
    old = letter(split(age=10 * DAY), attempt="40")
    body, attributes = Dispatch.recovered(old, None, "op", NOW).message()
    again = letter(body, age=timedelta(0), **attributes)
    assert (again.attempt, again.recovery, again.first_sent) == (1, "op", NOW)
    assert decided(again).action is Action.RESEND


def test_receipts_by_the_queue_that_gave_up_do_not_count() -> None:
    """SQS keeps the receive count when it moves a message: the consumer's first receipt has the count 6."""
    moved = {"ApproximateReceiveCount": "6", "DeadLetterQueueSourceArn": "arn:aws:sqs:::chunks"}
    record = {"messageId": "m", "body": "{}", "attributes": moved}
    assert read_dead_letter(record, "chunks").receive_count == 1


def test_a_record_of_the_archive_has_everything_of_the_message() -> None:
    attributes = {"waits_for": {"stringValue": "gpu"}, "error": {"stringValue": "no"}}
    body = chunk_message("r", "chunk-0000000", recovery="op", attempt=3)
    document = {"messageId": "m", "body": body, "source_queue": "chunks", "messageAttributes": attributes}
    found = read_archived(document)
    assert (found.waits_for, found.error, found.recovery, found.attempt) == ("gpu", "no", "op", 3)
    assert found.invalid is None


@pytest.mark.parametrize("change", [{"source_queue": "nonesuch"}, {"source_queue": 7}, {"messageId": None}])
def test_a_record_that_does_not_say_where_it_came_from_cannot_be_sent(change: dict[str, Any]) -> None:
    document = {"messageId": "m", "body": chunk_message("r", "chunk-0000000"), "source_queue": "chunks"} | change
    assert judge_record(read_archived(document), Facts(item())).action is Action.ARCHIVE


def test_a_record_whose_body_no_queue_can_carry_cannot_be_sent() -> None:
    """A record of the archive is JSON, which can hold half of a surrogate pair. UTF-8 cannot."""
    document = {"messageId": "m", "body": '{"Type": "Notification", "Message": "\ud800"}', "source_queue": "alerts"}
    decision = judge_record(read_archived(document), Facts())
    assert (decision.action, decision.reason) == (
        Action.ARCHIVE,
        "Its body cannot be sent: it has half of a surrogate pair, which UTF-8 cannot encode.",
    )


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "chunks", "2026-03-01T00:00:00Z", "2026-99-01"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["stringValue", "a"]), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["body", "messageId", "source_queue", "attributes", "messageAttributes", "archived_at"]),
        JSON_VALUES,
    )
)
def test_any_object_of_the_archive_can_be_read(document: dict[str, Any]) -> None:
    decision = judge_record(read_archived(document), Facts())
    assert decision.action in {Action.ARCHIVE, Action.SETTLE, Action.RESEND, Action.LEAVE}


def test_the_limits_can_be_set() -> None:
    impatient = LetterPatience(chunk=Patience(max_attempts=1, seconds=0.0), message_seconds=60.0)
    assert decided(letter(), used_up(attempts=1, since=timedelta(seconds=1)), patience=impatient).action is Action.FAIL
    assert decided(letter(split()), patience=impatient).action is Action.FAIL
