"""Decides what people see of a run's state: its status, what may be done to it now, and why not. Pure functions.

The api sends these decisions as data, the console draws its buttons from them, and the command and the api refuse with
their reasons. So no two of them disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prismline_contracts.finalization import Finalization, due_finalization, finalization_of
from prismline_contracts.items import ChunkStatus, RunItem
from prismline_ledger.transitions import Counts

#: The statuses that a run does not leave by itself.
ENDED = frozenset({"completed", "failed", "cancelled"})


class ActionName(StrEnum):
    """What a person may do to a run."""

    #: Start nothing more.
    CANCEL = "cancel"
    #: Continue a cancelled run.
    CONTINUE = "continue"
    #: Try everything that failed again, in this run.
    RETRY = "retry"
    #: Start a new run of the tasks that failed.
    RERUN_FAILED = "rerun_failed"
    #: Pack the results.
    EXPORT = "export"


@dataclass(frozen=True)
class Action:
    """Whether an action is allowed now. If it is not, `reason` is a sentence that says why, and what to do instead."""

    name: ActionName
    reason: str | None = None

    @property
    def allowed(self) -> bool:
        """Whether it is allowed."""
        return self.reason is None


def actions_of(
    run_id: str, run: RunItem | None, status: str, counts: Counts | None, *, has_job: bool
) -> dict[ActionName, Action]:
    """Every action on a run. run: None before the run was opened. has_job: whether it belongs to a job of the API."""
    reasons = {
        ActionName.CANCEL: _not_cancel(run_id, run, status),
        ActionName.CONTINUE: _not_continue(run_id, run, status),
        ActionName.RETRY: _not_retry(run_id, run, counts),
        ActionName.RERUN_FAILED: _not_rerun(run_id, run, counts, has_job=has_job),
        ActionName.EXPORT: _not_export(run_id, run),
    }
    return {name: Action(name, reason) for name, reason in reasons.items()}


def shown_status(status: str, counts: Counts | None) -> str:
    """The status of a run for people. A run that is still being split is `running` once a chunk or task has ended.

    The status service calls it `pending` until its split is complete, which may take long for a list of a million URLs.
    """
    return "running" if status == "pending" and counts is not None and counts.ended > 0 else status


def goes_on(run: RunItem | None, status: str) -> bool:
    """Whether work continues although the run has failed or was cancelled: a person continued it, or retries it."""
    return (
        run is not None
        and status in {"failed", "cancelled"}
        and run.cancelled_at is None
        and run.drained_at is None
        and (run.uncancelled_at is not None or run.resumed_at is not None or run.drains > 0)
    )


def going_on(run: RunItem | None, status: str, counts: Counts | None) -> str | None:
    """The sentence that says so. None if nothing continues."""
    if run is None or counts is None or not goes_on(run, status):
        return None
    left = "its work" if counts.total is None else f"{counts.total - counts.ended:,} of its {run.unit}s"
    verb = "is" if counts.total is None or counts.total - counts.ended == 1 else "are"
    if status == "cancelled":
        return f"The run was cancelled and continues: {left} {verb} not finished yet."
    return f"The run had failed and is being retried: {left} {verb} not finished yet."


def has_ended(run: RunItem | None, status: str) -> bool:
    """Whether the status is final, no work continues, no spectrum waits for the slow lane, and nothing is finalized."""
    if status not in ENDED or goes_on(run, status):
        return False
    if run is None:
        return True
    if run.drained_at is not None and run.drains > 1 and run.ended_status is None:
        return False  # it was retried, and the status is that of before
    if due_finalization(run) is not None:
        return False
    return not (run.goes_on_after_cancel if status == "cancelled" else status == "completed" and run.n_timed_out > 0)


def warnings_of(run: RunItem, counts: Counts) -> list[str]:
    """What a user of the run's results has to know, one sentence each."""
    found = []
    if run.n_items and run.n_blank == run.n_items:
        found.append(f"All {run.n_items:,} spectra of the cube are blank: nothing was fitted.")
    if counts.total and counts.completed < counts.total:
        left = counts.total - counts.ended
        parts = [f"{counts.failed:,} failed" if counts.failed else "", f"{left:,} not finished" if left else ""]
        why = ", ".join(filter(None, parts))
        found.append(f"Partial: {counts.completed:,} of {counts.total:,} {run.unit}s completed ({why}).")
    if run.n_rejected:
        where = f" The object {run.rejects_key} gives the reasons." if run.rejects_key else ""
        found.append(f"{run.n_rejected:,} lines of the list are not valid tasks.{where}")
    if run.n_timed_out:
        found.append(f"{run.n_timed_out:,} spectra ran out of time and wait to be fitted again.")
    if run.n_refit_failed:
        found.append(f"{run.n_refit_failed:,} spectra ran out of time and could not be fitted again.")
    if (failed := failed_finalization(run)) is not None:
        found.append(f"`finalize` has failed: {failed.error}")
    return found


def failed_finalization(run: RunItem) -> Finalization | None:
    """The finalization of the run, if it has failed."""
    found = finalization_of(run)
    return found if found is not None and found.state is ChunkStatus.FAILED else None


def _not_cancel(run_id: str, run: RunItem | None, status: str) -> str | None:
    if status in ENDED and not (status == "cancelled" and run is not None and run.goes_on_after_cancel):
        return f"Run {run_id} is {status} already. Nothing is left to cancel."
    return None


def _not_continue(run_id: str, run: RunItem | None, status: str) -> str | None:
    if status != "cancelled":
        return f"Run {run_id} was not cancelled: it is {status}."
    if run is None:
        return f"Run {run_id} was cancelled before its source was read: there is nothing to continue. Submit it again."
    if run.goes_on_after_cancel:
        return f"Run {run_id} has already been continued."
    if run.cancelled_at is None and run.drained_at is not None:
        return f"Run {run_id} was cancelled after all of its {run.unit}s had ended: nothing is left to do."
    if run.cancelled_at is None:
        return f"Run {run_id} is being cancelled. Try again in a moment."
    return None


def _not_retry(run_id: str, run: RunItem | None, counts: Counts | None) -> str | None:
    if run is None or counts is None:
        return f"Run {run_id} has not been split yet: nothing has failed."
    if run.cancelled_at is not None and run.stop_reason == "cancelled":
        return f"Run {run_id} was cancelled. Continue it first: prismline retry {run_id} --cancelled"
    if counts.failed == 0 and failed_finalization(run) is None:
        return f"No {run.unit} of run {run_id} has failed."
    return None


def _not_rerun(run_id: str, run: RunItem | None, counts: Counts | None, *, has_job: bool) -> str | None:
    if run is None or counts is None:
        return f"Run {run_id} has no tasks yet: nothing has failed."
    if run.unit != "task":
        return f"The chunks of run {run_id} belong to one output. Retry them in this run."
    if not has_job:
        return f"Run {run_id} was not submitted over the API, so it has no job that could be run again."
    if run.drained_at is None and run.ended_at is None:
        return f"Run {run_id} has not ended. Wait for its end, or cancel it, then run it again."
    if counts.failed == 0:
        return f"No task of run {run_id} has failed."
    return None


def _not_export(run_id: str, run: RunItem | None) -> str | None:
    return f"Run {run_id} has no results yet. Repeat the request when the run is running." if run is None else None
