"""Handles dead letters: archive, read the ledger, decide, publish the decision, act, acknowledge, in this order.

If a step fails, the message stays in the dead-letter queue. Such a failure never counts against the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse, PartialItemFailures
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import ChunkProcess, Queue, SpectraRefit, TasksProcess
from prismline_contracts.deadletters import DeadletterArchived, DeadLetterRecord
from prismline_contracts.events import ExportRequested, RunDrained, ending_of
from prismline_contracts.items import ChunkItem, RunItem
from prismline_dlq_consumer.archive import dead_letter_record
from prismline_dlq_consumer.dead_letter import DeadLetterMessage, describe, read_dead_letter, source_queue_of
from prismline_dlq_consumer.decisions import Action, Decision, Facts, Resource, judge
from prismline_dlq_consumer.dependencies import SERVICE, Dependencies
from prismline_dlq_consumer.facts import LookUp
from prismline_dlq_consumer.resources import asked_once
from prismline_dlq_consumer.sending import Dispatch, send_back
from prismline_dlq_consumer.tasks import announce_drained, give_up_tasks, send_tasks_singly
from prismline_runtime import (
    Delivery,
    PrismlineError,
    TransientError,
    Work,
    describe_error,
    fault_point,
    is_unexpected,
    service_metrics,
)

#: Error name for a state machine's task whose message was given up.
GIVEN_UP = "DeadLetterGivenUp"


@dataclass(frozen=True)
class _Case:
    """A dead letter of the batch: the SQS record, the parsed message, and the delivery."""

    record: Mapping[str, Any]
    letter: DeadLetterMessage
    delivery: Delivery


class _DeferredError(Exception):
    """The message stays in its dead-letter queue, and its visibility is already set."""


def on_dead_letters(event: Mapping[str, Any], context: Any, deps: Dependencies) -> PartialItemFailureResponse:
    """Handle a batch of one dead-letter queue. `batchItemFailures` names the messages that stay there."""
    received = [_receive(record, context.get_remaining_time_in_millis, deps) for record in event["Records"]]
    ask = asked_once(deps.resources)
    look_up = LookUp([each.letter for each in received], deps.ledger, partial(_resource_of, ask=ask, deps=deps))
    failures: list[PartialItemFailures] = []
    for each in received:
        letter = each.letter
        keys = {"message_id": letter.message_id, "source_queue": letter.source_queue} | _trace(letter)
        with deps.logger.append_context_keys(**keys):
            try:
                with _left_in_queue(each, deps):
                    _heal(each, look_up, deps)
            except (_DeferredError, PrismlineError):
                failures.append({"itemIdentifier": letter.message_id})
    return {"batchItemFailures": failures}


def _receive(record: Mapping[str, Any], remaining_ms: Callable[[], int], deps: Dependencies) -> _Case:
    queue = source_queue_of(record.get("eventSourceARN") or "", deps.settings.environment)
    return _Case(record, read_dead_letter(record, queue), Delivery.of(SQSRecord(dict(record)), remaining_ms))


def _resource_of(letter: DeadLetterMessage, *, ask: Callable[[str], Resource], deps: Dependencies) -> Resource | None:
    needed = letter.waits_for or deps.settings.workload_resources.get(letter.workload or "")
    return ask(needed) if needed else None


@contextmanager
def _left_in_queue(received: _Case, deps: Dependencies) -> Iterator[None]:
    """Keep the message in its queue if the block fails. It is hidden for longer with each receipt."""
    try:
        yield
    except _DeferredError:
        raise
    except Exception as error:
        asked = error.retry_after if isinstance(error, TransientError) else None
        seconds = deps.settings.letter_patience.delay(received.letter.receive_count) if asked is None else asked
        unexpected = not isinstance(error, PrismlineError)
        deps.logger.warning(
            "dead_letter_postponed", extra={"reason": str(error), "seconds": seconds}, exc_info=unexpected
        )
        if is_unexpected(error):
            _note(received.letter, deps, partial(deps.ledger.note_error, service=SERVICE, error=describe_error(error)))
        with suppress(Exception):  # SQS itself may be down
            deps.transport.postpone(received.delivery, seconds)
        raise TransientError(str(error)) from error


def _heal(received: _Case, look_up: LookUp, deps: Dependencies) -> None:
    """Archive a message, decide about it and act. Raises _DeferredError if it stays in its dead-letter queue."""
    letter = received.letter
    deps.logger.info("dlq_received", extra={"receive_count": letter.receive_count, "attempt": letter.attempt})
    record = dead_letter_record(received.record, letter, timestamp(), deps.settings.environment)
    key = deps.archive.write(record)
    deps.archive.forget(letter.archived, unless=key)
    fault_point("deadletter.archived", message_id=letter.message_id)
    facts = look_up.facts(letter)
    decision = judge(letter, facts, now(), deps.settings.letter_patience)
    deps.logger.info("dlq_decided", extra={"decision": decision.action.value, "reason": decision.reason, "key": key})
    _say_decision(letter, record.receive_count or 0, key, decision, deps)
    _count(decision, letter, deps)
    match decision.action:
        case Action.SETTLE:
            _repeat_ending(letter, facts, deps)
        case Action.FAIL:
            _give_up(letter, facts, decision, record, deps)
        case Action.DIVIDE:
            send_tasks_singly(letter, facts, decision.delay, deps)
        case Action.DEFER | Action.WAIT:
            _defer(received, decision, deps)
        case Action.RESEND:
            dispatch = Dispatch.next_of(letter, facts.chunk, key)
            send_back(letter.source_queue, [dispatch], deps.transport, delay=decision.delay)
            fault_point("deadletter.sent", message_id=letter.message_id)
    if decision.action is not Action.RESEND:
        _note(letter, deps, deps.ledger.forget_error)


def _note(letter: DeadLetterMessage, deps: Dependencies, note: Callable[[Work], None]) -> None:
    """Note something about the errors of the message, if it belongs to a run. A failure of this is only logged."""
    try:
        if letter.work is not None:
            note(letter.work)
    except Exception as lost:
        deps.logger.warning("error_not_noted", extra={"reason": str(lost)})


def _give_up(
    letter: DeadLetterMessage, facts: Facts, decision: Decision, record: DeadLetterRecord, deps: Dependencies
) -> None:
    deps.logger.warning("dlq_exhausted", extra={"receive_count": letter.receive_count, "reason": decision.reason})
    # a status change of an execution is itself about an error, which the reason does not repeat
    about = describe(letter.body).error
    error = f"{about.removesuffix('.')}. {decision.reason}" if about else decision.reason
    deps.archive.write(record.model_copy(update={"error": error}))
    if isinstance(letter.data, ChunkProcess) and facts.chunk is not None:
        _fail_chunk(letter, facts.chunk, decision.reason, deps)
    elif isinstance(letter.data, TasksProcess):
        give_up_tasks(letter, facts, deps)
    elif isinstance(letter.data, SpectraRefit):
        deps.ledger.give_up_refit(letter.data.run_id, letter.data.chunk_id, decision.reason)
    elif isinstance(letter.data, ExportRequested):
        _give_up_export(letter, letter.data, decision.reason, deps)
    if letter.envelope is not None and letter.envelope.tasktoken is not None:
        deps.transport.refuse(letter.envelope.tasktoken, GIVEN_UP, decision.reason)


def _give_up_export(letter: DeadLetterMessage, request: ExportRequested, reason: str, deps: Dependencies) -> None:
    """Ask the exporter, which owns exports, to record the failure. Does nothing if this request itself was given up."""
    if request.given_up is not None:
        return
    given_up = request.model_copy(update={"given_up": reason[:1024]})
    traceparent = letter.envelope.traceparent if letter.envelope else None
    key = (request.export_id, "given_up")
    deps.transport.send(Queue.EXPORTS, [deps.transport.wrap(given_up, traceparent=traceparent, key=key)])


def _fail_chunk(letter: DeadLetterMessage, chunk: ChunkItem, error: str, deps: Dependencies) -> None:
    """Fail the chunk. Raises TransientError if it has changed since it was read, so that the letter is judged again."""
    if letter.error is not None:
        finished = deps.ledger.fail_chunk(chunk, error)
    else:
        finished = deps.ledger.give_up_chunk(chunk, error)
    fault_point("deadletter.failed", run_id=chunk.run_id, chunk_id=chunk.chunk_id)
    if not finished.chunk.state.terminal:
        raise TransientError(f"{chunk.chunk_id} has changed since it was read.", retry_after=1)
    _say_ending(letter, finished.chunk, finished.run, deps)


def _repeat_ending(letter: DeadLetterMessage, facts: Facts, deps: Dependencies) -> None:
    """Publish a chunk's end again, with the same ids, because the service that ended it may have died before that."""
    chunk = facts.chunk
    if isinstance(letter.data, ChunkProcess) and chunk is not None and chunk.state.terminal:
        _say_ending(letter, chunk, deps.ledger.drain(chunk.run_id), deps)
    elif isinstance(letter.data, TasksProcess) and facts.tasks and all(task.state.terminal for task in facts.tasks):
        announce_drained(deps.ledger.drain(letter.data.run_id), deps)


