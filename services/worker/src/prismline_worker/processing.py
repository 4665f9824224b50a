"""Processes a chunk: begin an attempt, run the workload, record the result, publish it, in this order.

Every attempt ends here, unless the process dies: with a result, with a permanent error, or with an error that gives the
chunk back to the queue.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack

from prismline_contracts.commands import ChunkProcess, queue_name, with_reference
from prismline_contracts.events import RunDrained, RunRecovered, ending_of
from prismline_contracts.items import ChunkItem, NewerStatus, RunItem
from prismline_coordination import Leases
from prismline_ledger import Finished, Skipped
from prismline_runtime import (
    SENT_AGAIN,
    Message,
    NewerReleaseError,
    PermanentError,
    PrismlineError,
    ResourceUnavailableError,
    TransientError,
    UnavailableError,
    describe_error,
    fault_point,
    service_metrics,
)
from prismline_worker.concurrency import keeping
from prismline_worker.dependencies import Dependencies
from prismline_worker.progress import Progress
from prismline_worker.run_state_cache import RunStateCache
from prismline_worker.task_decisions import slot_wait
from prismline_worker.workload import Workload

#: Message attribute: how often the message was sent again because its run had no free slot.
SLOT_WAITS = "slot_waits"


def on_chunk_process(
    command: ChunkProcess,
    message: Message,
    deps: Dependencies,
    workloads: Mapping[str, Workload],
    run_states: RunStateCache,
) -> str | None:
    """Process the chunk, unless it has ended or its run was stopped. A permanent error fails the chunk.

    Returns SENT_AGAIN if the chunk has to wait for a slot of its run.
    """
    workload = workloads.get(command.workload)
    missing = None if workload is None else _missing(workload, command)
    if run_states.stopped(command.run_id):
        _skip(deps.ledger.chunk(command.run_id, command.chunk_id), "its run was stopped", command, message, deps)
        return None
    if missing is not None:
        chunk = deps.ledger.chunk(command.run_id, command.chunk_id)
        if chunk.state.terminal:
            _skip(chunk, f"it is {chunk.status} already", command, message, deps)
            return None
        deps.ledger.record_error(command.run_id, command.chunk_id, str(missing))
        raise missing
    with ExitStack() as stack:
        if command.max_concurrency is not None:
            missing_slot = _take_slot(stack, command.max_concurrency, command, deps)
            if missing_slot is not None:
                run_states.waits(command.run_id, missing_slot)
                _wait_for_slot(run_states.run(command.run_id).chunks_total, message, deps)
                return SENT_AGAIN
        _process(workload, command, message, deps, workloads, run_states)
        return None


def _take_slot(stack: ExitStack, limit: int, command: ChunkProcess, deps: Dependencies) -> str | None:
    """Take one of the run's slots until `stack` closes. Return the reason if there is none, else None."""
    leases = Leases(deps.valkey)
    try:
        held = leases.take(f"run:{command.run_id}", limit)
    except UnavailableError as error:
        deps.logger.warning("slots_unavailable", extra={"reason": str(error)})
        return str(error)
    if not held:
        return f"No slot of the run is free: it has {limit}."
    stack.enter_context(keeping(leases, held, deps.logger))
    return None


def _wait_for_slot(n_chunks: int | None, message: Message, deps: Dependencies) -> None:
    """Send the message again with a delay, so that a wait for a slot does not count towards `maxReceiveCount`."""
    waited = int(message.delivery.attributes.get(SLOT_WAITS, "0"))
    queue = message.delivery.queue.removeprefix(queue_name(deps.settings.environment, ""))
    attributes = {**message.delivery.attributes, SLOT_WAITS: str(waited + 1)}
    delay = round(slot_wait(waited, n_chunks))
    deps.logger.info("chunk_waits_for_slot", extra={"seconds": delay})
    deps.transport.send_back(queue, [(message.delivery.body, attributes)], delay_seconds=delay)


def _process(
    workload: Workload | None,
    command: ChunkProcess,
    message: Message,
    deps: Dependencies,
    workloads: Mapping[str, Workload],
    run_states: RunStateCache,
) -> None:
    """Begin an attempt, and record and announce its end."""
    start = deps.ledger.start_chunk(command.run_id, command.chunk_id, worker=deps.name)
    if isinstance(start, Skipped):
        if start.chunk.state is NewerStatus.NEWER:
            reason = f"{command.chunk_id} has the status {start.chunk.status}, which this worker does not know."
            raise NewerReleaseError(reason)
        _skip(start.chunk, start.reason, command, message, deps)
        return
    began = time.monotonic()
    try:
        finished = _attempt(start.chunk, workload, workloads, with_reference(command, start.chunk), message, deps)
    except Exception as error:
        _give_back(start.chunk, error, _milliseconds(began), deps)
        raise
    run_states.seen(finished.run)
    fault_point("chunk.recorded", run_id=command.run_id, chunk_id=command.chunk_id)
    announce(finished, command, message, deps)


def _missing(workload: Workload, command: ChunkProcess) -> ResourceUnavailableError | None:
    """The error that prevents an attempt because a resource of the workload is down, or None."""
    try:
        workload.require(command)
    except ResourceUnavailableError as error:
        return error
    return None


