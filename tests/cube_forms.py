"""Cubes in every form that observatories write: orders of axes, types, matrices, spectral axes, formats of files.

Each form holds the spectra of one small cube. astropy, and not this repository, says where their values belong.
"""

from __future__ import annotations

import gzip
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from astropy.io import fits
from astropy.wcs import WCS
from numpy.typing import NDArray

from tests.cubes import spectra

NX, NY, CHANNELS = 4, 3, 48
REST_HZ, LIGHT = 115.2712018e9, 299_792_458.0

SKY_X = {"CTYPE": "GLON-CAR", "CRVAL": 49.2, "CRPIX": 2.0, "CDELT": -0.006, "CUNIT": "deg"}
SKY_Y = {"CTYPE": "GLAT-CAR", "CRVAL": -0.2, "CRPIX": 3.0, "CDELT": 0.006, "CUNIT": "deg"}
VELOCITY = {"CTYPE": "VRAD", "CRVAL": -5000.0, "CRPIX": 1.5, "CDELT": 200.0, "CUNIT": "m/s"}
STOKES = {"CTYPE": "STOKES", "CRVAL": 1.0, "CRPIX": 1.0, "CDELT": 1.0}

#: What writes the units of a file, and the name of the file.
Writer = Callable[["Form", Path], Path]


@dataclass(frozen=True)
class Form:
    """A cube in one form."""

    name: str
    #: Its axes, the slowest first: channel, y, x and an empty Stokes axis.
    order: str = "cyx"
    nx: int = NX
    ny: int = NY
    kind: str = "f4"
    #: Cards of an axis, by its letter; None leaves a card out.
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Further cards. A `{c}`, `{x}` or `{y}` in a name is the number of that axis.
    cards: dict[str, Any] = field(default_factory=dict)
    write: Writer = lambda form, folder: _written(folder / "cube.fits", form.unit())
    chunk_input: str = "auto"

    def unit(self) -> fits.PrimaryHDU:
        """The cube as a FITS image."""
        values = spectra(self.ny, self.nx, CHANNELS).astype(np.float64)
        values[7:9, 0, 0] = np.nan
        axes = [axis for axis in self.order if axis != "s"]
        shape = {"c": CHANNELS, "y": self.ny, "x": self.nx}
        missing = [axis for axis in "cyx" if axis not in axes]
        assert all(shape[axis] == 1 for axis in missing), "only an axis of one pixel may be missing"
        data = values.squeeze(tuple("cyx".index(axis) for axis in missing))
        kept = [axis for axis in "cyx" if axis in axes]
        data = data.transpose([kept.index(axis) for axis in axes])
        for place, axis in enumerate(self.order):
            if axis == "s":
                data = np.expand_dims(data, place)
        unit = fits.PrimaryHDU()
        if self.kind.startswith(("i", "u")):
            blank = 255 if self.kind == "u1" else -(2 ** (8 * np.dtype(self.kind).itemsize - 1)) + 1
            offset, scale = (20, 0.05) if self.kind == "u1" else (0, 0.001)
            stored = (np.round(np.nan_to_num(data) / scale) + offset).astype(self.kind)
            stored[np.isnan(data)] = blank
            unit.data = stored
            unit.header["BSCALE"], unit.header["BZERO"], unit.header["BLANK"] = scale, -scale * offset, blank
        else:
            unit.data = data.astype(self.kind)
        numbers = {axis: len(self.order) - place for place, axis in enumerate(self.order)}
        of = {"c": VELOCITY, "x": SKY_X, "y": SKY_Y, "s": STOKES}
        for axis, number in numbers.items():
            for name, value in (of[axis] | self.axes.get(axis, {})).items():
                if value is not None:
                    unit.header[f"{name}{number}"] = value
        unit.header["BUNIT"], unit.header["TELESCOP"] = "K", "a telescope"
        for name, value in self.cards.items():
            unit.header[name.format(**numbers)] = value
        return unit


def _written(path: Path, *units: fits.hdu.base.ExtensionHDU) -> Path:
    fits.HDUList(list(units)).writeto(path)
    return path


def _gzipped(form: Form, folder: Path) -> Path:
    path = folder / "cube.fits.gz"
    path.write_bytes(gzip.compress(_bytes(form.unit())))
    return path


def _bytes(*units: fits.hdu.base.ExtensionHDU) -> bytes:
    body = io.BytesIO()
    fits.HDUList(list(units)).writeto(body)
    return body.getvalue()


