"""The continuation of a cancelled run: resumes the run, and leaves the rest to the sweeper."""

from __future__ import annotations

from collections import Counter

from prismline_dlq_consumer.decisions import ResumeDecision, judge_resume
from prismline_dlq_consumer.recovery.operation import Operation
from prismline_runtime import TransientError


def continue_cancelled(operation: Operation, cancelled_at: str) -> None:
    """Resume the run if it was cancelled at `cancelled_at`. Count its chunks that have not ended, and finish."""
    if operation.item.cursor is None:
        ledger = operation.deps.ledger
        run = operation.run()
        decision = judge_resume(run, cancelled_at)
        if decision is ResumeDecision.WAIT:
            raise TransientError(f"Run {operation.item.only_run} is being cancelled: it can be resumed after that.")
        if decision is ResumeDecision.RESUME and run is not None and not operation.item.dry_run:
            resumed = ledger.resume_run(run, cancelled_at=cancelled_at)
            if not resumed:
                raise TransientError(f"Run {run.run_id} has changed since it was read.")
        counts = None if run is None else ledger.counts(run)
        chunks = 0 if counts is None else max(0, (counts.total or 0) - counts.ended)
        left = chunks if decision is ResumeDecision.LEAVE else 0
        operation.commit(Counter(n_records=chunks, n_sent=chunks - left, n_left=left), cursor="resumed", gone=[])
    operation.finish()
