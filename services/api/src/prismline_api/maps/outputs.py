"""Reads columns of a chunk's Parquet output by ranges: the footer first, then the columns' ranges in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prismline_runtime.storage import ObjectReader

#: Bytes at the end of the file that are read first. They hold the footer, which usually has about 90 KB.
TAIL_BYTES = 128 * 2**10
#: Widest gap between two ranges that is read together with them.
GAP_BYTES = 256 * 2**10
#: Ranges of one file that are read at the same time.
CONNECTIONS = 4

#: Returns the bytes `start` to `stop` (exclusive) of the object.
ReadRange = Callable[[int, int], bytes]
Range = tuple[int, int]


class ParquetRanges:
    """A Parquet file of `size` bytes that is read by ranges. `tail` is its end, from an earlier `ParquetRanges`.

    Raises what `read` raises, and Arrow's errors for a file that is damaged.
    """

    def __init__(self, read: ReadRange, size: int, tail: bytes | None = None) -> None:
        self._read = read
        self.tail = tail if tail is not None else read(max(0, size - TAIL_BYTES), size)
        self._file = _Fetched(read, size)
        self._file.add(size - len(self.tail), self.tail)
        self._parquet = pq.ParquetFile(pa.PythonFile(self._file, mode="r"))
        self.metadata: Any = self._parquet.metadata

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Whole columns."""
        return self._table(range(self.metadata.num_row_groups), [name for name in names if name in self._names()])

    def row(self, number: int) -> dict[str, Any]:
        """All columns of one row."""
        start = 0
        for group in range(self.metadata.num_row_groups):
            n = self.metadata.row_group(group).num_rows
            if number < start + n:
                found: dict[str, Any] = self._table([group], self._names()).slice(number - start, 1).to_pylist()[0]
                return found
            start += n
        raise IndexError(f"the file has {start} rows")

    def _names(self) -> list[str]:
        names: list[str] = self._parquet.schema_arrow.names
        return names

    def _table(self, groups: Iterable[int], names: Sequence[str]) -> pa.Table:
        wanted = list(groups)
        ranges = merged(self._ranges(wanted, set(names)))
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="parquet") as pool:
            for (start, _), body in zip(ranges, pool.map(lambda span: self._read(*span), ranges), strict=True):
                self._file.add(start, body)
        try:
            return self._parquet.read_row_groups(wanted, columns=list(names), use_threads=False)
        finally:
            self._file.keep_only_tail()

    def _ranges(self, groups: Iterable[int], names: set[str]) -> list[Range]:
        found = []
        for number in groups:
            group = self.metadata.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                if column.path_in_schema.partition(".")[0] in names:
                    start = column.data_page_offset
                    if column.has_dictionary_page and column.dictionary_page_offset:
                        start = min(start, column.dictionary_page_offset)
                    found.append((start, start + column.total_compressed_size))
        return found


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The ranges in order. Ranges with a small gap between them become one."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start - found[-1][1] <= GAP_BYTES:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


class _Fetched(ObjectReader):
    """A file that is partly fetched. Other parts are fetched when they are read."""

    def __init__(self, read: ReadRange, size: int) -> None:
        super().__init__(self._bytes, size)
        self._fetch = read
        self._parts: list[tuple[int, bytes]] = []

    def add(self, start: int, body: bytes) -> None:
        """Add bytes that begin at `start`."""
        self._parts.append((start, body))

    def keep_only_tail(self) -> None:
        """Drop all parts except the first one, which is the tail."""
        del self._parts[1:]

    def _bytes(self, start: int, stop: int) -> bytes | memoryview:
        for begin, body in self._parts:
            if begin <= start and stop <= begin + len(body):
                return memoryview(body)[start - begin : stop - begin]
        return self._fetch(start, stop)
