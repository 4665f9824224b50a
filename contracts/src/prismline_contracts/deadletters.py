"""Dead letters: where the archive keeps them, what a record holds, and the operation that recovers them.

The record's structure is that of the Cumulus dead-letter archive (its documentation, "Dead Letter Archive Message
structure"), with what ties the message to its chunk.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from prismline_contracts.base import ChunkId, Contract, Count, Key, Name, RunId, Timestamp
from prismline_contracts.envelope import MessageData

#: Root of the archive.
ARCHIVE_PREFIX = "dead-letter-archive/"
#: Below it, by date: every dead letter, as it was received.
DEAD_LETTERS_PREFIX = f"{ARCHIVE_PREFIX}sqs/"
#: Below it, by date: records that a recovery could not send back, or that failed again.
FAILED_DEAD_LETTERS_PREFIX = f"{ARCHIVE_PREFIX}failed-sqs/"
#: Below it, by operation: records whose messages a recovery has sent and whose chunks have not ended yet.
RECOVERING_PREFIX = f"{ARCHIVE_PREFIX}recovering/"
#: Sort key of an operation's item in the ledger's table.
OPERATION_SK = "OPERATION"


def dead_letter_key(date: str, message_id: str) -> str:
    """Key of a message's record; `date`, of its first receipt, as `2026-03-01`, in UTC."""
    return f"{DEAD_LETTERS_PREFIX}{date}/{message_id}.json"


class DeadLetterRecord(Contract):
    """A dead letter as the archive keeps it. Everything but `body` may be null: a dead letter need not make sense."""

    #: As it was received, byte for byte.
    body: str
    error: str | None = None
    execution: str | None = None
    time: str | None = None
    #: The survey.
    collection: str | None = None
    #: The chunk ids.
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
    #: Short name of the queue that gave up on the message, e.g. `chunks`.
    source_queue: str | None = None
    #: How often the message had been received, as SQS counts.
    receive_count: int | None = None
    archived_at: Timestamp | None = None
    #: The recovery that last had this record, or that had sent the message which became it.
    recovery: str | None = None


class DeadlettersRecover(Contract):
    """Send archived dead letters back to their queues. To the dead-letter consumer."""

    TYPE: ClassVar[str] = "prismline.deadletters.recover.v1"

    #: Names the operation: the same id is the same operation, however often it is asked for.
    operation_id: RunId
    prefix: Annotated[str, Field(pattern=r"^dead-letter-archive/", max_length=1024)] = DEAD_LETTERS_PREFIX
    #: Only records of this run.
    only_run: RunId | None = None
    #: Count what would be done, and do nothing.
    dry_run: bool = False
    requested_at: Timestamp

    @property
    def run_id(self) -> None:
        """A recovery belongs to no run."""


class DeadlettersRecoverRequested(DeadlettersRecover):
    """Somebody wants archived dead letters recovered."""

    TYPE: ClassVar[str] = "prismline.deadletters.recover.requested.v1"


class DeadletterArchived(Contract):
    """A dead letter was archived, and this was decided about it."""

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
    """What became of the records that a recovery has looked at."""

    n_records: Count = 0
    #: Sent back to their queue.
    n_sent: Count = 0
    #: Deleted without sending: the work was done, or another record of the same chunk was sent.
    n_settled: Count = 0
    #: Moved below `dead-letter-archive/failed-sqs/`: they could not be sent, or failed again.
    n_failed: Count = 0
    #: Left where they are: of another run, of a run that somebody cancelled, or already handled by this operation.
    n_left: Count = 0
    #: Sent, and done since.
    n_recovered: Count = 0


class DeadlettersRecovered(RecoveryCounts):
    """A recovery has come to its end."""

    TYPE: ClassVar[str] = "prismline.deadletters.recovered.v1"

    operation_id: RunId
    prefix: str
    only_run: RunId | None = None
    dry_run: bool = False
    finished_at: Timestamp

    @property
    def run_id(self) -> None:
        """A recovery belongs to no run."""


class RunRecovered(MessageData):
    """A chunk of a drained run that had FAILED was completed after all: the counts as they are now."""

    TYPE: ClassVar[str] = "prismline.run.recovered.v1"

    chunk_id: ChunkId
    jobs_total: Count
    jobs_completed: Count
    jobs_failed: Count
    failed_percent: Annotated[float, Field(ge=0, le=100)]


class RecoveryOperationItem(RecoveryCounts):
    """A recovery's item in the ledger's table: its request, its progress, and what it was doing."""

    PK: RunId
    SK: Literal["OPERATION"] = "OPERATION"
    status: Literal["RUNNING", "COMPLETED"]
    prefix: str
    only_run: RunId | None = None
    dry_run: bool = False
    requested_at: Timestamp
    started_at: Timestamp
    updated_at: Timestamp
    finished_at: Timestamp | None = None
    #: Key of the last record that is counted; the listing goes on after it.
    cursor: str | None = None
    #: Whether all records have been looked at; since then the operation waits for what it sent.
    listed: bool = False
    #: How often it has looked at what it waits for.
    rounds: Count = 0
    #: Keys of counted records that are still to be deleted.
    to_delete: list[str] = Field(default_factory=list)
    #: Who works on it, and until when nobody else may.
    owner: str | None = None
    leased_until: Timestamp | None = None

    @property
    def operation_id(self) -> str:
        return self.PK
