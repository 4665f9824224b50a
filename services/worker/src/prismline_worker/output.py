"""A chunk's output file: the table of its components as Parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prismline_contracts.commands import ChunkProcess
from prismline_contracts.decomposition import (
    OUTPUT_VERSION,
    MetadataKey,
    SpectrumStatus,
    arrow_schema,
    current,
    units_of,
)
from prismline_contracts.manifest import FitParams
from prismline_contracts.objects import CubeGeometry
from prismline_runtime.errors import PermanentError

COMPRESSION = "zstd"

#: Arrow's exceptions for bytes that are not a Parquet file. The exception for lack of memory is not one of them.
_DAMAGED = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowSerializationError,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    pa.ArrowIndexError,
    pa.ArrowCapacityError,
    UnicodeDecodeError,  # the name of a column
)


def to_parquet(table: pa.Table) -> bytes:
    """The Parquet file of `table`; the same table always gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=COMPRESSION)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def metadata_of(command: ChunkProcess, params: FitParams, geometry: CubeGeometry | None) -> dict[str, str]:
    """The metadata of a chunk's file: its run, all parameters in force, and the units of its columns."""
    metadata = {
        MetadataKey.VERSION: str(OUTPUT_VERSION),
        MetadataKey.RUN_ID: command.run_id,
        MetadataKey.JOB_ID: command.job_id,
        MetadataKey.SURVEY: command.survey,
        MetadataKey.CHUNK_ID: command.chunk_id,
        MetadataKey.PARAMS: params.model_dump_json(exclude_none=True),
    }
    if geometry is not None:
        metadata[MetadataKey.UNITS] = json.dumps(units_of(geometry))
        metadata[MetadataKey.GEOMETRY] = geometry.model_dump_json(exclude_none=True)
    return {key.value: value for key, value in metadata.items()}


class OutputFile:
    """A chunk's output, written block by block. A thread writes a block while the next one is fitted.

    geometry: the cube's; it gives the columns their units. metadata: says which run and chunk the rows belong to.
    """

    def __init__(self, geometry: CubeGeometry | None = None, metadata: Mapping[str, str] | None = None) -> None:
        self._sink = pa.BufferOutputStream()
        schema = arrow_schema(geometry).with_metadata(dict(metadata or {}))
        self._writer = pq.ParquetWriter(self._sink, schema, compression=COMPRESSION)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="parquet")
        self._writing: Future[None] | None = None
        self._n = 0
        self._metadata: dict[bytes, float] = {}
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
        """Write the next rows, a table of `arrow_schema()`."""
        self._wait()
        self._writing = self._pool.submit(self._writer.write_table, table)
        self.timed_out += [self._n + row for row in timed_out_rows(table)]
        self._n += len(table)
        for name, value in (table.schema.metadata or {}).items():
            self._metadata[name] = self._metadata.get(name, 0.0) + len(table) * float(value)

    def finish(self) -> bytes:
        """The complete file. Its metadata has the numbers in the blocks' metadata, averaged over all rows.

        Call it once, after the last `add`.
        """
        self._wait()
        means = {name.decode(): f"{total / self._n:.6g}" for name, total in self._metadata.items() if self._n}
        if means:
            self._writer.add_key_value_metadata(means)
        self._writer.close()
        body: bytes = self._sink.getvalue().to_pybytes()
        return body

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()


def from_parquet(body: bytes) -> pa.Table:
    """The table in the Parquet file `body`, written by any version. Missing columns are null.

    Raises `PermanentError` if the file is not the output of a decomposition.
    """
    damaged = "The chunk's output is not a complete Parquet file."
    try:
        file = pq.ParquetFile(pa.BufferReader(body))
        table = file.read()
    except _DAMAGED as error:
        raise PermanentError(damaged) from error
    except OSError as error:
        if error.errno is not None:  # from the operating system; Arrow's own OSErrors, for damaged pages, have no errno
            raise
        raise PermanentError(damaged) from error
    # The table has only the metadata that the writer began with. What it added at the end is in the file's metadata.
    metadata = {name: value for name, value in (file.metadata.metadata or {}).items() if name != b"ARROW:schema"}
    try:
        return current(table.replace_schema_metadata(metadata))
    except ValueError as error:
        raise PermanentError(f"The chunk's output does not have the columns of a decomposition: {error}.") from error


def timed_out_rows(table: pa.Table) -> list[int]:
    """The indices of the rows that were not fitted for lack of time."""
    late = pc.equal(table["status"], SpectrumStatus.TIMED_OUT.value)
    rows: list[int] = pc.indices_nonzero(late).to_pylist()
    return rows


def patch(table: pa.Table, rows: Sequence[int], refit: pa.Table) -> pa.Table:
    """`table` with its rows of index `rows` replaced by the rows of `refit`, in that order.

    Columns of a newer version that `refit` lacks are null in those rows.

    Raises `PermanentError` if a row does not exist or belongs to another pixel than its replacement.
    """
    if len(set(rows)) != len(rows) or len(rows) != len(refit):
        raise PermanentError(f"{len(refit)} refitted rows cannot replace the rows {list(rows)}.")
    if rows and not 0 <= min(rows) <= max(rows) < len(table):
        raise PermanentError(f"The output has {len(table)} rows, so the rows {list(rows)} cannot be replaced.")
    pixels = ["x", "y"]
    if table.take(pa.array(rows, pa.int64())).select(pixels) != refit.select(pixels):
        raise PermanentError("The refitted spectra are not those of the rows they should replace.")
    shared = [name for name in refit.column_names if name in table.column_names]
    source = list(range(len(table)))
    for position, row in enumerate(rows):
        source[row] = len(table) + position
    both = pa.concat_tables([table, refit.select(shared)], promote_options="default")
    return both.take(pa.array(source, pa.int64())).combine_chunks()