def _skip(chunk: ChunkItem, reason: str, command: ChunkProcess, message: Message, deps: Dependencies) -> None:
    """Acknowledge the message. If the chunk has ended, publish its end again: its worker may have died before that."""
    deps.logger.info("chunk_skipped", extra={"reason": reason})
    if chunk.state.terminal:
        announce(Finished(changed=False, chunk=chunk, run=deps.ledger.drain(chunk.run_id)), command, message, deps)


def _attempt(
    chunk: ChunkItem,
    workload: Workload | None,
    workloads: Mapping[str, Workload],
    command: ChunkProcess,
    message: Message,
    deps: Dependencies,
) -> Finished:
    """Run the workload and record its result or its permanent error."""
    run_id, chunk_id = chunk.run_id, chunk.chunk_id
    began = time.monotonic()
    try:
        fault_point("chunk.started", run_id=run_id, chunk_id=chunk_id)
        if workload is None:
            raise PermanentError(
                f"There is no workload {command.workload}; choose one of {', '.join(sorted(workloads))}."
            )
        outcome = workload.process(command, message, Progress(lambda n_done: _report(chunk, n_done, deps)))
        fault_point("chunk.output_written", run_id=run_id, chunk_id=chunk_id)
    except PermanentError as error:
        deps.logger.warning("chunk_failed", extra={"reason": str(error)})
        # The copy comes first, because a recovery needs it: a FAILED chunk without a dead letter cannot be recovered.
        deps.transport.dead_letter(message.delivery, {"error": str(error)})
        finished = deps.ledger.fail_chunk(chunk, str(error), duration_ms=_milliseconds(began))
        if not finished.chunk.state.terminal:
            raise TransientError(
                f"A recovery reopened {chunk_id} during this attempt, so it is tried again."
            ) from error
        return finished
    finished = deps.ledger.complete_chunk(chunk, outcome, duration_ms=_milliseconds(began))
    deps.logger.info(
        "chunk_completed",
        extra={"items": command.n_items, "timed_out": outcome.n_timed_out, "duration_ms": _milliseconds(began)},
    )
    return finished


def _report(chunk: ChunkItem, n_done: int, deps: Dependencies) -> bool:
    """Record how far the attempt has come. False if a later attempt at the chunk has begun.

    An error of the ledger is only logged, because the work does not depend on the report.
    """
    try:
        return deps.ledger.report_progress(chunk, n_done)
    except PrismlineError as lost:
        deps.logger.warning("progress_not_reported", extra={"reason": str(lost)})
        return True


def _give_back(chunk: ChunkItem, error: Exception, duration_ms: int, deps: Dependencies) -> None:
    """End the attempt without a result. If that fails too, the message is still delivered again."""
    try:
        deps.ledger.end_attempt(
            chunk, reason_of(error), interrupted=isinstance(error, UnavailableError), duration_ms=duration_ms
        )
    except PrismlineError as lost:
        deps.logger.warning("attempt_not_given_back", extra={"reason": str(lost)})


def reason_of(error: Exception) -> str:
    """Why an attempt ended, in one line: for an unexpected exception, its type and message."""
    return str(error) if isinstance(error, PrismlineError) else describe_error(error)


def announce(finished: Finished, command: ChunkProcess, message: Message, deps: Dependencies) -> None:
    """Publish the end of the chunk, the drain of its run, and the late success of a chunk in a drained run.

    The drain is published until the run's end is recorded. A repeated event has the same id.
    """
    chunk, run, traceparent = finished.chunk, finished.run, message.envelope.traceparent
    wrap = deps.transport.wrap
    events = [wrap(ending_of(chunk, command.survey), traceparent=traceparent, key=(chunk.chunk_id,))]
    if run.drained_at is not None:
        drained = RunDrained.of(run)
        if run.ended_at is None:
            events.append(wrap(drained, traceparent=traceparent, key=drained.key))
        if finished.late:
            events.append(wrap(_recovered(run, chunk), traceparent=traceparent, key=(chunk.chunk_id,)))
    deps.transport.publish(*events)
    if chunk.announcement_pending:
        deps.ledger.mark_announced(chunk)
    if finished.changed:
        _count(chunk, deps)


def _recovered(run: RunItem, chunk: ChunkItem) -> RunRecovered:
    drained = RunDrained.of(run)
    return RunRecovered(
        run_id=run.run_id,
        chunk_id=chunk.chunk_id,
        chunks_total=drained.chunks_total,
        chunks_completed=drained.chunks_completed,
        chunks_failed=drained.chunks_failed,
        failed_percent=drained.failed_percent,
    )


def _count(chunk: ChunkItem, deps: Dependencies) -> None:
    with service_metrics("Worker") as metrics:
        metrics.add_dimension("Environment", deps.settings.environment)
        metrics.add_metric(f"Chunks{chunk.status.title()}", unit="Count", value=1)
        metrics.add_metric("Items", unit="Count", value=chunk.n_items)
        metrics.add_metric("ItemsTimedOut", unit="Count", value=chunk.n_timed_out)


def _milliseconds(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
