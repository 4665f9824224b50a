"""The archive of dead letters: one object for each message, under the date of its first receipt."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from prismline_contracts.commands import ChunkProcess, TasksProcess
from prismline_contracts.deadletters import DeadLetterRecord, dead_letter_key
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX, RECOVERING_PREFIX
from prismline_dlq_consumer.dead_letter import (
    EVENTBRIDGE_REASONS,
    DeadLetterMessage,
    describe,
    json_object,
    read_archived,
    sqs_moment,
    sqs_receive_count,
    text_attributes,
)
from prismline_runtime import Bucket, PermanentError, TransientError, aws_errors, batches

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Most keys in one DeleteObjects request.
DELETE_BATCH = 1000
#: Most bytes of the records in one listing, because they are read into memory together.
LISTING_BYTES = 32 * 2**20
#: Folder, under an operation's prefix, of records whose messages are not about a chunk.
MESSAGES_FOLDER = "messages"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_CHUNK_RECORD = re.compile(r"(?P<run_id>[^/]+)/(?P<chunk_id>chunk-[0-9]{7,})\.json")


def dead_letter_record(
    record: Mapping[str, Any], letter: DeadLetterMessage, archived_at: str, environment: str
) -> DeadLetterRecord:
    """The archive's record of a dead letter. `record` is the message in Lambda's SQS event."""
    found = describe(letter.body, record.get("eventSourceARN") or "", environment)
    return DeadLetterRecord.model_construct(  # without validation, because any message must be archived unchanged
        body=letter.body,
        error=letter.error
        or letter.invalid
        or letter.unknown
        or letter.raised
        or found.error
        or _moved(record, letter),
        execution=found.execution,
        time=found.time,
        collection=found.collection,
        granules=found.granules,
        stateMachine=found.state_machine,
        status=found.status,
        md5OfBody=record.get("md5OfBody"),
        eventSource=record.get("eventSource"),
        awsRegion=record.get("awsRegion"),
        messageId=letter.message_id,
        receiptHandle=record.get("receiptHandle"),
        attributes=record.get("attributes"),
        messageAttributes=record.get("messageAttributes"),
        run_id=found.run_id,
        chunk_id=found.chunk_id,
        source_queue=letter.source_queue,
        receive_count=sqs_receive_count(record),
        archived_at=archived_at,
        recovery=letter.recovery,
    )


def _moved(record: Mapping[str, Any], letter: DeadLetterMessage) -> str:
    """Why a message without an error of its own is a dead letter."""
    attributes = text_attributes(record)
    if undelivered := ": ".join(attributes[name] for name in EVENTBRIDGE_REASONS if attributes.get(name)):
        return undelivered
    if letter.waits_for is not None:
        return f"It waits for the resource {letter.waits_for}."
    receives = sqs_receive_count(record)
    return f"Its consumer died or did not answer: SQS moved the message after {receives} receives."


def to_json(record: DeadLetterRecord) -> bytes:
    """The JSON of the record: one line of ASCII, so that invalid Unicode survives too."""
    return json.dumps(dict(record), default=_base64).encode()


def _base64(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)


@dataclass(frozen=True)
class ArchivedRecord:
    """A record that was read from the archive. `document` is empty if the object is not a JSON object."""

    key: str
    content: bytes
    document: Mapping[str, Any]

    @classmethod
    def read(cls, key: str, content: bytes) -> ArchivedRecord:
        """Make a record from an object's content, valid or not."""
        return cls(key, content, json_object(content.decode("utf-8", errors="replace")) or {})

    @cached_property
    def letter(self) -> DeadLetterMessage:
        """The dead letter in the record."""
        return read_archived(self.document)

    def noting(self, **fields: str | None) -> bytes:
        """The record's JSON with these fields replaced. An object that is not a record stays unchanged."""
        return json.dumps({**self.document, **fields}).encode() if self.document else self.content

    @property
    def _name(self) -> str:
        plain = _PLAIN_NAME.fullmatch(self.letter.message_id) is not None
        return self.letter.message_id if plain else PurePosixPath(self.key).stem

    def home_key(self) -> str:
        """The key at which the archive first stored the record."""
        return record_key(self.document)

    def failed_key(self, date: str) -> str:
        """The key for a record that could not be recovered. `date` is like `2026-03-01`."""
        return f"{FAILED_DEAD_LETTERS_PREFIX}{date}/{self._name}.json"

    def recovering_key(self, operation_id: str) -> str:
        """The key for a record that the operation takes. It is the same for all records of the same work.

        A message that is sent back again and again leaves a record each time.
        """
        if isinstance(self.letter.data, ChunkProcess):
            name = f"{self.letter.data.run_id}/{self.letter.data.chunk_id}"
        else:
            name = f"{MESSAGES_FOLDER}/{self._digest()}"
        return f"{recovering_prefix(operation_id)}{name}.json"

    def _digest(self) -> str:
        """A digest of what the message asks for: the same however often it was dispatched."""
        asked = self.letter.content
        if isinstance(self.letter.data, TasksProcess):
            asked = self.letter.data.model_dump_json(exclude={"attempt", "deferrals", "recovery"})
        return hashlib.sha256(f"{self.letter.source_queue} {asked}".encode(errors="surrogatepass")).hexdigest()


