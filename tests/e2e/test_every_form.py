"""Cubes in seventy forms go from `submit` to `results`: their maps, tables and cubes are where astropy says."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from astropy import units
from astropy.io import fits
from astropy.wcs import WCS
from spectral_cube import SpectralCube

from prismline_cli import downloading, fits_results
from prismline_cli.finding import find_run
from prismline_client import Client
from tests.cube_forms import CHANNELS, FORMS, LIGHT, Form, in_order, values_of, wcs_of
from tests.system import System

pytestmark = pytest.mark.e2e


@pytest.mark.timeout(600)
def test_results_of_every_form_of_cube_agree_with_astropy(system: System, tmp_path: Path) -> None:
    runs = {}
    for number, form in enumerate(FORMS):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = form.write(form, folder)
        runs[form.name] = form, path, system.submit(path, chunk_size=7, chunk_input=form.chunk_input)
    n_read, wrong = 0, {}
    for name, (form, path, run_id) in runs.items():
        assert system.wait(run_id).status == "completed", name
        client, to = Client.open(), path.parent / "maps"
        fits_results.write_maps(client, find_run(client, run_id), to, cubes=True)
        assert not [left for left in to.iterdir() if left.suffix != ".fits"], name
        tables = downloading.download(client, run_id, path.parent / "tables")
        values, header = values_of(path)
        try:
            assert_results(form, values, header, to, tables)
            n_read += as_spectral_cube_reads_it(to / "model.fits", path)
        except AssertionError as error:
            wrong[name] = str(error)
    assert not wrong
    assert n_read > 30, "spectral-cube reads most of the cubes"


def assert_results(form: Form, values: np.ndarray, header: fits.Header, to: Path, tables: list[Path]) -> None:
    """Values, sky and spectral coordinates of the files are those that astropy finds in the cube."""
    found = {path.stem: fits.open(path)[0] for path in to.iterdir()}
    expected = in_order(form, values)
    model, residual = found["model"], found["residual"]
    np.testing.assert_allclose((model.data + residual.data), expected, atol=1e-4)
    assert np.nanstd(residual.data) < 0.5
    assert {unit.header["BUNIT"] for unit in (model, residual)} == {"K"}

    whole, number = wcs_of(header), len(form.order) - form.order.index("c")
    axis, channels = whole.sub([number]), np.arange(CHANNELS, dtype=float)[:, None]
    ours = wcs_of(model.header).sub([3])
    np.testing.assert_allclose(
        ours.wcs_pix2world(channels, 0), axis.wcs_pix2world(channels, 0), rtol=1e-12, atol=1e-9, err_msg="model"
    )
    assert ours.wcs.cunit[0] == axis.wcs.cunit[0]
    if whole.has_celestial:
        for unit in (model, found["velocity"]):
            assert_sky(form, whole.celestial, wcs_of(unit.header).celestial, found["velocity"].data.shape)
    own = units.Unit(header.get(f"CUNIT{number}", axis.wcs.cunit[0]))
    assert_components(axis, own, header.get("RESTFRQ", header.get("RESTFREQ")), found, tables)


def assert_sky(form: Form, theirs: WCS, ours: WCS, shape: tuple[int, int]) -> None:
    """Every pixel of a map has the coordinates that astropy gives it in the cube."""
    y, x = (index.ravel().astype(float) for index in np.indices(shape))
    first, second = ({"x": form.nx, "y": form.ny}[letter] for letter in reversed(form.order) if letter in "xy")
    theirs_at = (y, x) if first == 1 < second else (x, y)  # the first long axis of the cube is x of the map
    own = theirs.wcs_pix2world(np.stack(theirs_at, axis=1), 0)
    other = ours.wcs_pix2world(np.stack((x, y), axis=1), 0)
    np.testing.assert_allclose(other[:, ours.wcs.lng], own[:, theirs.wcs.lng], rtol=0, atol=1e-10)
    np.testing.assert_allclose(other[:, ours.wcs.lat], own[:, theirs.wcs.lat], rtol=0, atol=1e-10)


def assert_components(
    axis: WCS, own: units.Unit, rest: float | None, found: dict[str, fits.PrimaryHDU], tables: list[Path]
) -> None:
    """Centres and widths, in the tables and in the maps, are those of astropy at the fitted channels."""
    si, shown = units.Unit(axis.wcs.cunit[0]), units.Unit(found["velocity"].header.get("BUNIT", ""))
    rows = [row for path in tables for row in pq.read_table(path).to_pylist() if row["component_means"]]
    assert rows
    for row in rows:
        means = np.array(row["component_means"])[:, None]
        at = axis.wcs_pix2world(means, 0)[:, 0] * si
        channel = np.abs(axis.wcs_pix2world(means + 0.5, 0) - axis.wcs_pix2world(means - 0.5, 0))[:, 0] * si
        width = np.array(row["component_stddevs"]) * channel
        np.testing.assert_allclose(row["component_means_physical"], at.to_value(own), rtol=1e-11)
        np.testing.assert_allclose(row["component_stddevs_physical"], width.to_value(own), rtol=1e-6)
        if axis.wcs.ctype[0] == "FREQ" and rest is not None:
            convention = units.doppler_radio(rest * units.Hz)
            at, width = at.to("m/s", convention), width / (rest * units.Hz) * LIGHT * units.Unit("m/s")
        strongest, pixel = int(np.argmax(row["component_amplitudes"])), (row["y"], row["x"])
        assert found["velocity"].data[pixel] == pytest.approx(at[strongest].to_value(shown), rel=1e-6, abs=1e-5)
        assert found["width"].data[pixel] == pytest.approx(width[strongest].to_value(shown), rel=1e-5)


def as_spectral_cube_reads_it(model: Path, cube: Path) -> bool:
    """Whether spectral-cube reads the model; if it also reads the cube, both have the same axis there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = SpectralCube.read(str(cube), format="fits")
        except Exception:  # spectral-cube reads fewer forms
            return False
        ours = SpectralCube.read(str(model))
    np.testing.assert_allclose(
        ours.spectral_axis.to_value(theirs.spectral_axis.unit), theirs.spectral_axis.value, rtol=1e-9
    )
    np.testing.assert_allclose(ours.world[0][1].value, theirs.world[0][1].value, atol=1e-9)
    np.testing.assert_allclose(ours.world[0][2].value, theirs.world[0][2].value, atol=1e-9)
    return True