def _say_ending(letter: DeadLetterMessage, chunk: ChunkItem, run: RunItem, deps: Dependencies) -> None:
    wrap = partial(deps.transport.wrap, traceparent=letter.envelope.traceparent if letter.envelope else None)
    events = [wrap(ending_of(chunk, run.survey), key=(chunk.chunk_id,))]
    if run.drained_at is not None and run.ended_at is None:
        drained = RunDrained.of(run)
        events.append(wrap(drained, key=drained.key))
    deps.transport.publish(*events)


def _defer(received: _Case, decision: Decision, deps: Dependencies) -> None:
    command = received.letter.data
    if decision.action is Action.DEFER and isinstance(command, ChunkProcess):
        deps.ledger.record_deferral(command.run_id, command.chunk_id)
    deps.transport.postpone(received.delivery, decision.delay)
    deps.logger.info("dlq_visibility_extended", extra={"extended_seconds": decision.delay, "reason": decision.reason})
    raise _DeferredError


def _say_decision(
    letter: DeadLetterMessage, receive_count: int, key: str, decision: Decision, deps: Dependencies
) -> None:
    archived = DeadletterArchived(
        message_id=letter.message_id,
        key=key,
        source_queue=letter.source_queue,
        receive_count=receive_count,
        decision=decision.action.value,
        reason=decision.reason[:1024],
        run_id=letter.command.run_id if letter.command is not None else None,
        chunk_id=letter.chunk_name[1] if letter.chunk_name is not None else None,
    )
    deps.transport.publish_event(
        archived,
        traceparent=letter.envelope.traceparent if letter.envelope else None,
        key=(letter.message_id, str(receive_count)),
    )


def _trace(letter: DeadLetterMessage) -> dict[str, str]:
    keys = {
        "trace_id": letter.envelope.trace_id if letter.envelope else None,
        "run_id": letter.command.run_id if letter.command else None,
        "chunk_id": letter.chunk_name[1] if letter.chunk_name else None,
    }
    return {name: value for name, value in keys.items() if value}


def _count(decision: Decision, letter: DeadLetterMessage, deps: Dependencies) -> None:
    environment = {"Environment": deps.settings.environment}
    # An alarm cannot add up the metrics of all queues: it reads the one without the dimension `Queue`.
    for dimensions in (environment, environment | {"Queue": letter.source_queue}):
        with service_metrics("DeadLetters") as metrics:
            for name, value in dimensions.items():
                metrics.add_dimension(name, value)
            metrics.add_metric(f"DeadLetters{decision.action.value.title()}", unit="Count", value=1)
