"""A run with a baseline: from a generated cube to tables, maps, model, residual and picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from prismline_cli import decomposition_picture, fits_maps
from prismline_contracts.decomposition import BASELINE_COLUMNS
from prismline_contracts.manifest import SpectraManifest
from prismline_contracts.objects import CubeGeometry, geometry_key
from prismline_gaussline import evaluate, kernel_available
from prismline_gaussline.synthetic import NOISE_K, broad_lines
from tests.cubes import header
from tests.workload_kit import RUN_ID, Kit

pytestmark = pytest.mark.skipif(not kernel_available(), reason="a baseline needs gaussline's kernel")

NY, NX, CHANNELS = 8, 9, 424
WORKER = {"deadline_margin_seconds": 1.0, "spectrum_budget_seconds": 60.0}


def truth() -> np.ndarray:
    """Offset and slope of each pixel, (ny * nx, 2)."""
    rng = np.random.default_rng(7)
    return np.stack((rng.normal(0, 10 * NOISE_K, NY * NX), rng.normal(0, 0.03 * NOISE_K, NY * NX)), axis=1)


def spectra() -> np.ndarray:
    """Spectra (ny * nx, channels) with one line each; one is blank."""
    values = broad_lines(NY * NX, 7, 5.0, 25.0)[1] + truth() @ np.stack((np.ones(CHANNELS), np.arange(CHANNELS)))
    values[40] = np.nan
    return values.astype(np.float32)


def work_off(folder: Path, **params: Any) -> tuple[pa.Table, CubeGeometry]:
    kit, body = Kit(folder), io.BytesIO()
    fits.PrimaryHDU(spectra().T.reshape(CHANNELS, NY, NX), header()).writeto(body)
    kit.put("cubes/c.fits", body.getvalue())
    manifest = {"workload": "spectra", "survey": "s", "cube_key": "cubes/c.fits", "chunk_size": 36, "params": params}
    worked = kit.run(manifest, **WORKER)
    for number, chunk in enumerate(worked):
        (folder / f"{number}.parquet").write_bytes(chunk.output)
    tables = [pq.read_table(io.BytesIO(chunk.output)) for chunk in worked]
    return pa.concat_tables(tables), CubeGeometry.model_validate_json(kit.bucket.read(geometry_key(RUN_ID)))


@pytest.mark.parametrize("second_pass", [None, True])
def test_table_maps_model_and_picture_have_the_baseline(tmp_path: Path, second_pass: bool | None) -> None:
    table, geometry = work_off(tmp_path, baseline_order=1, second_pass=second_pass)
    assert geometry.noise_correlation is None
    seen = np.arange(NY * NX) != 40
    assert np.median(np.array(table["n_components"])[seen]) == 1
    for power, name in enumerate(BASELINE_COLUMNS[:2]):
        values = np.array(table[name].to_pylist(), dtype=float)
        assert np.isnan(values[40])
        error = np.abs(values - truth()[:, power])[seen] * CHANNELS**power
        assert np.median(error) < 0.3 * NOISE_K
    assert table["baseline_2"].null_count == table["baseline_3"].null_count == NY * NX
    left = spectra() - evaluate(table, CHANNELS)
    assert np.nanstd(left) == pytest.approx(NOISE_K, rel=0.05)

    values = spectra().T.reshape(CHANNELS, NY, NX)
    paths = fits_maps.write(
        sorted(tmp_path.glob("*.parquet")), geometry, fits.Header(), tmp_path / "maps", cubes=True,
        spectra=lambda pixels: {(x, y): values[:, y, x] for x, y in pixels},
    )  # fmt: skip
    found = {path.stem: fits.getdata(path) for path in paths}
    assert {name for name in found if name.startswith("baseline")} == {"baseline_0", "baseline_1"}
    assert fits.getheader(tmp_path / "maps" / "baseline_1.fits")["BUNIT"] == "K channel^-1"
    np.testing.assert_allclose(found["baseline_0"].ravel()[seen], np.array(table["baseline_0"])[seen], rtol=1e-6)
    np.testing.assert_allclose(found["residual"].reshape(CHANNELS, -1).T[seen], left[seen], atol=1e-5)
    drawn = decomposition_picture.spectrum_at(table, (3, 2), spectra()[2 * NX + 3])
    at = np.arange(CHANNELS, dtype=float)
    assert np.abs(drawn.baseline_at(at) - truth()[2 * NX + 3] @ np.stack((np.ones(CHANNELS), at))).max() < NOISE_K


def test_a_run_without_a_baseline_has_null_columns_and_no_maps_of_it(tmp_path: Path) -> None:
    table, geometry = work_off(tmp_path, correlation="white")
    assert all(table[name].null_count == NY * NX for name in BASELINE_COLUMNS)
    paths = fits_maps.write(sorted(tmp_path.glob("*.parquet")), geometry, fits.Header(), tmp_path / "maps")
    assert not [path for path in paths if path.stem.startswith("baseline")]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"baseline_order": 4}, "less than or equal to 3"),
        ({"baseline_order": -1}, "greater than or equal to 0"),
        ({"baseline_order": 1, "decomposer": "phspectra"}, "by gaussline only"),
        ({"baseline_order": 1, "line": "hcn_1-0"}, "without a line"),
    ],
)
def test_what_does_not_go_with_a_baseline_is_refused_with_the_manifest(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpectraManifest.model_validate({"survey": "s", "cube_key": "k", "params": params})
