"""Builds tiles and value ranges of maps from the outputs of chunks, as far as a request has time.

Values of a chunk are read once and kept while there is room. A tile is kept, too, and grows as chunks complete. So
neither a complete map nor the outputs of a run have to be in memory. If a request does not wait for a chunk, the read
continues, and the next request finds the values.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from aws_lambda_powertools import Logger
from numpy.typing import NDArray

from prismline_api.maps.chunks import ChunkIndex, Holder, Output, RunChunks
from prismline_api.maps.map_cache import MapCache
from prismline_api.maps.outputs import ParquetRanges
from prismline_contracts.maps import ChunkShade, MapName
from prismline_cube import MAP_COLUMNS, DisplayAxis, Reduction, Tile, TileSums, map_values
from prismline_runtime import Bucket, PermanentError

#: Seconds that a request waits for chunks to be read. The answer has the values that were read by then.
PATIENCE_SECONDS = 1.0
#: Size of the sample of a chunk's values for the estimate of percentiles.
SAMPLE_VALUES = 2000
#: Pixels whose chunks' states are added to a tile together.
STATES_AT_ONCE = 2**20
#: Percentiles between which most values lie. A few failed fits lie far outside.
PERCENTILES = (1.0, 99.0)

_REDUCTIONS = {MapName.FLAGS: Reduction.ANY_BIT, MapName.CHUNKS: Reduction.MAXIMUM}
_SHADES = {shade.value: float(number) for number, shade in enumerate(ChunkShade)}
#: A status that only a newer release knows is not an end.
_UNKNOWN_SHADE = _SHADES[ChunkShade.IN_PROGRESS]


@dataclass(frozen=True)
class TileAnswer:
    """A tile, (rows, columns), and the number of completed chunks that are not in it yet."""

    values: NDArray[np.float32]
    pending: int


@dataclass(frozen=True)
class ValueRange:
    """The range of a map's values. `low` and `high` are percentiles. All are None if there is no value."""

    n_values: int
    minimum: float | None
    maximum: float | None
    low: float | None
    high: float | None
    #: Chunks whose values are not considered yet.
    pending: int


@dataclass(frozen=True)
class Differences:
    """The differences between two maps. The numbers are None if no pixel has a value in both."""

    #: Pixels that have a value in both maps, and how many of them have different values.
    n_values: int
    n_different: int
    median: float | None
    low: float | None
    high: float | None
    #: Chunks of the first run that are not compared yet.
    pending: int

    @classmethod
    def of(cls, parts: list[_Compared], pending: int) -> Differences:
        """The total over parts of two maps. Median and percentiles are those of a sample."""
        parts = [part for part in parts if part.n]
        if not parts:
            return cls(0, 0, None, None, None, pending)
        low, median, high = _percentiles(
            [(part.n, part.sample) for part in parts], (PERCENTILES[0], 50, PERCENTILES[1])
        )
        n, different = sum(part.n for part in parts), sum(part.n_different for part in parts)
        return cls(n, different, median, low, high, pending)


