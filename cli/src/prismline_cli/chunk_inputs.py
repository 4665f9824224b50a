"""The spectra that a run processed, read from the inputs of its chunks: files of their own, or ranges of the cube."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismline_cli.connection import Connection
from prismline_cli.results import Pixel
from prismline_contracts.items import ChunkItem, ChunkStatus
from prismline_contracts.references import CubeReference
from prismline_cube import CubeReader, reader_of
from prismline_runtime import Bucket, reader_errors

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class ChunkInputs:
    """The spectra of a run's completed chunks."""

    def __init__(self, connection: Connection, run_id: str, nx: int, *, download_to: Path) -> None:
        """nx: spectra in a row of the cube.

        download_to: a folder to which the cube is downloaded when the first chunk refers to it.
        """
        self._connection = connection
        self._nx = nx
        self._download_to = download_to
        self._chunks = sorted(connection.ledger.chunks(run_id, status=ChunkStatus.COMPLETED), key=_start)
        self._starts = [_start(chunk) for chunk in self._chunks]
        self._copy = lru_cache(maxsize=1)(self._read_copy)
        self._readers: dict[str, CubeReader] = {}

    @property
    def cube_bucket(self) -> str | None:
        """The bucket of the cube, if chunks refer to a cube in another bucket than the environment's."""
        references = (chunk.cube_reference for chunk in self._chunks)
        return next((reference.bucket for reference in references if reference is not None), None)

    def spectra(self, pixels: Iterable[Pixel]) -> dict[Pixel, NDArray[np.floating]]:
        """The spectra (n_channels,) at those of the pixels that a completed chunk holds."""
        copied: dict[str, list[Pixel]] = {}
        referred: dict[str, tuple[CubeReference, list[Pixel]]] = {}
        for pixel in pixels:
            if (chunk := self._holder(pixel)) is None:
                continue
            if (reference := chunk.cube_reference) is None:
                copied.setdefault(chunk.chunk_key, []).append(pixel)
            else:  # references to one cube differ only in `first` and `count`, so one reader serves all chunks
                whole = reference.model_copy(update={"first": 0, "count": reference.n_spectra})
                referred.setdefault(whole.model_dump_json(), (whole, []))[1].append(pixel)
        found = {}
        for key, members in copied.items():
            index, data = self._copy(key)
            found.update({pixel: data[index[pixel]] for pixel in members if pixel in index})
        for name, (whole, members) in referred.items():
            ordered = sorted(set(members), key=self._index)
            places = np.array([self._index(pixel) for pixel in ordered], dtype=np.int64)
            with reader_errors(f"The cube {whole.key} cannot be read"):
                found.update(zip(ordered, _read(self._reader(name, whole), places), strict=True))
        return found

    def _index(self, pixel: Pixel) -> int:
        return pixel[1] * self._nx + pixel[0]

    def _holder(self, pixel: Pixel) -> ChunkItem | None:
        if not 0 <= pixel[0] < self._nx:
            return None
        place = bisect_right(self._starts, self._index(pixel)) - 1
        if place < 0 or self._index(pixel) >= self._starts[place] + self._chunks[place].n_items:
            return None
        return self._chunks[place]

    def _read_copy(self, key: str) -> tuple[dict[Pixel, int], NDArray[np.floating]]:
        """The row of each pixel in the file of a chunk, and the file's spectra (n, n_channels)."""
        body = self._connection.s3.get_object(Bucket=self._connection.bucket, Key=key)["Body"].read()
        with (
            reader_errors(f"The chunk file {key} cannot be read"),
            np.load(io.BytesIO(body), allow_pickle=False) as chunk,
        ):
            pixels = zip(chunk["x"].tolist(), chunk["y"].tolist(), strict=True)
            return {pixel: n for n, pixel in enumerate(pixels)}, chunk["spectra"]

    def _reader(self, name: str, whole: CubeReference) -> CubeReader:
        if name not in self._readers:
            bucket = Bucket(self._connection.s3, whole.bucket or self._connection.bucket)
            self._readers[name] = reader_of(whole, Downloads(self._connection.s3, bucket, self._download_to))
        return self._readers[name]


class Downloads:
    """A bucket whose objects are downloaded to a folder when they are first read. It serves a `CubeReader`."""

    def __init__(self, s3: S3Client, bucket: Bucket, folder: Path) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._folder = folder
        self._files: dict[tuple[str, str], BinaryIO] = {}

    def size(self, key: str, *, etag: str) -> int:
        """Length of one version of an object, in bytes."""
        return os.fstat(self._file(key, etag).fileno()).st_size

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> BinaryIO:  # noqa: ARG002 - the file has its size
        """One version of an object as a seekable file."""
        return Path(self._file(key, etag).name).open("rb", buffering=part_bytes)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        """The bytes `start` to `stop` (exclusive) of one version of an object."""
        return os.pread(self._file(key, etag).fileno(), stop - start, start)

    def _file(self, key: str, etag: str) -> BinaryIO:
        if (key, etag) not in self._files:
            path = self._folder / f"cube-{len(self._files)}"
            self._s3.download_file(self._bucket.name, key, str(path))
            self._bucket.size(key, etag=etag)  # raises an error if the object now has another version
            self._files[key, etag] = path.open("rb")
        return self._files[key, etag]


def _read(reader: CubeReader, places: NDArray[np.int64]) -> NDArray[np.floating]:
    """The spectra (n, n_channels) with these indices, which ascend. Neighbours are read together."""
    first, stop = int(places[0]), int(places[-1]) + 1
    if stop - first > 2 * len(places):
        return reader.gather(places)
    stored = np.concatenate([slab.stored for slab in reader.slabs(first, stop)])[places - first]
    spectra = np.empty(stored.shape, reader.layout.dtype)
    reader.layout.stored.physical(stored, spectra)
    return spectra


def _start(chunk: ChunkItem) -> int:
    """The index of the chunk's first spectrum in the cube."""
    return int(chunk.chunk_id.removeprefix("chunk-"))
