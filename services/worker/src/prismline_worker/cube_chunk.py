"""Reads a chunk whose input is a reference: ranges of the cube itself.

The next slab of spectra is fetched while the kernel fits the blocks of this one. The blocks are the same as those of a
copied chunk, so that both inputs give the same output, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from prismline_contracts.objects import CubeGeometry, geometry_key
from prismline_contracts.references import CubeReference
from prismline_cube import Slab, UnknownLayoutError, reader_of, sky_coordinates
from prismline_runtime import Bucket, PermanentError, describe_invalid, reader_errors
from prismline_worker.chunk_file import BLOCK_BYTES, SpectraBlock
from prismline_worker.prefetch import prefetched

#: Bytes of one noise value, a float64.
NOISE_BYTES = 8


class CubeChunk:
    """A chunk of a cube that is read in blocks. At most two slabs and one block are in memory.

    Raises `PermanentError`, with the cause in one sentence, if the reference is invalid or the cube was replaced, and
    `UnavailableError` if a range cannot be read now.
    """

    def __init__(self, reference: CubeReference, geometry: CubeGeometry, cube: Bucket, own: Bucket) -> None:
        """cube: the bucket of the cube. own: the bucket of the run, which has the noise."""
        with reader_errors(f"The reference to the cube {reference.key} is wrong"):
            try:
                self._reader = reader_of(reference, cube)
            except UnknownLayoutError as error:
                raise PermanentError(
                    f"The cube {reference.key} has the layout {reference.layout}, which this worker cannot read;"
                    " update it."
                ) from error
        self._layout = self._reader.layout
        self._reference = reference
        self.geometry = geometry
        index = np.arange(reference.first, reference.first + reference.count)
        self.x, self.y = self._layout.pixels(index)
        self.longitude: NDArray[np.float64] | None = None
        self.latitude: NDArray[np.float64] | None = None
        if geometry.celestial is not None:
            with reader_errors(f"The coordinates of the cube {reference.key} cannot be read"):
                self.longitude, self.latitude = sky_coordinates(geometry.celestial, self.x, self.y)
        self.noise = self._noise(own)

    def __len__(self) -> int:
        return self._reference.count

    def blocks(self, most_bytes: int = BLOCK_BYTES) -> Iterator[SpectraBlock]:
        """All spectra in order, in blocks of at most `most_bytes` but at least one spectrum."""
        layout, first, n = self._layout, self._reference.first, len(self)
        rows = max(1, most_bytes // (layout.n_channels * layout.dtype.itemsize))
        begin, filled = 0, 0
        spectra = np.empty((min(rows, n), layout.n_channels), layout.dtype)
        for slab in prefetched(self._slabs(first, first + n)):
            taken = 0
            while taken < len(slab.stored):
                piece = slab.stored[taken : taken + len(spectra) - filled]
                layout.stored.physical(piece, spectra[filled : filled + len(piece)])
                taken += len(piece)
                filled += len(piece)
                if filled == len(spectra):
                    yield self._with_pixels(spectra, slice(begin, begin + filled))
                    begin, filled = begin + filled, 0
                    spectra = np.empty((min(rows, n - begin), layout.n_channels), layout.dtype)

    def take(self, rows: Sequence[int]) -> SpectraBlock:
        """The spectra with the row indices `rows`, which must be in ascending order."""
        wanted = np.asarray(rows, dtype=np.int64)
        with self._reader_errors():
            spectra = self._reader.gather(self._reference.first + wanted)
        return self._with_pixels(spectra, wanted)

    def _with_pixels(self, spectra: NDArray[np.floating], rows: slice | NDArray[np.int64]) -> SpectraBlock:
        longitude, latitude, noise = (
            None if values is None else values[rows] for values in (self.longitude, self.latitude, self._own_noise)
        )
        return SpectraBlock(
            spectra, self.x[rows], self.y[rows], longitude, latitude, self.noise if noise is None else noise
        )

    @property
    def _own_noise(self) -> NDArray[np.float64] | None:
        """The noise, if each spectrum has its own."""
        refers = self._reference.noise
        return self.noise if refers is not None and refers.per_spectrum else None

    def _slabs(self, start: int, stop: int) -> Iterator[Slab]:
        with self._reader_errors():
            yield from self._reader.slabs(start, stop)

    def _reader_errors(self) -> AbstractContextManager[None]:
        return reader_errors(f"The cube {self._reference.key} is damaged")

    def _noise(self, own: Bucket) -> NDArray[np.float64] | None:
        refers = self._reference.noise
        if refers is None:
            return None
        with reader_errors(f"The noise {refers.key} cannot be read"), own.open(refers.key) as file:
            if not refers.per_spectrum:
                return np.frombuffer(file.read(), "<f8").astype(np.float64)[None, :]
            file.seek(self._reference.first * NOISE_BYTES)
            return np.frombuffer(file.read(len(self) * NOISE_BYTES), "<f8").astype(np.float64)[:, None]


def open_cube_chunk(reference: CubeReference, run_id: str, own: Bucket, cube: Bucket) -> CubeChunk:
    """The chunk that a message of the run refers to."""
    body = own.read(geometry_key(run_id))
    return CubeChunk(reference, _geometry(body), cube, own)


@lru_cache(maxsize=8)
def _geometry(body: bytes) -> CubeGeometry:
    try:
        return CubeGeometry.model_validate_json(body)
    except ValidationError as error:
        raise PermanentError(f"The geometry of the cube is invalid: {describe_invalid(error)}.") from error
