"""Opens the input of a chunk of spectra: a file of its own, or a part of the cube."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prismline_contracts.commands import ChunkProcess, SpectraRefit
from prismline_runtime import Bucket, PermanentError
from prismline_worker.chunk_file import ChunkFile
from prismline_worker.cube_chunk import CubeChunk, open_cube_chunk
from prismline_worker.dependencies import Dependencies


@contextmanager
def open_input(
    command: ChunkProcess | SpectraRefit, bucket: Bucket, deps: Dependencies, *, n_items: int
) -> Iterator[ChunkFile | CubeChunk]:
    """The input of the command's chunk, which must have `n_items` spectra. bucket: the bucket of the run."""
    reference = command.reference
    if reference is None:
        with bucket.open(command.chunk_key) as file:
            yield ChunkFile(file, n_items=n_items)
        return
    if reference.count != n_items:
        raise PermanentError(f"The chunk refers to {reference.count} spectra, but its message says {n_items}.")
    cube = bucket if reference.bucket is None else deps.open_bucket(reference.bucket)
    yield open_cube_chunk(reference, command.run_id, bucket, cube)
