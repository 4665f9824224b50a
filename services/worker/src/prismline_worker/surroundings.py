"""The spectra around a chunk, which the second pass needs: whole rows of the cube, with a margin."""

from __future__ import annotations

from prismline_contracts.commands import ChunkProcess
from prismline_contracts.objects import CubeGeometry
from prismline_contracts.references import CubeReference
from prismline_runtime.errors import PermanentError
from prismline_worker.chunk_file import ChunkFile, Spectra
from prismline_worker.cube_chunk import CubeChunk
from prismline_worker.gaussline import MARGIN

#: More bytes than a chunk has, so that all of it is one block.
WHOLE_BYTES = 2**62


def with_surroundings(command: ChunkProcess, geometry: CubeGeometry | None) -> tuple[ChunkProcess, slice]:
    """The command for the whole rows of the chunk and of its margin, and the chunk's own spectra among these.

    Raises `PermanentError` for a chunk that does not refer to the cube.
    """
    reference = command.reference
    if reference is None or geometry is None:
        raise PermanentError("The second pass needs chunks that refer to the cube; submit the cube again.")
    wide, own = _widened(reference, geometry)
    return command.model_copy(update={"reference": wide, "n_items": wide.count}), own


def _widened(reference: CubeReference, geometry: CubeGeometry) -> tuple[CubeReference, slice]:
    nx = geometry.nx
    low = max(0, reference.first // nx - MARGIN)
    high = min(geometry.ny, -(-(reference.first + reference.count) // nx) + MARGIN)
    begin = reference.first - low * nx
    wide = reference.model_copy(update={"first": low * nx, "count": (high - low) * nx})
    return wide, slice(begin, begin + reference.count)


def whole_of(chunk: ChunkFile | CubeChunk) -> Spectra:
    """All spectra of a chunk in one block. A chunk has at least one."""
    (block,) = chunk.blocks(WHOLE_BYTES)
    return block
