"""Lists the members of a ZIP file from outside, in bounded memory."""

from __future__ import annotations

import zipfile
from typing import IO, Any, BinaryIO, cast

from prismline_cube.limits import MAX_DIRECTORY_BYTES


class _ShortReads:
    """A file that refuses reads of more than `most` bytes."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self.most: int | None = most

    def read(self, size: int = -1, /) -> bytes:
        """Read. Raises ValueError, whose text is a clause, if that is too much."""
        if self.most is not None and size > self.most:
            raise ValueError(f"its list of members has {size:,} bytes; at most {self.most:,} are read")
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def open_zip(file: BinaryIO, *, most: int = MAX_DIRECTORY_BYTES) -> zipfile.ZipFile:
    """The ZIP file, with its members. Raises BadZipFile, or ValueError if their list has more than `most` bytes.

    The module zipfile reads the list as a whole, and makes an object of some 500 bytes for each member.
    """
    short = _ShortReads(file, most)
    archive = zipfile.ZipFile(cast("IO[bytes]", short))
    short.most = None
    return archive
