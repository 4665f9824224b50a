"""A run with a second pass gives what gaussline gives for the whole cube, however it is cut into chunks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from prismline_contracts.manifest import SpectraManifest
from prismline_gaussline import decompose, kernel_available, refit_from_neighbours
from prismline_gaussline.synthetic import make_cube
from prismline_runtime import PermanentError
from prismline_splitter.chunking import SECOND_PASS_ROWS, most_spectra_in_time, with_enough_rows
from tests.cubes import header
from tests.workload_kit import Kit

pytestmark = pytest.mark.skipif(not kernel_available(), reason="a second pass needs gaussline's kernel")

NY, NX = 12, 11
WORKER = {"deadline_margin_seconds": 1.0, "spectrum_budget_seconds": 60.0}


def image() -> np.ndarray:
    """Spectra (ny * nx, channels) of smooth clouds; one is blank."""
    spectra = make_cube((NY, NX), 11)[0].astype(np.float32)
    spectra[37] = np.nan
    return spectra


def work_off(folder: Path, spectra: np.ndarray, **fields: Any) -> pa.Table:
    folder.mkdir()
    kit, body = Kit(folder), io.BytesIO()
    fits.PrimaryHDU(spectra.T.reshape(-1, NY, NX), header()).writeto(body)
    kit.put("cubes/c.fits", body.getvalue())
    kit.put("noise/map", noise_map())
    worked = kit.run({"workload": "spectra", "survey": "s", "cube_key": "cubes/c.fits", **fields}, **WORKER)
    return pa.concat_tables([pq.read_table(io.BytesIO(chunk.output)) for chunk in worked])


def noise_map() -> bytes:
    body = io.BytesIO()
    fits.PrimaryHDU(np.linspace(0.2, 0.3, NY * NX).reshape(NY, NX)).writeto(body)
    return body.getvalue()


@pytest.mark.parametrize("chunk_size", [17, 132])
@pytest.mark.parametrize("given", [{}, {"noise": "noise/map"}])
def test_each_spectrum_gets_what_it_gets_in_the_whole_cube(
    tmp_path: Path, chunk_size: int, given: dict[str, Any]
) -> None:
    spectra = image()
    params = {"second_pass": True, "correlation": "white", **given}
    table = work_off(tmp_path / "run", spectra, chunk_size=chunk_size, params=params)
    noise = np.linspace(0.2, 0.3, NY * NX)[:, None] if given else None
    first = decompose(spectra, noise=noise, correlation="white")
    whole = refit_from_neighbours(spectra, first, (NY, NX), noise=noise, correlation="white")
    assert not np.array_equal(whole.n_components, first.n_components)
    assert table["n_components"].to_pylist() == whole.n_components.tolist()
    means = np.array([mean for row in table["component_means"].to_pylist() for mean in row])
    assert means.tobytes() == whole.mean.tobytes()
    assert table["y"].to_pylist() == np.repeat(np.arange(NY), NX).tolist()
    velocities = np.array([mean for row in table["component_means_physical"].to_pylist() for mean in row])
    np.testing.assert_allclose(velocities, -5000.0 + 200.0 * means)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"chunk_input": "copy", "params": {"second_pass": True}}, "choose the chunk input reference or auto"),
        ({"params": {"second_pass": True, "preset": "compatible"}}, "with the preset best"),
        ({"params": {"second_pass": True, "decomposer": "phspectra"}}, "for gaussline"),
        ({"params": {"second_pass": True, "line": "hcn_1-0"}}, "without a line"),
    ],
)
def test_what_does_not_go_with_a_second_pass_is_refused_with_the_manifest(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpectraManifest.model_validate({"survey": "s", "cube_key": "k", **fields})


def test_a_compressed_cube_is_refused(tmp_path: Path) -> None:
    kit, body = Kit(tmp_path), io.BytesIO()
    unit = fits.CompImageHDU(np.zeros((30, 4, 5), np.int16), header())
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(body)
    kit.put("cubes/c.fits", body.getvalue())
    manifest = {"workload": "spectra", "survey": "s", "cube_key": "cubes/c.fits", "params": {"second_pass": True}}
    with pytest.raises(PermanentError, match="submit the uncompressed cube, or without a second pass"):
        kit.run(manifest, **WORKER)


@pytest.mark.parametrize("nx", [1, 100, 2_000, 100_000])
def test_a_chunk_has_several_rows_unless_they_take_too_long(nx: int) -> None:
    size = with_enough_rows(10, nx, 424)
    assert size >= min(SECOND_PASS_ROWS * nx, most_spectra_in_time(424, "second_pass") // 2)
    assert size <= max(10, SECOND_PASS_ROWS * nx)
    assert size <= most_spectra_in_time(424, "second_pass")
