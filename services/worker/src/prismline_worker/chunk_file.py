"""Reads a chunk file: an `.npz` file with `spectra`, `x` and `y`. The reader checks everything and trusts nothing.

A newer splitter adds the cube's geometry, the pixels' celestial coordinates and, if it was given, the noise.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from prismline_contracts.objects import CHUNK_GEOMETRY_MEMBER, CubeGeometry
from prismline_cube.limits import MAX_CHANNELS
from prismline_cube.zip_members import open_zip
from prismline_runtime import cause_of, describe_invalid
from prismline_runtime.errors import PermanentError, PrismlineError, TransientError, UnavailableError

#: Size of a block of spectra, in bytes. Fitting one takes a fraction of a second.
BLOCK_BYTES = 8 * 2**20
#: Most bytes of memory for the pixels, and for a single spectrum. A million spectra have 8 MB of pixels.
MAX_BYTES = 128 * 2**20

_PIXELS = ("x", "y")

#: Most bytes of the JSON that describes the cube; a celestial header has some 20 cards.
_MAX_GEOMETRY_BYTES = 2**16

#: Most bytes of the list of members of a chunk file, which has seven.
_MAX_DIRECTORY_BYTES = 64 * 2**10

#: Compression methods of `numpy.savez` and `numpy.savez_compressed`.
_PACKED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


@dataclass(frozen=True)
class SpectraBlock:
    """Spectra of a chunk, (n, channels), float32 or float64, and their pixels `x` and `y`, (n,), int32.

    If the chunk has them: the pixels' celestial coordinates (n,) in degrees, NaN where there are none, and the `noise`
    in the unit of the spectra, of shape (n, 1) or (1, channels).
    """

    spectra: NDArray[np.floating]
    x: NDArray[np.int32]
    y: NDArray[np.int32]
    longitude: NDArray[np.float64] | None = None
    latitude: NDArray[np.float64] | None = None
    noise: NDArray[np.float64] | None = None
    #: Whether the noise only says how the level varies along a spectrum: the level of each spectrum is estimated.
    noise_is_shape: bool = False

    def rows(self, part: slice) -> SpectraBlock:
        """Some of the spectra, with their pixels and their noise."""
        longitude, latitude = (None if each is None else each[part] for each in (self.longitude, self.latitude))
        noise = self.noise if self.noise is None or len(self.noise) == 1 else self.noise[part]
        return SpectraBlock(
            self.spectra[part], self.x[part], self.y[part], longitude, latitude, noise, self.noise_is_shape
        )


class ChunkFile:
    """A chunk file that is read in blocks. At most one block and `max_bytes` of pixels are in memory.

    Raises `PermanentError`, with the cause in one sentence, if the file is not a valid chunk.
    """

    def __init__(self, file: BinaryIO, *, n_items: int | None = None, max_bytes: int = MAX_BYTES) -> None:
        """Open the chunk in `file`. If `n_items` is given, the chunk must have that many spectra."""
        self._max_bytes = max_bytes
        with _whole():
            self._archive = open_zip(file, most=_MAX_DIRECTORY_BYTES)
        members = [f"{name}.npy" for name in ("spectra", *_PIXELS)]
        missing = [name for name in members if name not in self._archive.NameToInfo]
        if missing:
            raise PermanentError(f"The chunk file lacks {', '.join(missing)}.")
        if any(self._archive.NameToInfo[name].compress_type not in _PACKED for name in members):
            raise PermanentError("The chunk file is compressed with a method that numpy does not use.")
        with self._open_spectra() as (_, shape, dtype):
            self._shape, self._dtype = shape, dtype
        n, channels = shape
        if n_items is not None and n != n_items:
            raise PermanentError(f"The chunk file holds {n} spectra, but its message says {n_items}.")
        if channels > MAX_CHANNELS or channels * dtype.itemsize > max_bytes:
            raise PermanentError(f"The chunk file's spectra have {channels} channels; that is more than can be read.")
        self.x, self.y = (self._pixels(name) for name in _PIXELS)
        self.longitude, self.latitude = (self._floats(name, [(n,)]) for name in ("longitude", "latitude"))
        self.noise = self._floats("noise", [(n, 1), (1, channels)])
        #: The geometry of the cube. None if an older splitter wrote the file.
        self.geometry = self._geometry()

    def __len__(self) -> int:
        return self._shape[0]

    def blocks(self, most_bytes: int = BLOCK_BYTES) -> Iterator[SpectraBlock]:
        """All spectra in order, in blocks of at most `most_bytes` but at least one spectrum."""
        n, channels = self._shape
        size = channels * self._dtype.itemsize
        rows = max(1, most_bytes // size)
        with self._open_spectra() as (member, _, _):
            for start in range(0, n, rows):
                stop = min(start + rows, n)
                with _whole():
                    body = _read_exactly(member, (stop - start) * size)
                spectra = np.frombuffer(body, self._dtype).reshape(-1, channels)
                yield self._with_pixels(spectra, slice(start, stop))
            with _whole():
                if member.read(1):  # zipfile compares the checksum at the end of the member
                    raise PermanentError("The chunk file holds more spectra than its header says.")

    def take(self, rows: Sequence[int]) -> SpectraBlock:
        """The spectra with the row indices `rows`, which must be in ascending order."""
        wanted = np.asarray(rows, dtype=np.int64)
        parts, start = [], 0
        for block in self.blocks():
            inside = wanted[(wanted >= start) & (wanted < start + len(block.spectra))]
            parts.append(block.spectra[inside - start])
            start += len(block.spectra)
        return self._with_pixels(np.concatenate(parts), wanted)

    def _with_pixels(self, spectra: NDArray[np.floating], rows: slice | NDArray[np.int64]) -> SpectraBlock:
        """The `spectra` of the chunk's `rows` with their pixels, coordinates and noise."""

        def of(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[rows]

        noise = self.noise if self.noise is not None and self.noise.shape != (len(self), 1) else of(self.noise)
        return SpectraBlock(spectra, self.x[rows], self.y[rows], of(self.longitude), of(self.latitude), noise)

    @contextmanager
    def _open_spectra(self) -> Iterator[tuple[Any, tuple[int, int], np.dtype[Any]]]:
        """The stream of the spectra's values, and their shape and type."""
        with _whole():
            member = self._archive.open("spectra.npy")
        with member:
            shape, fortran_order, dtype = _header(member, "spectra")
            if len(shape) != 2 or 0 in shape:
                raise PermanentError(f"The chunk file's spectra have the shape {shape}, not (spectra, channels).")
            if dtype.kind != "f" or dtype.itemsize not in {4, 8}:
                raise PermanentError(f"The chunk file's spectra are {dtype}, not float32 or float64.")
            if fortran_order and 1 not in shape:
                raise PermanentError("The chunk file's spectra are stored channel by channel, not one after the other.")
            yield member, (shape[0], shape[1]), dtype

    def _pixels(self, name: str) -> NDArray[np.int32]:
        n = len(self)

        def check(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
            if dtype.kind not in "iu":
                raise PermanentError(f"The chunk file's {name} is {dtype}, not integer.")
            if shape != (n,):
                raise PermanentError(f"The chunk file's {name} has the shape {shape}, but there are {n} spectra.")

        values = self._array(name, check)
        if values.min() < 0 or values.max() > np.iinfo(np.int32).max:
            raise PermanentError(f"The chunk file's {name} holds values that are not pixel indices.")
        return values.astype(np.int32)

    def _floats(self, name: str, shapes: Sequence[tuple[int, ...]]) -> NDArray[np.float64] | None:
        """The optional array `name`, which should have one of `shapes`."""
        if f"{name}.npy" not in self._archive.NameToInfo:
            return None

        def check(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
            if dtype.kind != "f" or shape not in shapes:
                wanted = " or ".join(map(str, shapes))
                raise PermanentError(f"The chunk file's {name} is {dtype} of shape {shape}, not float of {wanted}.")

        return self._array(name, check).astype(np.float64)

    def _array(self, name: str, check: Callable[[tuple[int, ...], np.dtype[Any]], None]) -> NDArray[Any]:
        """The array `name`. `check` raises PermanentError for a wrong shape or type."""
        with _whole():
            member = self._archive.open(f"{name}.npy")
        with member:
            shape, _, dtype = _header(member, name)
            check(shape, dtype)
            size = math.prod(shape) * dtype.itemsize
            if size > self._max_bytes:
                raise PermanentError(f"The chunk file's {name} takes {size} bytes; at most {self._max_bytes} may be.")
            with _whole():
                values = np.frombuffer(_read_exactly(member, size), dtype)
                member.read(1)
        return values.reshape(shape)

    def _geometry(self) -> CubeGeometry | None:
        info = self._archive.NameToInfo.get(CHUNK_GEOMETRY_MEMBER)
        if info is None:
            return None
        if info.file_size > _MAX_GEOMETRY_BYTES:
            raise PermanentError("The chunk file's geometry is too long.")
        with _whole():
            body = self._archive.read(CHUNK_GEOMETRY_MEMBER)
        try:
            return CubeGeometry.model_validate_json(body)
        except ValidationError as error:
            raise PermanentError(f"The chunk file's geometry is invalid: {describe_invalid(error)}.") from error


@contextmanager
def _whole(array: str | None = None) -> Iterator[None]:
    """Map damaged bytes to PermanentError, failed reads to UnavailableError, and a lack of memory to TransientError.

    The limits above bound what a file may ask for. So it is not the file's fault if the process has not enough memory.

    array: the array whose header is read, for the error text. Prismline's own errors pass through.
    """
    try:
        yield
    except PrismlineError:
        raise
    except OSError as error:
        raise _unreadable(error) from error
    except MemoryError as error:
        raise TransientError("The chunk file could not be read: the worker has not enough memory.") from error
    except Exception as error:  # zipfile, zlib and numpy do not document what they raise for damaged bytes
        if isinstance(error.__context__, OSError):  # zipfile says "not a zip file" if it cannot read the file's end
            raise _unreadable(error.__context__) from error
        if array is not None:
            raise PermanentError(f"The chunk file's array {array} cannot be read: {cause_of(error)}.") from error
        raise PermanentError(f"The chunk file is not a complete .npz file: {cause_of(error)}.") from error


def _unreadable(error: OSError) -> UnavailableError:
    return UnavailableError(f"The chunk file could not be read: {type(error).__name__}: {cause_of(error)}.")


def _read_exactly(member: Any, size: int) -> bytes:
    body: bytes = member.read(size)
    if len(body) != size:
        raise EOFError(f"{len(body)} of {size} bytes")
    return body


def _header(member: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an array's header: its shape, whether it has Fortran order, and its type."""
    with _whole(name):
        if (version := np.lib.format.read_magic(member)) != (1, 0):  # the header of a later one may have 4 GB
            raise ValueError(f"its format has the version {version}, not (1, 0)")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(member)
    if dtype.hasobject:
        raise PermanentError(f"The chunk file's array {name} cannot be read: it holds Python objects.")
    if math.prod(shape) > np.iinfo(np.int64).max // 8:
        raise PermanentError(f"The chunk file's array {name} cannot be read: it claims the shape {shape}.")
    return shape, fortran_order, dtype
