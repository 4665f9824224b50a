"""Reads spectra from the input of a chunk: ranges of the cube itself, or of the chunk's `.npz` file."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.items import ChunkItem
from prismline_contracts.references import CubeReference
from prismline_cube import reader_of
from prismline_cube.limits import MAX_CHANNELS
from prismline_cube.zip_members import open_zip
from prismline_runtime import Bucket, reader_errors

#: Bytes of neighbouring spectra that are read with the requested one: people move from pixel to pixel, and a request
#: takes as long for a hundred neighbours as for one.
NEIGHBOURS_BYTES = 2**20
#: Bytes of a chunk's file that are read at a time.
PART_BYTES = 64 * 2**10
#: Bytes of the fixed part of the header of a file inside a ZIP file.
_ZIP_HEADER_BYTES = 30


def neighbours(number: int, count: int, n_channels: int) -> range:
    """The block of spectra around spectrum `number` of `count` that are read together."""
    size = max(1, NEIGHBOURS_BYTES // (8 * n_channels))
    start = number // size * size
    return range(start, min(start + size, count))


def read_spectra(
    chunk: ChunkItem, numbers: range, bucket: Bucket, open_bucket: Callable[[str], Bucket]
) -> NDArray[np.floating[Any]]:
    """The spectra with these numbers in the chunk, (n, n_channels).

    Raises PermanentError if the source was replaced or is damaged.
    """
    with reader_errors("The spectra of the chunk cannot be read"):
        return _spectra(chunk, numbers, bucket, open_bucket)


def _spectra(
    chunk: ChunkItem, numbers: range, bucket: Bucket, open_bucket: Callable[[str], Bucket]
) -> NDArray[np.floating[Any]]:
    """The same. Raises whatever zipfile, numpy and zarr raise for damaged bytes."""
    if (reference := chunk.cube_reference) is not None:
        cube = bucket if reference.bucket is None else open_bucket(reference.bucket)
        return _from_cube(reference, numbers, cube)
    version = bucket.version(chunk.chunk_key)
    size = bucket.size(chunk.chunk_key, etag=version)
    with bucket.open_version(chunk.chunk_key, etag=version, size=size, part_bytes=PART_BYTES) as file:
        return rows_of_file(file, numbers)


def _from_cube(reference: CubeReference, numbers: range, cube: Bucket) -> NDArray[np.floating[Any]]:
    index = np.arange(reference.first + numbers.start, reference.first + numbers.stop)
    return reader_of(reference, cube).gather(index)


def rows_of_file(file: BinaryIO, numbers: range) -> NDArray[np.floating[Any]]:
    """Rows of the array `spectra` of a `.npz` file. If it is not compressed, the rows before them are not read.

    Raises ValueError, KeyError, EOFError or BadZipFile, among others, if the file does not have them.
    """
    archive = open_zip(file)
    entry = archive.getinfo("spectra.npy")
    with archive.open(entry) as member:
        if (version := np.lib.format.read_magic(member)) != (1, 0):  # the header of a later one may have 4 GB
            raise ValueError(f"its format has the version {version}, not (1, 0)")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        if len(shape) != 2 or dtype.kind != "f" or numbers.stop > shape[0] or not 0 < shape[1] <= MAX_CHANNELS:
            raise ValueError(f"the spectra are {dtype} of shape {shape}")
        row_bytes = shape[1] * dtype.itemsize
        at = member.tell() + numbers.start * row_bytes
        wanted = len(numbers) * row_bytes
        if entry.compress_type == zipfile.ZIP_STORED:
            file.seek(entry.header_offset)
            header = file.read(_ZIP_HEADER_BYTES)
            names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            file.seek(entry.header_offset + _ZIP_HEADER_BYTES + names + at)
            body = file.read(wanted)
        else:
            member.seek(at)
            body = member.read(wanted)
    if len(body) != wanted:
        raise EOFError(f"{len(body)} of {wanted} bytes")
    return np.frombuffer(body, dtype).reshape(-1, shape[1])