def recovering_prefix(operation_id: str) -> str:
    """Prefix of the records that a recovery operation has taken."""
    return f"{RECOVERING_PREFIX}{operation_id}/"


def recovering_chunk(key: str, operation_id: str) -> tuple[str, str] | None:
    """The run id and chunk id in the key of a taken record. None if the message is not about a chunk."""
    found = _CHUNK_RECORD.fullmatch(key.removeprefix(recovering_prefix(operation_id)))
    return (found["run_id"], found["chunk_id"]) if found else None


def record_key(document: Mapping[str, Any]) -> str:
    """The key of a message's record. It is the same for every receipt of the message."""
    first = sqs_moment(document, "ApproximateFirstReceiveTimestamp")
    date = first.date().isoformat() if first is not None else str(document.get("archived_at") or "")[:10]
    return dead_letter_key(date, str(document.get("messageId") or "unknown"))


class Archive:
    """Reads, lists, writes, moves and deletes records. Raises TransientError if S3 does not answer."""

    def __init__(self, bucket: Bucket, s3: S3Client) -> None:
        self._bucket = bucket
        self._s3 = s3

    def write(self, record: DeadLetterRecord) -> str:
        """Store `record` and return its key. It replaces the record of an earlier receipt of the message."""
        key = record_key(dict(record))
        self._bucket.write(key, to_json(record))
        return key

    def forget(self, key: str | None, *, unless: str) -> None:
        """Delete the record of a dead letter that has come back and has a newer record, `unless`."""
        if key is not None and key != unless and key.startswith(DEAD_LETTERS_PREFIX):
            self.delete([key])

    def put(self, key: str, content: bytes) -> None:
        """Write an object. An existing object is replaced."""
        self._bucket.write(key, content)

    def take(self, record: ArchivedRecord, operation_id: str) -> bool:
        """Copy a record to the operation's prefix. False if the prefix has another record of the same work.

        An existing copy of the same record is not an error, so the step is idempotent.
        """
        key, content = record.recovering_key(operation_id), record.noting(recovery=operation_id)
        if self._bucket.create(key, content):
            return True
        return (there := self.read(key)) is not None and there.content == content

    def read(self, key: str) -> ArchivedRecord | None:
        """The record with this key, or None if it was deleted."""
        try:
            return ArchivedRecord.read(key, self._bucket.read(key))
        except PermanentError:
            return None

    def list(self, prefix: str, *, after: str, limit: int) -> list[str]:
        """The next keys with `prefix`, in order: at most `limit`, and at most `LISTING_BYTES` of records."""
        with aws_errors(f"list s3://{self._bucket.name}/{prefix}"):
            page = self._s3.list_objects_v2(Bucket=self._bucket.name, Prefix=prefix, StartAfter=after, MaxKeys=limit)
        keys: list[str] = []
        size = 0
        for entry in page.get("Contents", []):
            size += entry["Size"]
            if keys and size > LISTING_BYTES:
                break
            keys.append(entry["Key"])
        return keys

    def delete(self, keys: Iterable[str]) -> None:
        """Delete records. Keys that do not exist are ignored."""
        for batch in batches(keys, DELETE_BATCH):
            with aws_errors(f"delete records from s3://{self._bucket.name}"):
                answer = self._s3.delete_objects(
                    Bucket=self._bucket.name, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            if errors := answer.get("Errors"):
                raise TransientError(f"Could not delete {len(errors)} records, the first: {errors[0].get('Message')}.")
