"""Spectra that the console shows: if the input of a chunk cannot be read, the answer has the reason."""

from __future__ import annotations

import io
import struct
import zipfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prismline_api.maps.chunk_spectra import read_spectra
from prismline_contracts.references import ZARR_LAYOUT, CubeReference
from prismline_cube.testing import BAD_CHUNKS, BAD_ZARR, zip_file
from prismline_runtime import PermanentError

SPECTRA = np.arange(24, dtype=np.float32).reshape(3, 8)


class Bucket:
    """A bucket with one object."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def version(self, key: str) -> str:
        return "e"

    def size(self, key: str, *, etag: str) -> int:
        return len(self.body)

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> io.BytesIO:
        return io.BytesIO(self.body)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        return self.body[start:stop]


def spectra(body: bytes, reference: CubeReference | None = None) -> Any:
    chunk: Any = SimpleNamespace(chunk_key="k", cube_reference=reference)
    bucket: Any = Bucket(body)
    return read_spectra(chunk, range(1, 3), bucket, lambda _: bucket)


def npz(spectra: bytes) -> bytes:
    return zip_file({"spectra.npy": spectra})


def npy(header: bytes, version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header


def test_rows_of_a_chunk_file_are_read() -> None:
    body = io.BytesIO()
    np.savez(body, spectra=SPECTRA)
    np.testing.assert_array_equal(spectra(body.getvalue()), SPECTRA[1:])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"PK\3\4",
        npz(b""),
        npz(npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, -8), }\n")),
        npz(npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 10000000000), }\n")),
        npz(npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 8), }\n")),
        npz(npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (3, 8), }\n")),
        npz(npy(b"(" * 9000)),
        npz(b"\x93NUMPY\2\0" + b"\xff" * 4),
    ],
)
def test_a_damaged_chunk_file_is_a_permanent_error(body: bytes) -> None:
    with pytest.raises(PermanentError, match="The spectra of the chunk cannot be read: ") as caught:
        spectra(body)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", [*BAD_ZARR, *BAD_CHUNKS])
def test_a_hostile_zarr_cube_is_a_permanent_error(name: str) -> None:
    reference = CubeReference(
        layout=ZARR_LAYOUT, key="k", etag="e", offset=0, bitpix=-32, axes=[5, 4, 6], spectral_axis=3, first=0, count=20
    )
    with pytest.raises(PermanentError, match="The spectra of the chunk cannot be read: ") as caught:
        spectra((BAD_ZARR | BAD_CHUNKS)[name][0], reference)
    assert str(caught.value).isprintable()


def test_a_zip_file_with_a_long_list_of_members_is_refused_before_it_is_read() -> None:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for n in range(200):
            archive.writestr(f"{n:060000}", b"")
    with pytest.raises(PermanentError, match="its list of members has"):
        spectra(body.getvalue())
