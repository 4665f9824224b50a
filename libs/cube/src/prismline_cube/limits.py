"""The limits of cubes from outside. Readers compare what a file claims with them before they allocate memory.

Each limit is far above what surveys use, and low enough that a hostile file costs at most two seconds and 300 MB.
"""

from __future__ import annotations

#: Most channels of a spectrum. A worker holds whole spectra: one of this length takes 8 MiB as float64.
MAX_CHANNELS = 2**20
#: Most axes of a cube, degenerate ones included. Longest axis in pixels: pixel indices are int32.
MAX_AXES, MAX_AXIS_LENGTH = 4, 2**31 - 1
#: A compressed cube may decode to this many bytes, or to `MAX_EXPANSION` times its size if that is more. A cube of
#: noise expands to twice its size, a mostly blank one to some 50 times. Deflate alone could reach 1,000 times.
ALWAYS_EXPANDED_BYTES, MAX_EXPANSION = 64 * 2**20, 100

#: Most HDUs that are read until an image is found, and most bytes of their headers (36,000 cards). To read a header
#: takes a millisecond, and 0.1 s for one of this length.
MAX_HDUS, MAX_HEADER_BYTES = 100, 1000 * 2880
#: Longest text of a header in characters. It is part of the geometry that each chunk holds, which has 64 KiB.
MAX_TEXT_LENGTH = 1000
#: Largest tile of a tile-compressed image, decoded, in bytes. A decoder holds it up to three times.
MAX_TILE_BYTES = 32 * 2**20

#: Most bytes of the list of members of a ZIP file: some 100,000 members, which take a second and 60 MB to list.
MAX_DIRECTORY_BYTES = 8 * 2**20
#: Most descriptions (zarr.json) of one Zarr file, and most bytes of all of them. The header of a cube takes 10 KB.
MAX_DESCRIPTIONS, MAX_DESCRIPTION_BYTES = 100, 2**20
#: Largest chunk of a Zarr array, decoded, in bytes. Zarr decodes a chunk as a whole, whatever part is needed.
MAX_STORED_CHUNK_BYTES = 64 * 2**20
#: Bytes of stored chunks that are decoded at the same time; at least one chunk.
DECODED_BYTES = 128 * 2**20
#: Stored chunks that an array may have, however small they are. More of them hold at least `LEAST_STORED_CHUNK_BYTES`
#: on average: each costs a request and some 20 microseconds.
ALWAYS_STORED_CHUNKS, LEAST_STORED_CHUNK_BYTES = 10_000, 4096
#: Most chunks of a shard. The index of a shard, 16 bytes for each of them, is read as a whole.
MAX_SHARD_CHUNKS = 100_000
#: A stored chunk may be longer than its values by a sixteenth and this many bytes: what compressors add to noise.
STORED_OVERHEAD_BYTES = 64 * 2**10


def most_expanded(file_bytes: int) -> int:
    """Most bytes to which the values in a compressed file of `file_bytes` bytes may decode."""
    return max(ALWAYS_EXPANDED_BYTES, MAX_EXPANSION * file_bytes)
