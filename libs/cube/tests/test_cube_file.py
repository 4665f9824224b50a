from __future__ import annotations

import gzip
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prismline_cube import cube_file as cube_module
from prismline_cube import fpack, gunzip, header, limits, plain_fits
from prismline_cube.cube_file import Cube, is_blank, open_cube
from prismline_cube.errors import CubeError
from prismline_cube.header import AxisCards

#: A cube whose spectra all differ, (channel, y, x).
PACKED_VALUES = np.arange(12 * 5 * 6, dtype=np.int16).reshape(12, 5, 6)

#: The survey data that lie beside the repository on a development machine.
SHARED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

#: tmp_path is one directory for all examples of a property; each example overwrites its file.
REUSES_TMP_PATH = [HealthCheck.function_scoped_fixture]

RNG = np.random.default_rng(20240607)


def write_cube(path: Path, data: np.ndarray, ctypes: list[str], cards: dict[str, Any] | None = None) -> Path:
    """Write `data` (C order, so its axes are those of `ctypes` reversed) as a primary image."""
    hdu = fits.PrimaryHDU(data)
    for n, ctype in enumerate(ctypes, start=1):
        hdu.header[f"CTYPE{n}"] = ctype
    hdu.header.update(cards or {})
    hdu.writeto(path, overwrite=True)
    return path


