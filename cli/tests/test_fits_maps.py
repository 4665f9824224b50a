from __future__ import annotations

import math
import mmap
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.wcs import WCS

from prismline_cli import fits_maps
from prismline_contracts.objects import CubeGeometry

NX, NY, CHANNELS = 4, 3, 40
HEADER = fits.Header(
    {
        "CTYPE1": "GLON-CAR", "CRVAL1": 30.0, "CRPIX1": 2.0, "CDELT1": -0.01, "CUNIT1": "deg",
        "CTYPE2": "GLAT-CAR", "CRVAL2": 0.0, "CRPIX2": 1.0, "CDELT2": 0.01, "CUNIT2": "deg",
        "CTYPE3": "VRAD", "CRVAL3": 5000.0, "CRPIX3": 1.0, "CDELT3": 200.0, "CUNIT3": "m/s",
        "OBJECT": "a cloud",
    }
)  # fmt: skip
GEOMETRY = CubeGeometry(
    n_channels=CHANNELS, ny=NY, nx=NX, ctype="VRAD", crval=5000.0, crpix=1.0, cdelt=200.0, cunit="m/s", bunit="K",
    object_name="a cloud", cube_key="cubes/a/b.fits", celestial=dict(WCS(HEADER).celestial.to_header()),
)  # fmt: skip


def chunk(path, *rows):
    """A chunk's output with rows (x, y, status, components)."""
    columns = {
        "x": pa.array([x for x, _, _, _ in rows], pa.int32()),
        "y": pa.array([y for _, y, _, _ in rows], pa.int32()),
        "rms": pa.array([0.25 if s in {"fitted", "empty"} else None for _, _, s, _ in rows], pa.float64()),
        "n_components": pa.array([-1 if s == "timed_out" else len(c) for _, _, s, c in rows], pa.int32()),
        "status": pa.array([s for _, _, s, _ in rows]),
        "flags": pa.array([1 for _ in rows], pa.int32()),
        "chi2_reduced": pa.array([1.5 for _ in rows], pa.float64()),
    }
    for place, name in enumerate(("amplitudes", "means", "stddevs")):
        columns[f"component_{name}"] = pa.array([[c[place] for c in cs] for *_, cs in rows], pa.list_(pa.float64()))
    for name in ("amplitude", "mean", "stddev"):
        columns[f"component_{name}_errors"] = pa.array(
            [[0.1 * c[0] for c in cs] for *_, cs in rows], pa.list_(pa.float64())
        )
    metadata = {"prismline.run_id": "a-run", "prismline.params": '{"beta": 3.8, "decomposer": "gaussline"}'}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


@pytest.fixture
def outputs(tmp_path):
    return [
        chunk(tmp_path / "a.parquet", (0, 0, "fitted", [(1.0, 10.0, 2.0), (3.0, 20.0, 4.0)]), (1, 0, "empty", [])),
        chunk(tmp_path / "b.parquet", (3, 2, "fitted", [(2.0, 30.0, 3.0)]), (2, 2, "timed_out", [])),
    ]


def test_maps_have_the_value_of_each_pixel_in_the_units_of_the_axis(outputs, tmp_path):
    paths = fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps")
    found = {path.stem: fits.getdata(path) for path in paths}
    assert found["velocity"][0, 0] == pytest.approx(9.0)  # channel 20, the strongest, in km/s
    assert found["width"][0, 0] == pytest.approx(0.8)
    assert found["integrated"][0, 0] == pytest.approx(math.sqrt(2 * math.pi) * 0.2 * (1.0 * 2.0 + 3.0 * 4.0))
    assert found["components"][0].tolist()[:2] == [2.0, 0.0]
    assert found["integrated"][0, 1] == 0.0
    assert np.isnan(found["velocity"][0, 1])
    assert np.isnan(found["components"][2, 2])
    assert found["component_velocity"][:, 0, 0].tolist() == pytest.approx([9.0, 7.0])
    assert np.isnan(found["component_amplitude"][1, 2, 3])
    assert found["rms"][2, 3] == pytest.approx(0.25)
    assert found["chi2"][0, 0] == pytest.approx(1.5)
    assert found["flags"][0, 0] == 1.0
    assert fits.getheader(tmp_path / "maps" / "velocity.fits")["BUNIT"] == "km/s"


def test_maps_lie_on_the_sky_where_the_cube_lies(outputs, tmp_path):
    paths = fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps", cubes=True)
    sky = WCS(HEADER).celestial
    for path in paths:
        with fits.open(path, ignore_missing_simple=False) as opened:
            opened.verify("exception")
            header = opened[0].header
            assert header["OBJECT"] == "a cloud"
            np.testing.assert_allclose(WCS(header).celestial.wcs_pix2world([[3, 2]], 0), sky.wcs_pix2world([[3, 2]], 0))
    model = WCS(fits.getheader(tmp_path / "maps" / "model.fits"))
    assert model.wcs_pix2world([[0, 0, 20]], 0)[0, 2] == pytest.approx(9000.0)


