"""Dead letters: the keys of the archive, its records, and the recovery operation that sends them back.

Four words: a *message* is what SQS delivers; a *dead letter* is a message in a dead-letter queue; a *record* is the
archive's JSON object of one dead letter; a *case* is a record together with the chunk and run that it belongs to.

A record has the structure of the Cumulus dead-letter archive (see "Dead Letter Archive Message structure" in its
documentation) and additional fields that name the chunk.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from prismline_contracts.base import ChunkId, Contract, Count, Key, Name, Open, RunId, Timestamp
from prismline_contracts.prefixes import ARCHIVE_PREFIX, DEAD_LETTERS_PREFIX
from prismline_contracts.workloads import CodeDigest

#: Chunks that one retry can name.
MAX_RETRIED_CHUNKS = 1000
#: Records that one recovery can name.
MAX_RECOVERED_RECORDS = 500
#: Sort key of a recovery operation in the ledger's table.
OPERATION_SK = "OPERATION"
#: Key of a record in the archive, or a prefix of keys.
RecordKey = Annotated[str, Field(pattern=rf"^{ARCHIVE_PREFIX}", max_length=1024)]


def dead_letter_key(date: str, message_id: str) -> str:
    """S3 key of a message's record. `date` is the day of its first receipt, in UTC, e.g. `2026-03-01`."""
    return f"{DEAD_LETTERS_PREFIX}{date}/{message_id}.json"


class DeadLetterRecord(Contract):
    """The archive's record of one dead letter. Only `body` is always present: the message may be unreadable."""

    #: The message body, unchanged.
    body: str
    #: Why the message is a dead letter. Absent only in records of older releases.
    error: str | None = None
    execution: str | None = None
    time: str | None = None
    #: The survey (a Cumulus name).
    collection: str | None = None
    #: The ids of the chunk or of the tasks (a Cumulus name).
    granules: list[str | None] | None = None
    stateMachine: str | None = None
    status: str | None = None
    md5OfBody: str | None = None
    eventSource: str | None = None
    awsRegion: str | None = None
    messageId: str | None = None
    receiptHandle: str | None = None
    attributes: dict[str, Any] | None = None
    messageAttributes: dict[str, Any] | None = None
    run_id: str | None = None
    chunk_id: str | None = None
    #: Short name of the queue that the dead letter comes from, e.g. `chunks`.
    source_queue: str | None = None
    #: How often the message had been received, as SQS counts.
    receive_count: int | None = None
    archived_at: Timestamp | None = None
    #: The recovery that handled this record last, or that sent the message before it became a dead letter again.
    recovery: str | None = None


class DeadlettersRecover(Contract):
    """Send archived dead letters back to their queues. To the dead-letter consumer."""

    TYPE: ClassVar[str] = "prismline.deadletters.recover.v1"

    #: A request with the id of an existing operation continues that operation.
    operation_id: RunId
    prefix: RecordKey = DEAD_LETTERS_PREFIX
    #: Only records of this run.
    only_run: RunId | None = None
    #: Only these records, by their keys in the archive. `prefix` is not used.
    record_keys: Annotated[list[RecordKey], Field(max_length=MAX_RECOVERED_RECORDS)] | None = None
    #: Only count what a recovery would do.
    dry_run: bool = False
    #: Try the failed chunks of `only_run` again, whether the archive has a record of them or not. `prefix` is not used.
    retry: bool = False
    #: With `retry`, only these chunks.
    chunk_ids: Annotated[list[ChunkId], Field(max_length=MAX_RETRIED_CHUNKS)] | None = None
    #: With `retry`: continue `only_run`, if it was stopped at this moment. No failed chunk is retried.
    cancelled_at: Timestamp | None = None
    #: With `retry`: the run of a function has this code from now on.
    code: CodeDigest | None = None
    requested_at: Timestamp

    @model_validator(mode="after")
    def _retries_a_run(self) -> DeadlettersRecover:
        if self.retry and self.only_run is None:
            raise ValueError("a retry names the run: only_run")
        if self.retry and self.record_keys is not None:
            raise ValueError("a retry makes its records itself: name chunk_ids in place of record_keys")
        if self.cancelled_at is not None and (not self.retry or self.chunk_ids is not None):
            raise ValueError("cancelled_at belongs to a retry of a whole run")
        if self.code is not None and (not self.retry or self.cancelled_at is not None):
            raise ValueError("code belongs to a retry of what failed")
        return self

    @property
    def run_id(self) -> None:
        """A recovery belongs to no run."""


class DeadlettersRecoverRequested(DeadlettersRecover):
    """A user asked to recover archived dead letters."""

    TYPE: ClassVar[str] = "prismline.deadletters.recover.requested.v1"


class DeadletterArchived(Contract):
    """A dead letter was archived. `decision` and `reason` say what happens to it next."""

    TYPE: ClassVar[str] = "prismline.deadletter.archived.v1"

    message_id: Name
    key: Key
    source_queue: Name
    receive_count: Count
    decision: Name
    reason: str
    run_id: str | None = None
    chunk_id: str | None = None


class RecoveryCounts(Contract):
    """How many records a recovery has looked at, and what it did with them."""

    n_records: Count = 0
    #: Sent back to their queues.
    n_sent: Count = 0
    #: Deleted without sending: the work is done, or another record of the same work was sent.
    n_settled: Count = 0
    #: Moved to `dead-letter-archive/failed-sqs/`: they could not be sent, or the chunk failed again.
    n_failed: Count = 0
    #: Left in place: they belong to another run or to a cancelled run, or this operation already handled them.
    n_left: Count = 0
    #: Sent back, and the work has been done since.
    n_recovered: Count = 0


class DeadlettersRecovered(RecoveryCounts):
    """A recovery operation has ended."""

    TYPE: ClassVar[str] = "prismline.deadletters.recovered.v1"

    operation_id: RunId
    prefix: str
    only_run: RunId | None = None
    dry_run: bool = False
    finished_at: Timestamp

    @property
    def run_id(self) -> None:
        """A recovery belongs to no run."""


class RecoveryOperationItem(RecoveryCounts):
    """The item of a recovery operation in the ledger's table: its request and its progress."""

    PK: RunId
    SK: Literal["OPERATION"] = "OPERATION"
    status: Annotated[str, Open("RUNNING", "COMPLETED")]
    prefix: str
    only_run: RunId | None = None
    dry_run: bool = False
    record_keys: list[str] | None = None
    retry: bool = False
    chunk_ids: list[ChunkId] | None = None
    cancelled_at: Timestamp | None = None
    code: CodeDigest | None = None
    requested_at: Timestamp
    started_at: Timestamp
    updated_at: Timestamp
    finished_at: Timestamp | None = None
    #: Key of the last counted record. The listing continues after it.
    cursor: str | None = None
    #: Whether all records have been listed. From then on the operation waits for the chunks that it sent.
    listed: bool = False
    #: How often the operation has checked the chunks that it waits for.
    rounds: Count = 0
    #: Keys of records that are counted but not yet deleted.
    to_delete: list[str] = Field(default_factory=list)
    #: The process that holds the lease of the operation, and the end of the lease.
    owner: str | None = None
    leased_until: Timestamp | None = None

    @property
    def operation_id(self) -> str:
        return self.PK