def all_spectra(cube: Cube, size: int = 7, start: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    blocks = list(cube.blocks(size, start))
    return tuple(np.concatenate([getattr(block, name) for block in blocks]) for name in ("spectra", "x", "y"))


def set_card(path: Path, card: str) -> Path:
    """Replace the card of that name, or append it. The bytes are edited because astropy refuses most of these cards."""
    raw = path.read_bytes()
    image = [raw[at : at + 80] for at in range(0, 2880, 80)]
    names = [old[:8] for old in image]
    end = names.index(b"END".ljust(8))
    new = card.ljust(80).encode()
    if new[:8] in names:
        image[names.index(new[:8])] = new
    else:
        image[end : end + 2] = [new, image[end]]
    path.write_bytes(b"".join(image) + raw[2880:])
    return path


def drop_card(path: Path, name: str) -> Path:
    raw = path.read_bytes()
    at = raw.index(name.ljust(8).encode())
    path.write_bytes(raw[:at] + b"COMMENT".ljust(80) + raw[at + 80 :])
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    data = RNG.normal(size=(6, 3, 4)).astype(np.float32)
    return write_cube(tmp_path / "small.fits", data, ["GLON-CAR", "GLAT-CAR", "VOPT"])


# reading


@pytest.mark.parametrize("name", ["grs-test_field_10x10.fits", "grs-test_field_5x5.fits"])
def test_the_grs_cubes_are_read_as_astropy_reads_them(name: str, tmp_path: Path):
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the repository")
    cube = open_cube(path, tmp_path)
    data = fits.getdata(path)
    spectra, x, y = all_spectra(cube, size=9)
    assert (cube.n_channels, cube.ny, cube.nx) == data.shape
    assert (cube.bunit, cube.axis.ctype, cube.axis.cunit) == ("K", "VOPT", "m/s")
    assert cube.axis.cdelt == 212.5358581543
    np.testing.assert_array_equal(spectra, data[:, y, x].T)


@settings(deadline=None, max_examples=80, suppress_health_check=REUSES_TMP_PATH)
@given(
    nx=st.integers(1, 9),
    ny=st.integers(1, 7),
    n_channels=st.integers(1, 12),
    position=st.integers(0, 3),
    with_stokes=st.booleans(),
    size=st.integers(1, 80),
    slab_spectra=st.integers(1, 70),
    first=st.floats(0, 1),
)
def test_any_axis_order_gives_each_spectrum_with_its_pixel(
    tmp_path: Path, nx, ny, n_channels, position, with_stokes, size, slab_spectra, first
):
    nx, ny = nx + 1, ny + 1  # another test covers degenerate axes, of length one
    truth = np.arange(ny * nx * n_channels, dtype=np.float32).reshape(ny, nx, n_channels)
    axes = [("RA---SIN", nx), ("DEC--SIN", ny), *([("STOKES", 1)] if with_stokes else [])]
    position = min(position, len(axes))
    axes.insert(position, ("FREQ", n_channels))
    data = np.moveaxis(truth, 2, max(0, 2 - min(position, 2))).reshape([length for _, length in reversed(axes)])
    path = write_cube(tmp_path / "cube.fits", data, [ctype for ctype, _ in axes])
    start = int(first * ny * nx)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cube_module, "SLAB_BYTES", slab_spectra * n_channels * 8)
        cube = open_cube(path, tmp_path)
        assert (cube.n_channels, cube.ny, cube.nx, cube.n_spectra) == (n_channels, ny, nx, ny * nx)
        blocks = list(cube.blocks(size, start))
    assert [block.start for block in blocks] == list(range(start, ny * nx, size))
    for block in blocks:
        assert len(block.spectra) == min(size, ny * nx - block.start)
        np.testing.assert_array_equal(block.y.astype(int) * nx + block.x, block.start + np.arange(len(block.x)))
        np.testing.assert_array_equal(block.spectra, truth[block.y, block.x])
        assert block.spectra.flags.c_contiguous
        assert block.spectra.dtype == np.float32
        assert block.spectra.dtype.isnative
        assert (block.x.dtype, block.y.dtype) == (np.int32, np.int32)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ([("VRAD", 5), ("GLON-CAR", 4)], (5, 1, 4)),
        ([("GLON-CAR", 4), ("VRAD", 5)], (5, 1, 4)),
        ([("RA---SIN", 4), ("DEC--SIN", 3), ("STOKES", 1), ("VELO-LSR", 5)], (5, 3, 4)),
        ([("STOKES", 1), ("RA---SIN", 4), ("DEC--SIN", 3), ("VELO-LSR", 5)], (5, 3, 4)),
        ([("RA---SIN", 1), ("DEC--SIN", 1), ("WAVE", 5)], (5, 1, 1)),
        ([("RA---SIN", 4), ("FREQ", 1), ("VELO", 5)], (5, 1, 4)),
        ([("RA---SIN", 4), ("DEC--SIN", 3), ("FREQ", 1)], (1, 3, 4)),
    ],
)
def test_degenerate_and_missing_axes_are_left_out(axes, expected, tmp_path: Path):
    data = np.arange(math.prod(length for _, length in axes), dtype=np.float32)
    path = write_cube(
        tmp_path / "cube.fits", data.reshape([length for _, length in reversed(axes)]), [ctype for ctype, _ in axes]
    )
    cube = open_cube(path, tmp_path)
    assert (cube.n_channels, cube.ny, cube.nx) == expected
    spectra, x, y = all_spectra(cube)
    assert spectra.shape == (cube.n_spectra, cube.n_channels)
    assert sorted(spectra.ravel()) == sorted(data)
    assert (x.max(), y.max()) == (cube.nx - 1, cube.ny - 1)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (np.uint8, np.float32),
        (np.int16, np.float32),
        (np.int32, np.float64),
        (np.int64, np.float64),
        (np.float32, np.float32),
        (np.float64, np.float64),
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_every_bitpix_is_read_scaled_or_not(stored, read, scaled: bool, tmp_path: Path):
    raw = (RNG.normal(size=(6, 3, 4)) * 50 + 100).astype(stored)
    path = write_cube(tmp_path / "cube.fits", raw, ["GLON-CAR", "GLAT-CAR", "FREQ"])
    if scaled:
        set_card(path, "BSCALE  = -2.5D-1")
        set_card(path, "BZERO   = 7")
    cube = open_cube(path, tmp_path)
    spectra, x, y = all_spectra(cube)
    physical = raw.astype(np.float64) * -0.25 + 7 if scaled else raw
    assert cube.dtype == spectra.dtype == read
    np.testing.assert_array_equal(spectra, physical[:, y, x].T.astype(read))


def test_unsigned_integers_are_read_with_their_values(tmp_path: Path):
    data = np.array([[0, 40000], [65535, 32768]], dtype=np.uint16)
    path = write_cube(tmp_path / "cube.fits", data, ["GLON-CAR", "VRAD"])
    spectra, _, _ = all_spectra(open_cube(path, tmp_path))
    np.testing.assert_array_equal(spectra, data.T)


@pytest.mark.parametrize(("scale", "zero"), [(1.0, 0.0), (0.5, 10.0)])
def test_blank_integers_become_nan(scale: float, zero: float, tmp_path: Path):
    data = np.array([[1, -32768, 3], [4, 5, -32768]], dtype=np.int16)
    path = write_cube(tmp_path / "cube.fits", data, ["GLON-CAR", "VRAD"])
    for card in ("BLANK   = -32768", f"BSCALE  = {scale}", f"BZERO   = {zero}"):
        set_card(path, card)
    spectra, _, _ = all_spectra(open_cube(path, tmp_path))
    np.testing.assert_array_equal(spectra, np.array([[1, 4], [np.nan, 5], [3, np.nan]]) * scale + zero)


