"""`prismline submit` refuses a local file that the splitter could not read, before it uploads it."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from typer.testing import CliRunner

from prismline_cli.submission import check_file
from prismline_cli.whole import app


def _gz(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def _cube(**cards: object) -> bytes:
    file = io.BytesIO()
    fits.writeto(file, np.zeros((30, 4, 5), np.float32), fits.Header({"CTYPE1": "RA", "CTYPE2": "DEC"} | cards))
    return file.getvalue()


def _tiled() -> bytes:
    file = io.BytesIO()
    unit = fits.CompImageHDU(np.zeros((30, 4, 5), np.int16), fits.Header({"CTYPE3": "VRAD"}))
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(file)
    return file.getvalue()


WHOLE = _cube(CTYPE3="VRAD")


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("notes.txt", b"velocity 1 2 3\n", "the file is not FITS: it does not begin with SIMPLE"),
        ("empty.fits", b"", "the file is empty"),
        ("cut.fits", WHOLE[:3500], "the file is truncated: its header promises 5280 bytes and it holds 3500"),
        ("no-ctype.fits", _cube(), "the cube has no spectral axis: its axes are RA, DEC, unnamed"),
        ("cut.fits.gz", _gz(WHOLE)[:-9], "the gzip compression of the file is damaged or cut short"),
        ("inside.fits.gz", _gz(WHOLE[:3500]), "the file is truncated: its header promises 5280 bytes"),
        ("text.gz", _gz(b"hello"), "the file is not FITS"),
        ("cut.fits.fz", _tiled()[:7000], "the file is truncated"),
        ("odd.zarr.zip", b"PK\x03\x04 and nothing", "it is not a Zarr array with a cube"),
        ("tilted.fits", _cube(CTYPE3="VRAD", CDELT3=1.0, PC3_1=0.5), "changes from pixel to pixel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_complete_cube_is_refused_before_the_upload(
    name: str, body: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(body)
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["submit", str(path), "--survey", "test"])
    assert result.exit_code == 2
    assert message in result.output
    assert f"{path} was not submitted" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("name", "body"), [("cube.fits", WHOLE), ("cube.fits.gz", _gz(WHOLE)), ("cube.fits.fz", _tiled())]
)
def test_a_complete_cube_passes_the_check(name: str, body: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(body)
    check_file(str(tmp_path / name), {})


@pytest.mark.parametrize(("name", "body"), [("cube.fits.gz", _gz(WHOLE)), ("cube.fits.fz", _tiled())])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--second-pass"], "it is compressed, and a second pass reads the spectra around a chunk in the cube itself"),
        (["--chunk-input", "reference"], "it is compressed, so chunks cannot refer to its values"),
    ],
)
def test_a_compressed_cube_whose_chunks_must_refer_to_it_is_refused_before_the_upload(
    name: str, body: bytes, options: list[str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(body)
    command = ["submit", str(path), "--survey", "test", *options]
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, command)
    assert result.exit_code == 2
    assert f"{path} was not submitted: {message}" in " ".join(result.output.split())


def test_an_uncompressed_cube_suits_a_second_pass(tmp_path: Path) -> None:
    (tmp_path / "cube.fits").write_bytes(WHOLE)
    check_file(str(tmp_path / "cube.fits"), {"second_pass": True})


FREQUENCY = {"CTYPE3": "FREQ", "CRVAL3": 93.17e9, "CDELT3": 1e4}
OPTIONS = ["--survey", "test", "--line", "n2h+_1-0"]


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        (FREQUENCY, "its header has no rest frequency; give the rest frequency of the line"),
        ({"CTYPE3": "WAVE"}, "gives no velocities"),
        ({"CTYPE3": "VOPT-F2W"}, "has no constant step"),
    ],
)
def test_a_cube_whose_axis_does_not_suit_the_line_is_refused_before_the_upload(
    cards: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "cube.fits"
    path.write_bytes(_cube(**cards))
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["submit", str(path), *OPTIONS])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("cards", "params"),
    [
        ({"CTYPE3": "VRAD"}, {}),
        (FREQUENCY | {"RESTFRQ": 93.1737637e9}, {}),
        (FREQUENCY, {"rest_frequency": 93.1737637e9}),
    ],
)
def test_a_cube_in_velocity_or_in_frequency_of_a_known_line_suits_a_line(
    cards: dict[str, object], params: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "cube.fits").write_bytes(_cube(**cards))
    check_file(str(tmp_path / "cube.fits"), {"line": "n2h+_1-0", **params})


def test_a_line_that_nobody_knows_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "cube.fits").write_bytes(WHOLE)
    command = ["submit", str(tmp_path / "cube.fits"), "--survey", "test", "--line", "n2h_1-0"]
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, command)
    assert result.exit_code == 2
    assert "There is no line 'n2h_1-0'" in result.output
    assert "n2h+_1-0, nh3_1-1, hcn_1-0" in result.output
