"""The rows of a Parquet file, in bounded memory, from any row. Only this module of the splitter imports pyarrow."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import parquet
from pydantic import JsonValue

from prismline_splitter.items import ItemOf
from prismline_splitter.rows import BadLineError, Line, ListError, Position, Reject

#: Rows that are converted at a time.
BATCH_ROWS = 1000
#: Bytes of a column that are read at a time, instead of the whole column of a row group.
BUFFER_BYTES = 2**20
#: Most bytes of the values of a row group, without compression. Its dictionaries and one batch are held in memory.
MAX_GROUP_BYTES = 2 * 2**30


class ParquetRows:
    """The rows of a Parquet file. The offset of a position is the number of rows before it.

    A reader that continues within a row group reads the rows before it in the group again and throws them away.
    """

    def __init__(self, file: BinaryIO, item_of: ItemOf, columns: list[str] | None = None, *, name: str) -> None:
        """columns: those that are read. Default: all. Raises ListError if it is not a Parquet file."""
        self._item_of = item_of
        self._columns = columns
        self._name = name
        try:
            self._file = parquet.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise ListError(f"{name} is not a Parquet file: {_first_line(error)}.") from error

    def estimated_lines(self) -> int:
        """The number of rows."""
        return int(self._file.metadata.num_rows)

    def lines(self, start: Position) -> Iterator[Line[str]]:
        """The rows after `start`."""
        first, number = 0, start.line
        for group in range(self._file.metadata.num_row_groups):
            n_rows = self._file.metadata.row_group(group).num_rows
            if first + n_rows > start.offset:
                for place, row in self._rows_of(group, first, max(start.offset - first, 0)):
                    number += 1
                    yield self._line(Position(place, number), row)
            first += n_rows

    def _rows_of(self, group: int, first: int, skip: int) -> Iterator[tuple[int, JsonValue]]:
        """The rows of a group without its `skip` first ones, each with the number of rows up to it."""
        if self._file.metadata.row_group(group).total_byte_size > MAX_GROUP_BYTES:
            raise ListError(
                f"The row group {group} of {self._name} has more than {MAX_GROUP_BYTES >> 30} GB. Write smaller groups."
            )
        batches = self._file.iter_batches(BATCH_ROWS, row_groups=[group], columns=self._columns, use_threads=False)
        place = first
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                kept = batch.slice(max(skip - (place - first), 0)) if place - first < skip else batch
                place += batch.num_rows - kept.num_rows
                rows = kept.to_pylist()
            except (pa.ArrowException, OSError, ValueError) as error:
                raise ListError(f"{self._name} is a damaged Parquet file: {_first_line(error)}.") from error
            for row in rows:
                place += 1
                yield place, row

    def _line(self, after: Position, row: Any) -> Line[str]:
        try:
            return Line(after, value=self._item_of(as_json(row)))
        except BadLineError as error:
            return Line(after, reject=Reject.of(after.line, error, str(row)))


def as_json(value: Any) -> JsonValue:
    """A value of a column as JSON.

    A time is ISO 8601, a duration its seconds, a decimal number its text, bytes base64, and NaN null, as JSON has none.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return None if math.isnan(value) else value
        case dict():
            return {str(name): as_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [as_json(inner) for inner in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            raise BadLineError(f"it contains a {type(value).__name__}, which has no form in JSON")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")[:200]