def test_a_blank_value_that_the_data_cannot_hold_blanks_nothing(tmp_path: Path):
    path = write_cube(tmp_path / "cube.fits", np.full((2, 3), 7, np.uint8), ["GLON-CAR", "VRAD"])
    set_card(path, "BLANK   = -99999999999999999999999")
    spectra, _, _ = all_spectra(open_cube(path, tmp_path))
    assert (spectra == 7).all()


def test_nan_and_infinities_become_nan_and_only_wholly_blank_spectra_are_blank(tmp_path: Path):
    data = np.ones((3, 1, 4), np.float32)
    data[:, 0, 0] = np.nan
    data[:, 0, 1] = [np.inf, np.nan, -np.inf]
    data[0, 0, 2] = np.inf
    path = write_cube(tmp_path / "cube.fits", data, ["GLON-CAR", "GLAT-CAR", "VRAD"])
    spectra, _, _ = all_spectra(open_cube(path, tmp_path))
    assert is_blank(spectra).tolist() == [True, True, False, False]
    np.testing.assert_array_equal(spectra[2], [np.nan, 1, 1])


def test_values_too_large_for_float32_become_nan(tmp_path: Path):
    path = write_cube(tmp_path / "cube.fits", np.full((2, 2), 1e30, np.float32), ["GLON-CAR", "VRAD"])
    set_card(path, "BSCALE  = 1E20")
    spectra, _, _ = all_spectra(open_cube(path, tmp_path))
    assert np.isnan(spectra).all()


# the header


@pytest.mark.parametrize("ctype", [*header.SPECTRAL_TYPES, "VELO-LSR", "freq", "VOPT-F2W", "WAVE-TAB"])
def test_every_spectral_ctype_is_found(ctype: str, tmp_path: Path):
    path = write_cube(tmp_path / "cube.fits", np.zeros((5, 2, 3), np.float32), ["RA---TAN", "DEC--TAN", ctype])
    cube = open_cube(path, tmp_path)
    assert (cube.n_channels, cube.axis.ctype) == (5, ctype.upper())


def test_the_spectral_axis_and_names_come_from_the_header(tmp_path: Path):
    cards = {"CRVAL3": 4e4, "CRPIX3": 3.0, "CDELT3": -212.5, "CUNIT3": "km/s", "BUNIT": "K", "OBJECT": "W43"}
    path = write_cube(tmp_path / "c.fits", np.zeros((5, 2, 3), np.float32), ["GLON-CAR", "GLAT-CAR", "VRAD"], cards)
    cube = open_cube(path, tmp_path)
    assert cube.axis == AxisCards("VRAD", 4e4, 3.0, -212.5, "km/s")
    assert (cube.bunit, cube.object_name) == ("K", "W43")


def test_a_bare_header_gets_the_standards_defaults(small: Path, tmp_path: Path):
    cube = open_cube(small, tmp_path)
    assert cube.axis == AxisCards("VOPT", 0.0, 0.0, 1.0, "m/s")
    assert (cube.bunit, cube.object_name) == ("", "")


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        ({"RESTFRQ": 115.2712018e9}, 115.2712018e9),
        ({"RESTFREQ": 1420405752}, 1420405752.0),
        ({"RESTFRQ": 0.0, "RESTFREQ": 110e9}, 110e9),
        ({"RESTFRQ": "unknown"}, None),
        ({"RESTFRQ": -1.0}, None),
        ({}, None),
    ],
)
def test_the_rest_frequency_comes_from_the_header(tmp_path: Path, cards: dict[str, Any], expected: float | None):
    path = write_cube(tmp_path / "c.fits", np.zeros((5, 2, 3), np.float32), ["RA---TAN", "DEC--TAN", "FREQ"], cards)
    assert open_cube(path, tmp_path).rest_frequency == expected


def test_a_cd_matrix_gives_the_channel_width(tmp_path: Path):
    path = write_cube(
        tmp_path / "c.fits", np.zeros((5, 2, 3), np.float32), ["RA---TAN", "DEC--TAN", "AWAV"], {"CD3_3": 1.25}
    )
    assert open_cube(path, tmp_path).axis.cdelt == 1.25


