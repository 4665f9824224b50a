"""Spectral cubes in FITS files: reads the header, and the spectra of a file on the local disk in bounded memory.

A slab is read into memory rather than mapped: the kernel maps at least a page, and usually sixteen, for every
channel that a slab touches, so the resident memory of a mapped slab grows with the number of channels and not
with the slab's size.

Header conventions: FITS standard 4.0 (https://fits.gsfc.nasa.gov/fits_standard.html) and, for spectral axes,
Greisen et al. 2006 (A&A 446, 747).
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from astropy.io import fits
from astropy.wcs import WCS
from numpy.typing import NDArray

from prismline_contracts.references import FITS_LAYOUT, ZARR_LAYOUT
from prismline_cube import STORED_TYPES, ZIP_MAGIC, Grid, ReadRange, StoredValues, sky_coordinates, spectra_type
from prismline_cube.limits import MAX_AXIS_LENGTH, MAX_CHANNELS, MAX_HDUS, MAX_HEADER_BYTES, MAX_TEXT_LENGTH
from prismline_splitter.cube_errors import NOT_FITS, CubeError, TileCompressedError
from prismline_splitter.fpack import unpack_tiles
from prismline_splitter.gunzip import decompress
from prismline_splitter.plain_fits import RECORD_BYTES
from prismline_splitter.zarr_header import open_zarr_file, unpack_zarr, zarr_header

#: First four letters of the CTYPEn of a spectral axis -> the SI unit it has when the header gives no CUNITn
#: (Greisen et al. 2006, table 1; FELO is AIPS's optical velocity on a grid that is regular in frequency).
#: prismline-gaussline has the same table: the splitter does not depend on it, and it depends on no package of ours.
SPECTRAL_TYPES = {
    "VRAD": "m/s",
    "VOPT": "m/s",
    "VELO": "m/s",
    "FELO": "m/s",
    "FREQ": "Hz",
    "WAVE": "m",
    "AWAV": "m",
    "WAVN": "1/m",
    "ENER": "J",
    "ZOPT": "",
    "BETA": "",
}

#: Numbers of axes that a cube may have, degenerate ones included.
CUBE_AXES = (2, 3, 4)

#: Bytes of one slab, counted as float64, the widest type of its values in memory. Reading takes up to three
#: times this, well under 512 MB; a smaller slab means more and shorter reads (one for each channel).
SLAB_BYTES = 64 * 2**20

#: Bytes that hold nearly every header (800 cards).
HEADER_BYTES = 64 * 2**10

GZIP_MAGIC = b"\x1f\x8b"
#: No file system has files of this many bytes.
LONGEST_FILE = 2**63
#: Number of bytes at the start of a file that identify its format.
MAGIC_BYTES = 4
#: Most axes for which the keywords of coordinates may be given, and highest order of a polynomial of distortion (SIP).
#: The libraries allocate and look up its square before they look at the values.
MAX_COORDINATE_AXES, MAX_DISTORTION_ORDER = 9, 9


@dataclass(frozen=True)
class SpectralAxis:
    """The channels' coordinate: channel i (from 0) is at `crval + (i + 1 - crpix) * cdelt`, in `cunit`."""

    ctype: str
    crval: float
    crpix: float
    cdelt: float
    cunit: str


