"""The names of the maps of a `spectra` run, which have a value for each pixel of the cube; and of the flags."""

from __future__ import annotations

from enum import StrEnum


class MapName(StrEnum):
    """The names of the maps, which are also the names of the FITS files that the command line writes."""

    #: Sum of the areas of a spectrum's components on the spectral axis.
    INTEGRATED = "integrated"
    #: Number of components; 0 where nothing was found.
    COMPONENTS = "components"
    #: Mean coordinate of the components on the spectral axis, weighted by their areas.
    CENTROID = "centroid"
    #: Coordinate of the component with the largest amplitude.
    VELOCITY = "velocity"
    #: Standard deviation of the component with the largest amplitude, on the spectral axis.
    WIDTH = "width"
    #: Noise of a spectrum.
    RMS = "rms"
    #: Reduced chi-square of the model of a spectrum.
    CHI2 = "chi2"
    #: Bits of `prismline_gaussline.Flag`.
    FLAGS = "flags"
    #: State of the chunk that holds the pixel, a `ChunkShade`.
    CHUNKS = "chunks"


class ChunkShade(StrEnum):
    """The values of the map `chunks`, in this order from 0. Where a tile shows several chunks, the last one wins."""

    COMPLETED = "COMPLETED"
    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    FAILED = "FAILED"


#: Names of the bits of the column `flags`, from the lowest one on, as in `prismline_gaussline.Flag`.
FLAG_NAMES = (
    "CONVERGED",
    "AT_BOUND",
    "BLENDED",
    "LIMIT_HIT",
    "TIME_LIMIT",
    "BLANK",
    "NO_DATA",
    "NO_NOISE",
    "NOT_FINITE",
    "OFFSET",
    "SLOPE",
    "RIPPLE",
    "NEGATIVE",
)

#: The flags of a spectrum that is not flat at zero beside its lines.
NOT_FLAT = ("OFFSET", "SLOPE", "RIPPLE", "NEGATIVE")


def flag_names(flags: int) -> list[str]:
    """The names of the bits in `flags`; a bit of a newer version is named by its value."""
    bits = [bit for bit in range(flags.bit_length()) if flags >> bit & 1]
    return [FLAG_NAMES[bit] if bit < len(FLAG_NAMES) else str(1 << bit) for bit in bits]
