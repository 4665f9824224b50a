"""`prismline submit --line`, `--optical-depth` and `--second-pass`, from the command to tables, maps and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from prismline_gaussline import evaluate, kernel_available
from prismline_gaussline.hyperfine import GROUPS
from tests.system import System

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not kernel_available(), reason="lines and second passes need gaussline's kernel"),
]

NX, NY, CHANNELS, NOISE, STEP, DEPTH = 5, 4, 300, 0.15, 0.15, 5.0
GROUP = GROUPS["n2h+_1-0"]
AXIS = {"CTYPE3": "VRAD", "CUNIT3": "km/s", "CRVAL3": -20.0, "CRPIX3": 1.0, "CDELT3": STEP, "BUNIT": "K"}
SKY = {
    "CTYPE1": "GLON-CAR", "CRVAL1": 49.2, "CRPIX1": 2.0, "CDELT1": -0.006, "CUNIT1": "deg",
    "CTYPE2": "GLAT-CAR", "CRVAL2": 0.0, "CRPIX2": 1.0, "CDELT2": 0.006, "CUNIT2": "deg",
}  # fmt: skip
#: Velocity of each pixel, km/s, (ny, nx).
VELOCITIES = np.linspace(-2.0, 4.0, NY * NX).reshape(NY, NX)


def write_cube(path: Path, spectra: np.ndarray) -> None:
    """A FITS cube of these spectra (ny, nx, channels) with noise."""
    noise = np.random.default_rng(8).normal(0.0, NOISE, spectra.shape)
    values = (spectra + noise).transpose(2, 0, 1).astype(np.float32)
    fits.PrimaryHDU(values, fits.Header({**SKY, **AXIS})).writeto(path)


def lines(depth: float | None) -> np.ndarray:
    """Spectra (ny, nx, channels) with one N2H+ component in each: amplitude 12, width 0.4 km/s."""
    at = (-20.0 + STEP * np.arange(CHANNELS))[:, None]
    each = np.exp(-0.5 * ((at - VELOCITIES[..., None, None] - np.array(GROUP.offsets)) / 0.4) ** 2)
    profile = (each * np.array(GROUP.weights)).sum(axis=3)
    return 12.0 * (profile if depth is None else -np.expm1(-depth * profile) / depth)


def two_components() -> np.ndarray:
    """Spectra with two blended Gaussians, the same in neighbouring pixels but for the noise."""
    at = -20.0 + STEP * np.arange(CHANNELS)
    first = np.exp(-0.5 * ((at - VELOCITIES[..., None]) / 1.0) ** 2)
    second = np.exp(-0.5 * ((at - VELOCITIES[..., None] - 2.2) / 0.8) ** 2)
    return 1.2 * first + 0.8 * second


def submitted(system: System, path: Path, spectra: np.ndarray, *options: str) -> str:
    write_cube(path, spectra)
    command = ("submit", str(path), "--survey", "lines", "--correlation", "white", *options, "--json")
    return str(json.loads(system.cli(*command))["run_id"])


def table_of(system: System, run_id: str, folder: Path) -> pa.Table:
    assert system.wait(run_id).status == "completed"
    system.cli("results", run_id, "--to", str(folder))
    tables = [pq.read_table(path) for path in sorted(folder.rglob("*.parquet"))]
    return pa.concat_tables(tables).sort_by([("y", "ascending"), ("x", "ascending")])


def test_a_submitted_cube_has_lines_and_optical_depths_in_tables_maps_and_pictures(
    system: System, tmp_path: Path
) -> None:
    thin_run = submitted(system, tmp_path / "thin.fits", lines(None), "--line", "n2h+_1-0")
    thick_run = submitted(system, tmp_path / "thick.fits", lines(DEPTH), "--line", "n2h+_1-0", "--optical-depth")
    thin, thick = (table_of(system, run, tmp_path / run) for run in (thin_run, thick_run))
    for table in (thin, thick):
        assert table["n_components"].to_pylist() == [1] * NY * NX
        means = np.concatenate(table["component_means_physical"].to_pylist())
        errors = np.concatenate(table["component_mean_errors_physical"].to_pylist())
        assert np.abs((means - VELOCITIES.ravel()) / errors).max() < 4.5
    assert thin["component_optical_depths"].null_count == NY * NX

    maps = tmp_path / "maps"
    system.cli("results", thick_run, "--to", str(maps), "--format", "fits", "--cubes")
    found = {path.stem: fits.getdata(path) for path in maps.glob("*.fits")}
    pulls = (found["component_optical_depth"][0] - DEPTH) / found["component_optical_depth_error"][0]
    assert np.abs(pulls).max() < 4.5
    assert found["residual"].std() == pytest.approx(NOISE, rel=0.1)
    profile = json.loads(thick.schema.metadata[b"prismline.geometry"])["line"]
    model = evaluate(thick, CHANNELS, lines=(profile["offsets"], profile["weights"]))
    np.testing.assert_allclose(model.T.reshape(CHANNELS, NY, NX), found["model"], atol=1e-4)

    for name, more in (("maps", []), ("pixel", ["--x", "1", "--y", "2"]), ("noise", ["--diagnostics"])):
        system.cli("plot", thick_run, "--to", str(tmp_path / f"{name}.png"), *more)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    picture = str(tmp_path / "compared.png")
    compared = json.loads(system.cli("compare", thin_run, thick_run, "--to", picture, "--json"))
    assert compared["pixels"]["compared"] == NY * NX
    assert compared["pixels"]["identical"] == 0


def test_a_submitted_cube_has_a_second_pass_in_its_results(system: System, tmp_path: Path) -> None:
    once_run = submitted(system, tmp_path / "once.fits", two_components())
    twice_run = submitted(system, tmp_path / "twice.fits", two_components(), "--second-pass")
    wrong = []
    for run in (once_run, twice_run):
        table = table_of(system, run, tmp_path / run)
        wrong.append(int((np.array(table["n_components"].to_pylist()) != 2).sum()))
    assert json.loads(table.schema.metadata[b"prismline.params"])["second_pass"] is True
    assert wrong[1] <= wrong[0]
