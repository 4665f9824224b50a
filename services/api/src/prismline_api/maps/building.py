"""Builds tiles and value ranges of maps out of the outputs of chunks, as far as a request has time for.

Values of a chunk are read once and kept while there is room. A tile is kept too and grows with the chunks that
complete, so neither a whole map nor the outputs of a run have to be in memory. What a request does not wait for is
read on, and the next request finds it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from aws_lambda_powertools import Logger
from numpy.typing import NDArray

from prismline_api.maps.chunks import ChunkIndex, Holder, Output, RunChunks
from prismline_api.maps.memory import Memory
from prismline_api.maps.outputs import ParquetRanges
from prismline_contracts.maps import ChunkShade, MapName
from prismline_cube import MAP_COLUMNS, Reduction, SpectralAxis, Tile, TileSums, map_values
from prismline_runtime import Bucket, PermanentError

#: Seconds that a request waits for chunks to be read. The answer has what is there by then.
PATIENCE_SECONDS = 1.0
#: Values of one chunk that stand for all of them when percentiles are estimated.
SAMPLE_VALUES = 2000
#: Percentiles between which most values lie: a few failed fits are far out.
PERCENTILES = (1.0, 99.0)

_REDUCTIONS = {MapName.FLAGS: Reduction.ANY_BIT, MapName.CHUNKS: Reduction.MAXIMUM}
_SHADES = {shade.value: float(number) for number, shade in enumerate(ChunkShade)}
#: A status that only a newer release knows is not an end.
_UNKNOWN_SHADE = _SHADES[ChunkShade.IN_PROGRESS]


@dataclass(frozen=True)
class TileAnswer:
    """A tile, (rows, columns), and how many chunks whose values are known to exist are not in it yet."""

    values: NDArray[np.float32]
    pending: int


@dataclass(frozen=True)
class ValueRange:
    """What values a map has. `low` and `high` are percentiles; all are None if there is no value."""

    n_values: int
    minimum: float | None
    maximum: float | None
    low: float | None
    high: float | None
    #: Chunks whose values are not considered yet.
    pending: int


@dataclass(frozen=True)
class _Statistics:
    n: int
    minimum: float
    maximum: float
    sample: NDArray[np.float32]

    @classmethod
    def of(cls, values: NDArray[np.float32]) -> _Statistics | None:
        known = values[np.isfinite(values)]
        if not known.size:
            return None
        return cls(known.size, float(known.min()), float(known.max()), known[:: -(-known.size // SAMPLE_VALUES)].copy())


@dataclass(frozen=True)
class _ChunkValues:
    values: NDArray[np.float32]
    statistics: _Statistics | None


@dataclass
class _Growing:
    """A tile and the versions of the chunks that are in it."""

    sums: TileSums
    included: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Maps:
    """The maps of all runs. One for a process.

    Raises UnavailableError if S3 does not answer. A chunk whose output cannot be read has no values.
    """

    def __init__(self, bucket: Bucket, index: ChunkIndex, memory: Memory, logger: Logger) -> None:
        self._bucket = bucket
        self._index = index
        self._memory = memory
        self._logger = logger

    def tile(self, chunks: RunChunks, name: MapName, tile: Tile, *, patience: float = PATIENCE_SECONDS) -> TileAnswer:
        """A tile of a map, with what can be read in `patience` seconds."""
        holders = [holder for holder in chunks.holders if tile.touches(holder.first, holder.count)]
        if name is MapName.CHUNKS:
            sums = TileSums(tile, _REDUCTIONS[name])
            for holder in holders:
                sums.add(holder.first, np.full(holder.count, _SHADES.get(holder.status, _UNKNOWN_SHADE)))
            return TileAnswer(sums.values(), 0)
        versions = {holder.chunk_id: holder.output.etag for holder in holders if holder.output is not None}
        key = ("tile", chunks.run_id, name, tile)
        reduction = _REDUCTIONS.get(name, Reduction.MEAN)
        growing: _Growing = self._memory.find(key) or _Growing(TileSums(tile, reduction))
        with growing.lock:
            if any(versions.get(chunk_id) != version for chunk_id, version in growing.included.items()):
                growing.included.clear()  # an output was replaced, by a refit for example
                growing.sums = TileSums(tile, reduction)
            missing = [h for h in holders if h.chunk_id in versions and h.chunk_id not in growing.included]
            for holder, found in self._read(chunks, name, missing, patience):
                growing.sums.add(holder.first, found.values)
                growing.included[holder.chunk_id] = versions[holder.chunk_id]
            self._memory.keep(key, growing, growing.sums.n_bytes)
            return TileAnswer(growing.sums.values(), len(versions) - len(growing.included))

    def value_range(self, chunks: RunChunks, name: MapName, *, patience: float = PATIENCE_SECONDS) -> ValueRange:
        """The range of a map's values, as far as they can be read in `patience` seconds."""
        completed = [holder for holder in chunks.holders if holder.output is not None]
        found: list[_Statistics | None] = []
        missing = []
        for holder in completed:
            known = self._memory.find(("statistics", *self._key(chunks, name, holder)))
            if known is None:
                missing.append(holder)
            else:
                found += known
        for _, values in self._read(chunks, name, missing, patience):
            found.append(values.statistics)
        pending, known_ones = len(completed) - len(found), [one for one in found if one is not None]
        if not known_ones:
            return ValueRange(0, None, None, None, None, pending)
        sample = np.concatenate([one.sample for one in known_ones])
        weights = np.concatenate([np.full(len(one.sample), one.n / len(one.sample)) for one in known_ones])
        low, high = np.percentile(sample, PERCENTILES, method="inverted_cdf", weights=weights)
        return ValueRange(
            n_values=sum(one.n for one in known_ones),
            minimum=min(one.minimum for one in known_ones),
            maximum=max(one.maximum for one in known_ones),
            low=float(low),
            high=float(high),
            pending=pending,
        )

    def row(self, output: Output, number: int) -> dict[str, object] | None:
        """All columns of a row of an output. None if the output cannot be read."""
        try:
            return self._open(output).row(number)
        except (pa.ArrowException, OSError, LookupError) as error:
            self._logger.warning("output_unreadable", extra={"key": output.key, "reason": str(error)})
            return None

    def _read(
        self, chunks: RunChunks, name: MapName, holders: list[Holder], patience: float
    ) -> Iterator[tuple[Holder, _ChunkValues]]:
        """The values of those chunks that can be read in time, as they come."""
        waiting: dict[Future[_ChunkValues], Holder] = {}
        axis = SpectralAxis.of(chunks.geometry)
        for holder in holders:
            future = self._memory.later(
                ("values", *self._key(chunks, name, holder)),
                lambda holder=holder: self._load(chunks, name, holder, axis),  # type: ignore[misc]
                lambda values: values.values.nbytes,
            )
            waiting[future] = holder
        try:
            for future in as_completed(waiting, timeout=patience):
                yield waiting.pop(future), future.result()
        except TimeoutError:
            return
        except PermanentError as error:  # the object was replaced, or is gone, since it was listed
            self._logger.info("output_replaced", extra={"run_id": chunks.run_id, "reason": str(error)})
            self._index.forget(chunks.run_id)

    @staticmethod
    def _key(chunks: RunChunks, name: MapName, holder: Holder) -> tuple[str, ...]:
        assert holder.output is not None, "only completed chunks have values"
        return chunks.run_id, name, holder.chunk_id, holder.output.etag

    def _load(self, chunks: RunChunks, name: MapName, holder: Holder, axis: SpectralAxis) -> _ChunkValues:
        assert holder.output is not None, "only completed chunks have values"
        try:
            table = self._open(holder.output).columns(MAP_COLUMNS[name])
            if len(table) != holder.count:
                raise ValueError(f"it has {len(table)} rows for {holder.count} spectra")
            values = map_values(table, name, axis).astype(np.float32)
        except (pa.ArrowException, OSError, LookupError, ValueError) as error:
            self._logger.warning("output_unreadable", extra={"key": holder.output.key, "reason": str(error)})
            values = np.full(holder.count, np.nan, np.float32)
        loaded = _ChunkValues(values, _Statistics.of(values))
        size = loaded.statistics.sample.nbytes if loaded.statistics else 0
        self._memory.keep(("statistics", *self._key(chunks, name, holder)), [loaded.statistics], size + 64)
        return loaded

    def _open(self, output: Output) -> ParquetRanges:
        """The output; its footer is kept."""

        def read(start: int, stop: int) -> bytes:
            return self._bucket.read_range(output.key, start, stop, etag=output.etag)

        key = ("tail", output.key, output.etag)
        opened = ParquetRanges(read, output.size, self._memory.find(key))
        self._memory.keep(key, opened.tail, len(opened.tail))
        return opened
