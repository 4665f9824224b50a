"""Calls the function of `finalize` after all items of a run have ended, and records what became of it.

There is no message for it. The message that ended the last items does it before it is acknowledged, and so does each
later message of the run while it is due. So a redelivery continues after a worker has died, and the sweeper sends a
message of an item again if there is none any more.

An attempt is recorded before it begins, with the end of the run that it belongs to. What it returns is written only if
the run still has that end and that attempt.

Before an attempt, the results are written to a file. If the time or the disk of two invocations in turn does not
suffice for that, the finalization has failed.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from prismline.results import Result, result_line
from prismline.supervisor import Outcome
from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import TasksProcess
from prismline_contracts.finalization import Finalization, due_finalization, final_value_key
from prismline_contracts.items import ChunkStatus, RunItem
from prismline_contracts.tasks import TaskItem, TaskStatus, task_id
from prismline_ledger import seconds_since, truncate
from prismline_runtime import Bucket, Message, batches, fault_point
from prismline_worker.dependencies import Dependencies
from prismline_worker.fetch_decisions import LONGEST_WAIT_SECONDS
from prismline_worker.function_tasks import LOGGED_CHARS, FunctionTasks, kept_value
from prismline_worker.runners import FunctionMissingError

#: Results that are read together, long values that are fetched at a time, and those that are held in memory.
BLOCK, FETCHES, HELD = 1000, 16, 64
#: `error_type` of a finalization whose results could not be written to a file.
TOO_MANY_RESULTS = "TooManyResults"
#: Seconds that an attempt may take beyond the function's own limit before its worker counts as dead.
GRACE_SECONDS = 60.0


def finalize(
    run: RunItem, command: TasksProcess, message: Message, deps: Dependencies, functions: FunctionTasks
) -> float | None:
    """Carry out the finalization of a run if it is due. Return the seconds until it has to be looked at again, or None.

    Raises FunctionMissingError if the function cannot be loaded here.
    """
    due = due_finalization(run)
    if due is None:
        return None
    terms = functions.terms(command, run)
    wait = _under_way(due, terms.longest_s, now())
    if wait > 0:
        return wait
    if due.state is ChunkStatus.IN_PROGRESS and due.attempts >= terms.max_attempts:
        error = f"Its worker died, or lost the connection to AWS, in the last of {due.attempts} attempts."
        failed = due.model_copy(update={"status": ChunkStatus.FAILED.value, "error": error, "at": timestamp(now())})
        return None if _recorded(run, failed, deps) else 0.0
    deadline = message.delivery.deadline(deps.settings.deadline_margin_seconds + terms.timeout_s)
    if time.monotonic() >= deadline:
        return 0.0
    functions.load(terms)
    bucket = deps.open_bucket(command.bucket)
    with TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        if (reason := _write_results(results, run, deps, bucket, deadline)) is not None:
            again = due.error_type != TOO_MANY_RESULTS
            status = ChunkStatus.PENDING if again else ChunkStatus.FAILED
            update = {"status": status.value, "error": reason, "error_type": TOO_MANY_RESULTS, "at": timestamp(now())}
            return None if _recorded(run, due.model_copy(update=update), deps) and not again else 0.0
        begun = due.model_copy(
            update={"status": ChunkStatus.IN_PROGRESS.value, "attempts": due.attempts + 1, "at": timestamp(now())}
        )
        started = deps.ledger.set_finalization(run, begun)
        if started is None:
            return 0.0
        fault_point("finalize.begun", run_id=run.run_id)
        # The same in each attempt, and another one if the results have changed since.
        item_id = f"{run.run_id}.final.{begun.drains}.{begun.failed}"
        try:
            outcome = functions.finalize(terms, results, item_id=item_id, attempt=begun.attempts)
        except FunctionMissingError:
            deps.ledger.set_finalization(started, due.model_copy(update={"status": ChunkStatus.PENDING.value}))
            raise
    fault_point("finalize.called", run_id=run.run_id)
    ended = _judged(begun, outcome, run, bucket)
    if not _recorded(started, ended, deps, outcome):
        return 0.0
    fault_point("finalize.recorded", run_id=run.run_id)
    return None if ended.state.terminal else min(LONGEST_WAIT_SECONDS, outcome.delay * 2.0 ** (begun.attempts - 1))


def _under_way(due: Finalization, timeout: float, moment: datetime) -> float:
    """Seconds for which the latest attempt may still be under way elsewhere."""
    if due.state is not ChunkStatus.IN_PROGRESS or due.at is None:
        return 0.0
    return max(0.0, timeout + GRACE_SECONDS - seconds_since(due.at, moment))


def _judged(begun: Finalization, outcome: Outcome, run: RunItem, bucket: Bucket) -> Finalization:
    if outcome.status == "completed":
        key = final_value_key(run.run_id, begun.drains, begun.attempts)
        update = {"status": ChunkStatus.COMPLETED.value, "value": kept_value(outcome, key, bucket)}
    else:
        over = outcome.permanent or begun.attempts >= outcome.attempts
        status = ChunkStatus.FAILED if over else ChunkStatus.PENDING
        update = {"status": status.value, "error": truncate(outcome.error), "error_type": outcome.error_type}
    return begun.model_copy(update={"error": None, "error_type": None, "at": timestamp(now()), **update})


def _recorded(run: RunItem, after: Finalization, deps: Dependencies, outcome: Outcome | None = None) -> bool:
    """Record an ended attempt. False if the run has ended otherwise meanwhile, or another attempt has begun."""
    if deps.ledger.set_finalization(run, after) is None:
        return False
    extra: dict[str, object] = {"status": after.status.lower(), "attempt": after.attempts}
    if after.error is not None:
        extra |= {"reason": after.error, "traceback": outcome.traceback[-LOGGED_CHARS:] if outcome else ""}
    deps.logger.info("run_finalized", extra=extra)
    return True


# ---- the results


def _write_results(path: Path, run: RunItem, deps: Dependencies, bucket: Bucket, deadline: float) -> str | None:
    """Write a line for each item, in the order of the list. Return why that is not possible here, or None.

    deadline: seconds of `time.monotonic`.
    """
    total, written = run.chunks_total or 0, 0
    try:
        with path.open("wb") as file, ThreadPoolExecutor(FETCHES) as pool:
            for block in _blocks(run, deps):
                if time.monotonic() >= deadline:
                    return (
                        f"An invocation of the worker could write only {written:,} of {total:,} results to the file for"
                        " `finalize`. Process such runs with workers on Fargate, which have no time limit."
                    )
                for part in batches(block, HELD):
                    values = pool.map(lambda task: _value_text(task, bucket), part)
                    file.writelines(_line(task, value) for task, value in zip(part, values, strict=True))
                written += len(block)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return (
            f"The worker's temporary folder is full after {written:,} of {total:,} results for `finalize`. Process"
            " such runs with workers on Fargate, or let the function return shorter values."
        )
    return None


def _blocks(run: RunItem, deps: Dependencies) -> Iterator[list[TaskItem]]:
    """The tasks of a run. Their ids follow from their indices, so the rights of a pool are enough to read them."""
    total = run.chunks_total or 0
    for begin in range(0, total, BLOCK):
        names = [task_id(run.run_id, index) for index in range(begin, min(begin + BLOCK, total))]
        found = deps.ledger.read_tasks(run, names)
        yield [found[name] for name in names if name in found]


def _value_text(task: TaskItem, bucket: Bucket) -> str | None:
    """The value of an item as JSON."""
    if task.value is None or task.state is not TaskStatus.COMPLETED:
        return None
    return task.value.text if task.value.key is None else bucket.read(task.value.key).decode()


def _line(task: TaskItem, value: str | None) -> bytes:
    failed = task.state is TaskStatus.FAILED
    result = Result(
        task.index,
        None,
        "failed" if failed else "completed",
        error=task.error if failed else None,
        error_type=task.error_type if failed else None,
        attempts=task.attempts,
        duration_ms=task.duration_ms,
    )
    return result_line(result, item=task.source, value=value)
