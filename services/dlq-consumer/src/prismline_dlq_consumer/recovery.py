"""Executes recoveries: sends archived dead letters back to their queues and keeps the records until the chunks end.

A retry does the same without the archive: it makes the record of each failed chunk of a run from the ledger. A retry
that names a cancellation only resumes the cancelled run: the sweeper then sends the chunks that had been skipped.

In the first phase the operation lists the archive, or the records that it names, in windows of records. It moves each
record to its own prefix, deletes it if the work is done, or moves it to the failed records. In the second phase it
makes rounds, with a delay that doubles. A round sends the messages that are not sent yet and checks the chunks of the
others. When a chunk has ended, its record is deleted or moved to the failed records. The operation is over when its
prefix is empty.

After each window, one conditional write to the operation's item adds the window's counts, moves the cursor, and lists
the records to delete. Then they are deleted. If the process dies before the write, the window is repeated, which is
idempotent. If it dies after the write, the deletions are finished first. So memory depends only on the window's size,
no record is lost, and none is counted twice.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice

from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import ChunkProcess, Queue, TasksProcess, task_queue_of
from prismline_contracts.deadletters import (
    DeadLetterRecord,
    DeadlettersRecover,
    DeadlettersRecovered,
    RecoveryCounts,
    RecoveryOperationItem,
)
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_contracts.prefixes import RECOVERING_PREFIX
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE, TaskStatus
from prismline_dlq_consumer.archive import ArchivedRecord, recovering_chunk, recovering_prefix, to_json
from prismline_dlq_consumer.decisions import Action, Step, Wish, cancelled, judge_record, judge_wish, next_step
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_dlq_consumer.facts import LookUp
from prismline_dlq_consumer.sending import Dispatch, send_back
from prismline_ledger import LeaseLostError
from prismline_runtime import Message, PermanentError, PrismlineError, TransientError, batches, fault_point

#: Tasks in one window of a retry.
RETRY_TASKS = 1000
#: Tries to reopen a chunk that other processes change at the same time.
REOPEN_TRIES = 5


def on_recover(request: DeadlettersRecover, message: Message, deps: Dependencies) -> None:
    """Continue the recovery that `request` names, and send another message unless it is over."""
    lease = timedelta(seconds=deps.settings.recovery_lease_seconds)
    operation = deps.operations.claim(request, uuid.uuid4().hex, lease)
    if operation.status == "COMPLETED":
        _say_recovered(operation, message, deps)
        return
    deadline = message.delivery.deadline(deps.settings.deadline_margin_seconds)
    with deps.logger.append_context_keys(operation_id=operation.operation_id):
        try:
            with _Recovery(operation, lease, deps) as recovery:
                delay = recovery.work(deadline)
        except LeaseLostError:
            raise
        except Exception:
            with suppress(PrismlineError):
                deps.operations.release(operation)
            raise
        operation = recovery.operation
        if operation.status == "COMPLETED":
            _say_recovered(operation, message, deps)
        else:
            deps.operations.release(operation)
            # with a new time, because a recovery may last longer than the age at which a message is given up
            again = message.envelope.model_copy(update={"time": timestamp()})
            deps.transport.send(Queue.RECOVERIES, [again], delay_seconds=delay)


def _say_recovered(operation: RecoveryOperationItem, message: Message, deps: Dependencies) -> None:
    counts = operation.model_dump(include=set(RecoveryCounts.model_fields))
    recovered = DeadlettersRecovered(
        operation_id=operation.operation_id,
        prefix=operation.prefix,
        only_run=operation.only_run,
        dry_run=operation.dry_run,
        finished_at=operation.finished_at or operation.updated_at,
        **counts,
    )
    traceparent = message.envelope.traceparent
    deps.transport.publish_event(recovered, traceparent=traceparent, key=(operation.operation_id,))
    deps.logger.info("deadletters_recovered", extra={"operation_id": operation.operation_id, **counts})


class _Recovery:
    """The work of one invocation on an operation."""

    def __init__(self, operation: RecoveryOperationItem, lease: timedelta, deps: Dependencies) -> None:
        #: The operation's item as it was last written.
        self.operation = operation
        self._lease = lease
        self._deps = deps
        self._id = operation.operation_id
        self._own_prefix = recovering_prefix(self._id)
        self._pool = ThreadPoolExecutor(deps.settings.recovery_concurrency)
        #: The date in the keys of moved records. It is the same in every invocation.
        self._date = operation.started_at[:10]
        #: Keys of the chunks and messages that a dry run has counted as sent.
        self._rehearsed: set[str] = set()

    def __enter__(self) -> _Recovery:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def work(self, deadline: float) -> int:
        """Work until the operation ends, must wait for chunks, or `deadline` (`time.monotonic` seconds) is reached.

        Returns the delay, in seconds, until the operation should continue.
        """
        if self.operation.cancelled_at is not None:
            return self._continue_cancelled(self.operation.cancelled_at)
        self._deps.archive.delete(self.operation.to_delete)
        while not self.operation.listed:
            if time.monotonic() >= deadline:
                return 0
            after = self.operation.cursor or ""
            if self.operation.retry and (run := self._run_of_tasks()) is not None:
                more = self._retry_tasks(run, after=after)
            elif self.operation.retry:
                chunks = self._failed_chunks(after=after)
                more = bool(chunks)
                if chunks:
                    self._take_chunks(chunks)
            else:
                keys = self._archived(after=after)
                more = bool(keys)
                if keys:
                    self._take(keys)
            if more:
                continue
            if self.operation.dry_run:
                self.operation = self._deps.operations.finish(self.operation)
                return 0
            break
        self.operation = self._deps.operations.await_endings(self.operation)
        left = self._go_round(deadline)
        if left is None:
            return 0
        if left == 0:
            self.operation = self._deps.operations.finish(self.operation)
            return 0
        self._deps.logger.info("recovery_waits", extra={"left": left, "rounds": self.operation.rounds})
        return self._deps.settings.letter_patience.delay(self.operation.rounds)

    def _continue_cancelled(self, cancelled_at: str) -> int:
        """Resume the run if it was cancelled at `cancelled_at`. Count its chunks that have not ended. Returns 0."""
        if self.operation.cursor is None:
            run = self._deps.ledger.get_run(self.operation.only_run or "")
            wish = judge_wish(run, cancelled_at)
            if wish is Wish.WAIT:
                raise TransientError(f"Run {self.operation.only_run} is being cancelled: it can be resumed after that.")
            if wish is Wish.RESUME and run is not None and not self.operation.dry_run:
                resumed = self._deps.ledger.resume_run(run, cancelled_at=cancelled_at)
                if not resumed:
                    raise TransientError(f"Run {run.run_id} has changed since it was read.")
            counts = None if run is None else self._deps.ledger.counts(run)
            chunks = 0 if counts is None else max(0, (counts.total or 0) - counts.ended)
            left = chunks if wish is Wish.LEAVE else 0
            self._commit(Counter(n_records=chunks, n_sent=chunks - left, n_left=left), cursor="resumed", gone=[])
        self.operation = self._deps.operations.finish(self.operation)
        return 0

    def _archived(self, *, after: str) -> list[str]:
        """The next keys of a recovery in order: from its list of records if it has one, else from its prefix."""
        if self.operation.record_keys is None:
            return self._list(self.operation.prefix, after=after)
        return sorted({key for key in self.operation.record_keys if key > after})[: self._deps.settings.recovery_window]

    def _list(self, prefix: str, *, after: str) -> list[str]:
        return self._deps.archive.list(prefix, after=after, limit=self._deps.settings.recovery_window)

    def _read(self, keys: list[str]) -> list[ArchivedRecord]:
        """The records that still exist."""
        return [record for record in self._pool.map(self._deps.archive.read, keys) if record is not None]

    # ---- taking records

    def _take(self, keys: list[str]) -> None:
        """Decide about one window of records, and move and count them."""
        records = self._read([key for key in keys if not self._is_anothers(key)])
        mine = [record for record in records if self._is_meant(record)]
        counts: Counter[str] = Counter(n_records=len(records), n_left=len(records) - len(mine))
        look_up = LookUp([record.letter for record in mine], self._deps.ledger)
        taken, gone = [], []
        for record in mine:
            decision = judge_record(record.letter, look_up.facts(record.letter))
            match decision.action:
                case Action.RESEND:
                    taken.append(record)
                    gone.append(record.key)
                case Action.SETTLE:
                    counts["n_settled"] += 1
                    gone.append(record.key)
                case Action.LEAVE:
                    counts["n_left"] += 1
                case _:
                    counts["n_failed"] += 1
                    if self._keep_failed(record, decision.reason):
                        gone.append(record.key)
        if self.operation.dry_run:
            first = {key for record in taken if (key := record.recovering_key(self._id)) not in self._rehearsed}
            self._rehearsed |= first
            counts += Counter(n_sent=len(first), n_settled=len(taken) - len(first))
            gone = []
        else:
            own = list(self._pool.map(lambda record: self._deps.archive.take(record, self._id), taken))
            counts["n_settled"] += own.count(False)
        fault_point("recovery.taken", operation_id=self._id)
        self._commit(counts, cursor=keys[-1], gone=gone)

    # ---- tasks

    def _run_of_tasks(self) -> RunItem | None:
        """The run that is retried, if it consists of tasks."""
        run = self._deps.ledger.get_run(self.operation.only_run or "")
        return run if run is not None and run.unit == "task" else None

    def _retry_tasks(self, run: RunItem, *, after: str) -> bool:
        """Reopen the failed tasks of the next window, and send them. False if there are no more tasks.

        No records are stored: the messages only refer to the tasks, and a worker skips tasks that have ended. If the
        process dies before it counts the window, the next one finds the reopened tasks by the operation's id. The
        operation does not wait for the tasks to end.
        """
        shard, last = (int(after[:5]), after[6:] or None) if after else (0, None)
        if shard >= run.shard_count:
            return False
        page = self._deps.ledger.page_of_tasks(run, shard, after=last, limit=RETRY_TASKS)
        failed = [
            task
            for task in page.tasks
            if task.state is TaskStatus.FAILED or (not task.state.terminal and task.recovery == self._id)
        ]
        stays = cancelled(run)
        counts = Counter(n_records=len(failed), n_sent=0 if stays else len(failed), n_left=len(failed) if stays else 0)
        if failed and not stays and not self.operation.dry_run:
            self._deps.ledger.resume_run(run)
            reopened = self._deps.ledger.reopen_tasks(run, failed, self._id)
            fault_point("recovery.taken", operation_id=self._id)
            self._send_tasks(run, [task.task_id for task in reopened])
        cursor = f"{shard:05d}/{page.after}" if page.after is not None else f"{shard + 1:05d}/"
        self._commit(counts, cursor=cursor, gone=[])
        return True

    def _send_tasks(self, run: RunItem, names: list[str]) -> None:
        """Send tasks of one shard."""
        transport, bucket_name = self._deps.transport, self._deps.settings.bucket
        commands = (
            TasksProcess.of(run, part, bucket_name, recovery=self._id) for part in batches(names, MAX_TASKS_PER_MESSAGE)
        )
        transport.send(
            task_queue_of(run, transport.environment),
            (transport.wrap(each, traceparent=run.traceparent, key=(each.task_ids[0], self._id)) for each in commands),
        )

    def _reopen_tasks(self, command: TasksProcess) -> None:
        """Reopen the tasks of an archived message that have not completed."""
        run = self._deps.ledger.get_run(command.run_id)
        if run is not None:
            found = self._deps.ledger.read_tasks(run, command.task_ids).values()
            self._deps.ledger.reopen_tasks(run, found, self._id)

    # ---- chunks

    def _failed_chunks(self, *, after: str) -> list[ChunkItem]:
        """The next chunks of a retry in order of id: from its list of chunks if it has one, else all that FAILED."""
        run_id, window = self.operation.only_run or "", self._deps.settings.recovery_window
        if self.operation.chunk_ids is None:
            failed = self._deps.ledger.chunks(run_id, status=ChunkStatus.FAILED)
            return list(islice((chunk for chunk in failed if chunk.chunk_id > after), window))
        names = sorted({name for name in self.operation.chunk_ids if name > after})[:window]
        found = self._deps.ledger.find((run_id, name) for name in names)
        return [found[name] for name in sorted(found)]

    def _take_chunks(self, chunks: list[ChunkItem]) -> None:
        """Make a record from the ledger for each chunk that FAILED, and take it like a record of the archive.

        The same rules apply as to the archive's records: a run that a person cancelled stays as it is, and chunks that
        have completed are skipped.
        """
        run = self._deps.ledger.run(chunks[0].run_id)
        failed = [] if cancelled(run) else [chunk for chunk in chunks if chunk.state is ChunkStatus.FAILED]
        completed = sum(chunk.state is ChunkStatus.COMPLETED for chunk in chunks)
        counts = Counter(n_records=len(chunks), n_settled=completed, n_left=len(chunks) - completed - len(failed))
        if self.operation.dry_run:
            counts += Counter(n_sent=len(failed))
        else:
            records = [self._record_of(chunk, run) for chunk in failed]
            # False means that an earlier invocation has taken the chunk: no other operation writes below this prefix
            list(self._pool.map(lambda record: self._deps.archive.take(record, self._id), records))
        fault_point("recovery.taken", operation_id=self._id)
        self._commit(counts, cursor=chunks[-1].chunk_id, gone=[])

    def _record_of(self, chunk: ChunkItem, run: RunItem) -> ArchivedRecord:
        """What the archive would hold if the chunk's message were a dead letter."""
        command = ChunkProcess.of(chunk, run, self._deps.settings.bucket, attempt=chunk.resends + 2)
        message = self._deps.transport.wrap(command, traceparent=run.traceparent, key=(chunk.chunk_id, self._id))
        record = DeadLetterRecord(
            body=message.to_json(),
            error=chunk.error,
            collection=run.survey,
            granules=[chunk.chunk_id],
            messageId=f"{chunk.run_id}.{chunk.chunk_id}",
            run_id=chunk.run_id,
            chunk_id=chunk.chunk_id,
            source_queue=Queue.CHUNKS.value,
            archived_at=self.operation.started_at,
        )
        return ArchivedRecord.read("", to_json(record))

    def _is_anothers(self, key: str) -> bool:
        """Whether an operation has taken this record, and this request does not ask for records of operations."""
        if key.startswith(self._own_prefix):
            return True
        return key.startswith(RECOVERING_PREFIX) and not self.operation.prefix.startswith(RECOVERING_PREFIX)

    def _is_meant(self, record: ArchivedRecord) -> bool:
        """Whether the operation handles this record: it is of the right run, and was not handled before."""
        only_run = self.operation.only_run
        if only_run is not None and record.document.get("run_id") != only_run:
            return False
        return record.document.get("recovery") != self._id

    def _keep_failed(self, record: ArchivedRecord, reason: str) -> bool:
        """Store the record with the failed records, with the reason. False if it is already stored there."""
        key = record.failed_key(self._date)
        if not self.operation.dry_run:
            self._deps.archive.put(key, record.noting(error=reason, recovery=self._id))
        return key != record.key

    # ---- sending, and waiting for the end

    def _go_round(self, deadline: float) -> int | None:
        """Check all taken records. Return how many are left, or None if the time was not enough for all."""
        left, after = 0, ""
        while keys := self._list(self._own_prefix, after=after):
            if time.monotonic() >= deadline:
                return None
            left += self._look_at(keys)
            after = keys[-1]
        return left

    def _look_at(self, keys: list[str]) -> int:
        """Do the next step with each record of a window. Return how many are left."""
        sent_until = self._sent_until()
        names = {key: name for key in keys if (name := recovering_chunk(key, self._id)) is not None}
        chunks = self._deps.ledger.find(names.values())
        runs = self._resume(run_id for run_id, _ in names.values())
        steps: dict[Step, list[str]] = defaultdict(list)
        for key in keys:
            if key in names:
                step = next_step(chunks.get(names[key]), runs.get(names[key][0]), self._id, sent=key <= sent_until)
                steps[step].append(key)
            else:
                steps[Step.SEND].append(key)
        counts: Counter[str] = Counter()
        for key in steps[Step.DONE]:
            counts["n_recovered" if key <= sent_until else "n_settled"] += 1
        failed = self._read(steps[Step.FAILED])
        for record in failed:
            chunk = chunks.get(names[record.key])
            error = chunk.error if chunk is not None else "Its chunk is not in the ledger any more."
            self._keep_failed(record, error or "The error is unknown.")
        put_back = self._read(steps[Step.PUT_BACK])
        for record in put_back:
            self._deps.archive.put(record.home_key(), record.content)
        sent = self._send(self._read(steps[Step.SEND]), chunks)
        gone = [*steps[Step.DONE], *steps[Step.FAILED], *steps[Step.PUT_BACK]]
        gone += [record.key for record in sent if record.key not in names]
        counts += Counter(n_sent=len(sent), n_failed=len(failed), n_left=len(put_back))
        fault_point("recovery.sent", operation_id=self._id)
        self._commit(counts, cursor=max(sent_until, keys[-1]), gone=gone)
        return len(keys) - len(gone)

    def _resume(self, run_ids: Iterable[str]) -> dict[str, RunItem]:
        """Resume the runs that were stopped because they failed. Return the runs as they were before."""
        runs = self._deps.ledger.find_runs(run_ids)
        for run in runs.values():
            self._deps.ledger.resume_run(run)
        return runs

    def _sent_until(self) -> str:
        """The key up to which all messages have been sent."""
        cursor = self.operation.cursor or ""
        return cursor if cursor.startswith(self._own_prefix) else ""

    def _send(self, records: list[ArchivedRecord], chunks: dict[tuple[str, str], ChunkItem]) -> list[ArchivedRecord]:
        """Reopen the chunks of records and send their messages. Return the records that were sent.

        If the process dies in between, the window is repeated. A chunk that is already reopened is then only sent.
        """
        self._resume(record.letter.command.run_id for record in records if record.letter.command is not None)
        reopened = self._pool.map(partial(self._reopen, chunks=chunks), records)
        to_send = [record for record, is_open in zip(records, reopened, strict=True) if is_open]
        moment = now()
        by_queue: dict[str, list[Dispatch]] = defaultdict(list)
        for record in to_send:
            name = record.letter.chunk_name
            chunk = chunks.get(name) if name is not None else None
            by_queue[record.letter.source_queue].append(Dispatch.recovered(record.letter, chunk, self._id, moment))
        sends = [(queue, batch) for queue, dispatches in by_queue.items() for batch in batches(dispatches)]
        transport = self._deps.transport
        list(self._pool.map(lambda each: send_back(each[0], each[1], transport), sends))
        return to_send

    def _reopen(self, record: ArchivedRecord, chunks: dict[tuple[str, str], ChunkItem]) -> bool:
        """Reopen the record's chunk for this recovery. False if the chunk has ended again or does not exist."""
        if isinstance(record.letter.data, TasksProcess):
            self._reopen_tasks(record.letter.data)
            return True
        if not isinstance(record.letter.data, ChunkProcess) or record.letter.chunk_name is None:
            return True
        chunk = chunks[record.letter.chunk_name]
        for _ in range(REOPEN_TRIES):
            if chunk.state is ChunkStatus.COMPLETED:
                return False
            if chunk.recovery == self._id:
                return not chunk.state.terminal
            if self._deps.ledger.reopen_chunk(chunk, self._id):
                return True
            try:
                chunk = self._deps.ledger.chunk(chunk.run_id, chunk.chunk_id)
            except PermanentError:
                return False
        raise TransientError(f"Other processes keep changing {chunk.chunk_id} of run {chunk.run_id}.")

    # ---- counting

    def _commit(self, counts: Counter[str], *, cursor: str, gone: list[str]) -> None:
        """Count a window and delete its records. Renews the lease of the operation."""
        self.operation = self._deps.operations.commit(
            self.operation, RecoveryCounts(**counts), cursor=cursor, to_delete=gone, lease=self._lease
        )
        fault_point("recovery.counted", operation_id=self._id)
        self._deps.archive.delete(gone)
        self._deps.logger.info("recovery_progress", extra={"cursor": cursor, **counts})