def _in_extension(form: Form, folder: Path) -> Path:
    whole = form.unit()
    table = fits.BinTableHDU.from_columns([fits.Column("freq", "D", array=np.arange(3.0))])
    return _written(folder / "ext.fits", fits.PrimaryHDU(), table, fits.ImageHDU(whole.data, whole.header))


def _gzipped_extension(form: Form, folder: Path) -> Path:
    whole = form.unit()
    path = folder / "ext.fits.gz"
    path.write_bytes(gzip.compress(_bytes(fits.PrimaryHDU(), fits.ImageHDU(whole.data, whole.header))))
    return path


def _tiles(kind: str) -> Writer:
    def write(form: Form, folder: Path) -> Path:
        whole = form.unit()
        scaling = {name: whole.header.pop(name) for name in ("BSCALE", "BZERO", "BLANK") if name in whole.header}
        packed = fits.CompImageHDU(whole.data, whole.header, compression_type=kind, quantize_level=0)
        packed.header.update(scaling)
        return _written(folder / "cube.fits.fz", fits.PrimaryHDU(), packed)

    return write


def _zarr(chunks: tuple[int, ...], shards: tuple[int, ...] | None = None) -> Writer:
    def write(form: Form, folder: Path) -> Path:
        whole = form.unit()
        path = folder / "cube.zarr.zip"
        cards = {name: whole.header[name] for name in whole.header if name not in {"SIMPLE", "EXTEND"}}
        with zarr.storage.ZipStore(path, mode="w") as store:
            array = zarr.create_array(
                store, shape=whole.data.shape, chunks=chunks, shards=shards, dtype="f4", attributes=cards
            )
            array[:] = whole.data
        return path

    return write


def _spectral(name: str, start: float, step: float, unit: str | None, **cards: Any) -> Form:
    axis = {"CTYPE": name, "CRVAL": start, "CDELT": step, "CUNIT": unit}
    return Form(f"{name} in {unit} {sorted(cards)}", axes={"c": axis}, cards=cards)


