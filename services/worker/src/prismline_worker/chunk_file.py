"""Reading a chunk file: the `.npz` with `spectra`, `x` and `y` that the splitter wrote, trusted in nothing."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismline_runtime.errors import PermanentError, UnavailableError

#: Spectra are read in blocks of about this many bytes: a fraction of a second of fitting.
BLOCK_BYTES = 8 * 2**20
#: Most bytes that the pixels, or a single spectrum, may take in memory. A million spectra have 8 MB of pixels.
MAX_BYTES = 128 * 2**20

_PIXELS = ("x", "y")

#: What the readers of zip files and of arrays raise over bytes that are wrong: a ValueError for what is no number or no
#: text, a RuntimeError for a password or for brackets nested too deeply, a KeyError for an unknown format version. What
#: the network, the disk or the memory do is none of these.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    RuntimeError,  # NotImplementedError and RecursionError are kinds of it
)

#: How `numpy.savez` and `numpy.savez_compressed` pack.
_PACKED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


@dataclass(frozen=True)
class Spectra:
    """Some spectra (n, channels) of a chunk, float32 or float64, and their pixels `x` and `y` (n,), int32."""

    spectra: NDArray[np.floating]
    x: NDArray[np.int32]
    y: NDArray[np.int32]


class ChunkFile:
    """A chunk's file, of which only a block is in memory at a time.

    Raises `PermanentError` with the cause in one sentence for anything else than a well-formed chunk; no more than a
    block and `max_bytes` of pixels are ever unpacked.
    """

    def __init__(self, file: BinaryIO, *, n_items: int | None = None, max_bytes: int = MAX_BYTES) -> None:
        """The chunk in `file`, which should hold `n_items` spectra if that is given."""
        self._max_bytes = max_bytes
        with _whole():
            self._archive = zipfile.ZipFile(file)
        members = [f"{name}.npy" for name in ("spectra", *_PIXELS)]
        missing = [name for name in members if name not in self._archive.NameToInfo]
        if missing:
            raise PermanentError(f"The chunk file lacks {', '.join(missing)}.")
        if any(self._archive.NameToInfo[name].compress_type not in _PACKED for name in members):
            raise PermanentError("The chunk file is packed in a way that numpy does not use.")
        with self._open_spectra() as (_, shape, dtype):
            self._shape, self._dtype = shape, dtype
        n, channels = shape
        if n_items is not None and n != n_items:
            raise PermanentError(f"The chunk file holds {n} spectra, but its message says {n_items}.")
        if channels * dtype.itemsize > max_bytes:
            raise PermanentError(f"The chunk file's spectra have {channels} channels; that is more than can be read.")
        self.x, self.y = (self._pixels(name) for name in _PIXELS)

    def __len__(self) -> int:
        return self._shape[0]

    def blocks(self, most_bytes: int = BLOCK_BYTES) -> Iterator[Spectra]:
        """All spectra in order, as many at a time as `most_bytes` hold, at least one."""
        n, channels = self._shape
        size = channels * self._dtype.itemsize
        rows = max(1, most_bytes // size)
        with self._open_spectra() as (member, _, _):
            for start in range(0, n, rows):
                stop = min(start + rows, n)
                with _whole():
                    body = _read_exactly(member, (stop - start) * size)
                spectra = np.frombuffer(body, self._dtype).reshape(-1, channels)
                yield Spectra(spectra, self.x[start:stop], self.y[start:stop])
            with _whole():
                if member.read(1):  # the last read is what compares the checksum
                    raise PermanentError("The chunk file holds more spectra than it says.")

    def take(self, rows: Sequence[int]) -> Spectra:
        """The spectra of the row indices `rows`, which rise."""
        wanted = np.asarray(rows, dtype=np.int64)
        parts, start = [], 0
        for block in self.blocks():
            inside = wanted[(wanted >= start) & (wanted < start + len(block.spectra))]
            parts.append(block.spectra[inside - start])
            start += len(block.spectra)
        return Spectra(np.concatenate(parts), self.x[wanted], self.y[wanted])

    @contextmanager
    def _open_spectra(self) -> Iterator[tuple[Any, tuple[int, int], np.dtype[Any]]]:
        """The stream of the spectra's values, their shape and type."""
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
        with _whole():
            member = self._archive.open(f"{name}.npy")
        with member:
            shape, _, dtype = _header(member, name)
            if dtype.kind not in "iu":
                raise PermanentError(f"The chunk file's {name} is {dtype}, not integer.")
            if shape != (n,):
                raise PermanentError(f"The chunk file's {name} has the shape {shape}, but there are {n} spectra.")
            size = n * dtype.itemsize
            if size > self._max_bytes:
                raise PermanentError(f"The chunk file's {name} takes {size} bytes; at most {self._max_bytes} can be.")
            with _whole():
                values = np.frombuffer(_read_exactly(member, size), dtype)
                member.read(1)
        if values.min() < 0 or values.max() > np.iinfo(np.int32).max:
            raise PermanentError(f"The chunk file's {name} holds values that are no pixel indices.")
        return values.astype(np.int32)


@contextmanager
def _whole(array: str | None = None) -> Iterator[None]:
    """Tell what is wrong with the bytes, those of the header of `array` if that is given, which is permanent, from what
    happened on the way to them.

    Errors of Prismline, which storage raises, and lack of memory pass through.
    """
    try:
        yield
    except OSError as error:
        raise _unreadable(error) from error
    except _DAMAGED as error:
        if isinstance(error.__context__, OSError):  # zipfile says "not a zip file" when it could not read its end
            raise _unreadable(error.__context__) from error
        if array is not None:
            raise PermanentError(f"The chunk file's array {array} cannot be read: {error}.") from error
        raise PermanentError("The chunk file is not a whole .npz file.") from error


def _unreadable(error: OSError) -> UnavailableError:
    return UnavailableError(f"The chunk file could not be read: {type(error).__name__}: {error}.")


def _read_exactly(member: Any, size: int) -> bytes:
    body: bytes = member.read(size)
    if len(body) != size:
        raise EOFError(f"{len(body)} of {size} bytes")
    return body


def _header(member: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of the array whose file begins here."""
    with _whole(name):
        version = np.lib.format.read_magic(member)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran_order, dtype = read(member)
    if dtype.hasobject:
        raise PermanentError(f"The chunk file's array {name} cannot be read: it holds Python objects.")
    if math.prod(shape) > np.iinfo(np.int64).max // 8:
        raise PermanentError(f"The chunk file's array {name} cannot be read: it claims the shape {shape}.")
    return shape, fortran_order, dtype
