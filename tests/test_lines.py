"""A run with a line: from a generated cube to tables, maps, model and residual."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from prismline_cli import fits_maps
from prismline_contracts.manifest import FitParams, GivenFitParams
from prismline_contracts.objects import CubeGeometry, geometry_key
from prismline_gaussline import evaluate, kernel_available
from prismline_gaussline.hyperfine import GROUPS
from prismline_runtime import PermanentError
from tests.workload_kit import RUN_ID, Kit

pytestmark = pytest.mark.skipif(not kernel_available(), reason="lines need gaussline's kernel")

ROOT = Path(__file__).resolve().parents[1]
NY, NX, CHANNELS, NOISE, STEP = 4, 5, 300, 0.2, 0.15
GROUP = GROUPS["n2h+_1-0"]
#: Speed of light in km/s.
LIGHT = 299_792.458
VELOCITY = {"CTYPE3": "VRAD", "CUNIT3": "m/s", "CRVAL3": -20_000.0, "CRPIX3": 1.0, "CDELT3": 1000 * STEP, "BUNIT": "K"}
#: The same velocities as frequencies of the line.
FREQUENCY = {
    "CTYPE3": "FREQ", "CUNIT3": "Hz", "CRPIX3": 1.0, "BUNIT": "K",
    "CRVAL3": GROUP.rest_frequency * (1 + 20.0 / LIGHT), "CDELT3": -GROUP.rest_frequency * STEP / LIGHT,
}  # fmt: skip
WORKER = {"deadline_margin_seconds": 1.0, "spectrum_budget_seconds": 60.0}


def truth() -> np.ndarray:
    """Amplitude, velocity and width (km/s) of each pixel, (ny * nx, 3)."""
    rng = np.random.default_rng(4)
    n = NY * NX
    return np.stack((rng.uniform(8, 15, n), rng.uniform(-2, 6, n), rng.uniform(0.3, 0.6, n)), axis=1)


def clean_spectra(depth: float | None = None) -> np.ndarray:
    """The spectra of the pixels without noise. depth: the optical depth of each component; None: they are thin."""
    amplitude, velocity, width = (column[:, None, None] for column in truth().T)
    at = (-20.0 + STEP * np.arange(CHANNELS))[:, None]
    lines = np.array(GROUP.weights) * np.exp(-0.5 * ((at - velocity - np.array(GROUP.offsets)) / width) ** 2)
    profile = lines.sum(axis=2)
    return amplitude[:, 0] * (profile if depth is None else -np.expm1(-depth * profile) / depth)


def cube_body(depth: float | None = None, **cards: Any) -> bytes:
    data = clean_spectra(depth) + np.random.default_rng(5).normal(0, NOISE, (NY * NX, CHANNELS))
    body = io.BytesIO()
    data = data.T.reshape(CHANNELS, NY, NX)
    fits.PrimaryHDU(data.astype(np.float32), fits.Header(cards)).writeto(body)
    return body.getvalue()


def work_off(
    folder: Path, chunk_input: str, params: dict[str, Any], depth: float | None = None, **cards: Any
) -> tuple[pa.Table, CubeGeometry]:
    folder.mkdir()
    kit = Kit(folder)
    kit.put("cubes/c.fits", cube_body(depth, **cards))
    manifest = {"workload": "spectra", "survey": "s", "cube_key": "cubes/c.fits", "chunk_input": chunk_input}
    worked = kit.run({**manifest, "chunk_size": 7, "params": params}, **WORKER)
    for number, chunk in enumerate(worked):
        (folder / f"{number}.parquet").write_bytes(chunk.output)
    tables = [pq.read_table(io.BytesIO(chunk.output)) for chunk in worked]
    return pa.concat_tables(tables), CubeGeometry.model_validate_json(kit.bucket.read(geometry_key(RUN_ID)))


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
@pytest.mark.parametrize(
    ("cards", "params"),
    [
        (VELOCITY, {"line": "n2h+_1-0"}),
        (VELOCITY, {"line": {"offsets": list(GROUP.offsets), "weights": [3, 3, 7, 5, 3, 5, 1]}}),
        (FREQUENCY, {"line": "n2h+_1-0", "rest_frequency": GROUP.rest_frequency}),
        ({**FREQUENCY, "RESTFRQ": GROUP.rest_frequency}, {"line": "n2h+_1-0"}),
    ],
    ids=["name", "table", "rest frequency given", "rest frequency of the header"],
)
def test_each_spectrum_has_one_component_with_the_true_velocity_in_table_and_maps(
    tmp_path: Path, chunk_input: str, cards: dict[str, Any], params: dict[str, Any]
) -> None:
    table, geometry = work_off(tmp_path / "run", chunk_input, params, **cards)
    assert table["n_components"].to_pylist() == [1] * NY * NX
    assert set(table["decomposer"].to_pylist()) == {"hyperfine"}
    assert json.loads(table.schema.metadata[b"prismline.params"])["line"] == params["line"]

    outputs = sorted((tmp_path / "run").glob("*.parquet"))
    values = fits.getdata(io.BytesIO(cube_body(**cards)))
    paths = fits_maps.write(
        outputs, geometry, fits.Header(), tmp_path / "maps", cubes=True,
        spectra=lambda pixels: {(x, y): values[:, y, x] for x, y in pixels},
    )  # fmt: skip
    found = {path.stem: fits.getdata(path) for path in paths}
    assert fits.getheader(tmp_path / "maps" / "velocity.fits")["BUNIT"] == "km/s"
    for column, name in ((1, "velocity"), (2, "width")):
        pulls = (found[name].ravel() - truth()[:, column]) / found[f"component_{name}_error"][0].ravel()
        assert np.abs(pulls).max() < 4.5
        assert 0.5 < pulls.std() < 1.7
    area = np.sqrt(2 * np.pi) * truth()[:, 0] * truth()[:, 2]
    np.testing.assert_allclose(found["integrated"].ravel(), area, rtol=0.1)
    assert found["residual"].std() == pytest.approx(NOISE, rel=0.05)
    assert geometry.line is not None
    model = evaluate(table, CHANNELS, lines=(geometry.line.offsets, geometry.line.weights))
    np.testing.assert_allclose(model.T.reshape(CHANNELS, NY, NX), found["model"], atol=1e-4)


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
def test_components_with_an_optical_depth_go_into_table_maps_model_and_residual(
    tmp_path: Path, chunk_input: str
) -> None:
    depth, params = 6.0, {"line": "n2h+_1-0", "optical_depth": True, "correlation": "white"}
    table, geometry = work_off(tmp_path / "run", chunk_input, params, depth, **VELOCITY)
    assert table["n_components"].to_pylist() == [1] * NY * NX
    values = fits.getdata(io.BytesIO(cube_body(depth, **VELOCITY)))
    outputs = sorted((tmp_path / "run").glob("*.parquet"))
    paths = fits_maps.write(
        outputs, geometry, fits.Header(), tmp_path / "maps", cubes=True,
        spectra=lambda pixels: {(x, y): values[:, y, x] for x, y in pixels},
    )  # fmt: skip
    found = {path.stem: fits.getdata(path) for path in paths}
    depths, errors = found["component_optical_depth"][0].ravel(), found["component_optical_depth_error"][0].ravel()
    assert np.concatenate(table["component_optical_depths"].to_pylist()) == pytest.approx(depths, rel=1e-6)
    pulls = (depths - depth) / errors
    assert abs(pulls.mean()) < 1.0
    assert 0.5 < pulls.std() < 1.7
    velocities = (found["velocity"].ravel() - truth()[:, 1]) / found["component_velocity_error"][0].ravel()
    assert np.abs(velocities).max() < 4.5
    np.testing.assert_allclose(found["integrated"].ravel(), clean_spectra(depth).sum(axis=1) * STEP, rtol=0.1)
    assert found["residual"].std() == pytest.approx(NOISE, rel=0.05)
    assert geometry.line is not None
    model = evaluate(table, CHANNELS, lines=(geometry.line.offsets, geometry.line.weights))
    np.testing.assert_allclose(model.T.reshape(CHANNELS, NY, NX), found["model"], atol=1e-4)


def test_a_run_without_an_optical_depth_has_no_map_of_it(tmp_path: Path) -> None:
    table, geometry = work_off(tmp_path / "run", "copy", {"line": "n2h+_1-0"}, **VELOCITY)
    assert table["component_optical_depths"].null_count == len(table)
    paths = fits_maps.write(sorted((tmp_path / "run").glob("*.parquet")), geometry, fits.Header(), tmp_path / "maps")
    assert not [path.stem for path in paths if "depth" in path.stem]


def test_an_optical_depth_without_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="an optical depth is fitted to lines that belong together: give a line too"):
        GivenFitParams(optical_depth=True)


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
@pytest.mark.parametrize(
    ("cards", "message"),
    [
        (FREQUENCY, "its header has no rest frequency; give the rest frequency of the line"),
        ({**VELOCITY, "CTYPE3": "WAVE", "CUNIT3": "m"}, "WAVE in m gives no velocities"),
        ({**VELOCITY, "CTYPE3": "VOPT-F2W", "RESTWAV": 0.003}, "VOPT-F2W has no constant step"),
        ({**VELOCITY, "CDELT3": 1e-310}, "lie too many channels apart"),
    ],
)
def test_an_axis_that_gives_no_velocities_fails_the_split_with_the_reason(
    tmp_path: Path, chunk_input: str, cards: dict[str, Any], message: str
) -> None:
    with pytest.raises(PermanentError, match=f"The cube cubes/c.fits cannot be split: .*{message}"):
        work_off(tmp_path / "run", chunk_input, {"line": "n2h+_1-0"}, **cards)


def test_a_chunk_that_takes_a_worker_too_long_is_refused_with_a_size_that_does_not(tmp_path: Path) -> None:
    kit, body = Kit(tmp_path), io.BytesIO()
    axis = {"CTYPE1": "VRAD", "CUNIT1": "m/s", "CRVAL1": 0.0, "CRPIX1": 1.0, "CDELT1": 100.0}
    fits.PrimaryHDU(np.zeros((80, 80, 4096), np.uint8), fits.Header(axis)).writeto(body)
    kit.put("cubes/c.fits", body.getvalue())
    manifest = {"workload": "spectra", "survey": "s", "cube_key": "cubes/c.fits", "params": {"line": "hcn_1-0"}}
    with pytest.raises(PermanentError, match=r"choose a chunk size of at most [\d,]+\."):
        kit.run({**manifest, "chunk_size": 1_000_000}, **WORKER)


def test_no_reader_of_the_last_release_accepts_the_parameters_of_a_run_with_a_line() -> None:
    """It would ignore the line, and fit Gaussians."""
    given = GivenFitParams(line="n2h+_1-0").model_dump(exclude_unset=True)
    for name in ("manifest.v1", "spectra.refit.v1"):
        released = json.loads((ROOT / "contracts" / "released" / f"{name}.json").read_text())
        (key,) = [name for name in released["$defs"] if name.endswith("FitParams")]
        reader = {"$defs": released["$defs"], "$ref": f"#/$defs/{key}"}
        reader["$defs"][key].pop("additionalProperties", None)  # as a reader that ignores what it does not know
        jsonschema.validate(FitParams(beta=4.0).model_dump(exclude_unset=True), reader)
        with pytest.raises(jsonschema.ValidationError, match="hyperfine"):
            jsonschema.validate(given, reader)