def test_model_and_residual_add_up_to_the_cube(outputs, tmp_path):
    data = np.random.default_rng(1).normal(size=(CHANNELS, NY, NX)).astype(np.float32)

    def spectra(pixels):
        return {(x, y): data[:, y, x] for x, y in pixels}

    fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps", cubes=True, spectra=spectra)
    model, residual = (fits.getdata(tmp_path / "maps" / f"{name}.fits") for name in ("model", "residual"))
    np.testing.assert_allclose((model + residual)[:, 0, 0], data[:, 0, 0], rtol=1e-5, atol=1e-5)
    assert model[20, 0, 0] == pytest.approx(3.0, abs=1e-3)
    assert np.isnan(residual[:, 2, 2]).all()


def test_no_file_appears_if_the_spectra_cannot_be_read(outputs, tmp_path):
    def spectra(pixels):
        raise OSError("the cube is gone")

    with pytest.raises(OSError, match="the cube is gone"):
        fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps", cubes=True, spectra=spectra)
    assert list((tmp_path / "maps").iterdir()) == []


def test_an_axis_without_a_constant_step_has_no_map_of_velocities(outputs, tmp_path):
    geometry = GEOMETRY.model_copy(update={"ctype": "VOPT-F2W"})
    names = {path.stem for path in fits_maps.write(outputs, geometry, HEADER, tmp_path / "maps", cubes=True)}
    amplitudes = {"component_amplitude", "component_amplitude_error"}
    assert names == {"components", "rms", "chi2", "flags", "model"} | amplitudes


def test_errors_of_the_components_are_maps_of_their_own(outputs, tmp_path):
    found = {path.stem: fits.getdata(path) for path in fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps")}
    assert found["component_amplitude_error"][:, 0, 0].tolist() == pytest.approx([0.3, 0.1])  # the strongest first
    assert found["component_velocity_error"][:, 0, 0].tolist() == pytest.approx([0.06, 0.02])  # in km/s
    assert found["component_width_error"][0, 2, 3] == pytest.approx(0.04)
    assert np.isnan(found["component_width_error"][1, 2, 3])


def test_the_errors_of_a_spectrum_without_any_are_empty(outputs, tmp_path):
    for path in outputs:  # as phspectra leaves them
        table = pq.read_table(path)
        for name in ("amplitude", "mean", "stddev"):
            place = table.column_names.index(f"component_{name}_errors")
            none = pa.nulls(len(table), pa.list_(pa.float64()))
            table = table.set_column(place, f"component_{name}_errors", none)
        pq.write_table(table, path)
    found = {path.stem: fits.getdata(path) for path in fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps")}
    assert np.isnan(found["component_amplitude_error"]).all()
    assert found["component_amplitude"][0, 0, 0] == pytest.approx(3.0)


def test_every_file_says_what_it_shows_and_where_it_comes_from(outputs, tmp_path):
    for path in fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps"):
        header = fits.getheader(path)
        assert header["BTYPE"] == path.stem
        history = "".join(header["HISTORY"])
        assert "prismline-cli" in history
        assert "run: a-run" in history
        assert '"beta": 3.8' in history


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system keeps the pages of files")
def test_pages_of_the_written_files_are_released_from_memory(tmp_path, monkeypatch):
    side, channels = 64, 600
    geometry = GEOMETRY.model_copy(update={"nx": side, "ny": side, "n_channels": channels})
    paths = [
        chunk(tmp_path / f"{y:03}.parquet", *((x, y, "fitted", [(1.0, 300.0, 4.0)]) for x in range(side)))
        for y in range(side)
    ]
    mapped = []
    read = pq.ParquetFile.iter_batches

    def watched(*arguments, **named):
        mapped.append(mapped_bytes())
        return read(*arguments, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    fits_maps.write(paths, geometry, HEADER, tmp_path / "maps", cubes=True)
    size = (tmp_path / "maps" / "model.fits").stat().st_size
    assert max(mapped) - mapped[0] < size / 4


def mapped_bytes():
    """Resident bytes of this process that are pages of files."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"RssFile:\s+(\d+)", status)[1])


def test_a_run_of_phspectra_has_no_map_of_flags(outputs, tmp_path):
    for path in outputs:
        pq.write_table(pq.read_table(path).drop_columns(["flags", "chi2_reduced"]), path)
    names = {path.stem for path in fits_maps.write(outputs, GEOMETRY, HEADER, tmp_path / "maps")}
    assert "flags" not in names
    assert {"integrated", "components", "velocity", "width", "rms", "component_velocity"} <= names
