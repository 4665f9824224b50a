"""The FITS files of `prismline results` lie on the cube's own coordinates, whatever the form of the cube's file."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from astropy.io import fits
from astropy.wcs import WCS

from tests.cubes import header, spectra
from tests.system import System

pytestmark = pytest.mark.e2e

NX, NY, CHANNELS = 5, 4, 60
SKY = {
    "CRVAL1": 49.2, "CRPIX1": 2.0, "CDELT1": -0.006, "CUNIT1": "deg",
    "CRVAL2": -0.2, "CRPIX2": 3.0, "CDELT2": 0.006, "CUNIT2": "deg",
    "TELESCOP": "a telescope", "BMAJ": 0.01,
}  # fmt: skip


def cube(order: str = "cyx", *, nx: int = NX, ny: int = NY, stored: type = np.float32) -> fits.PrimaryHDU:
    """A cube whose axes are stored in this order, the slowest first; `s` is an empty Stokes axis."""
    values = spectra(ny, nx, CHANNELS)
    turned = fits.Header()
    numbers = {"x": 1, "y": 2, "c": 3}
    base = header(**SKY)
    for number, axis in enumerate(reversed(order), start=1):
        if axis == "s":
            turned[f"CTYPE{number}"] = "STOKES"
            continue
        for name in ("CTYPE", "CRVAL", "CRPIX", "CDELT", "CUNIT"):
            if f"{name}{numbers[axis]}" in base:
                turned[f"{name}{number}"] = base[f"{name}{numbers[axis]}"]
    for name in ("BUNIT", "TELESCOP", "BMAJ"):
        turned[name] = base[name]
    axes = [axis for axis in order if axis != "s"]
    data = values.transpose(["cyx".index(axis) for axis in axes])
    for place, axis in enumerate(order):
        if axis == "s":
            data = np.expand_dims(data, place)
    if stored is np.int16:
        data = np.round(data / 0.001).astype(np.int16)
    unit = fits.PrimaryHDU(data, turned)
    if stored is np.int16:
        unit.header["BSCALE"], unit.header["BZERO"] = 0.001, 0.0
    return unit


def as_bytes(*units: fits.hdu.base.ExtensionHDU) -> bytes:
    body = io.BytesIO()
    fits.HDUList(list(units)).writeto(body)
    return body.getvalue()


def in_an_extension() -> bytes:
    whole = cube()
    return as_bytes(fits.PrimaryHDU(), fits.ImageHDU(whole.data, whole.header))


def in_tiles() -> bytes:
    whole = cube()
    return as_bytes(fits.PrimaryHDU(), fits.CompImageHDU(whole.data, whole.header, compression_type="GZIP_2"))


#: Name of the file, its bytes, and the input of its chunks.
FORMS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "plain": ("cube.fits", lambda: as_bytes(cube()), "reference"),
    "gzip": ("cube.fits.gz", lambda: gzip.compress(as_bytes(cube())), "auto"),
    "tiles": ("cube.fits.fz", in_tiles, "auto"),
    "extension": ("extension.fits", in_an_extension, "reference"),
    "stokes between": ("stokes.fits", lambda: as_bytes(cube("csyx")), "reference"),
    "spectral first": ("spectral.fits", lambda: as_bytes(cube("yxc")), "copy"),
    "spectral between": ("middle.fits", lambda: as_bytes(cube("ycx")), "reference"),
    "transposed": ("transposed.fits", lambda: as_bytes(cube("cxy")), "reference"),
    "strip": ("strip.fits", lambda: as_bytes(cube(ny=1)), "reference"),
    "integers": ("integers.fits", lambda: as_bytes(cube(stored=np.int16)), "reference"),
}


def test_maps_and_residuals_fit_the_cube_in_every_form_of_its_file(system: System, tmp_path: Path) -> None:
    runs = {}
    for form, (name, body, chunk_input) in FORMS.items():
        path = tmp_path / form / name
        path.parent.mkdir()
        path.write_bytes(body())
        runs[form] = system.submit(path, chunk_size=7, chunk_input=chunk_input)
    for form, run_id in runs.items():
        assert system.wait(run_id).status == "completed", form
        to = tmp_path / form / "maps"
        system.cli("results", run_id, "--to", str(to), "--format", "fits", "--cubes")
        assert_fits(to, cube(ny=1) if form == "strip" else cube("cxy" if form == "transposed" else "cyx"), form)


def assert_fits(folder: Path, expected: fits.PrimaryHDU, form: str) -> None:
    """The files have the coordinates of `expected`, and model and residual add up to its values."""
    found = {path.stem: fits.open(path)[0] for path in folder.iterdir()}
    model, residual = found["model"], found["residual"]
    np.testing.assert_allclose(model.data + residual.data, expected.data, atol=1e-3, err_msg=form)
    assert np.std(residual.data) < 0.5, f"{form}: the model does not describe the cube"
    corner = [[expected.data.shape[2] - 1, expected.data.shape[1] - 1]]
    theirs = WCS(expected.header).celestial.wcs_pix2world(corner, 0)[0]
    for name in ("velocity", "model"):
        sky = WCS(found[name].header).celestial
        ours = sky.wcs_pix2world(corner, 0)[0]
        np.testing.assert_allclose([ours[sky.wcs.lng], ours[sky.wcs.lat]], [max(theirs), min(theirs)], err_msg=form)
        assert found[name].header["TELESCOP"] == "a telescope", form
    last = [*corner[0], CHANNELS - 1]
    assert WCS(model.header).wcs_pix2world([last], 0)[0, 2] == pytest.approx(-5000.0 + 200.0 * (CHANNELS - 1)), form
    strongest = np.argmax(model.data, axis=0)
    seen = np.isfinite(found["velocity"].data)
    np.testing.assert_allclose(found["velocity"].data[seen], -5.0 + 0.2 * strongest[seen], atol=0.11, err_msg=form)


def test_a_cube_of_zarr_has_maps_on_its_coordinates(system: System, tmp_path: Path) -> None:
    whole = cube()
    path = tmp_path / "cube.zarr.zip"
    with zarr.storage.ZipStore(path, mode="w") as store:
        cards = {name: whole.header[name] for name in whole.header if name not in {"SIMPLE", "EXTEND"}}
        array = zarr.create_array(store, shape=whole.data.shape, chunks=(30, 2, 5), dtype="f4", attributes=cards)
        array[:] = whole.data
    run_id = system.submit(path, chunk_size=7)
    assert system.wait(run_id).status == "completed"
    system.cli("results", run_id, "--to", str(tmp_path / "maps"), "--format", "fits", "--cubes")
    found = {path.stem: fits.open(path)[0] for path in (tmp_path / "maps").iterdir()}
    np.testing.assert_allclose(found["model"].data + found["residual"].data, whole.data, atol=1e-3)
    ours, theirs = WCS(found["velocity"].header), WCS(whole.header).celestial
    np.testing.assert_allclose(ours.wcs_pix2world([[4, 3]], 0), theirs.wcs_pix2world([[4, 3]], 0))


def test_a_cube_in_frequency_has_maps_in_velocity(system: System, tmp_path: Path) -> None:
    whole, rest, step = cube(), 115.2712018e9, -77e3
    whole.header.update({"CTYPE3": "FREQ", "CRVAL3": rest, "CDELT3": step, "CUNIT3": "Hz", "RESTFRQ": rest})
    path = tmp_path / "cube.fits"
    whole.writeto(path)
    run_id = system.submit(path, chunk_size=10)
    assert system.wait(run_id).status == "completed"
    system.cli("results", run_id, "--to", str(tmp_path / "maps"), "--format", "fits", "--cubes")
    found = {path.stem: fits.open(path)[0] for path in (tmp_path / "maps").iterdir()}
    assert (found["velocity"].header["BUNIT"], found["integrated"].header["BUNIT"]) == ("km/s", "K km/s")
    strongest = np.argmax(found["model"].data, axis=0)
    expected = 299_792.458 * -step * strongest / rest
    np.testing.assert_allclose(found["velocity"].data, expected, atol=0.11)
    assert WCS(found["model"].header).wcs_pix2world([[0, 0, 10]], 0)[0, 2] == pytest.approx(rest + 10 * step)