def _forms() -> Iterator[Form]:
    for order in ("cyx", "cxy", "ycx", "xcy", "yxc", "xyc"):
        yield Form(f"order {order}", order=order, chunk_input="reference")
        yield Form(f"order {order}, int16 with BLANK", order=order, kind="i2", chunk_input="copy")
    for order in ("scyx", "csyx", "cysx", "cyxs", "yxcs", "ysxc"):
        yield Form(f"Stokes {order}", order=order, chunk_input="reference")
    for kind in ("f8", "u1", "i4", "i8"):
        yield Form(f"type {kind}", kind=kind, chunk_input="reference")
    yield Form("gzip", write=_gzipped)
    yield Form("gzip, int16", write=_gzipped, kind="i2", order="ycx")
    yield Form("tiles, GZIP_2", write=_tiles("GZIP_2"))
    yield Form("tiles, Rice, int16", write=_tiles("RICE_1"), kind="i2")
    yield Form("extension behind a table", write=_in_extension, chunk_input="reference")
    yield Form("extension, Stokes", write=_in_extension, order="csyx")
    yield Form("gzip, extension", write=_gzipped_extension)
    yield Form("Zarr", write=_zarr((16, 2, 4)), chunk_input="reference")
    yield Form("Zarr in shards", write=_zarr((16, 1, 2), (48, 3, 4)), chunk_input="copy")
    yield Form("Zarr, spectral axis first", order="yxc", write=_zarr((2, 2, 48)))
    cos, sin = np.cos(0.3), np.sin(0.3)
    no_step: dict[str, dict[str, Any]] = {axis: {"CDELT": None} for axis in "cxy"}
    turned = {"{x}_{x}": -cos, "{x}_{y}": sin, "{y}_{x}": sin, "{y}_{y}": cos}
    cd = {f"CD{name}": 0.006 * value for name, value in turned.items()}
    yield Form("CD, rotated", axes=no_step, cards=cd | {"CD{c}_{c}": 200.0})
    yield Form("CD, rotated, spectral axis first", order="yxc", axes=no_step, cards=cd | {"CD{c}_{c}": -200.0})
    yield Form("CD and CDELT", cards={"CD{x}_{x}": -0.006, "CD{y}_{y}": 0.006, "CD{c}_{c}": 250.0})
    yield Form("PC, rotated", cards={f"PC{name}": value for name, value in turned.items()} | {"PC{c}_{c}": 1.0})
    yield Form("PC with a factor", cards={"PC{c}_{c}": 0.5}, chunk_input="reference")
    yield Form("CROTA", cards={"CROTA{y}": 20.0})
    for projection in ("TAN", "SIN", "AIT"):
        x, y = {"CTYPE": f"RA---{projection}", "CRVAL": 83.8}, {"CTYPE": f"DEC--{projection}", "CRVAL": -5.4}
        yield Form(f"projection {projection}", axes={"x": x, "y": y}, cards={"RADESYS": "FK5", "EQUINOX": 2000.0})
    yield _spectral("VRAD", -5.0, 0.2, "km/s")
    yield _spectral("VRAD", -5e3, 200.0, None)
    yield _spectral("VOPT", 1e6, -2e3, "m/s")
    yield _spectral("VELO-LSR", -5e3, 200.0, "m/s")
    yield _spectral("FREQ", REST_HZ, -77e3, "Hz")
    yield _spectral("FREQ", REST_HZ, -77e3, "Hz", RESTFRQ=REST_HZ)
    yield _spectral("FREQ", REST_HZ, 77e3, None, RESTFREQ=REST_HZ)
    yield _spectral("FREQ", REST_HZ / 1e9, 77e-6, "GHz", RESTFRQ=REST_HZ, SPECSYS="LSRK")
    yield _spectral("WAVE", 500.0, 0.1, "nm")
    yield _spectral("AWAV", 6.5e-7, 1e-10, "m")
    yield _spectral("WAVN", 2e4, 5.0, None)
    yield _spectral("ENER", 1e-19, 1e-22, "J")
    yield _spectral("ZOPT", 0.1, 1e-4, None)
    yield _spectral("BETA", 0.01, 1e-4, None)
    yield _spectral("VOPT-F2W", 2e7, 2e5, "m/s", RESTWAV=LIGHT / REST_HZ)
    yield _spectral("VOPT-F2W", 2e4, 2e2, "km/s", RESTFRQ=REST_HZ)
    yield _spectral("VELO-F2V", 2e7, -2e5, "m/s", RESTFRQ=REST_HZ)
    yield _spectral("FREQ-LOG", REST_HZ, 1e8, "Hz")
    yield _spectral("WAVE-F2W", 2.6e-3, 1e-6, "m")
    yield Form("no CRPIX", axes={"c": {"CRPIX": None}})
    yield Form("no CRVAL", axes={"c": {"CRVAL": None}})
    yield Form("no CDELT", axes={"c": {"CDELT": None}})
    yield Form("strip along x", ny=1, chunk_input="reference")
    yield Form("strip along y", nx=1, chunk_input="reference")
    yield Form("strip without y", order="cx", ny=1, axes={"x": {"CTYPE": "GLON"}})
    yield Form("position-velocity", order="xc", ny=1, axes={"x": {"CTYPE": "OFFSET", "CUNIT": "arcsec"}})
    yield Form("velocity-position", order="cx", ny=1, axes={"x": {"CTYPE": "OFFSET", "CUNIT": "arcsec"}})
    yield Form("single spectrum", nx=1, ny=1)


FORMS = list(_forms())


def values_of(path: Path) -> tuple[NDArray[np.floating], fits.Header]:
    """The scaled values of a file and the header of its image, as astropy and zarr read them."""
    if path.suffix == ".zip":
        with zarr.storage.ZipStore(path, mode="r") as store:
            array = zarr.open_array(store, mode="r")
            return np.asarray(array[:]), fits.Header(dict(array.attrs))
    with warnings.catch_warnings(), fits.open(path) as units:
        warnings.simplefilter("ignore")
        unit = next(unit for unit in units if unit.is_image and unit.data is not None)
        return np.asarray(unit.data, dtype=np.float64), unit.header


def wcs_of(header: fits.Header) -> WCS:
    """astropy's coordinates of a header, on its own reading of older conventions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WCS(header)


def in_order(form: Form, values: NDArray[np.floating]) -> NDArray[np.floating]:
    """The values as (channel, y, x), where x has the lower number in the file of the axes with more than one pixel."""
    number = len(form.order) - 1 - form.order.index("c")
    rest = np.moveaxis(values, values.ndim - 1 - number, 0)
    long = [length for length in rest.shape[1:] if length > 1]
    return rest.reshape(CHANNELS, *[1] * (2 - len(long)), *long)


def every_file() -> Iterator[tuple[Form, Path]]:
    """Each form as a file, which exists until the next one is taken."""
    for form in FORMS:
        with tempfile.TemporaryDirectory() as folder:
            yield form, form.write(form, Path(folder))
