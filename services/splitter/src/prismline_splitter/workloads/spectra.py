"""Spectra: each chunk holds consecutive spectra of a cube, in the order of their pixels."""

from __future__ import annotations

import errno
import json
import shutil
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.base import chunk_id
from prismline_contracts.fit_costs import fit_kind
from prismline_contracts.manifest import HYPERFINE, SpectraManifest
from prismline_contracts.objects import CHUNK_GEOMETRY_MEMBER, CubeGeometry, chunk_key, geometry_key, noise_key
from prismline_contracts.references import CubeReference, NoiseReference
from prismline_cube import Layout, reader_of
from prismline_cube.cube_file import (
    HEADER_BYTES,
    MAGIC_BYTES,
    Cube,
    SpectraBlock,
    is_blank,
    is_gzip,
    is_zip,
    open_cube,
    read_header,
    read_zarr_header,
)
from prismline_cube.errors import CubeError, TileCompressedError
from prismline_cube.header import CubeHeader
from prismline_ledger import NewChunk
from prismline_runtime import Bucket, PermanentError, UnavailableError, fault_point, reader_errors
from prismline_splitter.chunking import (
    MAX_CHUNK_BYTES,
    MAX_CHUNKS,
    choose_chunk_size,
    choose_reference_size,
    most_spectra_in_time,
    with_enough_rows,
)
from prismline_splitter.correlation import correlation_in, sample_parts
from prismline_splitter.geometry import geometry_of
from prismline_splitter.input_cost import SMALL_CUBE_BYTES, cost_of
from prismline_splitter.noise import read_noise
from prismline_splitter.noise_shape import shape_in
from prismline_splitter.workload import Source, Split

#: Spectra are read from the cube and written to a chunk's file in blocks of at most this many bytes.
BLOCK_BYTES = 16 * 2**20
#: The operating system's error numbers for a full disk.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Chunk files that are uploaded concurrently. Each needs its size on the disk until its upload is done.
UPLOADS = 2
#: Modification time of everything in a chunk's file, so that the same spectra give the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)

T = TypeVar("T")


class SpectraSplitter:
    """The `spectra` workload: a cube, cut into chunks of consecutive spectra.

    A chunk's input is a copy of its spectra, or a reference to the bytes of the cube that hold them.
    """

    name = "spectra"
    manifest = SpectraManifest

    def split(self, manifest: SpectraManifest, source: Source) -> Split:
        """Write the cube's geometry and, unless chunks refer to the cube, a `.npz` file for each chunk.

        For references only the cube's header and a sample of its spectra are read. Memory is bounded, whatever the size
        of a cube or a chunk.
        """
        bucket = source.bucket if manifest.cube_bucket is None else source.open_bucket(manifest.cube_bucket)
        original = Original(bucket, manifest.cube_key, source.pinned("etag", lambda: bucket.version(manifest.cube_key)))
        chosen: str = "reference" if manifest.params.second_pass else manifest.chunk_input
        if chosen == "auto":
            chosen = source.pinned("chunk_input", lambda: _cheaper_input(original, manifest, source))
        fault_point("split.input_chosen", run_id=source.run_id)
        split = _refer(original, manifest, source) if chosen == "reference" else _copy(original, manifest, source)
        fault_point("split.inputs_written", run_id=source.run_id)
        return split


WORKLOAD = SpectraSplitter()


@dataclass(frozen=True)
class Original:
    """The pinned version of the object that holds the cube."""

    bucket: Bucket
    key: str
    etag: str

    def size(self) -> int:
        """The size of the object, in bytes."""
        return self.bucket.size(self.key, etag=self.etag)

    def header(self) -> CubeHeader | None:
        """The cube's header, which takes a few ranged requests. None if the file is compressed."""
        with (
            _cube_errors(_failed(self)),
            self.bucket.open_version(self.key, etag=self.etag, size=self.size(), part_bytes=HEADER_BYTES) as file,
        ):
            magic = file.peek(MAGIC_BYTES)
            if is_zip(magic):
                return read_zarr_header(file, partial(self.bucket.read_range, self.key, etag=self.etag))
            try:
                return None if is_gzip(magic) else read_header(file, self.size())
            except TileCompressedError:
                return None

    def reference(self, header: CubeHeader, own: str) -> CubeReference:
        """The reference to all spectra. own: the name of the run's bucket, which references leave out."""
        stored = header.stored
        return CubeReference(
            bucket=None if self.bucket.name == own else self.bucket.name,
            key=self.key,
            etag=self.etag,
            layout=header.layout,
            offset=stored.offset,
            bitpix=header.bitpix,
            axes=list(header.axes),
            spectral_axis=header.spectral_axis,
            bscale=stored.bscale,
            bzero=stored.bzero,
            blank=stored.blank,
            first=0,
            count=header.n_spectra,
        )


