"""Reads spectra of a cube from the bytes that hold them, and makes maps of the results."""

from prismline_cube.axis import DisplayAxis
from prismline_cube.components import (
    MAP_COLUMNS,
    baselines,
    flat_components,
    gaussians,
    is_thick,
    map_values,
    single_gaussians,
)
from prismline_cube.grid import ZIP_MAGIC, Grid
from prismline_cube.layout import FLOAT32_BITPIX, STORED_TYPES, Layout, StoredValues, spectra_type
from prismline_cube.ranges import count_requests
from prismline_cube.reading import CONNECTIONS, RANGE_BYTES, ReadRange, Slab, gather, slab_size, slabs
from prismline_cube.sky import sky_coordinates
from prismline_cube.stored import CubeReader, UnknownLayoutError, reader_of
from prismline_cube.tiles import TILE_PIXELS, Reduction, Tile, TileSums, levels

__all__ = [
    "CONNECTIONS",
    "FLOAT32_BITPIX",
    "MAP_COLUMNS",
    "RANGE_BYTES",
    "STORED_TYPES",
    "TILE_PIXELS",
    "ZIP_MAGIC",
    "CubeReader",
    "DisplayAxis",
    "Grid",
    "Layout",
    "ReadRange",
    "Reduction",
    "Slab",
    "StoredValues",
    "Tile",
    "TileSums",
    "UnknownLayoutError",
    "baselines",
    "count_requests",
    "flat_components",
    "gather",
    "gaussians",
    "is_thick",
    "levels",
    "map_values",
    "reader_of",
    "single_gaussians",
    "sky_coordinates",
    "slab_size",
    "slabs",
    "spectra_type",
]
