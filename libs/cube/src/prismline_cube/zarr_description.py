"""Checks the description of a Zarr array from outside (zarr.json) before memory is allocated for its values. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.codec import Codec
from zarr.codecs import ShardingCodec

from prismline_cube.layout import STORED_TYPES
from prismline_cube.limits import (
    ALWAYS_STORED_CHUNKS,
    LEAST_STORED_CHUNK_BYTES,
    MAX_AXES,
    MAX_AXIS_LENGTH,
    MAX_SHARD_CHUNKS,
    MAX_STORED_CHUNK_BYTES,
    STORED_OVERHEAD_BYTES,
    most_expanded,
)
from prismline_cube.zarr_codecs import CHECKSUM_BYTES, codecs_of

#: Zarr's data type -> BITPIX.
BITPIX = {"uint8": 8, "int16": 16, "int32": 32, "int64": 64, "float32": -32, "float64": -64}
#: Bytes of an entry of a shard's index.
INDEX_ENTRY_BYTES = 16


@dataclass(frozen=True)
class Description:
    """An array that can be read: its type, and how its values are stored. Lengths of the slowest axis come first."""

    bitpix: int
    #: Lengths of a chunk, and of the object that holds it: a shard, or the chunk itself.
    chunks: tuple[int, ...]
    objects: tuple[int, ...]
    codecs: tuple[Codec, ...]

    @property
    def chunks_of_shard(self) -> int:
        """Chunks in an object; 1 without shards."""
        return math.prod(self.objects) // math.prod(self.chunks)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a decoded chunk."""
        return math.prod(self.chunks) * np.dtype(STORED_TYPES[self.bitpix]).itemsize

    @property
    def longest_part(self) -> int:
        """Most bytes of a stored chunk, or of the index of a shard."""
        return max(_stored(self.chunk_bytes), self._index_bytes)

    @property
    def longest_member(self) -> int:
        """Most bytes of an object with values: a chunk or a shard."""
        return _stored(self.chunk_bytes) * self.chunks_of_shard + self._index_bytes

    @property
    def _index_bytes(self) -> int:
        return INDEX_ENTRY_BYTES * self.chunks_of_shard + CHECKSUM_BYTES


def _stored(decoded: int) -> int:
    """Most bytes of a stored chunk whose values take `decoded` bytes."""
    return decoded + decoded // 16 + STORED_OVERHEAD_BYTES


def describe(document: dict[str, Any], file_bytes: int) -> Description:
    """What a description says. Raises ValueError, whose text is a clause, if the array cannot be read or is too large.

    file_bytes: the length of the file that holds the array.
    """
    kind = document.get("data_type")
    if not isinstance(kind, str) or kind not in BITPIX:
        raise ValueError(f"its values are {kind!s:.40} and not one of {', '.join(BITPIX)}")
    shape = _lengths(document.get("shape"), "shape")
    outer = _lengths(_configuration(document.get("chunk_grid")).get("chunk_shape"), "chunk shape")
    try:
        codecs = tuple(codecs_of(document.get("codecs")))
    except (TypeError, KeyError) as error:
        raise ValueError(f"its codecs have a wrong configuration ({error})") from error
    inner = outer
    if codecs and isinstance(sharding := codecs[0], ShardingCodec):
        inner = _lengths(sharding.chunk_shape, "chunk shape")
        if len(inner) != len(outer) or any(whole % part for whole, part in zip(outer, inner, strict=True)):
            raise ValueError(f"its shards of {outer} cannot be divided into chunks of {inner}")
    found = Description(BITPIX[kind], inner, outer, codecs)
    if refusal := _refusal(shape, found, file_bytes):
        raise ValueError(refusal)
    return found


def _refusal(shape: tuple[int, ...], found: Description, file_bytes: int) -> str | None:
    """Why an array of this shape is not read, as a clause. None if it is."""
    if len(shape) != len(found.chunks):
        return f"its shape {shape} and its chunk shape {found.chunks} have different numbers of axes"
    itemsize = np.dtype(STORED_TYPES[found.bitpix]).itemsize
    n_bytes = math.prod(shape) * itemsize
    if n_bytes > (most := most_expanded(file_bytes)):
        return f"its values decode to {n_bytes:,} bytes; at most {most:,} are read from a file of its size"
    if found.chunk_bytes > MAX_STORED_CHUNK_BYTES:
        return f"its stored chunks decode to {found.chunk_bytes:,} bytes; at most {MAX_STORED_CHUNK_BYTES:,} are read"
    n_chunks = math.prod(-(-length // part) for length, part in zip(shape, found.chunks, strict=True))
    if n_chunks > (most := max(ALWAYS_STORED_CHUNKS, n_bytes // LEAST_STORED_CHUNK_BYTES)):
        return f"it has {n_chunks:,} stored chunks; at most {most:,} are read, so write larger chunks"
    if found.chunks_of_shard > MAX_SHARD_CHUNKS:
        return f"its shards have {found.chunks_of_shard:,} chunks; at most {MAX_SHARD_CHUNKS:,} are read"
    return None


def _configuration(grid: Any) -> dict[str, Any]:
    """The configuration of the array's chunk grid."""
    if isinstance(grid, dict) and grid.get("name") == "regular" and isinstance(grid.get("configuration"), dict):
        found: dict[str, Any] = grid["configuration"]
        return found
    raise ValueError("its chunk grid is not a regular one")


def _lengths(values: Any, name: str) -> tuple[int, ...]:
    """The lengths of axes."""
    if not isinstance(values, Sequence) or not all(type(value) is int for value in values):
        raise ValueError(f"its {name} is not a list of integers")
    if not 1 <= len(values) <= MAX_AXES:
        raise ValueError(f"its {name} has {len(values)} axes; a cube has 2 to {MAX_AXES}")
    if wrong := [value for value in values if not 1 <= value <= MAX_AXIS_LENGTH]:
        raise ValueError(f"its {name} has the length {wrong[0]!s:.20}; lengths go from 1 to {MAX_AXIS_LENGTH:,}")
    return tuple(values)
