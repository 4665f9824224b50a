"""Writes the values of a cube to a plain FITS file, part by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismline_cube import STORED_TYPES

#: The size of a FITS file is a multiple of this many bytes.
RECORD_BYTES = 2880
#: Bytes of values that are written at a time.
PART_BYTES = 64 * 2**20


def write_values(
    plain: BinaryIO,
    bitpix: int,
    shape: Sequence[int],
    stored: Sequence[int],
    values: Callable[[tuple[slice, ...]], NDArray[np.generic]],
) -> None:
    """Write all values after the header, and fill the last record.

    shape: lengths of the axes, the slowest first. stored: lengths of the pieces that can only be decompressed in full;
    along the axis that is divided, a part holds whole pieces. values: returns the values of a part. Passes on errors of
    `values`, and raises OSError if the disk fails or is full.
    """
    kind = np.dtype(STORED_TYPES[bitpix])
    axis = next((n for n, length in enumerate(shape) if length > 1), 0)
    step = max(1, PART_BYTES // max(1, math.prod(shape[axis + 1 :]) * kind.itemsize))
    step = max(stored[axis], step // stored[axis] * stored[axis])
    n_bytes = 0
    for start in range(0, shape[axis], step):
        part = values((*[slice(None)] * axis, slice(start, start + step)))
        n_bytes += plain.write(np.ascontiguousarray(part, dtype=kind).data)
    plain.write(bytes(-n_bytes % RECORD_BYTES))
