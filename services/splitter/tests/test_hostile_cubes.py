"""Cubes and noise from outside that claim more than they hold: each is refused before it costs time or memory."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from hypothesis import given
from hypothesis import strategies as st

from prismline_cube import gunzip, limits, plain_fits
from prismline_cube.cube_file import open_cube, read_header
from prismline_cube.errors import CubeError
from prismline_cube.header import CubeHeader
from prismline_cube.testing import (
    BAD_CHUNKS,
    BAD_FITS,
    BAD_ZARR,
    VALUES,
    empty_hdus,
    fits_file,
    fits_header,
    tiles,
    zarr_file,
)
from prismline_splitter.noise import read_noise

BAD = BAD_FITS | BAD_ZARR | BAD_CHUNKS


def cube_of(body: bytes, folder: Path) -> CubeHeader:
    path = folder / "cube"
    path.write_bytes(body)
    return open_cube(path, folder)


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_cube_is_refused_with_the_cause_in_bounded_memory(name: str, tmp_path: Path) -> None:
    body, message = BAD[name]
    tracemalloc.start()
    try:
        with pytest.raises(CubeError) as caught:
            cube_of(body, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message in str(caught.value)
    assert str(caught.value).isprintable()
    assert peak < 50 * 2**20


@pytest.mark.parametrize("body", [fits_file(), tiles(), gzip.compress(fits_file()), zarr_file()])
def test_the_files_that_the_hostile_ones_are_made_of_are_cubes(body: bytes, tmp_path: Path) -> None:
    (block,) = cube_of(body, tmp_path).blocks(100)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(block.spectra, VALUES.reshape(6, -1).T)


class CountingFile(io.BytesIO):
    """A file that counts the bytes that are read of it."""

    n_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        body = super().read(size)
        self.n_read += len(body)
        return body


@pytest.mark.parametrize("n", [200, 7000])
def test_the_headers_of_empty_hdus_are_read_up_to_a_limit_whatever_the_size_of_the_file(n: int) -> None:
    body = empty_hdus(n)
    file = CountingFile(body)
    with pytest.raises(CubeError, match="the first 100 HDUs of the file hold no image data"):
        read_header(file, len(body))
    assert file.n_read <= 6 + limits.MAX_HDUS * 64 * 2**10


def test_an_image_behind_some_empty_hdus_is_found(tmp_path: Path) -> None:
    image = fits_file().replace(b"SIMPLE  =                    T", b"XTENSION= 'IMAGE   '          ")
    assert cube_of(empty_hdus(limits.MAX_HDUS - 1) + image, tmp_path).n_spectra == 20


@pytest.mark.parametrize(
    "cards", [{"A_ORDER": 10**9}, {"BP_ORDER": 30_000}, {"WCSAXES": 30_000}, {"WCSAXESB": 30_000}, {"A_ORDER": 2.5}]
)
def test_coordinates_that_would_take_gigabytes_are_left_out(cards: dict[str, Any], tmp_path: Path) -> None:
    assert cube_of(fits_file(CRPIX1=1.0, CDELT1=0.1), tmp_path).celestial is not None
    assert cube_of(fits_file(CRPIX1=1.0, CDELT1=0.1, **cards), tmp_path).celestial is None


def test_a_long_text_of_the_header_is_refused_because_each_chunk_would_hold_it(tmp_path: Path) -> None:
    with pytest.raises(CubeError, match="header's OBJECT has 2,000 characters; at most 1,000"):
        cube_of(
            zarr_file(attributes={"CTYPE1": "RA", "CTYPE2": "DEC", "CTYPE3": "VRAD", "OBJECT": "x" * 2000}), tmp_path
        )


def test_a_gzip_file_in_many_blocks_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gunzip, "ALWAYS_MEMBERS", 2)
    body = fits_file()
    blocks = [gzip.compress(body[at : at + 2048]) for at in range(0, len(body), 2048)]
    assert cube_of(b"".join([*blocks, gzip.compress(b""), bytes(100)]), tmp_path).n_spectra == 20


# ---- tiles


def test_a_tile_outside_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CubeError, match="a tile of the compressed cube lies outside the file"):
        cube_of(with_descriptor(100, 2**20), tmp_path)
    with pytest.raises(CubeError, match="a tile of the compressed cube lies outside the file"):
        cube_of(with_descriptor(10, -8), tmp_path)


def test_a_tile_that_is_longer_than_its_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CubeError, match="a compressed tile is longer than its values"):
        cube_of(with_descriptor(1100, 0), tmp_path)


def with_descriptor(length: int, offset: int, body: bytes | None = None) -> bytes:
    """A tile-compressed cube whose first tile has `length` bytes from byte `offset` of the heap on."""
    body = tiles() if body is None else body
    with fits.open(io.BytesIO(body), disable_image_compression=True) as units:
        at = units[1].fileinfo()["datLoc"]
    return body[:at] + np.array([length, offset], ">i4").tobytes() + body[at + 8 :]


def test_a_large_tile_that_expands_too_far_is_refused_before_astropy_reads_it(tmp_path: Path) -> None:
    """A tile of 2.5 MB is replaced by 72 MiB of zeros, which are 72 KB of deflated bytes."""
    values = np.zeros((2, 1000, 1280), ">i2")
    values[0] = np.random.default_rng(0).integers(0, 2**15, values[0].shape)  # room in the heap
    unit = fits.CompImageHDU(
        values, fits.Header({"CTYPE3": "VRAD"}), compression_type="GZIP_1", tile_shape=(1, 1000, 1280)
    )
    file = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(file)
    body = file.getvalue()
    with fits.open(io.BytesIO(body), disable_image_compression=True) as units:
        table, header = units[1].fileinfo()["datLoc"], units[1].header
    heap = table + header["NAXIS1"] * header["NAXIS2"]
    bomb = gzip.compress(bytes(72 * 2**20), 9)
    assert len(bomb) < header["PCOUNT"]
    body = body[:heap] + bomb + body[heap + len(bomb) :]
    tracemalloc.start()
    try:
        with pytest.raises(CubeError, match="a tile of the compressed cube expands too far"):
            cube_of(with_descriptor(len(bomb), 0, body), tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * 2**20


# ---- parts of values


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    stored=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    part_bytes=st.integers(1, 300),
)
def test_values_are_written_in_their_order_whatever_the_parts(
    shape: list[int], stored: list[int], part_bytes: int
) -> None:
    values, file = np.arange(np.prod(shape), dtype=">i2").reshape(shape), io.BytesIO()
    file.write(b"head")
    pieces = stored[: len(shape)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_fits, "PART_BYTES", part_bytes)
        steps = plain_fits.part_shape(shape, pieces, 2)
        plain_fits.write_values(file, 16, shape, pieces, values.__getitem__)
    assert file.getvalue()[4 : 4 + values.nbytes] == values.tobytes()
    assert len(file.getvalue()) == 4 + -(-values.nbytes // plain_fits.RECORD_BYTES) * plain_fits.RECORD_BYTES
    assert np.prod(steps) * 2 <= max(part_bytes, 2 * np.prod(np.minimum(pieces, shape)))


# ---- noise


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (fits_header(SIMPLE=True, BITPIX=-32, NAXIS=2, NAXIS1=10**6, NAXIS2=10**6), "the file is truncated"),
        (fits_header(SIMPLE=True, BITPIX=-32, NAXIS=2, NAXIS1=10**6, NAXIS2=10**6, GCOUNT=0), "GCOUNT is 0"),
        (empty_hdus(7000), "the first 100 HDUs"),
        (b"1\n" * 2**20, "nor a list of numbers of sensible length"),
        (b"\xff\xfe", "neither FITS nor a text file"),
        (tiles(ZNAXIS3=10**9), "expands to 80,000,000,000 bytes"),
        (fits_file(), r"its shape is (6, 4, 5)"),
    ],
)
def test_a_hostile_noise_is_refused(body: bytes, message: str, tmp_path: Path) -> None:
    cube = cube_of(fits_file(), tmp_path)
    path = tmp_path / "noise"
    path.write_bytes(body)
    with pytest.raises(CubeError) as caught:
        read_noise(path, cube, tmp_path)
    assert message in str(caught.value)


def test_a_tile_compressed_map_of_the_noise_is_read(tmp_path: Path) -> None:
    noise = np.arange(1, 21, dtype="f4").reshape(4, 5)
    unit = fits.CompImageHDU(noise, compression_type="GZIP_2", quantize_level=0)
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(tmp_path / "noise")
    found = read_noise(tmp_path / "noise", cube_of(fits_file(), tmp_path), tmp_path)
    np.testing.assert_array_equal(found[:, 0], noise.ravel())