@dataclass(frozen=True)
class AboutCube:
    """A cube, and what every chunk's input says about it: `geometry` is the JSON of its `CubeGeometry`.

    `noise` has the shape (n_spectra, 1) or (1, n_channels), in the cube's unit. None: the worker estimates it.
    """

    cube: Cube
    geometry: bytes
    noise: NDArray[np.float64] | None = None


@contextmanager
def _cube_errors(failed: str) -> Iterator[None]:
    """Map a CubeError, and any other error of parsing, to a PermanentError that begins with `failed`."""
    with reader_errors(failed):
        try:
            yield
        except CubeError as error:
            raise PermanentError(f"{failed}: {error}.") from error


def _failed(original: Original) -> str:
    """The beginning of the sentence with which the run fails."""
    return f"The cube {original.key} cannot be split"


@contextmanager
def _disk_errors(failed: str, folder: Path) -> Iterator[None]:
    """Raise PermanentError if the disk is full and the files in `folder` take more than half of it.

    If other files fill the disk, the OSError stays: those files will be removed, so a retry can succeed.
    """
    try:
        yield
    except (OSError, UnavailableError) as error:
        full = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(full, OSError) or full.errno not in DISK_FULL or not _fills_the_disk(folder):
            raise
        raise PermanentError(f"{failed}: it fills the splitter's disk, which needs room for twice the cube.") from error


def _fills_the_disk(folder: Path) -> bool:
    """Whether the files in `folder` take more than half of the disk."""
    return 2 * sum(file.stat().st_size for file in folder.rglob("*")) > shutil.disk_usage(folder).total


def _cheaper_input(original: Original, manifest: SpectraManifest, source: Source) -> str:
    """`copy` or `reference`, whichever costs less. Raises PermanentError for a file that cannot be a cube."""
    if original.size() <= SMALL_CUBE_BYTES or (header := original.header()) is None:
        return "copy"
    with _cube_errors(_failed(original)):
        layout = Layout.of(original.reference(header, source.bucket.name))
    return cost_of(
        layout,
        copied_chunk=_chunk_size(header, manifest),
        referring_chunk=_referring_chunk_size(layout, header, manifest),
        request_seconds=source.request_seconds,
        grid=header.grid,
    ).cheaper


