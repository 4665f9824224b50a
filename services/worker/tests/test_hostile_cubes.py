"""Chunks that refer to a hostile cube fail with one sentence; errors of the storage stay transient."""

from __future__ import annotations

import io
from typing import Any

import pytest

from prismline_contracts.objects import CubeGeometry
from prismline_contracts.references import ZARR_LAYOUT, CubeReference
from prismline_cube.testing import BAD_CHUNKS, BAD_ZARR, zarr_file
from prismline_runtime import PermanentError, UnavailableError
from prismline_worker.cube_chunk import CubeChunk

REFERENCE = CubeReference(
    layout=ZARR_LAYOUT, key="c.zip", etag="e", offset=0, bitpix=-32, axes=[5, 4, 6], spectral_axis=3, first=0, count=20
)
GEOMETRY = CubeGeometry(
    n_channels=6, ny=4, nx=5, ctype="VRAD", crval=0.0, crpix=1.0, cdelt=1.0, cunit="m/s", bunit="K", object_name="",
    cube_key="c.zip",
)  # fmt: skip


class Bucket:
    """A bucket with one object. `broken`: no read is answered."""

    def __init__(self, body: bytes, *, broken: bool = False) -> None:
        self.body = body
        self.broken = broken

    def size(self, key: str, *, etag: str) -> int:
        return len(self.body)

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> io.BytesIO:
        return io.BytesIO(self.body)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        if self.broken:
            raise UnavailableError("S3 is down.")
        assert 0 <= start <= stop <= len(self.body), "S3 would answer with fewer bytes, which counts as transient"
        return self.body[start:stop]


def chunk(body: bytes, geometry: CubeGeometry = GEOMETRY, **how: Any) -> CubeChunk:
    bucket: Any = Bucket(body, **how)
    return CubeChunk(REFERENCE, geometry, bucket, bucket)


@pytest.mark.parametrize("name", [*BAD_ZARR, *BAD_CHUNKS])
def test_a_hostile_cube_is_a_permanent_error_with_one_sentence(name: str) -> None:
    body, message = (BAD_ZARR | BAD_CHUNKS)[name]
    with pytest.raises(PermanentError) as caught:
        list(chunk(body).blocks())
    assert "c.zip" in str(caught.value)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_single_spectra_of_a_damaged_chunk_are_a_permanent_error(name: str) -> None:
    with pytest.raises(PermanentError, match=r"The cube c\.zip is damaged: "):
        chunk(BAD_CHUNKS[name][0]).take([3])


def test_an_error_of_the_storage_is_not_the_cubes_fault() -> None:
    with pytest.raises(UnavailableError, match="S3 is down"):
        list(chunk(zarr_file(), broken=True).blocks())


def test_coordinates_that_no_projection_has_are_a_permanent_error() -> None:
    wrong = GEOMETRY.model_copy(update={"celestial": {"CTYPE1": "GLON-CAR", "CTYPE2": "GLAT-TAN"}})
    with pytest.raises(PermanentError, match=r"The coordinates of the cube c\.zip cannot be read: "):
        chunk(zarr_file(), wrong)
