"""The retry of a run of tasks: reopens its failed tasks and sends them. It does not wait for them to end."""

from __future__ import annotations

from collections import Counter

from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import TasksProcess, task_queue_of
from prismline_contracts.finalization import Finalization
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE, TaskStatus, task_id
from prismline_dlq_consumer.decisions import cancelled
from prismline_dlq_consumer.recovery.operation import Operation
from prismline_ledger import failed_finalization
from prismline_runtime import TransientError, batches, fault_point

#: Tasks in one window of a retry.
RETRY_TASKS = 1000


class FailedTasks:
    """The failed tasks of a run. The cursor is a shard and the last task id that was read in it."""

    def __init__(self, operation: Operation, run: RunItem) -> None:
        self._operation = operation
        self._run = run

    def take_window(self, after: str) -> bool:
        """Reopen the failed tasks of the next window, and send them. False if there are no more tasks.

        If the process dies before it counts the window, the next one finds the reopened tasks by the operation's id.
        """
        operation, run = self._operation, self._moved() if not after else self._run
        shard, last = (int(after[:5]), after[6:] or None) if after else (0, None)
        if shard >= run.shard_count:
            return False
        page = operation.deps.ledger.page_of_tasks(run, shard, after=last, limit=RETRY_TASKS)
        failed = [
            task
            for task in page.tasks
            if task.state is TaskStatus.FAILED or (not task.state.terminal and task.recovery == operation.id)
        ]
        stays = cancelled(run)
        if failed and not stays and not operation.item.dry_run:
            operation.deps.ledger.resume_run(run)
            reopened = operation.deps.ledger.reopen_tasks(run, failed, operation.id)
            fault_point("recovery.taken", operation_id=operation.id)
            self._send([task.task_id for task in reopened])
        final = 0 if after else self._reopen_finalization(run)
        cursor = f"{shard:05d}/{page.after}" if page.after is not None else f"{shard + 1:05d}/"
        n_left = len(failed) if stays else 0
        counts = Counter(n_records=len(failed) + final, n_sent=len(failed) - n_left + final, n_left=n_left)
        operation.commit(counts, cursor=cursor, gone=[])
        return True

    def _reopen_finalization(self, run: RunItem) -> int:
        """Have a failed finalization tried again, if no item has failed: otherwise the run ends once more.

        Return 1 if it is tried again. If the process dies before it sends the message, the sweeper does.
        """
        operation = self._operation
        if failed_finalization(run) is None or run.chunks_failed or cancelled(run):
            return 0
        if not operation.item.dry_run:
            again = Finalization(drains=run.drains, failed=run.chunks_failed, at=timestamp(now()))
            if operation.deps.ledger.set_finalization(run, again) is None:
                raise TransientError(f"Run {run.run_id} has changed since it was read.")
            fault_point("recovery.taken", operation_id=operation.id)
            self._send([task_id(run.run_id, 0)])
        return 1

    def _moved(self) -> RunItem:
        """The run with the code that the request names. Only the first window moves it: a later retry may follow."""
        operation, run = self._operation, self._run
        code = operation.item.code
        if code in (None, run.code) or run.code is None or cancelled(run) or operation.item.dry_run:
            return run
        moved = operation.deps.ledger.move_to_code(run, code)
        if moved is None:
            raise TransientError(f"Run {run.run_id} has changed since it was read.")
        operation.deps.logger.info("run_moved", extra={"run_id": run.run_id, "code": code})
        self._run = moved
        return moved

    def _send(self, names: list[str]) -> None:
        """Send tasks of one shard."""
        deps, run, recovery = self._operation.deps, self._run, self._operation.id
        transport = deps.transport
        commands = (
            TasksProcess.of(run, part, deps.settings.bucket, recovery=recovery)
            for part in batches(names, MAX_TASKS_PER_MESSAGE)
        )
        transport.send(
            task_queue_of(run, transport.environment),
            (transport.wrap(each, traceparent=run.traceparent, key=(each.task_ids[0], recovery)) for each in commands),
        )
