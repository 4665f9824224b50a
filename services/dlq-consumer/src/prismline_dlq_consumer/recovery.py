"""Recovery: archived dead letters go back to their queues, window by window.

A window of records is read, decided about and sent; then one write to the operation's item counts it, moves the cursor
and notes which records are to be deleted; then they are deleted. Killed before that write, the window is done again:
what it sends twice is the same message with the same recovery token, which the ledger lets through once. Killed after
it, the deletions are finished first. So memory depends on the window, and no record is lost or counted twice.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

from prismline_contracts import (
    ChunkItem,
    ChunkProcess,
    DeadlettersRecover,
    DeadlettersRecovered,
    Envelope,
    Queue,
    RecoveryCounts,
    RecoveryOperationItem,
    RunItem,
)
from prismline_dlq_consumer.archive import failed_key
from prismline_dlq_consumer.dead_letter import DeadLetter, json_object, parse
from prismline_dlq_consumer.decisions import Action, Decision, decide
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_dlq_consumer.healing import sent_back
from prismline_dlq_consumer.resources import asked_once
from prismline_ledger import LeaseLostError
from prismline_runtime import Message, PermanentError, PrismlineError, TransientError, aws_errors, batches, fault_point

#: Bytes of records that a window holds at most, so that large ones do not fill the memory.
WINDOW_BYTES = 32 * 2**20
#: Keys that S3 deletes in one call.
DELETE_BATCH = 1000


def on_recover(request: DeadlettersRecover, message: Message, deps: Dependencies) -> None:
    """Work on the recovery that `request` names until it is done, or hand it on when the invocation's time is up."""
    lease = timedelta(seconds=deps.settings.recovery_lease_seconds)
    operation = deps.operations.claim(request, uuid.uuid4().hex, lease)
    if operation.status == "COMPLETED":
        _announce(operation, message, deps)
        return
    deadline = message.delivery.deadline(deps.settings.deadline_margin_seconds)
    with deps.logger.append_context_keys(operation_id=operation.operation_id):
        try:
            with _Recovery(operation, lease, deps) as recovery:
                operation = recovery.run(deadline)
        except LeaseLostError:
            raise
        except Exception:
            with suppress(PrismlineError):
                deps.operations.release(operation)
            raise
        if operation.status == "COMPLETED":
            _announce(operation, message, deps)
        else:
            deps.operations.release(operation)
            deps.transport.send(Queue.RECOVERIES, [message.envelope])


def _announce(operation: RecoveryOperationItem, message: Message, deps: Dependencies) -> None:
    counts = operation.model_dump(include=set(RecoveryCounts.model_fields))
    recovered = DeadlettersRecovered(
        operation_id=operation.operation_id,
        prefix=operation.prefix,
        only_run=operation.only_run,
        dry_run=operation.dry_run,
        finished_at=operation.finished_at or operation.updated_at,
        **counts,
    )
    deps.transport.publish(
        Envelope.wrap(
            recovered,
            source=deps.transport.source,
            traceparent=message.envelope.traceparent,
            key=(operation.operation_id,),
        )
    )
    deps.logger.info("deadletters_recovered", extra={"operation_id": operation.operation_id, **counts})


@dataclass(frozen=True)
class ArchivedRecord:
    """A record as it was read from the archive; `document` is empty where the object is no record."""

    key: str
    content: bytes
    document: Mapping[str, Any]
    message: DeadLetter

    @property
    def name(self) -> str:
        """What tells this receipt of the message from any other: `<message id>-<n>`."""
        return PurePosixPath(self.key).stem


