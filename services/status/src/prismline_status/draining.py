"""The state machine's wait for a run to drain: whichever comes second, the wait or the drain, answers it.

The token is stored before the ledger is read, and the ledger is drained before it is said, so one of the two sees the
other. An answer may be given twice; Step Functions takes the first.
"""

from __future__ import annotations

from typing import Any

from prismline_contracts import RunDrained
from prismline_status.dependencies import Dependencies
from prismline_status.executions import percent_text

#: Error name for a task whose run has ended without it; the state machine catches it and ends quietly.
RUN_ENDED = "RunEnded"


def counts(drained: RunDrained) -> dict[str, Any]:
    """The answer to the wait. `summary` is a sentence's beginning: `3 of 40 chunks failed (7.5 %)`."""
    return {
        "jobs_total": drained.jobs_total,
        "jobs_completed": drained.jobs_completed,
        "jobs_failed": drained.jobs_failed,
        "failed_percent": drained.failed_percent,
        "summary": f"{drained.jobs_failed} of {drained.jobs_total} chunks failed"
        f" ({percent_text(drained.failed_percent)})",
    }


def wait_until_drained(run_id: str, token: str, deps: Dependencies) -> None:
    """Have `token` answered once the run has drained, which may be now."""
    if deps.table.remember_waiting(run_id, token):
        answer_if_drained(run_id, token, deps)
    else:
        refuse_to_wait(token, deps)


def answer_if_drained(run_id: str, token: str, deps: Dependencies) -> bool:
    """Answer `token` with the run's counts if the ledger says that it has drained. False: nobody took an answer."""
    run = deps.ledger.get_run(run_id)
    return run is not None and run.drained_at is not None and deps.transport.answer(token, counts(RunDrained.of(run)))


def refuse_to_wait(token: str, deps: Dependencies) -> None:
    """Tell the task that there is nothing to wait for."""
    deps.transport.refuse(token, RUN_ENDED, "The run has ended otherwise, or another execution drives it.")
