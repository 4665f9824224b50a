"""Both inputs of a chunk, a copy of its spectra and a reference to the cube, give the same output, byte for byte."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from astropy.io import fits

from prismline_contracts.chunk_input import CHUNK_ARRAYS, CHUNK_GEOMETRY_MEMBER
from prismline_cube import plain_fits, ranges, reading, stored
from prismline_runtime import PermanentError
from prismline_worker.chunk_file import ChunkFile
from tests.cubes import NOISE, header, spectra
from tests.workload_kit import Kit, Worked

NY, NX, CHANNELS = 6, 7, 60
WORKER = {"deadline_margin_seconds": 1.0, "spectrum_budget_seconds": 60.0}
#: Orders of the axes in the file; the slowest axis is first.
SPECTRAL_LAST, SPECTRAL_MIDDLE, SPECTRAL_FIRST = "cyx", "ycx", "yxc"


def cube_body(bitpix: int = -32, order: str = SPECTRAL_LAST, axes: int = 3, **cards: Any) -> bytes:
    """A FITS cube with blank channels and blank spectra, whose values are stored in the type `bitpix`."""
    values = spectra(NY, NX, CHANNELS).astype(np.float64)
    missing = np.zeros(values.shape, bool)
    missing[:, 2, 3] = missing[10:20, 1, :] = missing[:, 5, 5:] = True
    scale, zero = (0.1, -1.0) if bitpix > 0 else (1.0, 0.0)
    stored: np.ndarray[Any, Any]
    if bitpix > 0:
        kinds = {8: np.uint8, 16: np.int16, 32: np.int32, 64: np.int64}
        stored = np.clip(np.round((values - zero) / scale), 0, 254).astype(kinds[bitpix])
        stored[missing] = 255
        cards = {"BSCALE": scale, "BZERO": zero, "BLANK": 255} | cards
    else:
        stored = np.where(missing, np.nan, values).astype({-32: np.float32, -64: np.float64}[bitpix])
    stored = stored.transpose(["cyx".index(axis) for axis in order])
    made = header()
    of = {"x": "1", "y": "2", "c": "3"}
    turned = fits.Header()
    for number, axis in enumerate(reversed(order), start=1):
        for name in ("CTYPE", "CRPIX", "CRVAL", "CDELT", "CUNIT"):
            if f"{name}{of[axis]}" in made:
                turned[f"{name}{number}"] = made[f"{name}{of[axis]}"]
    for name, value in {"x": (49.123456789012345, 4.0, -0.0061288998), "y": (-0.2, 3.0, 0.0061288998)}.items():
        number = order[::-1].index(name) + 1
        turned[f"CRVAL{number}"], turned[f"CRPIX{number}"], turned[f"CDELT{number}"] = value
    turned["BUNIT"] = "K"
    if axes == 4:
        stored = stored[None]
        turned["CTYPE4"] = "STOKES"
    unit = fits.PrimaryHDU(stored, turned, do_not_scale_image_data=True)
    for name, value in cards.items():
        unit.header[name] = value
    body = io.BytesIO()
    unit.writeto(body)
    return body.getvalue()


def work_off(folder: Path, body: bytes, chunk_input: str, **fields: Any) -> tuple[list[Worked], Kit]:
    folder.mkdir()
    kit = Kit(folder)
    kit.put("cubes/c.fits", body)
    kit.put("noise/map", noise_map())
    kit.put("noise/channels", b"\n".join(b"%g" % (NOISE + 0.001 * n) for n in range(CHANNELS)))
    manifest = {"workload": "spectra", "survey": "s", "cube_key": "cubes/c.fits", "chunk_input": chunk_input, **fields}
    return kit.run(manifest, **WORKER), kit


def noise_map() -> bytes:
    body = io.BytesIO()
    fits.PrimaryHDU(NOISE * (1 + np.arange(NY * NX).reshape(NY, NX) / 100)).writeto(body)
    return body.getvalue()


def shrink_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set small limits, so that a chunk needs many slabs and requests, and no request reads a gap."""
    monkeypatch.setattr(reading, "RANGE_BYTES", 20)
    monkeypatch.setattr(ranges, "REQUEST_BYTES", 400)
    for module in (ranges, reading):
        monkeypatch.setattr(module, "NARROW_GAP_BYTES", 0)


#: Every type of values in every order of the axes. Half of the files have an empty fourth axis, in every order.
FILES = [
    (bitpix, order, 3 + (place + turn) % 2)
    for place, bitpix in enumerate([8, 16, 32, 64, -32, -64])
    for turn, order in enumerate([SPECTRAL_LAST, SPECTRAL_MIDDLE, SPECTRAL_FIRST])
]


