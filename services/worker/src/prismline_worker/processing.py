"""Work off a chunk: guarded start, the workload's work, ledger, announcement, in this order."""

from __future__ import annotations

import time
from collections.abc import Mapping

from prismline_contracts import (
    ChunkCompleted,
    ChunkFailed,
    ChunkItem,
    ChunkProcess,
    ChunkStatus,
    Envelope,
    RunDrained,
    RunItem,
    RunRecovered,
)
from prismline_ledger import Finished, Skipped
from prismline_runtime import (
    Message,
    PermanentError,
    ResourceUnavailableError,
    fault_point,
    service_metrics,
)
from prismline_worker.dependencies import Dependencies
from prismline_worker.workload import Workload


def on_chunk_process(
    command: ChunkProcess, message: Message, deps: Dependencies, workloads: Mapping[str, Workload]
) -> None:
    """Process the chunk, unless it has ended or its run was cancelled; a permanent error fails it."""
    run_id, chunk_id = command.run_id, command.chunk_id
    workload = workloads.get(command.workload)
    if workload is not None:
        try:
            workload.require(command)
        except ResourceUnavailableError as error:
            deps.ledger.record_error(run_id, chunk_id, str(error))
            raise
    start = deps.ledger.start_chunk(run_id, chunk_id, recovery=command.recovery)
    if isinstance(start, Skipped):
        deps.logger.info("chunk_skipped", extra={"reason": start.reason})
        if start.chunk is not None:
            announce(Finished(changed=False, drained=deps.ledger.drained_by(run_id, chunk_id)), command, message, deps)
        return
    began = time.monotonic()
    try:
        fault_point("chunk.started", run_id=run_id, chunk_id=chunk_id)
        if workload is None:
            raise PermanentError(f"There is no workload {command.workload}; there are {', '.join(sorted(workloads))}.")
        outcome = workload.process(command, message)
        fault_point("chunk.output_written", run_id=run_id, chunk_id=chunk_id)
    except PermanentError as error:
        deps.logger.warning("chunk_failed", extra={"reason": str(error)})
        finished = deps.ledger.fail_chunk(run_id, chunk_id, str(error), duration_ms=_milliseconds(began))
        if command.recovery is not None:
            deps.ledger.end_recovery(run_id, chunk_id, command.recovery, str(error))
    except Exception as error:
        deps.ledger.record_error(run_id, chunk_id, str(error) or type(error).__name__)
        raise
    else:
        finished = deps.ledger.complete_chunk(
            run_id,
            chunk_id,
            output_key=outcome.output_key,
            duration_ms=_milliseconds(began),
            n_timed_out=outcome.n_timed_out,
            summary=outcome.summary,
        )
        deps.logger.info(
            "chunk_completed",
            extra={
                "items": command.n_items,
                "timed_out": outcome.n_timed_out,
                "duration_ms": _milliseconds(began),
            },
        )
    fault_point("chunk.recorded", run_id=run_id, chunk_id=chunk_id)
    announce(finished, command, message, deps)


def announce(finished: Finished, command: ChunkProcess, message: Message, deps: Dependencies) -> None:
    """Say how the chunk ended and, if it was the one that drained its run, that too.

    A redelivery says it again with the same ids, because the worker before may have died in between.
    """
    chunk = deps.ledger.chunk(command.run_id, command.chunk_id)
    source, traceparent = deps.transport.source, message.envelope.traceparent
    events = []
    if chunk.state.terminal:
        ended = _ended(chunk, command.survey)
        events.append(Envelope.wrap(ended, source=source, traceparent=traceparent, key=(chunk.chunk_id,)))
    if finished.drained is not None:
        events.append(_drained(finished.drained, source, traceparent))
    if command.recovery is not None and command.recovery == chunk.recovery and chunk.state is ChunkStatus.COMPLETED:
        recovered = deps.ledger.run(command.run_id)
        if recovered.drained_at is not None:
            events.append(_recovered(recovered, chunk, source, traceparent))
    deps.transport.publish(*events)
    if finished.changed:
        _count(chunk, deps)


def _ended(chunk: ChunkItem, survey: str) -> ChunkCompleted | ChunkFailed:
    if chunk.state is ChunkStatus.FAILED:
        return ChunkFailed(
            run_id=chunk.run_id, survey=survey, chunk_id=chunk.chunk_id, error=chunk.error or "The error is unknown."
        )
    assert chunk.output_key is not None, "a chunk is COMPLETED together with its output's key"
    return ChunkCompleted(
        run_id=chunk.run_id,
        survey=survey,
        chunk_id=chunk.chunk_id,
        output_key=chunk.output_key,
        n_items=chunk.n_items,
        n_timed_out=chunk.n_timed_out,
        duration_ms=chunk.duration_ms or 0,
    )


def _drained(run: RunItem, source: str, traceparent: str | None) -> Envelope:
    return Envelope.wrap(RunDrained.of(run), source=source, traceparent=traceparent)


def _recovered(run: RunItem, chunk: ChunkItem, source: str, traceparent: str | None) -> Envelope:
    drained = RunDrained.of(run)
    recovered = RunRecovered(
        run_id=run.run_id,
        chunk_id=chunk.chunk_id,
        jobs_total=drained.jobs_total,
        jobs_completed=drained.jobs_completed,
        jobs_failed=drained.jobs_failed,
        failed_percent=drained.failed_percent,
    )
    return Envelope.wrap(recovered, source=source, traceparent=traceparent, key=(chunk.chunk_id,))


def _count(chunk: ChunkItem, deps: Dependencies) -> None:
    with service_metrics("Worker") as metrics:
        metrics.add_dimension("Environment", deps.settings.environment)
        metrics.add_metric(f"Chunks{chunk.status.title()}", unit="Count", value=1)
        metrics.add_metric("Items", unit="Count", value=chunk.n_items)
        metrics.add_metric("ItemsTimedOut", unit="Count", value=chunk.n_timed_out)


def _milliseconds(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
