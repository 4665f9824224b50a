"""The codecs of Zarr arrays from outside: a short list, each of which decodes to exactly the bytes of a stored chunk.

Zarr's own compressors believe the size that compressed bytes claim. So they allocate what a forged header says, and
Blosc also reads past the end of bytes that are shorter than their header says.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numcodecs.blosc import Blosc
from numcodecs.zstd import Zstd
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer

#: Bytes that the codec crc32c appends.
CHECKSUM_BYTES = 4
#: Bytes of the header of a chunk that Blosc compressed.
BLOSC_HEADER_BYTES = 16
#: Bytes of the first field of a Zstandard frame.
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: Argument of zlib for the format of gzip.
GZIP_WINDOW = 16 + zlib.MAX_WBITS


def unzip(packed: bytes, n_bytes: int) -> bytes:
    """Decompress gzip. Raises ValueError or zlib.error, at the latest after `n_bytes`."""
    stream = zlib.decompressobj(GZIP_WINDOW)
    plain = stream.decompress(packed, n_bytes + 1)
    if len(plain) != n_bytes or not stream.eof or stream.unused_data:
        raise ValueError("its gzip data decode to another size than the stored chunk")
    return plain


def unblosc(packed: bytes, n_bytes: int) -> bytes:
    """Decompress Blosc. Raises ValueError or RuntimeError, before it is decompressed if its header is wrong."""
    sizes = tuple(int.from_bytes(packed[at : at + 4], "little") for at in (4, 12))
    if len(packed) < BLOSC_HEADER_BYTES or sizes != (n_bytes, len(packed)):
        raise ValueError("its Blosc header has other sizes than the stored chunk")
    return bytes(Blosc().decode(packed))


def unzstd(packed: bytes, n_bytes: int) -> bytes:
    """Decompress Zstandard. Raises ValueError or RuntimeError, before it is decompressed if its header is wrong."""
    if _zstd_size(packed) not in (None, n_bytes):
        raise ValueError("its Zstandard header has another size than the stored chunk")
    return np.asarray(Zstd().decode(packed, out=np.zeros(n_bytes, np.uint8))).tobytes()


def _zstd_size(packed: bytes) -> int | None:
    """The size that the first frame claims for its content (RFC 8878, 3.1.1.1). None if it claims none."""
    if not packed.startswith(ZSTD_MAGIC) or len(packed) <= len(ZSTD_MAGIC):
        raise ValueError("its Zstandard data have no header")
    descriptor = packed[4]
    one_segment = descriptor >> 5 & 1
    length = (one_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - one_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(packed[start : start + length], "little")
    return None if length == 0 else size + 256 * (length == 2)


@dataclass(frozen=True)
class Compressor(BytesBytesCodec):
    """Decodes a compressed chunk whose content has the length of the chunk's values and `n_checksums` checksums."""

    name: str
    n_checksums: int
    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        n_bytes = math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize
        n_bytes += self.n_checksums * CHECKSUM_BYTES
        plain = await asyncio.to_thread(DECODERS[self.name], chunk_bytes.to_bytes(), n_bytes)
        return chunk_spec.prototype.buffer.from_bytes(plain)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:  # noqa: ARG002
        """Raises ValueError: zarr asks for it only if the index of a shard is compressed, which `_sharding` refuses."""
        raise ValueError("the size of compressed bytes depends on their content")


#: Decoders of compressors by the name of the codec. Each takes the bytes, and the length that their content must have.
DECODERS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": unzip, "blosc": unblosc, "zstd": unzstd}
#: Names of all codecs that are read: those of the Zarr v3 specification.
NAMES = ("bytes", "transpose", "crc32c", "sharding_indexed", *DECODERS)


def codecs_of(documents: Any, *, of_shard: bool = False) -> list[Codec]:
    """The codecs of an array, or of the chunks in its shards. Raises ValueError, whose text is a clause.

    documents: the field `codecs` of the array's description. Also raises what Zarr raises for a wrong configuration.
    """
    named = [_named(document) for document in documents]
    if unknown := [name for name, _ in named if name not in NAMES]:
        raise ValueError(f"its codec {unknown[0]:.40} is not one of {', '.join(NAMES)}")
    if sum(name in DECODERS for name, _ in named) > 1:
        raise ValueError("its values are compressed more than once")
    if "sharding_indexed" in (name for name, _ in named):
        if of_shard or len(named) > 1:
            raise ValueError("its shards are divided or encoded again")
        return [_sharding(named[0][1])]
    return [_codec(name, configuration, _checksums(named[:place])) for place, (name, configuration) in enumerate(named)]


def _named(document: Any) -> tuple[str, dict[str, Any]]:
    """The name and the configuration of a codec."""
    if isinstance(document, str):
        return document, {}
    if not isinstance(document, dict) or not isinstance(name := document.get("name"), str):
        raise ValueError("one of its codecs has no name")
    configuration = document.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise ValueError(f"its codec {name} has a wrong configuration")
    return name, configuration


def _checksums(named: Sequence[tuple[str, dict[str, Any]]]) -> int:
    return sum(name == "crc32c" for name, _ in named)


def _codec(name: str, configuration: dict[str, Any], n_checksums: int) -> Codec:
    """A codec other than a shard's. n_checksums: checksums that its content has."""
    if name in DECODERS:
        return Compressor(name, n_checksums)
    if name == "crc32c":
        return Crc32cCodec()
    return (BytesCodec if name == "bytes" else TransposeCodec)(**configuration)


def _sharding(configuration: dict[str, Any]) -> ShardingCodec:
    index = configuration.get("index_codecs", ["bytes", "crc32c"])
    if {_named(document)[0] for document in index} - {"bytes", "crc32c"}:
        raise ValueError("the index of its shards is compressed")
    return ShardingCodec(
        chunk_shape=configuration["chunk_shape"],
        codecs=codecs_of(configuration["codecs"], of_shard=True),
        index_codecs=codecs_of(index),
        index_location=configuration.get("index_location", "end"),
    )