@dataclass(frozen=True)
class _Compared:
    n: int
    n_different: int
    sample: NDArray[np.float32]

    @classmethod
    def of(
        cls, holder: Holder, values: NDArray[np.float32], others: list[tuple[Holder, NDArray[np.float32]]]
    ) -> _Compared:
        """Compare the values of a chunk with those of the other run's chunks that hold some of the same pixels."""
        beside = np.full(holder.count, np.nan, np.float32)
        for other, found in others:
            start, stop = max(holder.first, other.first), min(holder.first + holder.count, other.first + other.count)
            beside[start - holder.first : stop - holder.first] = found[start - other.first : stop - other.first]
        difference = values - beside
        known = difference[np.isfinite(difference)]
        return cls(known.size, int((known != 0).sum()), _sample(known))


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
        return cls(known.size, float(known.min()), float(known.max()), _sample(known))


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
    """The maps of all runs. A process has one.

    Raises UnavailableError if S3 does not answer. A chunk whose output cannot be read has no values.
    """

    def __init__(self, bucket: Bucket, index: ChunkIndex, memory: MapCache, logger: Logger) -> None:
        self._bucket = bucket
        self._index = index
        self._memory = memory
        self._logger = logger

    def tile(self, chunks: RunChunks, name: MapName, tile: Tile, *, patience: float = PATIENCE_SECONDS) -> TileAnswer:
        """A tile of a map, with the values that can be read in `patience` seconds."""
        holders = [holder for holder in chunks.holders if tile.touches(holder.first, holder.count)]
        if name is MapName.CHUNKS:
            return TileAnswer(_states(tile, holders).values(), 0)
        versions = {holder.chunk_id: holder.output.etag for holder in holders if holder.output is not None}
        key = ("tile", chunks.run_id, name, tile)
        reduction = _REDUCTIONS.get(name, Reduction.MEAN)
        growing: _Growing = self._memory.find(key) or _Growing(TileSums(tile, reduction))
        deadline = time.monotonic() + patience
        alone = growing.lock.acquire(timeout=patience)
        try:
            if alone:
                if any(versions.get(chunk_id) != version for chunk_id, version in growing.included.items()):
                    growing.included.clear()  # an output was replaced, by a refit for example
                    growing.sums = TileSums(tile, reduction)
                missing = [h for h in holders if h.chunk_id in versions and h.chunk_id not in growing.included]
                for holder, found in self._read(chunks, name, missing, max(0.0, deadline - time.monotonic())):
                    growing.sums.add(holder.first, found.values)
                    growing.included[holder.chunk_id] = versions[holder.chunk_id]
                self._memory.keep(key, growing, growing.sums.n_bytes)
            # Another request may be adding to the tile, so its values may be partly old: it counts as incomplete.
            pending = max(0 if alone else 1, len(versions) - len(growing.included))
            return TileAnswer(growing.sums.values(), pending)
        finally:
            if alone:
                growing.lock.release()

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
        low, high = _percentiles([(one.n, one.sample) for one in known_ones], PERCENTILES)
        return ValueRange(
            n_values=sum(one.n for one in known_ones),
            minimum=min(one.minimum for one in known_ones),
            maximum=max(one.maximum for one in known_ones),
            low=low,
            high=high,
            pending=pending,
        )

    def differences(
        self, first: RunChunks, second: RunChunks, name: MapName, *, patience: float = PATIENCE_SECONDS
    ) -> Differences:
        """The differences between a map of `first` and that of `second`, a run of a cube of the same shape.

        It compares chunk by chunk of `first`, as far as there is time, and keeps the results.
        """
        deadline = time.monotonic() + patience
        completed = [holder for holder in first.holders if holder.output is not None]
        others = [_overlapping(holder, second) for holder in completed]
        found: list[_Compared] = []
        for number, (holder, beside) in enumerate(zip(completed, others, strict=True)):
            key = (
                "differences", *self._key(first, name, holder), *(self._key(second, name, other) for other in beside),
            )  # fmt: skip
            compared: _Compared | None = self._memory.find(key)
            if compared is None:
                if time.monotonic() >= deadline:
                    continue
                pairs = list(zip(completed, others, strict=True))[
                    number : number + 2
                ]  # reads the next chunk in advance
                waiting, *_ = [
                    [self._later(first, name, one), *(self._later(second, name, other) for other in beside_it)]
                    for one, beside_it in pairs
                ]
                try:
                    values = [future.result(max(0.0, deadline - time.monotonic())).values for future in waiting]
                except TimeoutError:
                    continue
                except PermanentError as error:
                    self._forget(error, first, second)
                    continue
                compared = _Compared.of(holder, values[0], list(zip(beside, values[1:], strict=True)))
                self._memory.keep(key, compared, compared.sample.nbytes + 64)
            found.append(compared)
        return Differences.of(found, pending=len(completed) - len(found))

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
        """The values of the chunks that can be read in time, in the order in which reads finish."""
        waiting = {self._later(chunks, name, holder): holder for holder in holders}
        try:
            for future in as_completed(waiting, timeout=patience):
                yield waiting.pop(future), future.result()
        except TimeoutError:
            return
        except PermanentError as error:  # the object was replaced, or is gone, since it was listed
            self._forget(error, chunks)

    def _forget(self, error: PermanentError, *runs: RunChunks) -> None:
        """List the outputs of these runs again the next time."""
        for chunks in runs:
            self._logger.info("output_replaced", extra={"run_id": chunks.run_id, "reason": str(error)})
            self._index.forget(chunks.run_id)

    def _later(self, chunks: RunChunks, name: MapName, holder: Holder) -> Future[_ChunkValues]:
        """The values of a completed chunk. They are read if they are not in memory."""
        return self._memory.later(
            ("values", *self._key(chunks, name, holder)),
            lambda: self._load(chunks, name, holder, DisplayAxis.of(chunks.geometry)),
            lambda loaded: loaded.values.nbytes,
        )

    @staticmethod
    def _key(chunks: RunChunks, name: MapName, holder: Holder) -> tuple[str, ...]:
        assert holder.output is not None, "only completed chunks have values"
        return chunks.run_id, name, holder.chunk_id, holder.output.etag

    def _load(self, chunks: RunChunks, name: MapName, holder: Holder, axis: DisplayAxis) -> _ChunkValues:
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
        """The output. Its footer is kept."""

        def read(start: int, stop: int) -> bytes:
            return self._bucket.read_range(output.key, start, stop, etag=output.etag)

        key = ("tail", output.key, output.etag)
        opened = ParquetRanges(read, output.size, self._memory.find(key))
        self._memory.keep(key, opened.tail, len(opened.tail))
        return opened


def _sample(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Some of the values, evenly spaced."""
    return values[:: max(1, -(-values.size // SAMPLE_VALUES))].copy()


def _percentiles(samples: list[tuple[int, NDArray[np.float32]]], wanted: Sequence[float]) -> list[float]:
    """Percentiles of values, from samples. Each sample comes with the number of values that it represents."""
    values = np.concatenate([sample for _, sample in samples])
    weights = np.concatenate([np.full(len(sample), n / len(sample)) for n, sample in samples])
    found = np.percentile(values, wanted, method="inverted_cdf", weights=weights)
    return [float(value) for value in found]


def _overlapping(holder: Holder, chunks: RunChunks) -> list[Holder]:
    """The completed chunks that hold any of the holder's pixels."""
    stop = holder.first + holder.count
    return [
        other
        for other in chunks.holders
        if other.output is not None and other.first < stop and other.first + other.count > holder.first
    ]


def _states(tile: Tile, holders: list[Holder]) -> TileSums:
    """The states of the chunks that a tile touches. Many small chunks are added together."""
    sums = TileSums(tile, _REDUCTIONS[MapName.CHUNKS])
    start = 0
    for place, holder in enumerate(holders):
        stop = holder.first + holder.count
        following = holders[place + 1].first if place + 1 < len(holders) else None
        if following != stop or stop - holders[start].first >= STATES_AT_ONCE:
            group = holders[start : place + 1]
            shades = [_SHADES.get(one.status, _UNKNOWN_SHADE) for one in group]
            sums.add(group[0].first, np.repeat(np.array(shades, np.float32), [one.count for one in group]))
            start = place + 1
    return sums
