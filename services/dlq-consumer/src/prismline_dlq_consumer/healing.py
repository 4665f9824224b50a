"""Dead letters as they come: archive, decide, say so, act; in this order, and acknowledged only after all of it.

What fails on the way leaves its message in the dead-letter queue. So that an outage of our own (S3, DynamoDB, SQS)
uses up none of a chunk's attempts, such a receipt is recorded as a deferral wherever the ledger can be reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse, PartialItemFailures
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from prismline_contracts import (
    ChunkFailed,
    ChunkItem,
    ChunkProcess,
    ChunkStatus,
    DeadletterArchived,
    Envelope,
    RunDrained,
    RunItem,
    timestamp,
)
from prismline_dlq_consumer.archive import dead_letter_record
from prismline_dlq_consumer.dead_letter import DeadLetter, read_dead_letter
from prismline_dlq_consumer.decisions import Action, Decision, Resource, decide
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_dlq_consumer.resources import asked_once
from prismline_runtime import Delivery, PrismlineError, TransientError, fault_point, service_metrics
from prismline_runtime.routing import backoff_seconds

#: The error that a state machine gets that waits for a message which was given up.
GIVEN_UP = "DeadLetterGivenUp"


@dataclass(frozen=True)
class _Letter:
    """A dead letter of the batch, with its delivery."""

    record: Mapping[str, Any]
    message: DeadLetter
    delivery: Delivery


class _DeferredError(Exception):
    """The message stays in its queue, hidden for as long as it should be."""


def on_dead_letters(event: Mapping[str, Any], context: Any, deps: Dependencies) -> PartialItemFailureResponse:
    """Take a batch of one dead-letter queue; `batchItemFailures` names what has to stay there."""
    letters = [_read(record, context.get_remaining_time_in_millis, deps) for record in event["Records"]]
    state = _LedgerState(letters, deps)
    look_up = asked_once(deps.resources)
    failures: list[PartialItemFailures] = []
    for letter in letters:
        message = letter.message
        keys = {"message_id": message.message_id, "source_queue": message.source_queue} | _trace(message)
        with deps.logger.append_context_keys(**keys):
            try:
                with _left_in_queue(letter, deps):
                    _heal(letter, state, look_up, deps)
            except (_DeferredError, PrismlineError):
                failures.append({"itemIdentifier": message.message_id})
    return {"batchItemFailures": failures}


def _read(record: Mapping[str, Any], remaining_ms: Callable[[], int], deps: Dependencies) -> _Letter:
    message = read_dead_letter(record, deps.settings.environment)
    return _Letter(record, message, Delivery.of(SQSRecord(dict(record)), remaining_ms))


class _LedgerState:
    """What the ledger says of the chunks and runs of a batch, read together when it is first needed."""

    def __init__(self, letters: list[_Letter], deps: Dependencies) -> None:
        self._messages = [letter.message for letter in letters]
        self._deps = deps
        self._read: tuple[dict[tuple[str, str], ChunkItem], dict[str, RunItem]] | None = None

    def of(self, message: DeadLetter) -> tuple[ChunkItem | None, RunItem | None]:
        """The chunk and the run of `message`, as far as there are. Raises TransientError."""
        if self._read is None:
            commands = [message for message in self._messages if message.command is not None]
            chunks = self._deps.ledger.find(name for m in commands if (name := m.chunk_name) is not None)
            runs = self._deps.ledger.find_runs(m.command.run_id for m in commands if m.command is not None)
            self._read = chunks, runs
        chunks, runs = self._read
        run = runs.get(message.command.run_id) if message.command is not None else None
        return chunks.get(message.chunk_name) if message.chunk_name is not None else None, run


@contextmanager
def _left_in_queue(letter: _Letter, deps: Dependencies) -> Iterator[None]:
    """Whatever goes wrong in the block leaves the message where it is, for a while."""
    try:
        yield
    except _DeferredError:
        raise
    except Exception as error:
        seconds = backoff_seconds(letter.message.receive_count)
        unexpected = not isinstance(error, PrismlineError)
        deps.logger.warning(
            "dead_letter_postponed", extra={"reason": str(error), "seconds": seconds}, exc_info=unexpected
        )
        with suppress(Exception):  # the outage may well be of these, too
            if isinstance(letter.message.command, ChunkProcess):
                command = letter.message.command
                deps.ledger.record_deferral(command.run_id, command.chunk_id)
            deps.transport.postpone(letter.delivery, seconds)
        raise TransientError(str(error)) from error


def _heal(letter: _Letter, state: _LedgerState, look_up: Callable[[str], Resource], deps: Dependencies) -> None:
    """Archive a message, decide about it and act. Raises _DeferredError if it has to stay in its queue."""
    message = letter.message
    deps.logger.info("dlq_received", extra={"receive_count": message.receive_count, "attempt": message.attempt})
    record = dead_letter_record(letter.record, message, timestamp())
    key = deps.archive.write(record)
    fault_point("deadletter.archived", message_id=message.message_id)
    chunk, run = state.of(message)
    needed = message.waits_for or deps.settings.workload_resources.get(message.workload or "")
    decision = decide(
        message,
        chunk,
        look_up(needed) if needed else None,
        cancelled=run is not None and run.cancelled_at is not None,
        max_attempts=deps.settings.max_attempts,
    )
    deps.logger.info("dlq_decided", extra={"decision": decision.action.value, "reason": decision.reason, "key": key})
    _announce(message, record.receive_count or 0, key, decision, deps)
    _count(decision, message, deps)
    match decision.action:
        case Action.ARCHIVE:
            pass
        case Action.SETTLE:
            _repeat_ending(message, chunk, deps)
        case Action.FAIL:
            _give_up(message, decision, deps)
        case Action.DEFER:
            _defer(letter, decision, deps)
        case Action.RESEND:
            deps.transport.send_back(message.source_queue, [sent_back(message, chunk)])
            fault_point("deadletter.sent", message_id=message.message_id)


def sent_back(
    message: DeadLetter, chunk: ChunkItem | None, *, attempt: int | None = None, recovery: str | None = None
) -> tuple[str, dict[str, str]]:
    """Body and attributes of `message` for its source queue, as the next dispatch.

    A chunk's command carries its attempt itself, any other message in its attributes; its body stays as it is.
    """
    attempt = attempt or message.attempt + 1
    recovery = recovery or message.recovery
    carried = {"attempt": str(attempt)} | ({"recovery": recovery} if recovery else {})
    if not isinstance(message.command, ChunkProcess):
        return message.body, carried
    document = json.loads(message.body)
    document["data"] |= {"attempt": attempt, "deferrals": chunk.deferrals if chunk is not None else 0}
    if recovery:
        document["data"]["recovery"] = recovery
    return json.dumps(document), carried


def _give_up(message: DeadLetter, decision: Decision, deps: Dependencies) -> None:
    deps.logger.warning("dlq_exhausted", extra={"receive_count": message.receive_count, "reason": decision.reason})
    envelope = message.envelope
    if isinstance(message.command, ChunkProcess):
        _fail_chunk(message.command, envelope, decision.reason, deps)
    elif envelope is not None and envelope.tasktoken is not None:
        deps.transport.refuse(envelope.tasktoken, GIVEN_UP, decision.reason)


def _fail_chunk(command: ChunkProcess, envelope: Envelope | None, error: str, deps: Dependencies) -> None:
    run_id, chunk_id = command.run_id, command.chunk_id
    finished = deps.ledger.fail_chunk(run_id, chunk_id, error)
    fault_point("deadletter.failed", run_id=run_id, chunk_id=chunk_id)
    _announce_ending(command, envelope, deps.ledger.chunk(run_id, chunk_id), finished.drained, deps)


def _repeat_ending(message: DeadLetter, chunk: ChunkItem | None, deps: Dependencies) -> None:
    """Say again how a chunk ended, with the same ids: whoever ended it may have died before saying so."""
    if isinstance(message.command, ChunkProcess) and chunk is not None and chunk.state.terminal:
        drained = deps.ledger.drained_by(chunk.run_id, chunk.chunk_id)
        _announce_ending(message.command, message.envelope, chunk, drained, deps)


def _announce_ending(
    command: ChunkProcess, envelope: Envelope | None, chunk: ChunkItem, drained: RunItem | None, deps: Dependencies
) -> None:
    source, traceparent = deps.transport.source, envelope.traceparent if envelope else None
    events = []
    if chunk.state is ChunkStatus.FAILED:
        failed = ChunkFailed(
            run_id=chunk.run_id,
            survey=command.survey,
            chunk_id=chunk.chunk_id,
            error=chunk.error or "The error is unknown.",
        )
        events.append(Envelope.wrap(failed, source=source, traceparent=traceparent, key=(chunk.chunk_id,)))
    if drained is not None:
        events.append(Envelope.wrap(RunDrained.of(drained), source=source, traceparent=traceparent))
    deps.transport.publish(*events)


def _defer(letter: _Letter, decision: Decision, deps: Dependencies) -> None:
    seconds = deps.settings.deferral_seconds
    command = letter.message.command
    if isinstance(command, ChunkProcess):
        deps.ledger.record_deferral(command.run_id, command.chunk_id)
    deps.transport.postpone(letter.delivery, seconds)
    deps.logger.info("dlq_visibility_extended", extra={"extended_seconds": seconds, "reason": decision.reason})
    raise _DeferredError


def _announce(message: DeadLetter, receive_count: int, key: str, decision: Decision, deps: Dependencies) -> None:
    command = message.command
    archived = DeadletterArchived(
        message_id=message.message_id,
        key=key,
        source_queue=message.source_queue,
        receive_count=receive_count,
        decision=decision.action.value,
        reason=decision.reason[:1024],
        run_id=command.run_id if command is not None else None,
        chunk_id=message.chunk_name[1] if message.chunk_name is not None else None,
    )
    deps.transport.publish(
        Envelope.wrap(
            archived,
            source=deps.transport.source,
            traceparent=message.envelope.traceparent if message.envelope else None,
            key=(message.message_id, str(receive_count)),
        )
    )


def _trace(message: DeadLetter) -> dict[str, str]:
    keys = {
        "trace_id": message.envelope.trace_id if message.envelope else None,
        "run_id": message.command.run_id if message.command else None,
        "chunk_id": message.chunk_name[1] if message.chunk_name else None,
    }
    return {name: value for name, value in keys.items() if value}


def _count(decision: Decision, message: DeadLetter, deps: Dependencies) -> None:
    with service_metrics("DeadLetters") as metrics:
        metrics.add_dimension("Environment", deps.settings.environment)
        metrics.add_dimension("Queue", message.source_queue)
        metrics.add_metric(f"DeadLetters{decision.action.value.title()}", unit="Count", value=1)