@pytest.mark.parametrize(("small", "chunk_size"), [(False, 14), (True, 10)])
@pytest.mark.parametrize(("bitpix", "order", "axes"), FILES)
def test_a_reference_gives_the_same_parquet_as_a_copy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bitpix: int,
    order: str,
    axes: int,
    small: bool,
    chunk_size: int,
) -> None:
    if small:
        shrink_limits(monkeypatch)
    body = cube_body(bitpix, order, axes)
    copied, _ = work_off(tmp_path / "copy", body, "copy", chunk_size=chunk_size)
    referred, kit = work_off(tmp_path / "reference", body, "reference", chunk_size=chunk_size)
    assert [chunk.chunk_id for chunk in referred] == [chunk.chunk_id for chunk in copied]
    assert len(copied) == -(-NY * NX // chunk_size)
    for one, other in zip(referred, copied, strict=True):
        assert one.output == other.output
    assert not [key for key in kit.bucket.written if key.endswith(".npz")]


@pytest.mark.parametrize("order", [SPECTRAL_LAST, SPECTRAL_MIDDLE, SPECTRAL_FIRST])
@pytest.mark.parametrize("bitpix", [8, 16, 32, -32, -64])
def test_a_tile_compressed_cube_gives_the_same_parquet_as_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bitpix: int, order: str
) -> None:
    monkeypatch.setattr(plain_fits, "PART_BYTES", 1000)
    body = cube_body(bitpix, order)
    plain, _ = work_off(tmp_path / "plain", body, "reference", chunk_size=10)
    packed, kit = work_off(tmp_path / "packed", in_tiles(body), "auto", chunk_size=10)
    assert [chunk.output for chunk in packed] == [chunk.output for chunk in plain]
    assert [key for key in kit.bucket.written if key.endswith(".npz")]
    with pytest.raises(PermanentError, match=r"is compressed.*chunk input copy or auto"):
        work_off(tmp_path / "refused", in_tiles(body), "reference")


def in_tiles(body: bytes) -> bytes:
    """The cube compressed by fpack without loss."""
    with fits.open(io.BytesIO(body), do_not_scale_image_data=True) as units:
        header, values = units[0].header, units[0].data
        unit = fits.CompImageHDU(values, header, compression_type="GZIP_2", quantize_level=0)
        for card in ("BSCALE", "BZERO", "BLANK"):
            if card in header:
                unit.header[card] = header[card]
        packed = io.BytesIO()
        fits.HDUList([fits.PrimaryHDU(), unit]).writeto(packed)
    return packed.getvalue()


#: Storage layouts of a Zarr array: the lengths of its chunks, c y x, and of its shards.
WHOLE, BLOCKS, SHARDS = ((CHANNELS, NY, NX), None), ((16, 4, 3), None), ((16, 2, 3), (32, 4, 6))


#: BITPIX, order and number of axes, storage layout, and the input of chunks.
ZARR_CASES = [
    *((bitpix, order, 3, BLOCKS, "reference") for bitpix in (8, 16, 32, 64, -32, -64) for order in ("cyx", "yxc")),
    *((bitpix, SPECTRAL_MIDDLE, 4, SHARDS, "reference") for bitpix in (16, -32)),
    (-32, SPECTRAL_LAST, 4, SHARDS, "reference"),
    (-32, SPECTRAL_FIRST, 3, WHOLE, "reference"),
    *((16, order, 4, SHARDS, "copy") for order in (SPECTRAL_LAST, SPECTRAL_MIDDLE, SPECTRAL_FIRST)),
    (-64, SPECTRAL_LAST, 3, BLOCKS, "copy"),
]


@pytest.mark.parametrize(("bitpix", "order", "axes", "pieces", "chunk_input"), ZARR_CASES)
def test_a_zarr_array_gives_the_same_parquet_as_the_fits_cube(
    tmp_path: Path, bitpix: int, order: str, axes: int, pieces: Any, chunk_input: str
) -> None:
    body = cube_body(bitpix, order, axes)
    plain, _ = work_off(tmp_path / "plain", body, "copy", chunk_size=10)
    packed, kit = work_off(tmp_path / "zarr", in_zarr(tmp_path, body, order, pieces), chunk_input, chunk_size=10)
    assert [chunk.output for chunk in packed] == [chunk.output for chunk in plain]
    assert bool([key for key in kit.bucket.written if key.endswith(".npz")]) == (chunk_input == "copy")


def in_zarr(folder: Path, body: bytes, order: str, pieces: Any) -> bytes:
    """The cube as a Zarr v3 array in a ZIP file, with the cards of its header as attributes."""
    with fits.open(io.BytesIO(body), do_not_scale_image_data=True) as units:
        header, values = units[0].header, units[0].data
    turned = [None if lengths is None else tuple(lengths["cyx".index(axis)] for axis in order) for lengths in pieces]
    chunks, shards = (None if lengths is None else (1,) * (values.ndim - 3) + lengths for lengths in turned)
    with zarr.storage.ZipStore(folder / "cube.zarr.zip", mode="w") as store:
        array = zarr.create_array(
            store,
            name="cube",
            shape=values.shape,
            chunks=chunks,
            shards=shards,
            dtype=values.dtype.newbyteorder("="),
            attributes={name: value for name, value in header.items() if name} | {"comment": "not a card"},
        )
        array[...] = values
    return (folder / "cube.zarr.zip").read_bytes()


