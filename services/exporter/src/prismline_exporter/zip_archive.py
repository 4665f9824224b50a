"""Writes a ZIP archive piece by piece, in constant memory. Another process can continue after any piece.

The archive holds a file for each result, then `manifest.jsonl` with one line for every result, failed and skipped ones
included. The caller runs `steps` and takes what has been written with `cut`, together with the state after it. A new
`ZipArchive` with that state writes the rest of the same archive.

The lines of the manifest and the records of the central directory are needed at the end of the archive, and there may
be millions of them. They are kept in segments in S3 until then.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from prismline_exporter.entries import Entry
from prismline_exporter.zip_records import Member, end_records
from prismline_runtime import PermanentError

#: Name of the list of all results in the archive.
MANIFEST = "manifest.jsonl"
#: Bodies up to this length, in bytes, are read in one request. Longer ones are read in slices of this length.
SLICE_BYTES = 8 * 2**20
#: Results that are fetched in advance: how many, and their total length in bytes.
LOOK_AHEAD, LOOK_AHEAD_BYTES = 64, 32 * 2**20
#: Lines of the manifest in a segment. They are in memory until the segment is stored.
LINES_PER_SEGMENT = 20_000

#: The two kinds of segments.
Kind = Literal["manifest", "directory"]


@dataclass(frozen=True)
class Body:
    """A stored result. `content` is None if it is longer than `SLICE_BYTES`."""

    size: int
    etag: str
    content: bytes | None


class Bodies(Protocol):
    """Reads stored results. Raises PermanentError if there is none with this key."""

    def read(self, key: str) -> Body:
        """The result, with its content unless it is long."""

    def read_slice(self, key: str, etag: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop` of the version `etag` of a result."""


class Segments(Protocol):
    """Stores the records and lines that are needed again at the end of the archive."""

    def write(self, kind: Kind, number: int, content: bytes) -> None:
        """Store a segment. An existing one is replaced."""

    def read(self, kind: Kind, number: int) -> bytes:
        """The segment."""


class _OpenMember(BaseModel):
    """A long body that is partly written."""

    line: dict[str, Any] | None
    cursor: str
    key: str
    etag: str
    name: str
    size: int
    modified: datetime
    offset: int
    done: int = 0
    crc: int = 0

    def member(self) -> Member:
        return Member(self.name, self.size, self.modified, self.crc, self.offset, streamed=True)


class ZipState(BaseModel):
    """The state that a `ZipArchive` needs to continue."""

    phase: Literal["members", "manifest", "directory", "done"] = "members"
    #: Bytes of the archive so far.
    offset: int = 0
    #: Position in the results after the last one that is written. None: before the first one.
    cursor: str | None = None
    #: Results, and files in the archive.
    entries: int = 0
    members: int = 0
    #: The body that is partly written.
    open: _OpenMember | None = None
    #: Segments of each kind that are stored, and how many of them the current phase has written.
    segments: int = 0
    written: int = 0
    manifest_bytes: int = 0
    manifest_crc: int = 0
    manifest_offset: int = 0
    directory_offset: int = 0


