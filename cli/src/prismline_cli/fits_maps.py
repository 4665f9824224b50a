"""Write the results of a run as FITS files: maps and cubes with the celestial coordinates of the cube.

Each file is created at its full size, filled with NaN, and then written chunk by chunk. After each batch of pixels, the
pages of the file that were written are released from memory. Only the batch's spectra are read. Therefore memory does
not grow with the cube. The files get their names when all of them are complete. They are plain primary images of
float32, which DS9 and CARTA open.

The coordinates are those of the run's `CubeGeometry`, in which the splitter has put the axes in order, and not those of
the cube's header, whose axes may have any order.
"""

from __future__ import annotations

import math
import mmap
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from astropy.io import fits
from numpy.typing import NDArray

from prismline_contracts.decomposition import BASELINE_COLUMNS, COLUMNS, MetadataKey, unit_of
from prismline_contracts.objects import CubeGeometry
from prismline_cube import DisplayAxis, baselines, gaussians
from prismline_cube.axis import has_coordinates

#: Bytes of a FITS block. Headers and data are padded to whole blocks.
_BLOCK = 2880

#: Columns of a chunk's output from which maps are made, and columns that only newer outputs have.
_COLUMNS = ["x", "y", "rms", "n_components", "status"]
_OPTIONAL = ["flags", "chi2_reduced"]
#: Columns of the components, and of their errors in the same order.
_COMPONENTS = ["component_amplitudes", "component_means", "component_stddevs"]
_ERRORS = ["component_amplitude_errors", "component_mean_errors", "component_stddev_errors"]
#: Further columns of the components, which only some outputs have.
_FLUXES = "component_fluxes"
_DEPTHS = ["component_optical_depths", "component_optical_depth_errors"]

#: Maps that need the coordinates of the channels.
_ON_THE_AXIS = (
    "integrated",
    "velocity",
    "width",
    "component_velocity",
    "component_width",
    "component_velocity_error",
    "component_width_error",
)

#: Keyword of the metadata of an output -> how the history of a FITS file names its value.
_PROVENANCE = {
    MetadataKey.RUN_ID: "run",
    MetadataKey.JOB_ID: "job",
    MetadataKey.SURVEY: "survey",
    MetadataKey.PARAMS: "parameters",
}

#: Keywords of the cube's header that its maps keep.
_KEPT_KEYS = ("OBJECT", "TELESCOP", "INSTRUME", "OBSERVER", "DATE-OBS", "BMAJ", "BMIN", "BPA", "RESTFRQ")

#: A keyword of axis 1, for example CRVAL1 or PV1_0.
_OF_AXIS_1 = re.compile(r"^(CRPIX|CDELT|CRVAL|CUNIT|CTYPE|PV)1($|_\d+$)")

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


#: Returns the spectra (n_channels,) at pixels (x, y).
ReadSpectra = Callable[[Iterable[tuple[int, int]]], dict[tuple[int, int], NDArray[np.floating]]]


def write(
    outputs: Iterable[Path],
    geometry: CubeGeometry,
    header: fits.Header,
    to: Path,
    *,
    cubes: bool = False,
    spectra: ReadSpectra | None = None,
) -> list[Path]:
    """Write the maps of a run's Parquet files `outputs` below `to`, and return their paths.

    Maps of shape (ny, nx): `integrated`, `components`, `velocity` and `width` (of the strongest component), `rms`,
    and `chi2` and `flags` if the outputs have them. Maps with a plane for each component, the strongest first:
    `component_amplitude`, `component_velocity` and `component_width`, each with its `_error` (one standard deviation)
    if the outputs have errors. `component_optical_depth` and its `_error` exist if the run has optical depths. If the
    run fits a baseline, there are maps of its coefficients, `baseline_0` and following, and the model includes it. With
    `cubes` also the `model`, and the
    `residual` if `spectra` reads the spectra of the run. `header` is that of the cube; its keywords about the
    observation are kept. Pixels without a value are NaN. A width is a standard deviation. Maps that need velocities
    are left out if the coordinates of the spectral axis cannot be computed. If its step is not constant, widths and
    areas have the step at the component's centre.
    """
    files = list(outputs)
    to.mkdir(parents=True, exist_ok=True)
    names = set.intersection(*(set(pq.read_schema(path).names) for path in files)) if files else set()
    optional = (*_OPTIONAL, *_ERRORS, _FLUXES, *(_DEPTHS if _any_depth(files, names) else ()))
    columns = [*_COLUMNS, *_COMPONENTS, *(name for name in optional if name in names), *_coefficients(files, names)]
    counts = (pq.read_table(path, columns=["n_components"])["n_components"] for path in files)
    most = max((pc.max(count).as_py() or 0 for count in counts), default=0)
    axis = DisplayAxis.of(geometry)
    with tempfile.TemporaryDirectory(prefix=".prismline-", dir=to) as drafts:
        sky = sky_header(geometry, header)
        for line in _history(files):
            sky.add_history(line)
        kinds = _kinds(geometry, axis, sky, columns, max(most, 1), cubes, residual=spectra is not None)
        images = {name: _empty_image(Path(drafts) / f"{name}.fits", *kind) for name, kind in kinds.items()}
        for path in files:
            for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS, columns=columns):
                _fill(images, pa.Table.from_batches([batch]), geometry, axis, spectra)
                for image in images.values():
                    image.let_go()
        for image in images.values():
            image.pages.flush()
        return [image.path.replace(to / image.path.name) for image in images.values()]


