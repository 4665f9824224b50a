"""The errors of files that cannot be read as spectral cubes."""

from __future__ import annotations

#: The error for a file of another format.
NOT_FITS = "the file is not FITS: it does not begin with SIMPLE; upload a FITS cube"


class CubeError(Exception):
    """The file is not a readable cube. The message is one sentence with the cause and what to do."""


class TileCompressedError(CubeError):
    """The cube is compressed tile by tile, as fpack does. Its values have to be unpacked first."""