class ZipArchive:
    """The writer. `entries(cursor)` gives the results after a position, always in the same order.

    `made_at` is the time of the manifest in the archive.
    """

    #: Content type of the archive.
    CONTENT_TYPE = "application/zip"

    def __init__(
        self,
        *,
        entries: Callable[[str | None], Iterable[Entry]],
        bodies: Bodies,
        segments: Segments,
        pool: ThreadPoolExecutor,
        made_at: datetime,
        state: str | None = None,
    ) -> None:
        self._entries = entries
        self._bodies = bodies
        self._segments = segments
        self._pool = pool
        self._made_at = made_at
        self._state = ZipState() if state is None else ZipState.model_validate_json(state)
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._records: list[bytes] = []

    @property
    def buffered(self) -> int:
        """Bytes that are written and not yet taken."""
        return len(self._buffer)

    @property
    def size(self) -> int:
        """Bytes of the archive so far."""
        return self._state.offset

    @property
    def entries_written(self) -> int:
        """Results so far."""
        return self._state.entries

    def cut(self) -> tuple[bytearray, str]:
        """Take what has been written since the last cut, with the state after it, as JSON."""
        self._store_segment()
        taken, self._buffer = self._buffer, bytearray()
        return taken, self._state.model_dump_json()

    def steps(self) -> Iterator[None]:
        """Write the archive to its end. The caller may cut whenever this yields."""
        state = self._state
        if state.phase == "members":
            yield from self._write_members()
            self._store_segment()
            state.phase, state.written, state.manifest_offset = "manifest", 0, state.offset
            self._append(self._manifest().local_header())
        if state.phase == "manifest":
            yield from self._write_segments("manifest")
            state.phase, state.written, state.directory_offset = "directory", 0, state.offset
        if state.phase == "directory":
            yield from self._write_segments("directory")
            self._append(self._manifest().directory_record())
            size = state.offset - state.directory_offset
            self._append(end_records(members=state.members + 1, offset=state.directory_offset, size=size))
            state.phase = "done"

    def _append(self, content: bytes) -> None:
        self._buffer += content
        self._state.offset += len(content)

    # ---- the results

    def _write_members(self) -> Iterator[None]:
        if self._state.open is not None:
            yield from self._write_slices(self._state.open)
        for entry, body in self._fetched():
            try:
                found = body.result() if body is not None else None
            except PermanentError as error:  # the object is gone: the manifest records it, and the export continues
                self._finish(entry.line and entry.line | {"file": None, "error": str(error)}, entry.cursor)
            else:
                yield from self._write_member(entry, found)
            yield

    def _fetched(self) -> Iterator[tuple[Entry, Future[Body] | None]]:
        """The results with their bodies. Some are fetched in advance."""
        waiting: deque[tuple[Entry, Future[Body] | None]] = deque()
        ahead = 0
        try:
            for entry in self._entries(self._state.cursor):
                body = None if entry.key is None else self._pool.submit(self._bodies.read, entry.key)
                waiting.append((entry, body))
                ahead += _in_memory(entry)
                while len(waiting) > LOOK_AHEAD or ahead > LOOK_AHEAD_BYTES:
                    ahead -= _in_memory(waiting[0][0])
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for _, body in waiting:
                if body is not None:
                    body.cancel()

    def _write_member(self, entry: Entry, body: Body | None) -> Iterator[None]:
        if body is None or entry.key is None or entry.name is None:
            self._finish(entry.line and entry.line | {"file": None}, entry.cursor)
            return
        line = entry.line and entry.line | {"file": entry.name, "length": body.size}
        offset = self._state.offset
        if body.content is None:
            self._state.open = _OpenMember(
                line=line,
                cursor=entry.cursor,
                key=entry.key,
                etag=body.etag,
                name=entry.name,
                size=body.size,
                modified=entry.modified,
                offset=offset,
            )
            self._append(self._state.open.member().local_header())
            yield from self._write_slices(self._state.open)
            return
        member = Member(entry.name, body.size, entry.modified, zlib.crc32(body.content), offset)
        self._append(member.local_header())
        self._append(body.content)
        self._finish(line and _with_digest(line, body.content), entry.cursor, member)

    def _write_slices(self, open_: _OpenMember) -> Iterator[None]:
        while open_.done < open_.size:
            stop = min(open_.done + SLICE_BYTES, open_.size)
            content = self._bodies.read_slice(open_.key, open_.etag, open_.done, stop)
            open_.crc = zlib.crc32(content, open_.crc)
            open_.done = stop
            self._append(content)
            yield
        self._append(open_.member().descriptor())
        self._state.open = None
        self._finish(open_.line, open_.cursor, open_.member())

    def _finish(self, line: dict[str, Any] | None, cursor: str, member: Member | None = None) -> None:
        """Record a result that is written, or that has no file."""
        state = self._state
        if line is not None:
            text = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
            self._lines.append(text)
            state.manifest_bytes += len(text)
            state.manifest_crc = zlib.crc32(text, state.manifest_crc)
            state.entries += 1
        if member is not None:
            self._records.append(member.directory_record())
            state.members += 1
        state.cursor = cursor
        if len(self._lines) >= LINES_PER_SEGMENT:
            self._store_segment()

    # ---- the end of the archive, after the results

    def _store_segment(self) -> None:
        if self._lines or self._records:
            self._segments.write("manifest", self._state.segments, b"".join(self._lines))
            self._segments.write("directory", self._state.segments, b"".join(self._records))
            self._state.segments += 1
            self._lines, self._records = [], []

    def _write_segments(self, kind: Kind) -> Iterator[None]:
        while self._state.written < self._state.segments:
            self._append(self._segments.read(kind, self._state.written))
            self._state.written += 1
            yield

    def _manifest(self) -> Member:
        state = self._state
        return Member(MANIFEST, state.manifest_bytes, self._made_at, state.manifest_crc, state.manifest_offset)


def _in_memory(entry: Entry) -> int:
    """Bytes that a fetched result takes. A long one is read later."""
    return entry.length if entry.length <= SLICE_BYTES else 0


def _with_digest(line: dict[str, Any], content: bytes) -> dict[str, Any]:
    """`line` with the SHA-256 of the content in the archive, and with the ledger's if it differs.

    Two workers that processed one task at the same time may have stored different bodies. The ledger describes one.
    """
    digest = hashlib.sha256(content).hexdigest()
    recorded = line.get("sha256")
    return line | {"sha256": digest} | ({"ledger_sha256": recorded} if recorded not in (None, digest) else {})