@dataclass(frozen=True, eq=False)
class SpectraBlock:
    """Consecutive spectra from spectrum index `start` on.

    `spectra` has shape (n, n_channels), C-contiguous and native-endian, NaN where the cube has no value; `x`
    and `y` are int32 of shape (n,), pixel indices from 0.
    """

    start: int
    spectra: NDArray[np.floating[Any]]
    x: NDArray[np.int32]
    y: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class CubeHeader:
    """The header of a spectral cube of ny * nx spectra with n_channels each.

    `x` is the lowest-numbered FITS axis that is neither spectral nor degenerate (of length one) and `y` the
    next one; a missing axis has length 1. `dtype` is the type of the spectra: float64 if the values are 32- or
    64-bit integers or float64, float32 otherwise.
    """

    bitpix: int
    #: Lengths of the axes, NAXIS1 first.
    axes: tuple[int, ...]
    #: Number of the spectral axis, from 1.
    spectral_axis: int
    n_channels: int
    ny: int
    nx: int
    dtype: np.dtype[Any]
    axis: SpectralAxis
    bunit: str
    object_name: str
    stored: StoredValues
    #: The stored chunks of a Zarr array. None for a FITS file.
    grid: Grid | None = None
    #: FITS keywords of the celestial coordinates, with axis 1 for x and axis 2 for y. None if the header has none that
    #: can be read.
    celestial: dict[str, str | int | float | bool] | None = None
    #: Rest frequency of the observed line, in Hz. None if the header has none that is a positive number.
    rest_frequency: float | None = None

    @property
    def layout(self) -> str:
        """The name of the values' layout in the object, as references give it."""
        return FITS_LAYOUT if self.grid is None else ZARR_LAYOUT

    @property
    def n_spectra(self) -> int:
        """Number of spectra, blank ones included."""
        return self.ny * self.nx

    def sky_coordinates(self, x: NDArray[np.int32], y: NDArray[np.int32]) -> NDArray[np.float64] | None:
        """Celestial longitude and latitude of pixels (from 0) in degrees, shape (2, n); NaN off the projection."""
        return None if self.celestial is None else sky_coordinates(self.celestial, x, y)


