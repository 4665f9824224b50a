"""`docs/how-to/read-results.md` has examples that work on the output of the real worker code."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from prismline_contracts.commands import ChunkProcess
from prismline_contracts.manifest import FitParams, SpectraManifest
from prismline_contracts.objects import output_key
from prismline_cube.cube_file import open_cube
from prismline_splitter.workloads.spectra import AboutCube, write_npz
from prismline_worker.chunk_file import ChunkFile
from prismline_worker.decompose import decompose
from prismline_worker.output import OutputFile, metadata_of
from prismline_worker.physical_columns import with_physical_columns

PAGE = (Path(__file__).parents[2] / "docs/how-to/read-results.md").read_text()
NY, NX, CHANNELS = 3, 4, 60
HEADER = fits.Header(
    {
        "CTYPE1": "GLON-CAR", "CRVAL1": 30.0, "CRPIX1": 2.0, "CDELT1": -0.01, "CUNIT1": "deg",
        "CTYPE2": "GLAT-CAR", "CRVAL2": 0.0, "CRPIX2": 1.0, "CDELT2": 0.01, "CUNIT2": "deg",
        "CTYPE3": "VRAD", "CRVAL3": 5000.0, "CRPIX3": 1.0, "CDELT3": 200.0, "CUNIT3": "m/s", "BUNIT": "K",
    }
)  # fmt: skip


def example(language: str, after: str) -> str:
    """The first code block in `language` below the heading `after`."""
    section = PAGE[PAGE.index(f"\n## {after}\n") :]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output of a cube in two chunks. All spectra have a line of 3 K at channel 30, except one that is blank."""
    monkeypatch.chdir(tmp_path)
    channels = np.arange(CHANNELS)[:, None, None]
    data = np.random.default_rng(2).normal(0.0, 0.1, (CHANNELS, NY, NX)) + 3.0 * np.exp(-((channels - 30) ** 2) / 18)
    data[:, 2, 3] = np.nan
    fits.PrimaryHDU(data.astype(np.float32), HEADER).writeto(tmp_path / "cube.fits")
    cube = open_cube(tmp_path / "cube.fits", tmp_path)
    manifest = SpectraManifest(survey="grs", cube_key="cubes/c.fits")
    about = AboutCube(cube, cube.geometry(manifest.cube_key).model_dump_json().encode())
    for block in cube.blocks(6):
        file = io.BytesIO()
        write_npz(file, [block], block.start, 6, about)
        name = f"chunk-{block.start:07d}"
        path = tmp_path / "results" / output_key("grs", "run-1", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(decomposed(file, name))
    return tmp_path / "results"


def decomposed(file: io.BytesIO, name: str) -> bytes:
    """The output of the worker for the chunk in `file`."""
    chunk, params = ChunkFile(file), FitParams()
    command = ChunkProcess(
        run_id="run-1", job_id="first light", survey="grs", workload="spectra", chunk_id=name, n_items=6, bucket="b",
        chunk_key="k", params={},
    )  # fmt: skip
    with OutputFile(chunk.geometry, metadata_of(command, params, chunk.geometry)) as output:
        for block in chunk.blocks():
            fitter: Any = None
            output.add(with_physical_columns(decompose(block, params, fitter=fitter), block, chunk.geometry))
        return output.finish()


def run(code: str) -> dict[str, Any]:
    """Run `code` and return its global names."""
    names: dict[str, Any] = {}
    exec(compile(code, "docs/how-to/read-results.md", "exec"), names)
    return names


def test_what_a_file_says_about_itself_can_be_read_as_the_page_says(dataset: Path) -> None:
    found = run(example("python", "What a file says about itself"))
    assert found["parameters"]["beta"] == 3.5
    assert found["units"]["component_fluxes_physical"] == "K m/s"
    fields = pq.read_schema(found["path"])
    assert fields.field("component_means_physical").metadata[b"unit"] == b"m/s"


def test_the_example_for_pandas_works(dataset: Path) -> None:
    pytest.importorskip("pandas", reason="pandas reads the dataset")
    found = run(example("python", "pandas"))
    assert (len(found["spectra"]), len(found["components"]), len(found["strongest"])) == (12, 11, 11)
    np.testing.assert_allclose(found["bright"].component_means_physical, 5000.0 + 200.0 * 30, atol=60.0)


def test_the_example_for_astropy_works(dataset: Path) -> None:
    found = run(example("python", "astropy"))
    components = found["components"]
    assert len(components) == 11
    np.testing.assert_allclose(components["component_means_physical"].to_value("km/s"), 11.0, atol=0.06)
    np.testing.assert_allclose(components["fwhm"].to_value("km/s"), 2.3548 * 3.0 * 0.2, rtol=0.1)
    assert components["component_fluxes_physical"].unit.to_string() == "K m / s"
    assert components["longitude"][0].to_value("deg") == pytest.approx(30.01)
    assert np.isnan(found["counts"][2, 3])
    assert np.nansum(found["counts"]) == 11


def test_the_example_for_duckdb_works(dataset: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB reads the dataset")
    rows = duckdb.sql(example("sql", "DuckDB")).fetchall()
    assert len(rows) == 10
    assert rows[0][-1] >= rows[-1][-1] > 0
    assert all(row[5] == pytest.approx(11_000.0, abs=60.0) for row in rows)
    kept = dict(duckdb.sql(re.findall(r"`(SELECT key, value FROM parquet_kv_metadata.*?)`", PAGE)[0]).fetchall())
    assert kept[b"prismline.job_id"] == b"first light"


def test_the_example_for_topcat_works(dataset: Path) -> None:
    stilts = shutil.which("stilts")
    if stilts is None:
        pytest.skip("STILTS is not installed")
    Path("files.lis").write_text("\n".join(map(str, sorted(dataset.rglob("*.parquet")))))
    subprocess.run(example("bash", "TOPCAT"), shell=True, check=True, timeout=120)
    assert len(fits.getdata("run.fits", 1)) == 12


def test_the_example_for_gaussline_works(dataset: Path) -> None:
    model = run(example("python", "gaussline"))["model"]
    assert model.shape == (6, 424)
    assert model[0].argmax() == 30