def read_record(key: str, content: bytes) -> ArchivedRecord:
    """The record under `key`, with its message as if it came for the first time."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    document = json_object(text) or {}
    body = document.get("body")
    body, source_queue = body if isinstance(body, str) else "", document.get("source_queue")
    envelope, command, invalid = parse(body)
    if not isinstance(source_queue, str) or not source_queue:
        invalid = "It is not a record of a dead letter: it does not say which queue it came from."
    message_id = document.get("messageId")
    message = DeadLetter(
        message_id=message_id if isinstance(message_id, str) else "",
        source_queue=str(source_queue),
        body=body,
        receive_count=1,
        invalid=invalid,
        envelope=envelope,
        command=command,
    )
    return ArchivedRecord(key, content, document, message)


class _Recovery:
    """One operation, worked on by this invocation."""

    def __init__(self, operation: RecoveryOperationItem, lease: timedelta, deps: Dependencies) -> None:
        self._operation = operation
        self._lease = lease
        self._deps = deps
        self._pool = ThreadPoolExecutor(deps.settings.recovery_concurrency)
        #: Date of the records that this operation moves: the same on every repeat.
        self._date = operation.started_at[:10]

    def __enter__(self) -> _Recovery:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(self, deadline: float) -> RecoveryOperationItem:
        """Go on until the end or until `deadline` (`time.monotonic` seconds); the operation as it is then."""
        self._delete(self._operation.to_delete)
        while time.monotonic() < deadline:
            keys = self._next_keys()
            if not keys:
                return self._deps.operations.finish(self._operation)
            self._recover(keys)
        return self._operation

    def _next_keys(self) -> list[str]:
        """Keys of the next window, in the order of the listing; none when there are no more."""
        with aws_errors(f"list s3://{self._deps.bucket.name}/{self._operation.prefix}"):
            page = self._deps.s3.list_objects_v2(
                Bucket=self._deps.bucket.name,
                Prefix=self._operation.prefix,
                StartAfter=self._operation.cursor or "",
                MaxKeys=self._deps.settings.recovery_window,
            )
        keys: list[str] = []
        size = 0
        for entry in page.get("Contents", []):
            size += entry["Size"]
            if keys and size > WINDOW_BYTES:
                break
            keys.append(entry["Key"])
        return keys

    def _recover(self, keys: list[str]) -> None:
        records = [record for record in self._pool.map(self._read, keys) if record is not None]
        mine = [record for record in records if self._is_meant(record)]
        counts: Counter[str] = Counter(n_records=len(records), n_left=len(records) - len(mine))
        sent, settled, failed = self._sort(mine)
        if not self._operation.dry_run:
            sent, covered = self._claim(sent)
            settled += covered
            self._send(sent)
            list(self._pool.map(lambda each: self._move(*each), failed))
        counts += Counter(n_sent=len(sent), n_settled=len(settled), n_failed=len(failed))
        moved = [record.key for record, _ in failed if record.key != self._failed_key(record.key)]
        gone = [record.key for record, _ in sent] + [record.key for record in settled] + moved
        fault_point("recovery.sent", operation_id=self._operation.operation_id)
        self._operation = self._deps.operations.commit(
            self._operation,
            RecoveryCounts(**counts),
            cursor=keys[-1],
            to_delete=[] if self._operation.dry_run else gone,
            lease=self._lease,
        )
        fault_point("recovery.counted", operation_id=self._operation.operation_id)
        self._delete(self._operation.to_delete)
        self._deps.logger.info("recovery_progress", extra={"cursor": keys[-1], **counts})

    def _read(self, key: str) -> ArchivedRecord | None:
        try:
            return read_record(key, self._deps.bucket.read(key))
        except PermanentError:
            return None  # deleted since it was listed

    def _is_meant(self, record: ArchivedRecord) -> bool:
        """Whether the record is the operation's: of its run, and not one that it has handled before."""
        only_run = self._operation.only_run
        if only_run is not None and record.document.get("run_id") != only_run:
            return False
        return record.document.get("recovery") != self._operation.operation_id

    def _sort(
        self, records: list[ArchivedRecord]
    ) -> tuple[list[tuple[ArchivedRecord, ChunkItem | None]], list[ArchivedRecord], list[tuple[ArchivedRecord, str]]]:
        """Records to send with their chunks, records that are settled, and those that cannot be recovered, with why."""
        chunks = self._deps.ledger.find(name for r in records if (name := r.message.chunk_name) is not None)
        runs = self._deps.ledger.find_runs(r.message.command.run_id for r in records if r.message.command is not None)
        look_up = asked_once(self._deps.resources)
        to_send, settled, failed = [], [], []
        for record in records:
            message = record.message
            chunk = chunks.get(message.chunk_name) if message.chunk_name is not None else None
            run = runs.get(message.command.run_id) if message.command is not None else None
            needed = self._deps.settings.workload_resources.get(message.workload or "")
            decision = self._decide(message, chunk, run, look_up(needed) if needed else None)
            if decision.action is Action.RESEND:
                to_send.append((record, chunk))
            elif decision.action is Action.SETTLE:
                settled.append(record)
            else:
                failed.append((record, decision.reason))
        return to_send, settled, failed

    @staticmethod
    def _decide(message: DeadLetter, chunk: ChunkItem | None, run: RunItem | None, resource: Any) -> Decision:
        cancelled = run is not None and run.cancelled_at is not None
        return decide(message, chunk, resource, cancelled=cancelled, recovering=True)

    def _claim(
        self, to_send: list[tuple[ArchivedRecord, ChunkItem | None]]
    ) -> tuple[list[tuple[ArchivedRecord, ChunkItem | None]], list[ArchivedRecord]]:
        """Of several records of one chunk, or of one message, one is sent; the others are covered by it."""
        operation_id = self._operation.operation_id
        tokens: dict[tuple[str, str], str] = {}
        for record, _ in to_send:
            if isinstance(record.message.command, ChunkProcess) and record.message.chunk_name is not None:
                tokens.setdefault(record.message.chunk_name, self._token(record))
        given = self._deps.ledger.allow_recovery(tokens, operation_id)
        sent, covered, seen = [], [], set()
        for record, chunk in to_send:
            name = record.message.chunk_name
            if isinstance(record.message.command, ChunkProcess) and name is not None:
                first = name in given and tokens[name] == self._token(record)
            else:
                first = record.message.message_id not in seen
                seen.add(record.message.message_id)
            if first:
                sent.append((record, chunk))
            else:
                covered.append(record)
        return sent, covered

    def _token(self, record: ArchivedRecord) -> str:
        return f"{self._operation.operation_id}/{record.name}"

    def _send(self, to_send: list[tuple[ArchivedRecord, ChunkItem | None]]) -> None:
        by_queue: dict[str, list[tuple[str, Mapping[str, str]]]] = defaultdict(list)
        for record, chunk in to_send:
            outgoing = sent_back(record.message, chunk, attempt=1, recovery=self._token(record))
            by_queue[record.message.source_queue].append(outgoing)
        sends = [(queue, batch) for queue, messages in by_queue.items() for batch in batches(messages)]
        list(self._pool.map(lambda each: self._deps.transport.send_back(*each), sends))

    def _move(self, record: ArchivedRecord, reason: str) -> None:
        """Keep the record below the prefix of those that failed, with the reason; what is no record, as it is."""
        document = dict(record.document)
        if document:
            document |= {"error": reason, "recovery": self._operation.operation_id}
        content = json.dumps(document).encode() if document else record.content
        self._deps.bucket.write(self._failed_key(record.key), content)

    def _failed_key(self, key: str) -> str:
        return failed_key(key, self._date)

    def _delete(self, keys: list[str]) -> None:
        for batch in batches(keys, DELETE_BATCH):
            with aws_errors(f"delete records from s3://{self._deps.bucket.name}"):
                answer = self._deps.s3.delete_objects(
                    Bucket=self._deps.bucket.name,
                    Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True},
                )
            if errors := answer.get("Errors"):
                raise TransientError(f"Could not delete {len(errors)} records, the first: {errors[0].get('Message')}.")