@dataclass(frozen=True, kw_only=True)
class Cube(CubeHeader):
    """A spectral cube in the uncompressed FITS file `path`."""

    path: Path

    def blocks(self, size: int, start: int = 0, *, cut_at: int | None = None) -> Iterator[SpectraBlock]:
        """The spectra from index `start` to the last, at most `size` at a time.

        `cut_at`: no block crosses a multiple of this index. Memory depends on SLAB_BYTES and the size of a block,
        not on the size of the cube. Raises ValueError for a size or cut below 1 or a start outside 0 to n_spectra,
        CubeError if the file has become shorter since it was opened, and OSError if the disk fails.
        """
        if size < 1:
            raise ValueError(f"size is {size}; it must be at least 1")
        if cut_at is not None and cut_at < 1:
            raise ValueError(f"cut_at is {cut_at}; it must be at least 1")
        if not 0 <= start <= self.n_spectra:
            raise ValueError(f"start is {start}; it must be between 0 and {self.n_spectra}")
        slab_start, slab = start, np.empty((0, self.n_channels), self.stored.dtype)
        with self.path.open("rb", buffering=0) as file:
            begin = start
            while begin < self.n_spectra:
                cut = self.n_spectra if cut_at is None else (begin // cut_at + 1) * cut_at
                index = np.arange(begin, min(begin + size, cut, self.n_spectra))
                spectra = np.empty((len(index), self.n_channels), self.dtype)
                filled = 0
                while filled < len(spectra):
                    skip = begin + filled - slab_start
                    if skip >= len(slab):
                        del slab
                        slab_start, slab = self._read_slab(file, begin + filled)
                        continue
                    piece = slab[skip : skip + len(spectra) - filled]
                    self.stored.physical(piece, spectra[filled : filled + len(piece)])
                    filled += len(piece)
                y, x = np.divmod(index, self.nx)
                yield SpectraBlock(begin, spectra, x.astype(np.int32), y.astype(np.int32))
                begin += len(index)

    def _read_slab(self, file: io.FileIO, index: int) -> tuple[int, NDArray[Any]]:
        """The slab that contains spectrum `index`: its first index, and its stored values (n, n_channels)."""
        stored = self.stored
        capacity = max(1, SLAB_BYTES // (self.n_channels * np.dtype(np.float64).itemsize))
        outer, inner = divmod(index, stored.inner)
        if capacity >= stored.inner:  # whole rows of the outer axis: one contiguous piece of the file
            rows = min(capacity // stored.inner, self.n_spectra // stored.inner - outer)
            first, width = outer * stored.inner, stored.inner
            slab = np.empty((rows, self.n_channels, width), stored.dtype)
            _read_exactly(file, slab, stored.offset + first * self.n_channels * stored.dtype.itemsize)
        else:  # a part of one row: a piece of the file for each channel
            first, width = index, min(capacity, stored.inner - inner)
            slab = np.empty((1, self.n_channels, width), stored.dtype)
            for channel in range(self.n_channels):
                position = (outer * self.n_channels + channel) * stored.inner + inner
                _read_exactly(file, slab[0, channel], stored.offset + position * stored.dtype.itemsize)
        return first, slab.transpose(0, 2, 1).reshape(-1, self.n_channels)


@dataclass(frozen=True)
class Image:
    """An image in the uncompressed FITS file `path`. `shape` has the lengths of its axes, the slowest first."""

    path: Path
    bitpix: int
    stored: StoredValues
    shape: tuple[int, ...]

    def values(self) -> NDArray[np.float64]:
        """All values in the order of the file, NaN where there is none. The caller checks `shape` first."""
        raw = np.empty((1, math.prod(self.shape)), self.stored.dtype)
        with self.path.open("rb", buffering=0) as file:
            _read_exactly(file, raw, self.stored.offset)
        values = np.empty(raw.shape, spectra_type(self.bitpix))
        self.stored.physical(raw, values)
        found: NDArray[np.float64] = values[0].astype(np.float64)
        return found


def is_gzip(magic: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed with gzip."""
    return magic.startswith(GZIP_MAGIC)


def is_zip(magic: bytes) -> bool:
    """Whether a file that begins with these bytes is a ZIP file, which should hold a Zarr array."""
    return magic.startswith(ZIP_MAGIC)


def read_header(file: BinaryIO, file_bytes: int) -> CubeHeader:
    """The header of the spectral cube in an uncompressed FITS file of `file_bytes` bytes. Reads only headers.

    Raises CubeError if the file is not a complete spectral cube, and passes on errors of reading the file.
    """
    return _describe(*_find_image(file, file_bytes))


def read_zarr_header(file: BinaryIO, read: ReadRange) -> CubeHeader:
    """The header of the spectral cube in a Zarr array in a ZIP file. Reads only metadata.

    Raises CubeError if the file is not a spectral cube, and passes on errors of reading it.
    """
    cube = open_zarr_file(file, read)
    found = _describe(zarr_header(cube), 0)
    return replace(found, grid=cube.grid(found.spectral_axis))


def open_cube(path: Path, workdir: Path) -> Cube:
    """Find the spectral cube in a FITS file: its first HDU with image data.

    A Zarr array, or a file that is compressed with gzip (whatever its name) or tile by tile, is first unpacked to a
    plain FITS file in `workdir`, which the cube then reads. The caller removes `workdir` when it no longer needs the
    cube. Raises CubeError if the file is not a complete spectral cube, and OSError if the disk fails or is full.
    """
    if not path.is_file():
        raise CubeError("there is no such file; check the cube's key and upload it again")
    with path.open("rb") as file:
        magic = file.read(MAGIC_BYTES)
    if is_zip(magic):
        path = unpack_zarr(path, workdir)
    elif is_gzip(magic):
        path = decompress(path, workdir)
    if path.stat().st_size == 0:
        raise CubeError("the file is empty; upload the cube again")
    path, header, offset = _plain_image(path, workdir)
    return Cube(path=path, **vars(_describe(header, offset)))


def open_image(path: Path, workdir: Path) -> Image:
    """The first image with data in a FITS file, which may be tile-compressed. Raises as `open_cube` does."""
    path, header, offset = _plain_image(path, workdir)
    bitpix, axes = _layout(header)
    return Image(path, bitpix, _stored(header, offset, inner=1), tuple(reversed(axes)))


def _plain_image(path: Path, workdir: Path) -> tuple[Path, fits.Header, int]:
    """The uncompressed file, the header of its first image with data, and the offset of the data."""
    try:
        return path, *_find_image_in(path)
    except TileCompressedError:
        path = unpack_tiles(path, workdir)
        return path, *_find_image_in(path)


def _find_image_in(path: Path) -> tuple[fits.Header, int]:
    with path.open("rb") as file:
        return _find_image(file, path.stat().st_size)


def is_blank(spectra: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """For spectra of shape (n, n_channels), whether each has no value at all: shape (n,)."""
    blank: NDArray[np.bool_] = np.isnan(spectra).all(axis=1)
    return blank


def _read_exactly(file: io.FileIO, array: NDArray[Any], position: int) -> None:
    """Fill the C-contiguous `array` from byte `position` of the file on."""
    file.seek(position)
    if file.readinto(array.data) != array.nbytes:
        raise CubeError("the file became shorter while it was read; submit it again")


def _find_image(file: BinaryIO, file_bytes: int) -> tuple[fits.Header, int]:
    """The header of the first HDU with image data, and the offset of its data. Raises CubeError if data are cut off."""
    if file.read(len(b"SIMPLE")) != b"SIMPLE":
        raise CubeError(NOT_FITS)
    start, header_bytes = 0, 0
    for _ in range(MAX_HDUS):
        if start >= file_bytes:
            raise CubeError("the file holds no image data; submit a FITS file with a spectral cube in it")
        header, offset = _read_header(file, start, MAX_HEADER_BYTES - header_bytes)
        header_bytes += offset - start
        bitpix, axes = _layout(header)
        if _value(header, "GROUPS"):
            raise CubeError("the data are FITS random groups and not an image; submit an image cube")
        groups, parameters = _count(header, "GCOUNT", 1), _count(header, "PCOUNT", 0)
        values = groups * (parameters + math.prod(axes)) if axes else 0
        stop = offset + values * abs(bitpix) // 8
        if stop > file_bytes:
            promised = f"{stop} bytes" if stop < LONGEST_FILE else "more bytes than a file can have"
            raise CubeError(
                f"the file is truncated: its header promises {promised} and it holds {file_bytes}; "
                "upload the file again"
            )
        if _value(header, "ZIMAGE"):
            raise TileCompressedError("the cube is tile-compressed; its values have to be unpacked")
        if axes and _text(header, "XTENSION") in ("", "IMAGE"):
            _check_groups(groups, parameters)
            return header, offset
        start = -(-stop // RECORD_BYTES) * RECORD_BYTES
    raise CubeError(
        f"the first {MAX_HDUS} HDUs of the file hold no image data; submit a FITS file that begins with the cube"
    )


def _check_groups(groups: int, parameters: int) -> None:
    """Raise CubeError if an image has groups or parameters. With GCOUNT = 0 it would promise no data at all."""
    if groups != 1:
        raise _unusable("GCOUNT", f"is {groups} and must be 1 in an image")
    if parameters != 0:
        raise _unusable("PCOUNT", f"is {parameters} and must be 0 in an image")


def _read_header(file: BinaryIO, start: int, most: int) -> tuple[fits.Header, int]:
    """The header that begins at byte `start`, and the offset of the data after it. most: bytes that it may have."""
    for size in (min(HEADER_BYTES, most), most):  # few headers need the longer read
        file.seek(start)
        window = io.BytesIO(file.read(size))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                header = fits.Header.fromfile(window)
        except Exception as error:  # astropy does not document what it raises for a damaged header
            failed = error
        else:
            return header, start + window.tell()
    raise CubeError(f"the header at byte {start} is damaged or endless; upload the file again") from failed


def _layout(header: fits.Header) -> tuple[int, list[int]]:
    """BITPIX and the axis lengths, NAXIS1 first."""
    bitpix = _integer(header, "BITPIX")
    if bitpix not in STORED_TYPES:
        raise _unusable("BITPIX", f"is {bitpix} and not one of {', '.join(map(str, STORED_TYPES))}")
    return bitpix, [_count(header, f"NAXIS{n}") for n in range(1, _count(header, "NAXIS") + 1)]


def _describe(header: fits.Header, offset: int) -> CubeHeader:
    bitpix, axes = _layout(header)
    spectral = _spectral_axis(header, axes)
    if axes[spectral - 1] > MAX_CHANNELS:
        raise CubeError(f"the cube has {axes[spectral - 1]:,} channels; submit at most {MAX_CHANNELS:,} of them")
    spatial = [n for n, length in enumerate(axes, start=1) if n != spectral and length > 1]
    if len(spatial) > 2:
        extra = spatial[2]
        raise CubeError(
            f"axis {extra} ({_text(header, f'CTYPE{extra}') or 'no CTYPE'}) has {axes[extra - 1]} planes "
            "in addition to two other axes and the spectral one; submit one plane at a time"
        )
    nx, ny = [*(axes[n - 1] for n in spatial), 1, 1][:2]
    ctype = _text(header, f"CTYPE{spectral}").upper()
    return CubeHeader(
        bitpix=bitpix,
        axes=tuple(axes),
        spectral_axis=spectral,
        n_channels=axes[spectral - 1],
        ny=ny,
        nx=nx,
        dtype=spectra_type(bitpix),
        axis=SpectralAxis(
            ctype=ctype,
            crval=_number(header, f"CRVAL{spectral}", 0.0),
            crpix=_number(header, f"CRPIX{spectral}", 0.0),
            cdelt=_number(header, f"CDELT{spectral}", _number(header, f"CD{spectral}_{spectral}", 1.0)),
            cunit=_text(header, f"CUNIT{spectral}") or SPECTRAL_TYPES[ctype[:4]],
        ),
        bunit=_text(header, "BUNIT"),
        object_name=_text(header, "OBJECT"),
        stored=_stored(header, offset, inner=math.prod(axes[: spectral - 1])),
        celestial=_celestial(header, [n for n in spatial if axes[n - 1] > 1]),
        rest_frequency=_rest_frequency(header),
    )


def _rest_frequency(header: fits.Header) -> float | None:
    """The rest frequency in Hz. RESTFREQ is the older name. The results are useful without it, so none is refused."""
    for key in ("RESTFRQ", "RESTFREQ"):
        try:
            if (value := _number(header, key, 0.0)) > 0:
                return value
        except CubeError:
            continue
    return None


def _stored(header: fits.Header, offset: int, *, inner: int) -> StoredValues:
    """How the values of an image are stored."""
    bitpix = _integer(header, "BITPIX")
    stored = StoredValues(
        offset=offset,
        inner=inner,
        dtype=np.dtype(STORED_TYPES[bitpix]),
        bscale=_number(header, "BSCALE", 1.0),
        bzero=_number(header, "BZERO", 0.0),
        blank=_integer(header, "BLANK") if bitpix > 0 and _value(header, "BLANK") is not None else None,
    )
    if stored.bscale == 0:
        raise _unusable("BSCALE", "is 0, which makes all values equal")
    return stored


def _celestial(header: fits.Header, spatial: list[int]) -> dict[str, str | int | float | bool] | None:
    """The keywords of the celestial coordinates of the pixels, whose axes are `spatial` (from 1, x first).

    If the cube is a strip or a single spectrum, degenerate celestial axes serve as `y`, or as `x` and `y`. Returns None
    if the coordinates cannot be read, because the spectra are useful without them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if not _bounded_coordinates(header):
                return None
            whole = WCS(header, fix=False)
            kinds = (axis["coordinate_type"] for axis in whole.get_axis_types())
            celestial = [n for n, kind in enumerate(kinds, start=1) if kind == "celestial"]
            if len(celestial) != 2 or not set(spatial) <= set(celestial):
                return None
            sky = whole.sub([*spatial, *(n for n in celestial if n not in spatial)])
            sky.wcs.set()
            return dict(sky.to_header().items())
        except Exception:  # astropy and wcslib do not document what they raise for odd coordinates
            return None


def _bounded_coordinates(header: fits.Header) -> bool:
    """Whether the keywords of the coordinates name no more axes and no higher orders than real cubes have."""
    most = {"WCSAXES": MAX_COORDINATE_AXES} | dict.fromkeys(
        (f"{name}_ORDER" for name in ("A", "B", "AP", "BP")), MAX_DISTORTION_ORDER
    )
    return all(
        isinstance(value, int) and 0 <= value <= limit
        for name, limit in most.items()
        for value in header[f"{name}*"].values()
    )


def _spectral_axis(header: fits.Header, axes: list[int]) -> int:
    """The number (from 1) of the spectral axis of data that can be a cube."""
    if len(axes) not in CUBE_AXES:
        raise CubeError(f"the data have {len(axes)} axes; submit a cube of 2, 3 or 4 axes")
    for n, length in enumerate(axes, start=1):
        if length == 0:
            raise CubeError(f"the cube holds no spectra: NAXIS{n} is 0; submit a cube with data")
        if length > MAX_AXIS_LENGTH:
            raise CubeError(f"axis {n} is longer than {MAX_AXIS_LENGTH:,}; submit a part of the cube")
    ctypes = [_text(header, f"CTYPE{n}") for n in range(1, len(axes) + 1)]
    spectral = [n for n, ctype in enumerate(ctypes, start=1) if ctype[:4].upper() in SPECTRAL_TYPES]
    if not spectral:
        named = ", ".join(ctype or "unnamed" for ctype in ctypes)
        raise CubeError(
            f"the cube has no spectral axis: its axes are {named} "
            f"and none is one of {', '.join(SPECTRAL_TYPES)}; set the CTYPEn of its spectral axis"
        )
    resolved = [n for n in spectral if axes[n - 1] > 1]
    if len(resolved) > 1:
        raise CubeError(
            f"axes {' and '.join(map(str, resolved))} are both spectral; "
            "correct the CTYPEn of those that are not and submit the cube again"
        )
    return (resolved or spectral)[0]


def _value(header: fits.Header, key: str) -> Any:
    """The value of a card. None if there is no such card, or if it has no value."""
    try:
        return header.get(key)
    except Exception as error:  # astropy does not document what it raises for a damaged card
        raise _unusable(key, "cannot be read") from error


def _number(header: fits.Header, key: str, default: float) -> float:
    value = _value(header, key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _unusable(key, f"is {value!r:.80} and not a finite number")
    return float(value)


def _integer(header: fits.Header, key: str, default: int | None = None) -> int:
    """The integer value of a card. Raises CubeError if the card is missing and there is no default."""
    value = _value(header, key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        raise _unusable(key, "is missing" if value is None else f"is {value!r:.80} and not an integer")
    return int(value)


def _count(header: fits.Header, key: str, default: int | None = None) -> int:
    value = _integer(header, key, default)
    if value < 0:
        raise _unusable(key, f"is {value!s:.20} and must not be negative")
    return value


def _text(header: fits.Header, key: str) -> str:
    value = _value(header, key)
    text = "" if value is None else str(value).strip()
    if len(text) > MAX_TEXT_LENGTH:
        raise _unusable(key, f"has {len(text):,} characters; at most {MAX_TEXT_LENGTH:,} are read")
    return text


def _unusable(key: str, what: str) -> CubeError:
    return CubeError(f"the header's {key} {what}; correct the header and submit the file again")
