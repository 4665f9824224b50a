"""Write the results of a run as FITS files: maps and cubes with the celestial coordinates of the cube.

Each file is created at its full size, filled with NaN, and then written chunk by chunk. After each batch of pixels, the
pages of the file that were written are released from memory. Only the batch's part of the cube is read. Therefore
memory does not grow with the cube. The files are plain primary images of float32, which DS9 and CARTA open.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from astropy.io import fits
from astropy.wcs import WCS
from numpy.typing import NDArray

from prismline_contracts import CubeGeometry
from prismline_cube import SpectralAxis

#: Bytes of a FITS block. Headers and data are padded to whole blocks.
_BLOCK = 2880

#: Columns of a chunk's output from which maps are made, and columns that only newer outputs have.
_COLUMNS = ["x", "y", "rms", "n_components", "status", "component_amplitudes", "component_means", "component_stddevs"]
_OPTIONAL = ["flags", "chi2_reduced"]

#: Keywords of the cube's header that its maps keep.
_KEPT_KEYS = ("OBJECT", "TELESCOP", "INSTRUME", "OBSERVER", "DATE-OBS", "BMAJ", "BMIN", "BPA", "RESTFRQ", "RESTFREQ")

#: Rows that are read at a time.
_BATCH_ROWS = 4096


@dataclass(frozen=True)
class _Image:
    """A FITS file that is being filled: `values` is its data, an array on the `pages` of the file."""

    path: Path
    values: NDArray[np.float32]
    pages: mmap.mmap
    #: Byte at which the data start.
    start: int

    def write_spectra(self, y: NDArray[np.int64], x: NDArray[np.int64], spectra: NDArray[np.floating]) -> None:
        """Write spectra (channels, len(y)) at these pixels. Adjacent pixels of a channel are one write."""
        area, places = math.prod(self.values.shape[1:]), y * self.values.shape[2] + x
        order = np.argsort(places, kind="stable")
        places, rows = places[order], spectra[:, order].astype(">f4")
        bounds = [0, *(np.flatnonzero(np.diff(places) != 1) + 1), len(places)]
        with self.path.open("r+b") as file:
            for channel, row in enumerate(rows):
                for begin, end in pairwise(bounds):
                    file.seek(self.start + 4 * (channel * area + int(places[begin])))
                    file.write(row[begin:end].tobytes())

    def let_go(self) -> None:
        """Release the memory of the pages. The operating system keeps their changes and writes them to the file."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.pages.madvise(mmap.MADV_DONTNEED)


def write(
    outputs: Iterable[Path],
    geometry: CubeGeometry,
    header: fits.Header,
    to: Path,
    *,
    cubes: bool = False,
    cube: Path | None = None,
) -> list[Path]:
    """Write the maps of a run's Parquet files `outputs` below `to`, and return their paths.

    Maps of shape (ny, nx): `integrated`, `components`, `velocity` and `width` (of the strongest component), `rms`,
    and `chi2` and `flags` if the outputs have them. Maps with a plane for each component, the strongest first:
    `component_amplitude`, `component_velocity` and `component_width`. With `cubes` also the `model`, and the
    `residual` if `cube`, the FITS file of the run, is given. `header` is the cube's. Pixels without a value are
    NaN. A width is a standard deviation.
    """
    files = list(outputs)
    to.mkdir(parents=True, exist_ok=True)
    names = set.intersection(*(set(pq.read_schema(path).names) for path in files)) if files else set()
    columns = [*_COLUMNS, *(name for name in _OPTIONAL if name in names)]
    counts = (pq.read_table(path, columns=["n_components"])["n_components"] for path in files)
    most = max((pc.max(count).as_py() or 0 for count in counts), default=0)
    axis = SpectralAxis.of(geometry)
    images = _create(geometry, axis, header, to, columns, max(most, 1), cubes, cube is not None)
    for path in files:
        for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS, columns=columns):
            _fill(images, pa.Table.from_batches([batch]), geometry, axis, cube if cubes else None)
            for image in images.values():
                image.let_go()
    for image in images.values():
        image.pages.flush()
    return [image.path for image in images.values()]


def celestial_header(header: fits.Header) -> fits.Header:
    """The celestial part of a cube's coordinates, and the keywords that describe the observation."""
    celestial = WCS(header, fix=False).celestial.to_header()
    for key in _KEPT_KEYS:
        if key in header and key not in celestial:
            celestial[key] = header[key]
    return celestial


