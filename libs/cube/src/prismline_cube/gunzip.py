"""Decompresses a cube that is compressed with gzip, in bounded memory, and refuses one that expands too far."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from prismline_cube.errors import NOT_FITS, CubeError
from prismline_cube.limits import most_expanded

#: Bytes that are read at a time, and most bytes that are decompressed at a time.
READ_BYTES, COPY_BYTES = 64 * 2**10, 2**20
#: Members that a file may have, however little they hold. More of them hold at least `LEAST_MEMBER_BYTES` on average:
#: bgzip writes members of 64 KiB. To begin a member takes as long as to decompress some thousand bytes.
ALWAYS_MEMBERS, LEAST_MEMBER_BYTES = 1000, 2**10
#: Argument of zlib for the format of gzip.
GZIP_WINDOW = 16 + zlib.MAX_WBITS


def decompress(path: Path, workdir: Path) -> Path:
    """Decompress a file into `workdir`. Raises CubeError while reading, as soon as it is clear that the file is not
    FITS or expands too far.
    """
    most = most_expanded(path.stat().st_size)
    descriptor, name = tempfile.mkstemp(suffix=".fits", dir=workdir)
    with os.fdopen(descriptor, "wb") as plain, path.open("rb") as packed:
        try:
            for block in blocks_of(packed):
                if plain.tell() == 0 and not block.startswith(b"SIMPLE"):
                    raise CubeError(NOT_FITS)
                if plain.tell() + len(block) > most:
                    raise CubeError(f"the file expands to more than {most:,} bytes; upload the cube uncompressed")
                plain.write(block)
        except (EOFError, zlib.error) as error:
            raise CubeError(
                f"the gzip compression of the file is damaged or cut short ({error}); "
                "compress the cube and upload it again"
            ) from error
    return Path(name)


def blocks_of(packed: BinaryIO) -> Iterator[bytes]:
    """The content of all members, in blocks that are not empty. Raises EOFError or zlib.error for damaged bytes."""
    stream, n_members, n_bytes = zlib.decompressobj(GZIP_WINDOW), 1, 0
    while rest := packed.read(READ_BYTES):
        while rest:
            if stream.eof:
                if not (rest := rest.lstrip(b"\0")):  # zeros may fill up the file
                    break
                stream, n_members = zlib.decompressobj(GZIP_WINDOW), n_members + 1
                if n_members > max(ALWAYS_MEMBERS, n_bytes // LEAST_MEMBER_BYTES):
                    raise CubeError(
                        f"the file has more than {n_members - 1:,} gzip members with hardly any content; "
                        "compress the cube and upload it again"
                    )
            block = stream.decompress(rest, COPY_BYTES)
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            n_bytes += len(block)
            if block:
                yield block
    if not stream.eof:
        raise EOFError("it ends within a member")
