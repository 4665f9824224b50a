"""Spectra: each chunk is a file of consecutive spectra of a cube, in the order of their pixels."""

from __future__ import annotations

import zipfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismline_contracts import CHUNK_GEOMETRY_MEMBER, CubeGeometry, SpectraManifest, chunk_id, chunk_key, geometry_key
from prismline_ledger import NewChunk
from prismline_runtime import Bucket, PermanentError, fault_point
from prismline_splitter.chunking import MAX_CHUNK_BYTES, choose_chunk_size
from prismline_splitter.cube import Cube, CubeError, SpectraBlock, is_blank, open_cube
from prismline_splitter.noise import read_noise
from prismline_splitter.workload import Source, Split

#: Spectra are read from the cube and written to a chunk's file in blocks of at most this many bytes.
BLOCK_BYTES = 16 * 2**20
#: Chunk files that are uploaded concurrently. Each needs its size on the disk until its upload is done.
UPLOADS = 2
#: Modification time of everything in a chunk's file, so that the same spectra give the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)


class Spectra:
    """The `spectra` workload: a cube, split into files of consecutive spectra."""

    name = "spectra"
    manifest = SpectraManifest

    def split(self, manifest: SpectraManifest, source: Source) -> Split:
        """Write the cube's geometry and a `.npz` file for each chunk. Memory is bounded, whatever a chunk's size."""
        etag = source.pinned("etag", lambda: source.bucket.version(manifest.cube_key))
        with _cube(source.bucket, manifest.cube_key, etag, source.workdir) as (cube, folder):
            size = source.pinned("chunk_size", lambda: _chunk_size(cube, manifest))
            geometry = geometry_of(cube, manifest.cube_key).model_dump_json(exclude_none=True).encode()
            source.bucket.write(geometry_key(source.run_id), geometry)
            about = AboutCube(cube, geometry, _noise(cube, manifest, folder, source))
            chunks, n_blank = _write_chunks(about, size, folder, source)
        fault_point("split.inputs_written", run_id=source.run_id)
        return Split(chunks, n_items=cube.n_spectra, n_blank=n_blank)


WORKLOAD = Spectra()


@dataclass(frozen=True)
class AboutCube:
    """A cube, and what every chunk's input says about it: `geometry` is the JSON of its `CubeGeometry`.

    `noise` has the shape (n_spectra, 1) or (1, n_channels), in the cube's unit; None: it is estimated.
    """

    cube: Cube
    geometry: bytes
    noise: NDArray[np.float64] | None = None


@contextmanager
def _cube(bucket: Bucket, key: str, etag: str, workdir: Path) -> Iterator[tuple[Cube, Path]]:
    """The cube under `key`, and the folder that it was put in.

    A file that cannot be a cube, and one that is no longer the one with `etag`, is a PermanentError.
    """
    with TemporaryDirectory(prefix="prismline-cube-", dir=workdir) as directory:
        path = Path(directory) / "cube"
        bucket.download(key, path, etag=etag)
        try:
            yield open_cube(path, Path(directory)), Path(directory)
        except CubeError as error:
            raise PermanentError(f"The cube {key} cannot be split: {error}.") from error


def _noise(cube: Cube, manifest: SpectraManifest, folder: Path, source: Source) -> NDArray[np.float64] | None:
    """The noise in the object that the parameters name, if they name one."""
    key = manifest.params.noise
    if not isinstance(key, str):
        return None
    etag = source.pinned("noise_etag", lambda: source.bucket.version(key))
    path = folder / "noise"
    source.bucket.download(key, path, etag=etag)
    try:
        return read_noise(path, cube)
    except CubeError as error:
        raise PermanentError(f"The noise {key} cannot be used: {error}.") from error


def _chunk_size(cube: Cube, manifest: SpectraManifest) -> int:
    """Spectra in a chunk. Raises PermanentError for a size that was asked for and makes a chunk too large."""
    size = manifest.chunk_size or choose_chunk_size(
        cube.n_spectra, cube.n_channels, cube.dtype.itemsize, manifest.params.decomposer
    )
    bytes_per_spectrum = cube.n_channels * cube.dtype.itemsize
    if min(size, cube.n_spectra) * bytes_per_spectrum > MAX_CHUNK_BYTES and size > 1:
        raise PermanentError(
            f"A chunk of {size} spectra with {cube.n_channels} channels is larger than {MAX_CHUNK_BYTES >> 20} MiB;"
            f" choose a chunk size of at most {max(1, MAX_CHUNK_BYTES // bytes_per_spectrum)}."
        )
    return size