def _coefficients(files: list[Path], names: set[str]) -> list[str]:
    """The columns of the baseline that have a value in any row. They are null beyond the order of the run."""
    known = [name for name in BASELINE_COLUMNS if name in names]
    tables = [pq.read_table(path, columns=known) for path in files] if known else []
    return [name for name in known if any(table[name].null_count < len(table) for table in tables)]


def _any_depth(files: list[Path], names: set[str]) -> bool:
    """Whether a row of the outputs has optical depths. Other runs have null in these columns."""
    if not set(_DEPTHS) <= names:
        return False
    tables = (pq.read_table(path, columns=[_DEPTHS[0]]) for path in files)
    return any(table[_DEPTHS[0]].null_count < len(table) for table in tables)


def sky_header(geometry: CubeGeometry, header: fits.Header) -> fits.Header:
    """The celestial coordinates of the pixels, and the keywords that describe the observation."""
    sky = fits.Header(list((geometry.celestial or {}).items()))
    if geometry.object_name:
        sky["OBJECT"] = geometry.object_name
    if geometry.rest_frequency is not None:  # that of the run's parameters, or else that of the header
        sky["RESTFRQ"] = geometry.rest_frequency
    for key in _KEPT_KEYS:
        if key in header and key not in sky:
            sky[key] = header[key]
    return sky


def _history(files: list[Path]) -> Iterator[str]:
    """Lines that say where the values of the outputs come from."""
    yield f"Written by prismline-cli {version('prismline-cli')}"
    metadata = pq.read_schema(files[0]).metadata or {} if files else {}
    for key, name in _PROVENANCE.items():
        if value := metadata.get(key.encode(), b"").decode():
            yield f"{name}: {value.encode('ascii', 'backslashreplace').decode()}"


def _kinds(
    geometry: CubeGeometry,
    axis: DisplayAxis,
    sky: fits.Header,
    columns: list[str],
    planes: int,
    cubes: bool,
    *,
    residual: bool,
) -> dict[str, tuple[tuple[int, ...], str, fits.Header]]:
    """Shape, unit and header of each file."""
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
    units = {column.name: unit_of(column, geometry) for column in COLUMNS if column.name in BASELINE_COLUMNS}
    kinds |= {name: (flat, units[name], sky) for name in columns if name in BASELINE_COLUMNS}
    if set(_ERRORS) <= set(columns):
        kinds |= {f"{name}_error": kind for name, kind in kinds.items() if name.startswith("component_")}
    if set(_DEPTHS) <= set(columns):
        kinds |= dict.fromkeys(("component_optical_depth", "component_optical_depth_error"), (deep, "", sky))
    if not has_coordinates(geometry):
        kinds = {name: kind for name, kind in kinds.items() if name not in _ON_THE_AXIS}
    if cubes:
        whole = (geometry.n_channels, geometry.ny, geometry.nx)
        spectral = _with_spectral_axis(sky, geometry)
        kinds |= dict.fromkeys(("model", *(("residual",) if residual else ())), (whole, unit, spectral))
    return kinds


def _with_spectral_axis(sky: fits.Header, geometry: CubeGeometry) -> fits.Header:
    whole = sky.copy()
    if geometry.spectral is not None:
        whole["WCSAXES"] = 3
        for key, value in geometry.spectral.items():
            name = _OF_AXIS_1.sub(r"\g<1>3\g<2>", key)
            if name != key or key not in whole:
                whole[name] = value
        return whole
    for key, value in (
        ("WCSAXES", 3),
        ("CTYPE3", geometry.ctype),
        ("CRVAL3", geometry.crval),
        ("CRPIX3", geometry.crpix),
        ("CDELT3", geometry.cdelt),
        ("CUNIT3", geometry.cunit),
    ):
        whole[key] = value
    return whole