def _create(
    geometry: CubeGeometry,
    axis: SpectralAxis,
    header: fits.Header,
    to: Path,
    columns: list[str],
    planes: int,
    cubes: bool,
    residual: bool,
) -> dict[str, _Image]:
    sky = celestial_header(header)
    unit, area = geometry.bunit, f"{geometry.bunit} {axis.unit}".strip()
    flat, deep = (geometry.ny, geometry.nx), (planes, geometry.ny, geometry.nx)
    kinds: dict[str, tuple[tuple[int, ...], str, fits.Header]] = {
        "integrated": (flat, area, sky),
        "components": (flat, "", sky),
        "velocity": (flat, axis.unit, sky),
        "width": (flat, axis.unit, sky),
        "rms": (flat, unit, sky),
        "component_amplitude": (deep, unit, sky),
        "component_velocity": (deep, axis.unit, sky),
        "component_width": (deep, axis.unit, sky),
    }
    kinds |= {name.split("_")[0]: (flat, "", sky) for name in columns if name in _OPTIONAL}
    if cubes:
        spectral = sky.copy()
        for key, value in (
            ("WCSAXES", 3),
            ("CTYPE3", geometry.ctype),
            ("CRVAL3", geometry.crval),
            ("CRPIX3", geometry.crpix),
            ("CDELT3", geometry.cdelt),
            ("CUNIT3", geometry.cunit),
        ):
            spectral[key] = value
        whole = (geometry.n_channels, geometry.ny, geometry.nx)
        kinds |= dict.fromkeys(("model", *(("residual",) if residual else ())), (whole, unit, spectral))
    return {name: _empty_image(to / f"{name}.fits", *kind) for name, kind in kinds.items()}


def _empty_image(path: Path, shape: tuple[int, ...], unit: str, coordinates: fits.Header) -> _Image:
    """A FITS file whose values are all NaN."""
    header = fits.Header([("SIMPLE", True), ("BITPIX", -32), ("NAXIS", len(shape))])
    for number, length in enumerate(reversed(shape), 1):
        header[f"NAXIS{number}"] = length
    header.extend(coordinates.cards, strip=True)
    if unit:
        header["BUNIT"] = unit
    start = header.tostring(sep="", endcard=True, padding=True).encode("ascii")
    size = math.prod(shape) * 4
    plane = np.full(shape[-2:], np.nan, dtype=">f4").tobytes()
    with path.open("w+b") as file:
        file.write(start)
        for _ in range(math.prod(shape[:-2])):
            file.write(plane)
        file.truncate(len(start) + -(-size // _BLOCK) * _BLOCK)
        file.flush()
        pages = mmap.mmap(file.fileno(), 0)
    values = np.ndarray(shape, dtype=">f4", buffer=pages, offset=len(start))
    return _Image(path, values, pages, len(start))


def _read_spectra(path: Path, y: NDArray[np.int64], x: NDArray[np.int64]) -> NDArray[np.floating]:
    """The spectra of the cube at these pixels, (channels, len(y)). Only the rectangle around them is read."""
    with fits.open(path, memmap=False) as opened:  # `section` reads only itself; scaled values cannot be memory-mapped
        section = next(unit.section for unit in opened if unit.header.get("NAXIS", 0) > 2)
        top, left = int(y.min()), int(x.min())
        rectangle = (slice(top, int(y.max()) + 1), slice(left, int(x.max()) + 1))
        deep = int(np.argmax(section.shape[:-2]))  # the other axes before the sky's are degenerate
        whole = tuple(slice(None) if axis == deep else 0 for axis in range(len(section.shape) - 2))
        found = section[(*whole, *rectangle)]
        return np.asarray(found[:, y - top, x - left])


def _components(table: pa.Table) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Pairs of row and components (k, 3), the strongest first."""
    lists = zip(*(table[name].to_pylist() for name in _COLUMNS[5:]), strict=True)
    for row, columns in enumerate(lists):
        if columns[0]:
            found = np.array(columns, dtype=np.float64).T
            yield row, found[np.argsort(-found[:, 0], kind="stable")]


def _fill(
    images: dict[str, _Image],
    table: pa.Table,
    geometry: CubeGeometry,
    axis: SpectralAxis,
    cube: Path | None,
) -> None:
    """Write the pixels of `table` into the images."""
    y, x = table["y"].to_numpy(), table["x"].to_numpy()
    looked_at = np.isin(np.asarray(table["status"].to_pylist(), dtype=object), ["fitted", "empty"])
    counts = table["n_components"].to_numpy(zero_copy_only=False)
    images["components"].values[y[looked_at], x[looked_at]] = counts[looked_at]
    images["integrated"].values[y[looked_at], x[looked_at]] = 0.0
    for name, column in (("rms", "rms"), ("chi2", "chi2_reduced"), ("flags", "flags")):
        if name in images:
            images[name].values[y, x] = np.array(table[column].to_pylist(), dtype=np.float64)
    channels = np.arange(geometry.n_channels, dtype=np.float64)[:, None]
    model = np.zeros((geometry.n_channels if "model" in images else 0, len(y)), dtype=np.float32)
    for row, found in _components(table):
        amplitude, velocity, width = found[:, 0], axis.at(found[:, 1]), found[:, 2] * abs(axis.step)
        at = (y[row], x[row])
        images["integrated"].values[at] = math.sqrt(2.0 * math.pi) * float(amplitude @ width)
        images["velocity"].values[at], images["width"].values[at] = velocity[0], width[0]
        for name, values in (("amplitude", amplitude), ("velocity", velocity), ("width", width)):
            images[f"component_{name}"].values[(slice(len(found)), *at)] = values
        if "model" in images:
            bells = np.exp(-0.5 * ((channels - found[:, 1]) / found[:, 2]) ** 2)
            model[:, row] = bells @ amplitude
    if "model" in images and looked_at.any():
        seen = (y[looked_at], x[looked_at])
        images["model"].write_spectra(*seen, model[:, looked_at])
        if cube is not None:
            images["residual"].write_spectra(*seen, _read_spectra(cube, *seen) - model[:, looked_at])