def _refer(original: Original, manifest: SpectraManifest, source: Source) -> Split:
    """Chunks that refer to the cube. The workers count blank spectra."""
    header = original.header()
    if header is None and manifest.params.second_pass:
        raise PermanentError(
            f"The cube {original.key} cannot be split: it is compressed, and a second pass reads the spectra around a"
            " chunk in the cube itself; submit the uncompressed cube, or without a second pass."
        )
    if header is None:
        raise PermanentError(
            f"The cube {original.key} cannot be split: it is compressed, so chunks cannot refer to its values;"
            " submit it with the chunk input copy or auto."
        )
    with _cube_errors(_failed(original)):
        geometry = geometry_of(header, original.key, manifest.params)
        whole = original.reference(header, source.bucket.name)
        layout = Layout.of(whole)

    def sample(index: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        with _cube_errors(_failed(original)):
            return reader_of(whole, original.bucket).gather(index)

    geometry = _with_noise_of_the_cube(geometry, layout, manifest, source, sample)
    size = source.pinned("chunk_size", lambda: _referring_chunk_size(layout, header, manifest))
    source.bucket.write(geometry_key(source.run_id), _geometry_json(geometry))
    with TemporaryDirectory(prefix="prismline-noise-", dir=source.workdir) as directory:
        noise = _noise(header, manifest, Path(directory), source)
        if noise is not None:
            path = Path(directory) / "noise.f8"
            noise.astype("<f8").tofile(path)
            source.bucket.upload(path, noise_key(source.run_id))
            refers = NoiseReference(key=noise_key(source.run_id), per_spectrum=noise.shape == (header.n_spectra, 1))
            whole = whole.model_copy(update={"noise": refers})
    chunks = []
    for first in range(0, header.n_spectra, size):
        part = whole.model_copy(update={"first": first, "count": min(size, header.n_spectra - first)})
        chunks.append(NewChunk(chunk_id(first), part.key, part.count, part))
    return Split(chunks, n_items=header.n_spectra, n_blank=None)


def _copy(original: Original, manifest: SpectraManifest, source: Source) -> Split:
    """Copied chunks: each has a `.npz` file."""
    failed = _failed(original)
    with TemporaryDirectory(prefix="prismline-cube-", dir=source.workdir) as directory:
        folder = Path(directory)
        path = folder / "cube"
        with _disk_errors(failed, folder):
            original.bucket.download(original.key, path, etag=original.etag)
            with _cube_errors(failed):
                cube = open_cube(path, folder)
                described = geometry_of(cube, original.key, manifest.params)
                layout = Layout.of(original.reference(cube, source.bucket.name))

        def sample(index: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
            with _cube_errors(failed):
                return cube.gather(index)

        geometry = _geometry_json(_with_noise_of_the_cube(described, layout, manifest, source, sample))
        size = source.pinned("chunk_size", lambda: _chunk_size(cube, manifest))
        source.bucket.write(geometry_key(source.run_id), geometry)
        about = AboutCube(cube, geometry, _noise(cube, manifest, folder, source))
        with _disk_errors(failed, folder):
            chunks, n_blank = _write_chunks(about, size, folder, source, failed)
    return Split(chunks, n_items=cube.n_spectra, n_blank=n_blank)


def _noise(cube: CubeHeader, manifest: SpectraManifest, folder: Path, source: Source) -> NDArray[np.float64] | None:
    """The noise in the object that the parameters name, if they name one."""
    key = manifest.params.noise
    if not isinstance(key, str):
        return None
    etag = source.pinned("noise_etag", lambda: source.bucket.version(key))
    path = folder / "noise"
    source.bucket.download(key, path, etag=etag)
    with _cube_errors(f"The noise {key} cannot be used"):
        return read_noise(path, cube, folder)


def _with_noise_of_the_cube(
    geometry: CubeGeometry,
    layout: Layout,
    manifest: SpectraManifest,
    source: Source,
    sample: Callable[[NDArray[np.int64]], NDArray[np.floating[Any]]],
) -> CubeGeometry:
    """The geometry with two estimates for the whole cube: the noise's correlation, and its level along the spectra.

    The run's first delivery pins both estimates. A value that the parameters give is not estimated. phspectra uses
    neither, and a run with a baseline has no estimate. sample: reads the spectra with these indices, which ascend.
    """
    params = manifest.params
    if params.decomposer == "phspectra" or params.baseline_order is not None:
        return geometry  # a baseline would count as noise; gaussline subtracts it first

    @cache
    def spectra() -> NDArray[np.floating[Any]] | None:
        parts = sample_parts(layout)
        return sample(np.unique(np.concatenate([np.array(part, np.int64) for part in parts]))) if parts else None

    def estimated(name: str, estimate: Callable[[NDArray[np.floating[Any]]], list[float] | None]) -> Any:
        def find() -> str:
            found = spectra()
            return json.dumps(None if found is None else estimate(found))

        return json.loads(source.pinned(name, find))

    known = {}
    if params.correlation is None:
        known["noise_correlation"] = estimated("noise_correlation", correlation_in)
    if params.noise is None:
        known["noise_shape"] = estimated("noise_shape", shape_in)
    return geometry.model_copy(update=known)


def _referring_chunk_size(layout: Layout, cube: CubeHeader, manifest: SpectraManifest) -> int:
    """Spectra in a chunk that refers to the cube."""
    size = _chunk_size(cube, manifest)
    if manifest.chunk_size:
        return size
    size = choose_reference_size(size, layout, fit_kind(manifest.params), cube.grid)
    return with_enough_rows(size, cube.nx, cube.n_channels) if manifest.params.second_pass else size


def _chunk_size(cube: CubeHeader, manifest: SpectraManifest) -> int:
    """Spectra in a chunk. Raises PermanentError if the size makes a chunk too large, or makes too many chunks."""
    size = manifest.chunk_size or choose_chunk_size(
        cube.n_spectra, cube.n_channels, cube.dtype.itemsize, fit_kind(manifest.params)
    )
    bytes_per_spectrum = cube.n_channels * cube.dtype.itemsize
    if min(size, cube.n_spectra) * bytes_per_spectrum > MAX_CHUNK_BYTES and size > 1:
        raise PermanentError(
            f"A chunk of {size} spectra with {cube.n_channels} channels is larger than {MAX_CHUNK_BYTES >> 20} MiB;"
            f" choose a chunk size of at most {max(1, MAX_CHUNK_BYTES // bytes_per_spectrum)}."
        )
    most = most_spectra_in_time(cube.n_channels, fit_kind(manifest.params))
    in_one_call = manifest.params.second_pass or manifest.params.decomposer == HYPERFINE
    if in_one_call and min(size, cube.n_spectra) > most:
        raise PermanentError(
            f"A chunk of {size:,} spectra with a line or a second pass takes a worker too long; choose a chunk size of"
            f" at most {most:,}."
        )
    if (n_chunks := -(-cube.n_spectra // size)) > MAX_CHUNKS:
        raise PermanentError(
            f"Chunks of {size} spectra make {n_chunks:,} chunks, and a run has at most {MAX_CHUNKS:,};"
            f" choose a chunk size of at least {-(-cube.n_spectra // MAX_CHUNKS)}."
        )
    return size


def _parsed(items: Iterator[T], failed: str) -> Iterator[T]:
    """The items. An error of parsing that ends them becomes a PermanentError; errors of who takes them do not."""
    with _cube_errors(failed):
        yield from items


def _write_chunks(about: AboutCube, size: int, folder: Path, source: Source, failed: str) -> tuple[list[NewChunk], int]:
    """The cube's chunks, and how many of its spectra are blank. A chunk is uploaded while the next one is written.

    A chunk that an earlier delivery uploaded is not uploaded again: S3 shows an object only when it is complete.
    """
    cube = about.cube
    there = set(source.bucket.list(chunk_key(source.run_id, "")[: -len(".npz")]))
    rows = max(1, BLOCK_BYTES // (cube.n_channels * cube.dtype.itemsize))
    chunks, n_blank = [], 0

    def send(path: Path, key: str) -> None:
        source.bucket.upload(path, key)
        path.unlink()

    sending: deque[Future[None]] = deque()
    with ThreadPoolExecutor(UPLOADS) as senders:
        blocks = _parsed(cube.blocks(rows, cut_at=size), failed)
        for start, own in groupby(blocks, key=lambda block: block.start // size * size):
            n = min(size, cube.n_spectra - start)
            identifier = chunk_id(start)
            key, path = chunk_key(source.run_id, identifier), folder / f"{identifier}.npz"
            chunks.append(NewChunk(identifier, key, n))
            if key in there:
                n_blank += sum(int(is_blank(block.spectra).sum()) for block in own)
                continue
            with _cube_errors(failed), path.open("wb") as file:
                n_blank += write_npz(file, own, start, n, about)
            if len(sending) == UPLOADS:
                sending.popleft().result()
            sending.append(senders.submit(send, path, key))
        while sending:
            sending.popleft().result()
    return chunks, n_blank


def write_npz(file: BinaryIO, blocks: Iterable[SpectraBlock], start: int, n: int, about: AboutCube) -> int:
    """Write the chunk input of the `n` spectra from index `start` on, which are in `blocks`. Return how many are blank.

    The file holds `spectra` (n, n_channels), `x` and `y` (n,), the cube's geometry as JSON and, if they are known,
    `longitude` and `latitude` (n,) in degrees and `noise` (n, 1) or (1, n_channels). It is not compressed: noisy data
    hardly shrink, and a worker reads the spectra while they arrive.
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


def _geometry_json(geometry: CubeGeometry) -> bytes:
    return geometry.model_dump_json(exclude_none=True).encode()