def _empty_image(path: Path, shape: tuple[int, ...], unit: str, coordinates: fits.Header) -> _Image:
    """A FITS file whose values are all NaN."""
    header = fits.Header([("SIMPLE", True), ("BITPIX", -32), ("NAXIS", len(shape))])
    for number, length in enumerate(reversed(shape), 1):
        header[f"NAXIS{number}"] = length
    header.extend(coordinates.cards, strip=True)
    if unit:
        header["BUNIT"] = unit
    header["BTYPE"] = path.stem
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


#: The values of a spectrum's components by the names of their columns, each (k,).
_Found = dict[str, NDArray[np.float64]]


def _components(table: pa.Table) -> Iterator[tuple[int, _Found]]:
    """Pairs of row and components, the strongest first. Values that the row or the table lacks are NaN."""
    names = [*_COMPONENTS, *_ERRORS, _FLUXES, *_DEPTHS]
    lists = [table[name].to_pylist() if name in table.column_names else [None] * len(table) for name in names]
    for row, columns in enumerate(zip(*lists, strict=True)):
        if columns[0]:
            unknown = [math.nan] * len(columns[0])
            found = np.array([column or unknown for column in columns], dtype=np.float64)
            found = found[:, np.argsort(-found[0], kind="stable")]
            yield row, dict(zip(names, found, strict=True))


def _fill(
    images: dict[str, _Image],
    table: pa.Table,
    geometry: CubeGeometry,
    axis: DisplayAxis,
    spectra: ReadSpectra | None,
) -> None:
    """Write the pixels of `table` into the images."""
    y, x = table["y"].to_numpy(), table["x"].to_numpy()
    looked_at = np.isin(np.asarray(table["status"].to_pylist(), dtype=object), ["fitted", "empty"])
    counts = table["n_components"].to_numpy(zero_copy_only=False)
    images["components"].values[y[looked_at], x[looked_at]] = counts[looked_at]
    if "integrated" in images:
        images["integrated"].values[y[looked_at], x[looked_at]] = 0.0
    plain = (("rms", "rms"), ("chi2", "chi2_reduced"), ("flags", "flags"), *((name, name) for name in BASELINE_COLUMNS))
    for name, column in plain:
        if name in images:
            images[name].values[y, x] = np.array(table[column].to_pylist(), dtype=np.float64)
    for row, found in _components(table):
        _fill_pixel(images, (y[row], x[row]), found, axis)
    if "model" in images and looked_at.any():
        seen = (y[looked_at], x[looked_at])
        model = _model(table, geometry)[:, looked_at]
        images["model"].write_spectra(*seen, model)
        if "residual" in images and spectra is not None:
            pixels = list(zip(seen[1].tolist(), seen[0].tolist(), strict=True))
            values = spectra(pixels)
            images["residual"].write_spectra(*seen, np.stack([values[pixel] for pixel in pixels], axis=1) - model)


def _fill_pixel(images: dict[str, _Image], at: tuple[int, int], found: _Found, axis: DisplayAxis) -> None:
    """Write the components of one pixel into the maps that exist."""
    amplitude, mean, stddev = (found[name] for name in _COMPONENTS)
    step = axis.width(mean)
    areas = np.where(np.isnan(found[_FLUXES]), math.sqrt(2.0 * math.pi) * amplitude * stddev, found[_FLUXES])
    velocity, width = axis.at(mean), stddev * step
    flat = {"integrated": float(areas @ step), "velocity": velocity[0], "width": width[0]}
    deep = {"component_amplitude": amplitude, "component_velocity": velocity, "component_width": width}
    units = (1.0, step, step)
    errors = [found[name] * unit for name, unit in zip(_ERRORS, units, strict=True)]
    deep |= {f"{name}_error": error for name, error in zip(deep, errors, strict=True)}
    deep |= {"component_optical_depth": found[_DEPTHS[0]], "component_optical_depth_error": found[_DEPTHS[1]]}
    for name in flat.keys() & images.keys():
        images[name].values[at] = flat[name]
    for name in deep.keys() & images.keys():
        images[name].values[(slice(len(amplitude)), *at)] = deep[name]


def _model(table: pa.Table, geometry: CubeGeometry) -> NDArray[np.float32]:
    """The baseline and the components of each row, (n_channels, rows)."""
    channels = np.arange(geometry.n_channels, dtype=np.float64)
    model = baselines(table, channels).T.astype(np.float32)
    for row, found in _components(table):
        components = np.stack([found[name] for name in (*_COMPONENTS, _DEPTHS[0])], axis=1)
        model[:, row] += gaussians(components, channels, geometry.line).sum(axis=0)
    return model
