"""Spectra of a FITS cube by the bytes that hold them: which ranges to read, and how to decode them."""

from prismline_cube.layout import FLOAT32_BITPIX, STORED_TYPES, Layout, StoredValues, spectra_type
from prismline_cube.ranges import count_requests
from prismline_cube.reading import CONNECTIONS, RANGE_BYTES, ReadRange, Slab, gather, slab_size, slabs
from prismline_cube.sky import sky_coordinates

__all__ = [
    "CONNECTIONS",
    "FLOAT32_BITPIX",
    "RANGE_BYTES",
    "STORED_TYPES",
    "Layout",
    "ReadRange",
    "Slab",
    "StoredValues",
    "count_requests",
    "gather",
    "sky_coordinates",
    "slab_size",
    "slabs",
    "spectra_type",
]
