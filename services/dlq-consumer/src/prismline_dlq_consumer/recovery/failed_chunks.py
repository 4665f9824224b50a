"""The retry of a run of chunks: makes the record of each failed chunk from the ledger."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from prismline_contracts.commands import ChunkProcess, Queue
from prismline_contracts.deadletters import DeadLetterRecord
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_dlq_consumer.archive import ArchivedRecord, to_json
from prismline_dlq_consumer.decisions import cancelled
from prismline_dlq_consumer.recovery.operation import Operation
from prismline_runtime import fault_point


class FailedChunks:
    """The failed chunks of a run, or the chunks that the request names. The cursor is the last chunk's id."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def take_window(self, after: str) -> bool:
        """Take each chunk that FAILED like a record of the archive. False if no chunk is left.

        The same rules apply as to the archive's records: a run that a person cancelled stays as it is, and chunks that
        have completed are skipped.
        """
        operation = self._operation
        chunks = self._next(after)
        if not chunks:
            return False
        run = operation.deps.ledger.run(chunks[0].run_id)
        failed = [] if cancelled(run) else [chunk for chunk in chunks if chunk.state is ChunkStatus.FAILED]
        completed = sum(chunk.state is ChunkStatus.COMPLETED for chunk in chunks)
        counts = Counter(n_records=len(chunks), n_settled=completed, n_left=len(chunks) - completed - len(failed))
        if operation.item.dry_run:
            counts += Counter(n_sent=len(failed))
        else:
            # A record that was there already is of an earlier invocation: no other operation writes below the prefix.
            operation.take([self._record_of(chunk, run) for chunk in failed])
        fault_point("recovery.taken", operation_id=operation.id)
        operation.commit(counts, cursor=chunks[-1].chunk_id, gone=[])
        return True

    def _next(self, after: str) -> list[ChunkItem]:
        """The next chunks in order of id: from the operation's list of chunks if it has one, else all that FAILED."""
        item, ledger, window = self._operation.item, self._operation.deps.ledger, self._operation.window
        run_id = item.only_run or ""
        if item.chunk_ids is None:
            failed = ledger.chunks(run_id, status=ChunkStatus.FAILED)
            return list(islice((chunk for chunk in failed if chunk.chunk_id > after), window))
        names = sorted({name for name in item.chunk_ids if name > after})[:window]
        found = ledger.find((run_id, name) for name in names)
        return [found[name] for name in sorted(found)]

    def _record_of(self, chunk: ChunkItem, run: RunItem) -> ArchivedRecord:
        """What the archive would hold if the chunk's message were a dead letter."""
        deps = self._operation.deps
        command = ChunkProcess.of(chunk, run, deps.settings.bucket, attempt=chunk.resends + 2)
        message = deps.transport.wrap(command, traceparent=run.traceparent, key=(chunk.chunk_id, self._operation.id))
        record = DeadLetterRecord(
            body=message.to_json(),
            error=chunk.error,
            collection=run.survey,
            granules=[chunk.chunk_id],
            messageId=f"{chunk.run_id}.{chunk.chunk_id}",
            run_id=chunk.run_id,
            chunk_id=chunk.chunk_id,
            source_queue=Queue.CHUNKS.value,
            archived_at=self._operation.item.started_at,
        )
        return ArchivedRecord.read("", to_json(record))
