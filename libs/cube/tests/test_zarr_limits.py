"""Zarr files from outside: what they claim is compared with the limits before memory is allocated for it."""

from __future__ import annotations

import gzip
import io
import re
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import Blosc, Zstd

from prismline_contracts.references import ZARR_LAYOUT, CubeReference
from prismline_cube import CubeReader, limits, reader_of, zarr_zip
from prismline_cube.testing import (
    BAD_CHUNKS,
    BAD_ZARR,
    BLOSC,
    BYTES,
    CTYPES,
    GZIP,
    SHAPE,
    VALUES,
    ZSTD,
    grid,
    zarr_file,
    zip_file,
)
from prismline_cube.zip_members import open_zip

SPECTRA = VALUES.reshape(SHAPE[0], -1).T


class Bucket:
    """A bucket with one object. Like `prismline_runtime.Bucket`, it refuses a range that does not arrive whole."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def size(self, key: str, *, etag: str) -> int:
        return len(self.body)

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> io.BytesIO:
        return io.BytesIO(self.body)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        assert 0 <= start <= stop <= len(self.body), "S3 would answer with fewer bytes, which counts as transient"
        return self.body[start:stop]


def reader(body: bytes, shape: tuple[int, ...] = SHAPE) -> CubeReader:
    fields = {
        "layout": ZARR_LAYOUT, "key": "k", "etag": "e", "offset": 0, "bitpix": -32, "axes": list(reversed(shape)),
        "spectral_axis": 3, "first": 0, "count": shape[1] * shape[2],
    }  # fmt: skip
    return reader_of(CubeReference.model_validate(fields), Bucket(body))


def spectra(body: bytes, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    return np.concatenate([slab.stored for slab in reader(body, shape).slabs(0, shape[1] * shape[2])])


@pytest.mark.parametrize("name", BAD_ZARR)
def test_an_array_that_claims_too_much_is_refused_before_it_is_read(name: str) -> None:
    body, message = BAD_ZARR[name]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=re.escape(message)):
            reader(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_a_stored_chunk_decodes_to_its_own_size_or_is_refused(name: str) -> None:
    body, message = BAD_CHUNKS[name]
    opened = reader(body)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=re.escape(message)):
            list(opened.slabs(0, 1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 2**20


@pytest.mark.parametrize(
    ("codecs", "chunk"),
    [
        ([BYTES, BLOSC], Blosc().encode(VALUES.tobytes())),
        ([BYTES, ZSTD], Zstd().encode(VALUES.tobytes())),
        ([BYTES, GZIP], gzip.compress(VALUES.tobytes())),
        (["bytes", "gzip"], gzip.compress(VALUES.tobytes())),
        (
            [{"name": "transpose", "configuration": {"order": [2, 1, 0]}}, BYTES, ZSTD],
            Zstd().encode(np.ascontiguousarray(VALUES.T).tobytes()),
        ),
    ],
)
def test_every_codec_of_the_specification_is_read(codecs: Any, chunk: bytes) -> None:
    np.testing.assert_array_equal(spectra(zarr_file(bytes(chunk), codecs=codecs)), SPECTRA)


def test_large_stored_chunks_are_decoded_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = {f"c/{c}/{y}/{x}": _piece(c, y, x).tobytes() for c in range(3) for y in range(2) for x in range(3)}
    body = zarr_file(more=chunks, chunk_grid=grid([2, 3, 2]))
    for most in (1, 2 * 3 * 2 * 4, 3 * 2 * 3 * 2 * 4, 10**6):
        monkeypatch.setattr(zarr_zip, "DECODED_BYTES", most)
        np.testing.assert_array_equal(spectra(body), SPECTRA)
        np.testing.assert_array_equal(reader(body).gather(np.array([3, 7, 8])), SPECTRA[[3, 7, 8]])


@pytest.mark.parametrize("most", [1, 100, 10 * 8 * 4, 3 * 10 * 8 * 4, 10**6])
def test_the_chunks_of_few_shards_are_decoded_at_the_same_time(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zarr_zip, "DECODED_BYTES", most)
    with zarr.storage.ZipStore(tmp_path / "cube.zarr.zip", mode="w") as store:
        cards = {"attributes": CTYPES, "shape": SHAPE, "dtype": "f4"}
        zarr.create_array(store, chunks=(2, 2, 2), shards=(2, 4, 4), **cards)[...] = VALUES  # type: ignore[arg-type]
    np.testing.assert_array_equal(spectra((tmp_path / "cube.zarr.zip").read_bytes()), SPECTRA)


def _piece(c: int, y: int, x: int) -> np.ndarray[Any, Any]:
    """A stored chunk of (2, 3, 2), padded where it lies outside the array."""
    padded = np.zeros((6, 6, 6), "<f4")
    padded[:, :4, :5] = VALUES
    return np.ascontiguousarray(padded[2 * c : 2 * c + 2, 3 * y : 3 * y + 3, 2 * x : 2 * x + 2])


def test_a_row_that_is_longer_than_a_slab_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_zip, "SLAB_BYTES", 2 * SHAPE[0] * 4)
    slabs = list(reader(zarr_file()).slabs(3, 18))
    assert max(len(slab.stored) for slab in slabs) == 2
    assert [slab.start for slab in slabs] == list(np.cumsum([3, *(len(slab.stored) for slab in slabs)]))[:-1]
    np.testing.assert_array_equal(np.concatenate([slab.stored for slab in slabs]), SPECTRA[3:18])


def test_a_list_of_members_that_is_too_long_is_refused_before_it_is_read() -> None:
    body = zip_file({f"{n:060}": b"" for n in range(200)})
    with pytest.raises(ValueError, match="its list of members has 21,200 bytes; at most 1,000 are read"):
        open_zip(io.BytesIO(body), most=1000)
    assert len(open_zip(io.BytesIO(body)).namelist()) == 200


def test_a_member_may_be_longer_than_the_list_of_members() -> None:
    body = zip_file({"a": bytes(5000)})
    with open_zip(io.BytesIO(body), most=1000) as archive:
        assert len(archive.read(zipfile.ZipInfo("a").filename)) == 5000


def test_a_compressed_file_may_always_decode_to_some_size_and_more_in_proportion() -> None:
    assert limits.most_expanded(1) == limits.ALWAYS_EXPANDED_BYTES
    assert limits.most_expanded(10**9) == limits.MAX_EXPANSION * 10**9
