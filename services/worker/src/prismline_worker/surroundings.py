"""The spectra around a chunk, which the second pass needs: whole rows of the cube, with a margin."""

from __future__ import annotations

from dataclasses import dataclass

from prismline_contracts.commands import ChunkProcess
from prismline_contracts.objects import CubeGeometry
from prismline_runtime import Bucket, PermanentError
from prismline_worker.chunk_file import SpectraBlock
from prismline_worker.dependencies import Dependencies
from prismline_worker.gaussline import MARGIN
from prismline_worker.inputs import open_input

#: More bytes than a chunk has, so that all of it is one block.
WHOLE_BYTES = 2**62


@dataclass(frozen=True)
class Surrounded:
    """The spectra of a chunk among those around them."""

    #: Whole rows of the cube, row by row.
    image: SpectraBlock
    #: Rows and columns of the image.
    shape: tuple[int, int]
    #: The chunk's own spectra in the image.
    own: slice


def read_surrounded(
    command: ChunkProcess, geometry: CubeGeometry | None, bucket: Bucket, deps: Dependencies
) -> Surrounded:
    """Read the rows of the cube in which the chunk lies, and `MARGIN` rows on both sides. bucket: that of the run.

    Raises `PermanentError` for a chunk that does not refer to the cube.
    """
    reference = command.reference
    if reference is None or geometry is None:
        raise PermanentError("The second pass needs chunks that refer to the cube; submit the cube again.")
    nx = geometry.nx
    low = max(0, reference.first // nx - MARGIN)
    high = min(geometry.ny, -(-(reference.first + reference.count) // nx) + MARGIN)
    rows = reference.model_copy(update={"first": low * nx, "count": (high - low) * nx})
    with open_input(command.model_copy(update={"reference": rows}), bucket, deps, n_items=rows.count) as chunk:
        (image,) = chunk.blocks(WHOLE_BYTES)
    begin = reference.first - low * nx
    return Surrounded(image, (high - low, nx), slice(begin, begin + reference.count))
