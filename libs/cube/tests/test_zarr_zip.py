"""Spectra of a cube in a Zarr array in a ZIP file: each is the one at its pixel, and no needless bytes are read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.references import ZARR_LAYOUT, CubeReference
from prismline_cube import CubeReader, Grid, UnknownLayoutError, reader_of, zarr_zip

NY, NX, CHANNELS = 9, 7, 11
VALUES = np.arange(CHANNELS * NY * NX, dtype=np.float32).reshape(CHANNELS, NY, NX)
#: Spectrum y * NX + x is the one at (x, y).
SPECTRA = VALUES.reshape(CHANNELS, -1).T
CHUNKS = (4, 3, 5)


class Bucket:
    """A bucket with one object, which counts what is read of it."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.ranges: list[tuple[int, int]] = []

    def size(self, key: str, *, etag: str) -> int:
        return len(self.body)

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> io.BytesIO:
        return io.BytesIO(self.body)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        self.ranges.append((start, stop))
        assert stop <= len(self.body), "S3 refuses a range that ends behind the object"
        return self.body[start:stop]

    def reader(self, **changes: Any) -> CubeReader:
        fields = {
            "layout": ZARR_LAYOUT, "key": "k", "etag": "e", "offset": 0, "bitpix": -32, "axes": [NX, NY, CHANNELS],
            "spectral_axis": 3, "first": 0, "count": NX * NY,
        }  # fmt: skip
        return reader_of(CubeReference.model_validate(fields | changes), self)


Write = Callable[..., Bucket]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Returns a function that writes the values as an array. `changes` replace arguments of `create_array`."""

    def written(names: tuple[str, ...] = ("",), **changes: Any) -> Bucket:
        given = {"shape": VALUES.shape, "chunks": CHUNKS, "dtype": "f4", "attributes": {"CTYPE1": "RA---SIN"}}
        with zarr.storage.ZipStore(tmp_path / "cube.zarr.zip", mode="w") as store:
            for name in names:
                zarr.create_array(store, name=name or None, **(given | changes))[...] = VALUES
        return Bucket((tmp_path / "cube.zarr.zip").read_bytes())

    return written


@pytest.mark.parametrize("shards", [None, (8, 6, 10)])
@pytest.mark.parametrize(("start", "stop"), [(0, NX * NY), (0, 1), (5, 9), (20, 50), (NX * NY - 1, NX * NY)])
@pytest.mark.parametrize("slab_bytes", [2**20, 4 * NX * CHANNELS * 4, 1])
def test_slabs_hold_consecutive_spectra(
    write: Write, monkeypatch: pytest.MonkeyPatch, shards: Any, start: int, stop: int, slab_bytes: int
) -> None:
    monkeypatch.setattr(zarr_zip, "SLAB_BYTES", slab_bytes)
    slabs = list(write(shards=shards).reader().slabs(start, stop))
    assert [slab.start for slab in slabs] == list(np.cumsum([start, *(len(slab.stored) for slab in slabs)]))[:-1]
    assert (np.concatenate([slab.stored for slab in slabs]) == SPECTRA[start:stop]).all()


@pytest.mark.parametrize("index", [[0], [3, 4, 30, 31, 62], list(range(NX * NY))])
def test_single_spectra_are_found(write: Write, index: list[int]) -> None:
    assert (write().reader().gather(np.array(index)) == SPECTRA[index]).all()


def test_whole_stored_chunks_are_read_once(write: Write) -> None:
    bucket = write()
    reader, grid = bucket.reader(), Grid((NX, NY, CHANNELS), CHUNKS[::-1], 3)
    bucket.ranges.clear()
    for start in range(0, NX * NY, grid.together):
        before = len(bucket.ranges)
        list(reader.slabs(start, start + grid.together))
        assert len(bucket.ranges) - before == grid.count(start, start + grid.together)
    assert len(set(bucket.ranges)) == len(bucket.ranges) == 3 * 3 * 2


def test_a_chunk_that_was_not_written_has_the_fill_value(write: Write) -> None:
    bucket = write(fill_value=0.0, config={"write_empty_chunks": False})
    with zipfile.ZipFile(io.BytesIO(bucket.body)) as archive:
        kept = {name: archive.read(name) for name in archive.namelist() if name != "c/0/0/0"}
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
    (slab,) = Bucket(body.getvalue()).reader().slabs(0, 6)
    assert (slab.stored[:5, :4] == 0).all()
    assert (slab.stored[:, 4:] == SPECTRA[:6, 4:]).all()
    assert (slab.stored[5] == SPECTRA[5]).all()


def test_a_damaged_chunk_is_noticed(write: Write) -> None:
    bucket = write(compressors=None)
    at = bucket.body.index(VALUES[:4, :3, :5].tobytes()[:16])
    bucket.body = bucket.body[:at] + b"?" + bucket.body[at + 1 :]
    with pytest.raises(ValueError, match=r"its values cannot be read .*checksum"):
        list(bucket.reader().slabs(0, 5))


@pytest.mark.parametrize(
    ("names", "changes", "message"),
    [
        (("",), {"attributes": {}}, "0 of its 1 arrays have a FITS header"),
        (("a", "b"), {}, "2 of its 2 arrays have a FITS header"),
        (("",), {"dtype": "c8"}, "its values are complex64"),
    ],
)
def test_an_archive_without_a_cube_is_refused(write: Write, names: tuple[str, ...], changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write(names, **changes).reader()


def test_files_that_are_not_such_an_archive_are_refused(write: Write) -> None:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zarr.json", "{}")
    with pytest.raises(ValueError, match=r"compresses zarr\.json; write it uncompressed"):
        Bucket(body.getvalue()).reader()
    with pytest.raises(ValueError, match="not a complete ZIP file"):
        Bucket(write().body[:-100]).reader()


def test_an_array_or_layout_other_than_the_references_is_refused(write: Write) -> None:
    with pytest.raises(ValueError, match="its array has the axes"):
        write().reader(axes=[NX, NY, CHANNELS + 1])
    with pytest.raises(UnknownLayoutError, match="layout newer"):
        write().reader(layout="newer")


@given(
    axes=st.lists(st.integers(1, 12), min_size=3, max_size=3),
    pieces=st.lists(st.integers(1, 12), min_size=3, max_size=3),
    spectral_axis=st.integers(1, 3),
)
def test_parts_that_are_multiples_of_a_stored_row_read_every_stored_chunk_once(
    axes: list[int], pieces: list[int], spectral_axis: int
) -> None:
    grid = Grid(tuple(axes), tuple(pieces), spectral_axis)
    n = int(np.prod(axes)) // axes[spectral_axis - 1]
    starts = range(0, n, grid.together)
    counted = sum(grid.count(start, min(start + grid.together, n)) for start in starts)
    assert counted == grid.count(0, n)
    spatial = [(length, piece) for number, (length, piece) in enumerate(zip(axes, pieces, strict=True), start=1)]
    assert counted == int(np.prod([-(-length // piece) for length, piece in spatial]))
