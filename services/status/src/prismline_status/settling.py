"""Every message about a run ends here: what the run's item says and what the ledger says are made to agree, and told.

Each step may be repeated, and a service that dies between two of them is made up for by the next message about the
run; the sweeper provides one for as long as the ledger has not recorded the end. The order matters:

1. Whoever writes a terminal status reads the ledger afterwards, and whoever changes the ledger has the run looked at
   afterwards: of the two at once, one sees the other.
2. The rest of an ended run is stopped before its status is announced.
3. The end is recorded last, as the end of the run that was read: if the run went on meanwhile, it is looked at again.
"""

from __future__ import annotations

from prismline_contracts import RunDrained, RunItem, timestamp
from prismline_runtime import TransientError, fault_point
from prismline_status.announcements import announce
from prismline_status.dependencies import Dependencies
from prismline_status.endings import CANCELLED, counts, ending, heard, over, recovered, stop_reason
from prismline_status.update import change_status
from prismline_status.workflow_state import RunState

#: Error name for a task whose run has ended without it; the state machine catches it and ends quietly.
RUN_ENDED = "RunEnded"


def settle(run_id: str, deps: Dependencies) -> None:
    """Do what is left to do about the run's end. Nothing, if the run goes on, or its end has been heard.

    Raises TransientError when something does not answer, and when the run went on meanwhile.
    """
    state = deps.table.get(run_id)
    if state is None:
        deps.logger.info("run_without_status", extra={"run_id": run_id})
        return
    run = deps.ledger.get_run(run_id)
    if state.terminal:
        _tell(state, run, deps)
    elif _end(state, run, deps):
        settle(run_id, deps)


def refuse_to_wait(token: str, deps: Dependencies) -> None:
    """Tell a task that there is nothing to wait for."""
    deps.transport.refuse(token, RUN_ENDED, "The run has ended otherwise, or another execution drives it.")


def _end(state: RunState, run: RunItem | None, deps: Dependencies) -> bool:
    """Have a run that is over ended: by its execution, or, where that is gone, from the ledger.

    False: the run is not over, or its execution ends it. The execution is gone where an emulator was restarted.
    """
    if run is None or not over(run):
        return False
    if run.drained_at is not None and _answer_waiting(state, run, deps):
        return False
    if deps.executions.is_running(run.run_id):
        return False
    deps.logger.warning("run_ended_without_execution", extra={"run_id": run.run_id})
    for update in ending(state, run, timestamp()):
        applied = change_status(update, deps)
        if applied is not None and not applied.after.terminal:
            announce(applied.after, deps)
    return True


def _answer_waiting(state: RunState, run: RunItem, deps: Dependencies) -> bool:
    """Answer every task that waits for the drain with the run's counts. False: nobody took an answer."""
    output = counts(RunDrained.of(run))
    taken = [deps.transport.answer(token, output) for token in state.tokens]
    if taken:
        fault_point("drain.answered", run_id=state.run_id)
        deps.table.forget_waiting(state)
    return any(taken)


def _tell(state: RunState, run: RunItem | None, deps: Dependencies) -> None:
    """Carry a terminal status into the ledger and to everybody who waits for it."""
    if heard(state, run):
        return
    reason = stop_reason(state, run)
    if reason is not None:
        deps.ledger.stop_run(state.run_id, reason)
        fault_point("run.stopped", run_id=state.run_id)
        run = deps.ledger.get_run(state.run_id)
    if recovered(state, run):
        state = _complete(state, deps)
    announce(state, deps)
    _release(state, deps)
    if run is not None and run.drained_at is not None:
        _say_drained(run, deps)
    if run is not None and over(run) and not deps.ledger.record_end(run, state.status):
        raise TransientError(f"Run {state.run_id} went on while its end was told: it is looked at again.")


def _say_drained(run: RunItem, deps: Dependencies) -> None:
    """Say once more that the run has drained: whoever drained it may have died before saying so, and once the end is
    recorded nobody says it again.
    """
    drained = RunDrained.of(run)
    deps.transport.publish(deps.transport.wrap(drained, traceparent=run.traceparent, key=drained.key))


def _complete(state: RunState, deps: Dependencies) -> RunState:
    """Complete a run that had failed for its chunks, now that no more have failed than it tolerates.

    Its state machine has ended and is not needed: the ledger says how many chunks failed, the item how many may.
    """
    completed = deps.table.complete_recovered(state.run_id)
    if completed is not None:
        deps.logger.info("run_completed_by_recovery", extra={"run_id": state.run_id})
    return completed or deps.table.get(state.run_id) or state


def _release(state: RunState, deps: Dependencies) -> None:
    """Have the execution of an ended run end: it is stopped if somebody cancelled the run, and waits for nothing."""
    if state.status == CANCELLED:
        deps.executions.stop(state.run_id, "The run was cancelled.")
    for token in state.tokens:
        refuse_to_wait(token, deps)
    if state.tokens:
        deps.table.forget_waiting(state)