@pytest.mark.parametrize("noise", [0.25, "noise/map", "noise/channels"])
def test_noise_that_is_given_is_the_same_for_both_inputs(tmp_path: Path, noise: float | str) -> None:
    copied, _ = work_off(tmp_path / "copy", cube_body(), "copy", chunk_size=10, params={"noise": noise})
    referred, _ = work_off(tmp_path / "reference", cube_body(), "reference", chunk_size=10, params={"noise": noise})
    estimated, _ = work_off(tmp_path / "estimated", cube_body(), "reference", chunk_size=10)
    assert [chunk.output for chunk in referred] == [chunk.output for chunk in copied]
    assert [chunk.output for chunk in referred] != [chunk.output for chunk in estimated]


@pytest.mark.parametrize("order", [SPECTRAL_LAST, SPECTRAL_MIDDLE, SPECTRAL_FIRST])
def test_workers_read_each_byte_of_the_cube_once(tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ranges, reading):
        monkeypatch.setattr(module, "NARROW_GAP_BYTES", 0)
    worked, kit = work_off(tmp_path / "run", cube_body(order=order), "reference", chunk_size=10)
    assert len(worked) > 1
    bytes_read = sum(stop - start for start, stop in kit.bucket.ranges)
    assert bytes_read == 2 * NY * NX * CHANNELS * 4  # the kit processes each chunk twice
    starts = sorted({start for start, _ in kit.bucket.ranges})
    assert starts[0] % 2880 == 0, "the first value lies behind the header"


def test_consecutive_spectra_of_a_cube_with_the_spectral_axis_first_are_one_request(tmp_path: Path) -> None:
    worked, kit = work_off(tmp_path / "run", cube_body(order=SPECTRAL_FIRST), "reference", chunk_size=10)
    assert len(kit.bucket.ranges) == 2 * len(worked)


def test_a_small_cube_is_copied_and_one_in_gzip_too(tmp_path: Path) -> None:
    for name, body in {"small": cube_body(), "gzip": gzip.compress(cube_body())}.items():
        _, kit = work_off(tmp_path / name, body, "auto", chunk_size=10)
        assert [key for key in kit.bucket.written if key.endswith(".npz")]
    with pytest.raises(PermanentError, match=r"is compressed.*chunk input copy or auto"):
        work_off(tmp_path / "refused", gzip.compress(cube_body()), "reference")


def test_a_layout_that_the_worker_does_not_know_is_a_permanent_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "FITS_LAYOUT", "older")
    with pytest.raises(PermanentError, match="has the layout fits, which this worker cannot read"):
        work_off(tmp_path / "run", cube_body(), "reference")


@pytest.mark.parametrize("noise", ["noise/map", "noise/channels"])
@pytest.mark.parametrize("bitpix", [-32, -64])
def test_a_copy_is_the_file_that_the_contract_says(tmp_path: Path, noise: str, bitpix: int) -> None:
    copied, _ = work_off(tmp_path / "copy", cube_body(bitpix), "copy", chunk_size=10, params={"noise": noise})
    for chunk in copied:
        sizes = {"n": chunk.n_items, "channels": CHANNELS}
        with np.load(io.BytesIO(chunk.input)) as file:
            assert set(file.files) == {*(each.name for each in CHUNK_ARRAYS), CHUNK_GEOMETRY_MEMBER}
            for each in CHUNK_ARRAYS:
                array = file[each.name]
                assert array.dtype.name in each.types
                assert str(array.shape) in [_with_sizes(shape, sizes) for shape in each.shapes]


def _with_sizes(shape: str, sizes: dict[str, int]) -> str:
    for name, size in sizes.items():
        shape = re.sub(rf"\b{name}\b", str(size), shape)
    return shape


def test_a_worker_needs_the_arrays_that_the_contract_says_and_no_more(tmp_path: Path) -> None:
    (chunk, *_), _ = work_off(tmp_path / "copy", cube_body(), "copy", chunk_size=10, params={"noise": "noise/map"})
    for left_out in CHUNK_ARRAYS:
        file = without(chunk.input, f"{left_out.name}.npy")
        if left_out.required:
            with pytest.raises(PermanentError, match=rf"lacks {left_out.name}\.npy"):
                ChunkFile(file)
        else:
            assert len(ChunkFile(file)) == 10
    assert ChunkFile(without(chunk.input, CHUNK_GEOMETRY_MEMBER)).geometry is None


def without(file: bytes, member: str) -> io.BytesIO:
    """A ZIP file without one of its members."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)) as whole, zipfile.ZipFile(made, "w") as part:
        for name in whole.namelist():
            if name != member:
                part.writestr(name, whole.read(name))
    made.seek(0)
    return made