def _write_chunks(about: AboutCube, size: int, folder: Path, source: Source) -> tuple[list[NewChunk], int]:
    """The cube's chunks, and how many of its spectra are blank. Chunks are sent while the next one is written."""
    cube = about.cube
    rows = max(1, BLOCK_BYTES // (cube.n_channels * cube.dtype.itemsize))
    chunks, n_blank = [], 0

    def send(path: Path, key: str) -> None:
        source.bucket.upload(path, key)
        path.unlink()

    sending: deque[Future[None]] = deque()
    with ThreadPoolExecutor(UPLOADS) as senders:
        blocks = cube.blocks(rows, cut_at=size)
        for start, own in groupby(blocks, key=lambda block: block.start // size * size):
            n = min(size, cube.n_spectra - start)
            identifier = chunk_id(start)
            key, path = chunk_key(source.run_id, identifier), folder / f"{identifier}.npz"
            with path.open("wb") as file:
                n_blank += write_npz(file, own, start, n, about)
            if len(sending) == UPLOADS:
                sending.popleft().result()
            sending.append(senders.submit(send, path, key))
            chunks.append(NewChunk(identifier, key, n))
        while sending:
            sending.popleft().result()
    return chunks, n_blank


def write_npz(file: BinaryIO, blocks: Iterable[SpectraBlock], start: int, n: int, about: AboutCube) -> int:
    """A chunk input of the `n` spectra from index `start` on, which are in `blocks`. How many are blank.

    It holds `spectra` (n, n_channels), `x` and `y` (n,), the cube's geometry as JSON and, where they are known,
    `longitude` and `latitude` (n,) in degrees and `noise` (n, 1) or (1, n_channels). Not compressed: noise does not
    shrink, and a worker reads the spectra while they arrive.
    """
    cube, n_blank, x, y = about.cube, 0, [], []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(zipfile.ZipInfo("spectra.npy", EPOCH), "w", force_zip64=True) as member:
            descr = np.lib.format.dtype_to_descr(cube.dtype)
            header = {"descr": descr, "fortran_order": False, "shape": (n, cube.n_channels)}
            np.lib.format.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(block.spectra.data)
                n_blank += int(is_blank(block.spectra).sum())
                x.append(block.x)
                y.append(block.y)
        pixels = np.concatenate(x), np.concatenate(y)
        for name, array in zip(("x", "y"), pixels, strict=True):
            _write_array(archive, f"{name}.npy", array)
        sky = cube.sky_coordinates(*pixels)
        if sky is not None:
            for name, array in zip(("longitude", "latitude"), sky, strict=True):
                _write_array(archive, f"{name}.npy", array)
        if about.noise is not None:
            of_channels = len(about.noise) == 1 and cube.n_spectra > 1
            _write_array(archive, "noise.npy", about.noise if of_channels else about.noise[start : start + n])
        archive.writestr(zipfile.ZipInfo(CHUNK_GEOMETRY_MEMBER, EPOCH), about.geometry)
    return n_blank


def _write_array(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(zipfile.ZipInfo(name, EPOCH), "w") as member:
        np.lib.format.write_array(member, array, allow_pickle=False)


def geometry_of(cube: Cube, cube_key: str) -> CubeGeometry:
    """What is known of `cube` beside its spectra."""
    return CubeGeometry(
        n_channels=cube.n_channels,
        ny=cube.ny,
        nx=cube.nx,
        ctype=cube.axis.ctype,
        crval=cube.axis.crval,
        crpix=cube.axis.crpix,
        cdelt=cube.axis.cdelt,
        cunit=cube.axis.cunit,
        bunit=cube.bunit,
        object_name=cube.object_name,
        cube_key=cube_key,
        celestial=cube.celestial_keywords(),
    )
