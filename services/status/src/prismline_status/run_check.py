"""Checks a run: makes its status agree with the ledger, announces it, and records the end.

Every message about a run ends here. Each step is idempotent. If the service dies between two steps, the next message
about the run continues; the sweeper sends one until the ledger has recorded the end. The order matters:

1. The service writes a terminal status and then reads the ledger. Every other service changes the ledger and then has
   the run checked. So at least one of two concurrent writers sees the other's write.
2. An ended run is stopped before its status is announced.
3. The end is recorded last, and only if the run has not changed since it was read. Otherwise the run is checked again.
"""

from __future__ import annotations

from prismline_contracts.base import timestamp
from prismline_contracts.events import RunDrained
from prismline_contracts.items import RunItem
from prismline_ledger import TOO_MANY_FAILURES
from prismline_runtime import TransientError
from prismline_status.announcements import announce
from prismline_status.dependencies import Dependencies
from prismline_status.endings import (
    CANCELLED,
    announcement_recorded,
    counts,
    ending,
    ending_after_cancel,
    over,
    recovered,
    stop_reason,
    too_many_failures,
)
from prismline_status.update import change_status
from prismline_status.workflow_state import RunState

#: Error name for a task whose run has ended already. The state machine catches it and ends without an error.
RUN_ENDED = "RunEnded"


def check_run(run_id: str, deps: Dependencies) -> None:
    """Do all remaining steps of the run's end. Do nothing if the run is not over or its end is recorded.

    Raises TransientError if AWS does not answer or if the run changes in the meantime.
    """
    state = deps.table.get(run_id)
    if state is None:
        deps.logger.info("run_without_status", extra={"run_id": run_id})
        return
    run = deps.ledger.get_run(run_id)
    if state.terminal:
        _announce_end(state, run, deps)
    elif _end(state, run, deps):
        check_run(run_id, deps)


def refuse_to_wait(token: str, deps: Dependencies) -> None:
    """Fail a task that waits for a drain which will not come."""
    deps.transport.refuse(token, RUN_ENDED, "The run has ended otherwise, or another execution drives it.")


def _end(state: RunState, run: RunItem | None, deps: Dependencies) -> bool:
    """End a run that is over: through its execution or, if that is gone, from the ledger.

    Returns whether the run was ended here. False if the run is not over or its execution will end it. An execution is
    gone after a restart of an emulator.
    """
    if run is None or not over(run):
        return False
    if run.drained_at is not None:
        _answer_waiting(state, run, deps)
    if deps.executions.is_running(run.run_id):
        return False
    deps.logger.warning("run_ended_without_execution", extra={"run_id": run.run_id})
    for update in ending(state, run, timestamp()):
        applied = change_status(update, deps)
        if applied is not None and not applied.after.terminal:
            announce(applied.after, deps)
    return True


def _answer_waiting(state: RunState, run: RunItem, deps: Dependencies) -> None:
    """Answer every task that waits for the drain with the run's counts.

    The state machine compares them with the percentage that is tolerated. It does not know the number of failures that
    is: if only that is exceeded, the task fails.
    """
    drained, error = RunDrained.of(run), too_many_failures(state, run)
    for token in state.tokens:
        if error is None or drained.failed_percent > state.tolerance.greatest_percent:
            deps.transport.answer(token, counts(drained))
        else:
            deps.transport.refuse(token, TOO_MANY_FAILURES, error.Cause or "")
    if state.tokens:
        deps.table.forget_waiting(state)


def _announce_end(state: RunState, run: RunItem | None, deps: Dependencies) -> None:
    """Stop the run in the ledger, announce its terminal status, fail waiting tasks, and record the end."""
    if announcement_recorded(state, run):
        return
    reason = stop_reason(state, run)
    if reason is not None:
        deps.ledger.stop_run(state.run_id, reason)
        run = deps.ledger.get_run(state.run_id)
    update = ending_after_cancel(state, run, timestamp())
    if update is not None:
        if deps.table.end_after_cancel(state, update) is not None:
            deps.logger.info("cancelled_run_ended", extra={"run_id": state.run_id, "status": update.status})
        check_run(state.run_id, deps)  # with the ledger as it is after the status was written
        return
    if recovered(state, run):
        state = _complete(state, deps)
    announce(state, deps)
    _release(state, deps)
    if run is not None and run.drained_at is not None:
        _announce_drained(run, deps)
    if run is not None and over(run) and not deps.ledger.record_end(run, state.status):
        raise TransientError(f"Run {state.run_id} changed while its end was announced: it is checked again.")


def _announce_drained(run: RunItem, deps: Dependencies) -> None:
    """Publish the drain of the run again.

    The process that drained the run may have died before it published that. After the end is recorded, no other process
    publishes it.
    """
    drained = RunDrained.of(run)
    deps.transport.publish_event(drained, traceparent=run.traceparent, key=drained.key)


def _complete(state: RunState, deps: Dependencies) -> RunState:
    """Complete a failed run that has recovered: its share of failed chunks is tolerated now.

    The run's execution has ended and is not needed: the ledger has the number of failed chunks, and the item has the
    tolerance.
    """
    completed = deps.table.complete_recovered(state.run_id)
    if completed is not None:
        deps.logger.info("run_completed_by_recovery", extra={"run_id": state.run_id})
    return completed or deps.table.get(state.run_id) or state


def _release(state: RunState, deps: Dependencies) -> None:
    """Stop the execution of a cancelled run, and fail the tasks that still wait for a drain."""
    if state.status == CANCELLED:
        deps.executions.stop(state.run_id, "The run was cancelled.")
    for token in state.tokens:
        refuse_to_wait(token, deps)
    if state.tokens:
        deps.table.forget_waiting(state)
