"""A chunk's output file: the table of its components as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prismline_runtime.errors import PermanentError
from prismline_worker.schema import SCHEMA, SpectrumStatus

COMPRESSION = "zstd"

#: What Arrow raises over bytes that are not a Parquet file. Lack of memory is none of these.
_DAMAGED = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowSerializationError,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    pa.ArrowIndexError,
    pa.ArrowCapacityError,
)


def to_parquet(table: pa.Table) -> bytes:
    """The Parquet file of `table`; the same table always gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=COMPRESSION)
    body: bytes = sink.getvalue().to_pybytes()
    return body


class OutputFile:
    """A chunk's output that is written a block of rows at a time, the one before while the next is fitted."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, SCHEMA, compression=COMPRESSION)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="parquet")
        self._writing: Future[None] | None = None
        self._n = 0
        #: Indices of the rows that were not fitted for lack of time.
        self.timed_out: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._writer.close()

    def __len__(self) -> int:
        return self._n

    def add(self, table: pa.Table) -> None:
        """Write the next rows, a table of :data:`SCHEMA`."""
        self._wait()
        self._writing = self._pool.submit(self._writer.write_table, table)
        self.timed_out += [self._n + row for row in timed_out_rows(table)]
        self._n += len(table)

    def finish(self) -> bytes:
        """The whole file. Call it once, last."""
        self._wait()
        self._writer.close()
        body: bytes = self._sink.getvalue().to_pybytes()
        return body

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()


def from_parquet(body: bytes) -> pa.Table:
    """The table in the Parquet file `body`. Raises `PermanentError` if it is not one of :data:`SCHEMA`."""
    damaged = "The chunk's output is not a whole Parquet file."
    try:
        table = pq.read_table(pa.BufferReader(body))
    except _DAMAGED as error:
        raise PermanentError(damaged) from error
    except OSError as error:
        if error.errno is not None:  # the operating system's; Arrow's own, over pages that are damaged, has none
            raise
        raise PermanentError(damaged) from error
    if table.schema != SCHEMA:
        raise PermanentError("The chunk's output does not have the columns of a decomposition.")
    return table


def timed_out_rows(table: pa.Table) -> list[int]:
    """The indices of the rows that were not fitted for lack of time."""
    late = pc.equal(table["status"], SpectrumStatus.TIMED_OUT.value)
    rows: list[int] = pc.indices_nonzero(late).to_pylist()
    return rows


def patch(table: pa.Table, rows: Sequence[int], refit: pa.Table) -> pa.Table:
    """`table` with its rows of index `rows` replaced by the rows of `refit`, in that order.

    Raises `PermanentError` if a row does not exist or stands for another pixel than its replacement.
    """
    if len(set(rows)) != len(rows) or len(rows) != len(refit):
        raise PermanentError(f"{len(refit)} refitted rows cannot replace the rows {list(rows)}.")
    if rows and not 0 <= min(rows) <= max(rows) < len(table):
        raise PermanentError(f"The output has {len(table)} rows, so the rows {list(rows)} cannot be replaced.")
    pixels = ["x", "y"]
    if table.take(pa.array(rows, pa.int64())).select(pixels) != refit.select(pixels):
        raise PermanentError("The refitted spectra are not those of the rows they should replace.")
    source = list(range(len(table)))
    for position, row in enumerate(rows):
        source[row] = len(table) + position
    return pa.concat_tables([table, refit]).take(pa.array(source, pa.int64())).combine_chunks()
