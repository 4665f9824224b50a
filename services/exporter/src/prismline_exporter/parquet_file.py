"""Writes the outputs of a `spectra` run into one Parquet file, sorted by `y` and `x`, in constant memory.

The run's chunks hold the pixels in this order, so the file has their rows, one chunk after the other. The footer of a
Parquet file depends on internal state of its writer, which cannot be stored. A process that continues an export
therefore writes the same file again. It compares the digest of the bytes that are already uploaded, and drops them. The
stored state is that digest.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from prismline_contracts.decomposition import COLUMNS, MetadataKey, current
from prismline_contracts.items import ChunkItem, ChunkStatus
from prismline_runtime import PermanentError

#: Bytes of Arrow data in a row group. They are in memory until the row group is written.
ROW_GROUP_BYTES = 32 * 2**20
#: Chunk outputs that are fetched in advance.
LOOK_AHEAD = 4
#: Key in the file's metadata. Its value is a JSON object: the missing chunks, each with the reason.
MISSING = b"prismline.missing_chunks"


class StartOverError(Exception):
    """The file does not begin with the bytes that are already uploaded, so a new upload is needed."""


class _State(BaseModel):
    """How many bytes are uploaded, their SHA-256, and the rows in finished parts."""

    bytes: int = 0
    sha256: str = ""


class _Sink(io.RawIOBase):
    """The output of the Parquet writer. Drops the first `state.bytes` bytes, and compares their digest."""

    def __init__(self, state: _State) -> None:
        super().__init__()
        self._state = state
        self.buffer = bytearray()
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, content: bytes, /) -> int:  # type: ignore[override]
        view = memoryview(content).cast("B")
        dropped = view[: max(0, self._state.bytes - self.size)]
        self.digest.update(dropped)
        self.size += len(dropped)
        if dropped and self.size == self._state.bytes and self.digest.hexdigest() != self._state.sha256:
            raise StartOverError
        rest = view[len(dropped) :]
        self.digest.update(rest)
        self.buffer += rest
        self.size += len(rest)
        return len(view)


class ParquetFile:
    """The writer. `chunks` are all chunks of the run in the order of their pixels; `read` gets an output by key."""

    #: Content type of the file.
    CONTENT_TYPE = "application/vnd.apache.parquet"

    def __init__(
        self,
        *,
        chunks: Iterable[ChunkItem],
        read: Callable[[str], bytes],
        pool: ThreadPoolExecutor,
        state: str | None = None,
    ) -> None:
        self._chunks = sorted(chunks, key=lambda chunk: int(chunk.chunk_id.removeprefix("chunk-")))
        self._read = read
        self._pool = pool
        self._sink = _Sink(_State() if state is None else _State.model_validate_json(state))
        self.entries_written = 0

    @property
    def buffered(self) -> int:
        """Bytes that are written and not yet taken."""
        return len(self._sink.buffer)

    @property
    def size(self) -> int:
        """Bytes of the file so far."""
        return self._sink.size

    def cut(self) -> tuple[bytearray, str]:
        """Take what has been written since the last cut, with the state after it, as JSON."""
        taken, self._sink.buffer = self._sink.buffer, bytearray()
        return taken, _State(bytes=self._sink.size, sha256=self._sink.digest.hexdigest()).model_dump_json()

    def steps(self) -> Iterator[None]:
        """Write the file to its end. The caller may cut whenever this yields.

        Raises PermanentError if no chunk has an output, and StartOverError if the file does not begin with the uploaded
        bytes.
        """
        writer: pq.ParquetWriter | None = None
        group: list[pa.Table] = []
        for table in self._tables():
            if writer is None:
                schema = table.schema.with_metadata(self._metadata(table))
                writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
            group.append(table.cast(writer.schema))
            self.entries_written += 1
            if sum(each.nbytes for each in group) >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(group))
                group = []
            yield
        if writer is None:
            raise PermanentError("The run has no result to export: none of its chunks completed.")
        if group:
            writer.write_table(pa.concat_tables(group))
        writer.close()

    def _tables(self) -> Iterator[pa.Table]:
        """The outputs in order. Some are fetched in advance."""
        names = [column.name for column in COLUMNS]
        waiting: deque[Future[bytes]] = deque()
        try:
            for chunk in self._chunks:
                if chunk.state is ChunkStatus.COMPLETED and chunk.output_key is not None:
                    waiting.append(self._pool.submit(self._read, chunk.output_key))
                if len(waiting) > LOOK_AHEAD:
                    yield _table(waiting.popleft().result(), names)
            while waiting:
                yield _table(waiting.popleft().result(), names)
        finally:
            for each in waiting:
                each.cancel()

    def _metadata(self, table: pa.Table) -> dict[bytes, bytes]:
        """The metadata of the first output without the chunk's id, in which the outputs differ, and MISSING."""
        own = {key: value for key, value in (table.schema.metadata or {}).items() if key.startswith(b"prismline.")}
        own.pop(MetadataKey.CHUNK_ID.value.encode(), None)
        missing = {
            chunk.chunk_id: chunk.error or "The run ended before the chunk did."
            for chunk in self._chunks
            if chunk.state is not ChunkStatus.COMPLETED
        }
        return own | {MISSING: json.dumps(missing).encode()}


def _table(content: bytes, names: list[str]) -> pa.Table:
    table = current(pq.read_table(pa.BufferReader(content)))
    return table.select(names).sort_by([("y", "ascending"), ("x", "ascending")])
