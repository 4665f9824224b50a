"""Writes the values of a cube to a plain FITS file, part by part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismline_cube.layout import STORED_TYPES

#: The size of a FITS file is a multiple of this many bytes.
RECORD_BYTES = 2880
#: Bytes of values that are read and written at a time.
PART_BYTES = 32 * 2**20


def write_values(
    plain: BinaryIO,
    bitpix: int,
    shape: Sequence[int],
    stored: Sequence[int],
    values: Callable[[tuple[slice, ...]], NDArray[np.generic]],
) -> None:
    """Write all values after the header, and fill the last record.

    shape: lengths of the axes, the slowest first. stored: lengths of the pieces that can only be decompressed in full;
    a part holds whole pieces, and is larger than `PART_BYTES` only if a piece is. values: returns the values of a part.
    Passes on errors of `values`, and raises OSError if the disk fails or is full.
    """
    kind, begin = np.dtype(STORED_TYPES[bitpix]), plain.tell()
    steps = part_shape(shape, stored, kind.itemsize)
    starts = itertools.product(*(range(0, length, step) for length, step in zip(shape, steps, strict=True)))
    for start in starts:
        part = values(tuple(slice(at, at + step) for at, step in zip(start, steps, strict=True)))
        _place(plain, begin, shape, start, np.ascontiguousarray(part, dtype=kind))
    n_bytes = math.prod(shape) * kind.itemsize
    plain.seek(begin + n_bytes)
    plain.write(bytes(-n_bytes % RECORD_BYTES))


def part_shape(shape: Sequence[int], stored: Sequence[int], itemsize: int) -> list[int]:
    """The lengths of a part: the slowest axes are divided first, so that most parts are contiguous in the file."""
    steps = list(shape)
    for axis, piece in enumerate(stored):
        most = PART_BYTES // (math.prod(steps) // steps[axis] * itemsize)
        if most < steps[axis]:
            steps[axis] = min(steps[axis], max(piece, most // piece * piece))
    return steps


def _place(plain: BinaryIO, begin: int, shape: Sequence[int], start: Sequence[int], part: NDArray[np.generic]) -> None:
    """Write a part to its place. `start` has its first indices; the values of the file begin at byte `begin`."""
    whole = part.ndim - 1  # of the axes from here on, the part holds all indices, or consecutive ones of the first
    while whole > 0 and part.shape[whole] == shape[whole]:
        whole -= 1
    for index in np.ndindex(part.shape[:whole]):
        place = [at + n for at, n in zip(start, (*index, *[0] * (part.ndim - whole)), strict=True)]
        first = 0
        for at, length in zip(place, shape, strict=True):
            first = first * length + at
        plain.seek(begin + first * part.itemsize)
        plain.write(part[index].data)