def test_the_first_image_with_data_is_the_cube(tmp_path: Path):
    data = RNG.normal(size=(6, 3, 4)).astype(np.float32)
    image = fits.ImageHDU(data)
    image.header.update({"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "WAVE"})
    table = fits.BinTableHDU.from_columns([fits.Column("a", "J", array=np.arange(5))])
    variances = fits.ImageHDU(np.zeros((2, 2), np.float32))
    path = tmp_path / "cube.fits"
    fits.HDUList([fits.PrimaryHDU(), table, image, variances]).writeto(path)
    spectra, x, y = all_spectra(open_cube(path, tmp_path))
    np.testing.assert_array_equal(spectra, data[:, y, x].T)


# compressed files


def test_a_gzip_file_reads_like_the_file_in_it_and_leaves_the_original_alone(small: Path, tmp_path: Path):
    workdir = tmp_path / "work"
    workdir.mkdir()
    packed = tmp_path / "small.fits.gz"
    packed.write_bytes(gzip.compress(small.read_bytes()))
    before = packed.read_bytes()
    cube = open_cube(packed, workdir)
    np.testing.assert_array_equal(all_spectra(cube)[0], all_spectra(open_cube(small, tmp_path))[0])
    assert cube.path.parent == workdir
    assert packed.read_bytes() == before


@pytest.mark.parametrize("damage", ["cut", "flipped", "trailing"])
def test_a_damaged_gzip_file_is_refused(damage: str, small: Path, tmp_path: Path):
    packed = bytearray(gzip.compress(small.read_bytes()))
    if damage == "cut":
        del packed[len(packed) // 2 :]
    elif damage == "flipped":
        packed[len(packed) // 2] ^= 0xFF
    else:
        packed += b"more"
    path = tmp_path / "damaged.fits.gz"
    path.write_bytes(packed)
    with pytest.raises(CubeError, match="gzip compression of the file is damaged or cut short"):
        open_cube(path, tmp_path)


@pytest.mark.parametrize("first", [b"", b"SIMPLE  =                    T".ljust(2880)])
def test_a_gzip_bomb_is_refused_while_it_is_read(first: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "ALWAYS_EXPANDED_BYTES", 2**20)
    monkeypatch.setattr(gunzip, "COPY_BYTES", 2**16)
    bomb, workdir = tmp_path / "bomb.fits.gz", tmp_path / "work"
    workdir.mkdir()
    bomb.write_bytes(gzip.compress(first + bytes(64 * 2**20)))
    output = refusal(bomb, workdir)
    assert ("expands to more than" if first else "not FITS") in output
    written = sum(path.stat().st_size for path in workdir.iterdir())
    assert written <= 100 * bomb.stat().st_size + 2**20


# refusals


def refusal(path: Path, workdir: Path) -> str:
    with pytest.raises(CubeError) as caught:
        open_cube(path, workdir)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message, "the message says what to do"
    return message


def test_a_missing_file_is_refused(tmp_path: Path):
    assert "no such file" in refusal(tmp_path / "nowhere.fits", tmp_path)


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "empty.fits"
    path.write_bytes(content)
    assert "empty" in refusal(path, tmp_path)


PACKED_TEXT = gzip.compress(b"hello", mtime=0)


@pytest.mark.parametrize("content", [b"S", b"\x89PNG\r\n" * 900, b"<html>not found</html>", PACKED_TEXT])
def test_a_file_that_is_not_fits_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "cube.fits"
    path.write_bytes(content)
    assert "not FITS" in refusal(path, tmp_path)


def test_a_truncated_cube_is_refused_with_both_sizes(tmp_path: Path):
    path = write_cube(tmp_path / "c.fits", np.zeros((50, 9, 9), np.float32), ["GLON-CAR", "GLAT-CAR", "VRAD"])
    path.write_bytes(path.read_bytes()[:9000])
    assert f"promises {2880 + 50 * 9 * 9 * 4} bytes and it holds 9000" in refusal(path, tmp_path)


def test_data_without_the_last_records_padding_are_whole(small: Path, tmp_path: Path):
    small.write_bytes(small.read_bytes()[: 2880 + 6 * 3 * 4 * 4])
    assert open_cube(small, tmp_path).n_spectra == 12


def test_a_header_without_end_is_refused(small: Path, tmp_path: Path):
    drop_card(small, "END")
    assert "header at byte 0 is damaged" in refusal(small, tmp_path)


def test_a_cube_without_a_spectral_axis_is_refused(tmp_path: Path):
    path = write_cube(tmp_path / "c.fits", np.zeros((2, 3, 4), np.float32), ["RA---TAN", "DEC--TAN"])
    message = refusal(path, tmp_path)
    assert "no spectral axis" in message
    assert "RA---TAN, DEC--TAN, unnamed" in message


def test_two_spectral_axes_are_refused(tmp_path: Path):
    path = write_cube(tmp_path / "c.fits", np.zeros((2, 3, 4), np.float32), ["RA---TAN", "FREQ", "VRAD"])
    assert "axes 2 and 3 are both spectral" in refusal(path, tmp_path)


@pytest.mark.parametrize("shape", [(8,), (2, 1, 2, 2, 2)])
def test_data_of_one_or_five_axes_are_refused(shape: tuple[int, ...], tmp_path: Path):
    path = write_cube(tmp_path / "c.fits", np.zeros(shape, np.float32), ["VRAD"])
    assert f"have {len(shape)} axes" in refusal(path, tmp_path)


def test_more_than_one_stokes_plane_is_refused(tmp_path: Path):
    path = write_cube(
        tmp_path / "c.fits", np.zeros((4, 2, 2, 2), np.float32), ["RA---TAN", "DEC--TAN", "VRAD", "STOKES"]
    )
    assert "axis 4 (STOKES) has 4 planes" in refusal(path, tmp_path)


@pytest.mark.parametrize("shape", [(5, 0, 3), (0, 2, 3)])
def test_a_cube_without_spectra_or_channels_is_refused(shape: tuple[int, ...], tmp_path: Path):
    path = write_cube(tmp_path / "c.fits", np.ones((5, 2, 3), np.float32), ["GLON-CAR", "GLAT-CAR", "VRAD"])
    n = 3 - shape.index(0)
    set_card(path, f"NAXIS{n}  = 0")
    assert f"holds no spectra: NAXIS{n} is 0" in refusal(path, tmp_path)


def test_a_file_of_headers_and_tables_alone_is_refused(tmp_path: Path):
    path = tmp_path / "table.fits"
    table = fits.BinTableHDU.from_columns([fits.Column("a", "J", array=np.arange(5))])
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(path)
    assert "no image data" in refusal(path, tmp_path)


def packed_cube(path: Path, values: np.ndarray = PACKED_VALUES, **how) -> Path:
    unit = fits.CompImageHDU(values, fits.Header({"CTYPE3": "VRAD"}), **how)
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(path)
    return path


def test_a_tile_compressed_cube_reads_like_the_one_that_was_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plain_fits, "PART_BYTES", 3 * PACKED_VALUES[0].nbytes)
    cube = open_cube(packed_cube(tmp_path / "cube.fits.fz", compression_type="RICE_1"), tmp_path)
    spectra, _, _ = all_spectra(cube)
    assert (spectra == PACKED_VALUES.reshape(len(PACKED_VALUES), -1).T).all()
    assert cube.axis.ctype == "VRAD"


def test_a_damaged_tile_is_refused_with_the_reason(tmp_path: Path):
    path = packed_cube(tmp_path / "cube.fits.fz", compression_type="GZIP_1")
    body = path.read_bytes()
    heap = body.index(b"\x1f\x8b")
    path.write_bytes(body[: heap + 20] + bytes(100) + body[heap + 120 :])
    assert "tile compression of the file is damaged" in refusal(path, tmp_path)


def test_tiles_that_expand_too_far_are_refused_before_they_are_read(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(limits, "ALWAYS_EXPANDED_BYTES", 0)
    monkeypatch.setattr(limits, "MAX_EXPANSION", 1)
    path = packed_cube(tmp_path / "bomb.fits.fz", np.zeros((100, 100, 100), np.int16))
    assert "expands to 2,000,000 bytes" in refusal(path, tmp_path)


def test_a_tile_that_does_not_fit_into_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fpack, "MAX_TILE_BYTES", 100)
    path = packed_cube(tmp_path / "cube.fits.fz", tile_shape=PACKED_VALUES.shape)
    assert "smaller tiles" in refusal(path, tmp_path)


def test_random_groups_are_refused(small: Path, tmp_path: Path):
    set_card(small, "GROUPS  = T")
    assert "random groups" in refusal(small, tmp_path)


@pytest.mark.parametrize(
    "card",
    [
        "BITPIX  = 24",
        "BITPIX  = 'float'",
        "NAXIS   = 2.5",
        "NAXIS   = -1",
        "NAXIS2  = -3",
        "NAXIS3  = 1E999",
        "BSCALE  = 0.0",
        "BSCALE  = 1E999",
        "BSCALE  = NaN",
        "BSCALE  = T",
        "BZERO   = 'none'",
        "BZERO   = (1.0, 2.0)",
        "CRVAL3  = 1.2.3",
        "CDELT3  = 'wide'",
        "PCOUNT  = -8",
    ],
)
def test_an_unusable_header_value_is_refused_by_name(card: str, small: Path, tmp_path: Path):
    message = refusal(set_card(small, card), tmp_path)
    assert f"the header's {card[:8].strip()} " in message
    assert "correct the header" in message


@pytest.mark.parametrize("name", ["BITPIX", "NAXIS", "NAXIS2"])
def test_a_header_without_a_mandatory_card_is_refused_by_name(name: str, small: Path, tmp_path: Path):
    assert f"the header's {name} is missing" in refusal(drop_card(small, name), tmp_path)


def test_a_card_without_a_value_counts_as_absent(small: Path, tmp_path: Path):
    set_card(small, "BSCALE  =")
    assert open_cube(small, tmp_path).n_spectra == 12


def test_a_file_cut_short_after_it_was_opened_is_refused(small: Path, tmp_path: Path):
    cube = open_cube(small, tmp_path)
    small.write_bytes(small.read_bytes()[:3000])
    with pytest.raises(CubeError, match="became shorter"):
        list(cube.blocks(5))


@pytest.mark.parametrize(("size", "start"), [(0, 0), (5, -1), (5, 13)])
def test_blocks_outside_the_cube_are_a_callers_mistake(size: int, start: int, small: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"size is|start is"):
        list(open_cube(small, tmp_path).blocks(size, start))


@pytest.mark.slow
@settings(deadline=None, max_examples=300, suppress_health_check=REUSES_TMP_PATH)
@given(
    packed=st.booleans(),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=12),
    header_flips=st.lists(st.tuples(st.integers(0, 1599), st.integers(32, 126)), max_size=6),
    kept=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_a_corrupted_file_is_a_cube_or_a_cube_error(tmp_path: Path, packed, flips, header_flips, kept):
    path = write_cube(
        tmp_path / "corrupted.fits",
        np.arange(60, dtype=np.int16).reshape(5, 3, 4),
        ["GLON-CAR", "GLAT-CAR", "VRAD"],
        {"CRVAL3": 1.0, "CDELT3": 2.0, "CRPIX3": 1.0, "CUNIT3": "m/s", "BUNIT": "K", "OBJECT": "x"},
    )
    for card in ("BSCALE  = 1.5", "BZERO   = 2.0", "BLANK   = -1"):
        set_card(path, card)
    raw = bytearray(path.read_bytes())
    for at, byte in header_flips:
        raw[at] = byte
    raw = bytearray(gzip.compress(raw)) if packed else raw
    for at, byte in flips:
        raw[int(at * len(raw))] = byte
    path.write_bytes(raw[: math.ceil(kept * len(raw))])
    try:
        cube = open_cube(path, tmp_path)
    except CubeError:
        return
    spectra, x, y = all_spectra(cube)
    assert spectra.shape == (cube.n_spectra, cube.n_channels)
    assert len(x) == len(y) == cube.n_spectra


# memory


@pytest.mark.parametrize("position", [0, 1, 2])
def test_memory_is_bounded_by_the_slab_and_not_by_the_cube(position: int, tmp_path: Path, monkeypatch):
    slab = 2**19
    monkeypatch.setattr(cube_module, "SLAB_BYTES", slab)
    axes = [("RA---SIN", 120), ("DEC--SIN", 160)]
    axes.insert(position, ("FREQ", 200))
    data = np.ones([length for _, length in reversed(axes)], np.float32)
    path = write_cube(tmp_path / "cube.fits", data, [ctype for ctype, _ in axes])
    file_bytes = data.nbytes
    del data
    cube = open_cube(path, tmp_path)
    tracemalloc.start()
    try:
        n_read = sum(len(block.spectra) for block in cube.blocks(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_read == 120 * 160
    assert peak < 4 * slab < file_bytes / 7
