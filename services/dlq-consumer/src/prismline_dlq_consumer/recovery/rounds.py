"""The rounds of a recovery: send what is taken, and check the chunks of what was sent, until nothing is left."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial

from prismline_contracts.base import now
from prismline_contracts.commands import ChunkProcess, TasksProcess
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_dlq_consumer.archive import ArchivedRecord, recovering_chunk
from prismline_dlq_consumer.decisions import Step, next_step
from prismline_dlq_consumer.recovery.operation import Operation
from prismline_dlq_consumer.sending import Dispatch, send_back
from prismline_runtime import PermanentError, TransientError, batches, fault_point

#: Tries to reopen a chunk that other processes change at the same time.
REOPEN_TRIES = 5
#: Chunks by run id and chunk id.
Chunks = dict[tuple[str, str], ChunkItem]


def go_round(operation: Operation, deadline: float) -> int | None:
    """Check all taken records. Return how many are left, or None if the time was not enough for all."""
    left, after = 0, ""
    while keys := operation.keys_below(operation.own_prefix, after=after):
        if time.monotonic() >= deadline:
            return None
        left += _check(operation, keys)
        after = keys[-1]
    return left


def _check(operation: Operation, keys: list[str]) -> int:
    """Do the next step with each record of a window. Return how many are left."""
    ledger, archive = operation.deps.ledger, operation.deps.archive
    sent_until = _sent_until(operation)
    names = {key: name for key in keys if (name := recovering_chunk(key, operation.id)) is not None}
    chunks = ledger.find(names.values())
    runs = _resume(operation, (run_id for run_id, _ in names.values()))
    steps: dict[Step, list[str]] = defaultdict(list)
    for key in keys:
        if key in names:
            step = next_step(chunks.get(names[key]), runs.get(names[key][0]), operation.id, sent=key <= sent_until)
            steps[step].append(key)
        else:
            steps[Step.SEND].append(key)
    counts: Counter[str] = Counter()
    for key in steps[Step.DONE]:
        counts["n_recovered" if key <= sent_until else "n_settled"] += 1
    failed = operation.read(steps[Step.FAILED])
    for record in failed:
        chunk = chunks.get(names[record.key])
        error = chunk.error if chunk is not None else "Its chunk is not in the ledger any more."
        operation.keep_failed(record, error or "The error is unknown.")
    put_back = operation.read(steps[Step.PUT_BACK])
    for record in put_back:
        archive.put(record.home_key(), record.content)
    sent = _send(operation, operation.read(steps[Step.SEND]), chunks)
    gone = [*steps[Step.DONE], *steps[Step.FAILED], *steps[Step.PUT_BACK]]
    gone += [record.key for record in sent if record.key not in names]
    counts += Counter(n_sent=len(sent), n_failed=len(failed), n_left=len(put_back))
    fault_point("recovery.sent", operation_id=operation.id)
    operation.commit(counts, cursor=max(sent_until, keys[-1]), gone=gone)
    return len(keys) - len(gone)


def _sent_until(operation: Operation) -> str:
    """The key up to which all messages have been sent."""
    cursor = operation.item.cursor or ""
    return cursor if cursor.startswith(operation.own_prefix) else ""


def _resume(operation: Operation, run_ids: Iterable[str]) -> dict[str, RunItem]:
    """Resume the runs that were stopped because they failed. Return the runs as they were before."""
    runs = operation.deps.ledger.find_runs(run_ids)
    for run in runs.values():
        operation.deps.ledger.resume_run(run)
    return runs


def _send(operation: Operation, records: list[ArchivedRecord], chunks: Chunks) -> list[ArchivedRecord]:
    """Reopen the chunks of records and send their messages. Return the records that were sent.

    If the process dies in between, the window is repeated. A chunk that is already reopened is then only sent.
    """
    _resume(operation, (record.letter.command.run_id for record in records if record.letter.command is not None))
    reopened = operation.pool.map(partial(_reopen, operation, chunks), records)
    to_send = [record for record, is_open in zip(records, reopened, strict=True) if is_open]
    moment = now()
    by_queue: dict[str, list[Dispatch]] = defaultdict(list)
    for record in to_send:
        name = record.letter.chunk_name
        chunk = chunks.get(name) if name is not None else None
        by_queue[record.letter.source_queue].append(Dispatch.recovered(record.letter, chunk, operation.id, moment))
    sends = [(queue, batch) for queue, dispatches in by_queue.items() for batch in batches(dispatches)]
    list(operation.pool.map(lambda each: send_back(each[0], each[1], operation.deps.transport), sends))
    return to_send


def _reopen(operation: Operation, chunks: Chunks, record: ArchivedRecord) -> bool:
    """Reopen the record's chunk for this recovery. False if the chunk has ended again or does not exist."""
    ledger = operation.deps.ledger
    if isinstance(record.letter.data, TasksProcess):
        _reopen_tasks(operation, record.letter.data)
        return True
    if not isinstance(record.letter.data, ChunkProcess) or record.letter.chunk_name is None:
        return True
    chunk = chunks[record.letter.chunk_name]
    for _ in range(REOPEN_TRIES):
        if chunk.state is ChunkStatus.COMPLETED:
            return False
        if chunk.recovery == operation.id:
            return not chunk.state.terminal
        if ledger.reopen_chunk(chunk, operation.id):
            return True
        try:
            chunk = ledger.chunk(chunk.run_id, chunk.chunk_id)
        except PermanentError:
            return False
    raise TransientError(f"Other processes keep changing {chunk.chunk_id} of run {chunk.run_id}.")


def _reopen_tasks(operation: Operation, command: TasksProcess) -> None:
    """Reopen the tasks of an archived message that have not completed."""
    ledger = operation.deps.ledger
    run = ledger.get_run(command.run_id)
    if run is not None:
        ledger.reopen_tasks(run, ledger.read_tasks(run, command.task_ids).values(), operation.id)
