"""Reading a chunk file: the `.npz` with `spectra`, `x` and `y` that the splitter wrote, trusted in nothing."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismline_runtime.errors import PermanentError

#: Most bytes that a chunk's arrays may take when unpacked: a quarter of a 2 GB worker. The default chunk of 500
#: spectra with 424 channels takes under 1 MB.
MAX_UNPACKED_BYTES = 512 * 1024**2

_ARRAYS = ("spectra", "x", "y")


@dataclass(frozen=True)
class ChunkData:
    """The spectra (n, channels) of a chunk, float32 or float64, and their pixels `x` and `y` (n,), int32."""

    spectra: NDArray[np.floating]
    x: NDArray[np.int32]
    y: NDArray[np.int32]


def read_chunk(body: bytes, *, n_items: int | None = None, max_bytes: int = MAX_UNPACKED_BYTES) -> ChunkData:
    """The chunk in `body`, the content of a `.npz` file, which should hold `n_items` spectra if that is given.

    Raises `PermanentError` with the cause in one sentence for anything else than a well-formed chunk; at most
    `max_bytes` are ever unpacked.
    """
    arrays = _unpack(body, max_bytes)
    spectra = arrays["spectra"]
    if spectra.ndim != 2 or 0 in spectra.shape:
        raise PermanentError(f"The chunk file's spectra have the shape {spectra.shape}, not (spectra, channels).")
    if spectra.dtype.kind != "f" or spectra.dtype.itemsize not in {4, 8}:
        raise PermanentError(f"The chunk file's spectra are {spectra.dtype}, not float32 or float64.")
    n = len(spectra)
    if n_items is not None and n != n_items:
        raise PermanentError(f"The chunk file holds {n} spectra, but its message says {n_items}.")
    return ChunkData(spectra, _pixels(arrays["x"], "x", n), _pixels(arrays["y"], "y", n))


def _unpack(body: bytes, max_bytes: int) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            names = [f"{array}.npy" for array in _ARRAYS]
            missing = [name for name in names if name not in sizes]
            if missing:
                raise PermanentError(f"The chunk file lacks {', '.join(missing)}.")
            unpacked = sum(sizes[name] for name in names)
            if unpacked > max_bytes:
                raise PermanentError(f"The chunk file unpacks to {unpacked} bytes; at most {max_bytes} are allowed.")
            return {array: _load(_read(archive, f"{array}.npy", sizes[f"{array}.npy"]), array) for array in _ARRAYS}
    except PermanentError:
        raise
    except Exception as error:  # the bytes are all here: whatever zipfile makes of them will not change
        raise PermanentError("The chunk file is not a whole .npz file.") from error


def _read(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    # Without a size, zipfile unpacks all that the compressed data yields before it cuts that to the directory's size.
    with archive.open(name) as member:
        return member.read(size)


def _load(member: bytes, array: str) -> NDArray[Any]:
    try:
        loaded: NDArray[Any] = np.lib.format.read_array(io.BytesIO(member), allow_pickle=False)
    except Exception as error:  # as above; numpy says "Object arrays cannot be loaded" of a pickle
        raise PermanentError(f"The chunk file's array {array} cannot be read: {error}.") from error
    return loaded


def _pixels(values: NDArray[Any], name: str, n: int) -> NDArray[np.int32]:
    if values.dtype.kind not in "iu":
        raise PermanentError(f"The chunk file's {name} is {values.dtype}, not integer.")
    if values.shape != (n,):
        raise PermanentError(f"The chunk file's {name} has the shape {values.shape}, but there are {n} spectra.")
    if values.min() < 0 or values.max() > np.iinfo(np.int32).max:
        raise PermanentError(f"The chunk file's {name} holds values that are no pixel indices.")
    return values.astype(np.int32)
