"""A cube in a Zarr v3 array that lies in one ZIP file, as `zarr.storage.ZipStore` writes it, read by ranges.

The ZIP file is one object, so its ETag pins the cube as it pins a FITS file. The array's attributes are the cards of a
FITS header, as kerchunk writes them. The axes of the array are those of the header in reverse.

Zarr v3: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import re
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath

from prismline_cube.grid import ZIP_MAGIC, Grid
from prismline_cube.layout import Layout
from prismline_cube.limits import DECODED_BYTES, MAX_DESCRIPTION_BYTES, MAX_DESCRIPTIONS
from prismline_cube.reading import SLAB_BYTES, ReadRange, Slab
from prismline_cube.zarr_description import Description, describe
from prismline_cube.zip_members import open_zip

#: Bytes of the fixed part of a member's header, and bytes to read in advance for the extra field after its name.
HEADER_BYTES, EXTRA_BYTES = 30, 64
#: The name of the object that describes an array or a group.
DESCRIPTION = "zarr.json"
#: A keyword of a FITS header.
KEYWORD = re.compile(r"[A-Z0-9_-]{1,8}")


@dataclass(frozen=True)
class ZarrCube:
    """The array that holds a cube. `axes` are the lengths of its axes, the fastest first."""

    array: zarr.Array[Any]
    description: Description
    cards: Mapping[str, str | int | float | bool]
    axes: tuple[int, ...]

    @property
    def bitpix(self) -> int:
        """BITPIX of the values."""
        return self.description.bitpix

    def grid(self, spectral_axis: int) -> Grid:
        """How the array is stored in pieces. spectral_axis: its number in the header, from 1."""
        # zarr reads a shard by its inner chunks
        return Grid(self.axes, tuple(reversed(self.description.chunks)), spectral_axis)

    def values(self, *axis_ranges: slice) -> NDArray[Any]:
        """The stored values in these ranges of the array's axes, the slowest first.

        Raises ValueError, whose text is a clause, if they are damaged. Zarr decodes some stored chunks at the same
        time, however large they are. Where they are large, parts of the ranges are read one after the other.
        """
        try:
            if (group := self._group()) is None:
                return np.asarray(self.array[axis_ranges])
            ranges = [range(*of.indices(length)) for of, length in zip(axis_ranges, self.array.shape, strict=True)]
            values = np.empty([len(of) for of in ranges], self.array.dtype)
            for part in _parts(ranges, *group):
                place = tuple(slice(p.start - of.start, p.stop - of.start) for p, of in zip(part, ranges, strict=True))
                values[place] = self.array[tuple(slice(p.start, p.stop) for p in part)]
        except (ValueError, RuntimeError, TypeError, KeyError, IndexError, zlib.error) as error:
            raise ValueError(f"its values cannot be read ({error})") from error
        return values

    def _group(self) -> tuple[tuple[int, ...], int] | None:
        """The stored objects to read at the same time: their lengths, and how many. None: zarr may read all of them.

        Zarr reads `async.concurrency` objects at the same time and, of each, so many chunks.
        """
        at_once, found = zarr.config.get("async.concurrency"), self.description
        if at_once * found.chunk_bytes > DECODED_BYTES:
            return found.chunks, max(1, DECODED_BYTES // found.chunk_bytes)
        if at_once * min(at_once, found.chunks_of_shard) * found.chunk_bytes > DECODED_BYTES:
            return found.objects, DECODED_BYTES // (at_once * found.chunk_bytes)
        return None


def _parts(ranges: Sequence[range], stored: Sequence[int], at_once: int) -> Iterator[tuple[range, ...]]:
    """The ranges in parts that touch at most `at_once` objects, which have the lengths `stored`."""
    of_axis = []
    for of, length in zip(reversed(ranges), reversed(stored), strict=True):
        n_objects = max(1, -(-of.stop // length) - of.start // length)
        step = min(n_objects, at_once)
        at_once //= step
        cuts = [of.start, *range((of.start // length + step) * length, of.stop, step * length), of.stop]
        of_axis.append([range(start, stop) for start, stop in itertools.pairwise(cuts)])
    return itertools.product(*reversed(of_axis))


class ZarrReader:
    """Spectra of a cube in a Zarr array, as `FitsReader` reads those of a FITS file."""

    def __init__(self, cube: ZarrCube, layout: Layout, spectral_axis: int) -> None:
        """Raises ValueError, whose text is a clause, if the array is not the one of the layout."""
        if math.prod(cube.axes) != layout.n_spectra * layout.n_channels or cube.axes[spectral_axis - 1] != (
            layout.n_channels
        ):
            raise ValueError(f"its array has the axes {cube.axes}")
        self._cube, self.layout = cube, layout
        self._grid = cube.grid(spectral_axis)

    def slabs(self, start: int, stop: int) -> Iterator[Slab]:
        """The spectra `start` to `stop` in slabs. Raises the errors of the read function."""
        nx, spectrum_bytes = self._grid.nx, self.layout.n_channels * self.layout.stored.dtype.itemsize
        most = SLAB_BYTES // (nx * spectrum_bytes)
        if most == 0:
            yield from self._parts_of_rows(start, stop, max(1, SLAB_BYTES // spectrum_bytes))
            return
        band = most // self._grid.rows * self._grid.rows or most
        while start < stop:
            first = start // nx
            last = min((first // band + 1) * band, -(-stop // nx))
            spectra = self._rows(first, last)
            end = min(stop, last * nx)
            yield Slab(start, spectra[start - first * nx : end - first * nx])
            start = end

    def _parts_of_rows(self, start: int, stop: int, width: int) -> Iterator[Slab]:
        """The spectra `start` to `stop` in slabs of at most `width` spectra of one row."""
        nx = self._grid.nx
        while start < stop:
            row, left = divmod(start, nx)
            right = min(left + width, nx, left + stop - start)
            yield Slab(start, self._rows(row, row + 1, left, right))
            start += right - left

    def gather(self, index: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The spectra (n, n_channels) with the indices `index`, which ascend."""
        nx, stored = self._grid.nx, np.empty((len(index), self.layout.n_channels), self.layout.stored.dtype)
        of_band = index // self._grid.together
        for band in np.unique(of_band):
            of_row = index[of_band == band]
            y, x = np.divmod(of_row, nx)
            first, left = int(y[0]), int(x.min())
            values = self._rows(first, int(y[-1]) + 1, left, int(x.max()) + 1)
            width = int(x.max()) + 1 - left
            stored[of_band == band] = values[(y - first) * width + x - left]
        spectra = np.empty(stored.shape, self.layout.dtype)
        self.layout.stored.physical(stored, spectra)
        return spectra

    def _rows(self, first: int, last: int, left: int = 0, right: int | None = None) -> NDArray[Any]:
        """The stored values (n, n_channels) of the spectra in rows `first` to `last` and columns `left` to `right`."""
        grid, of_axis = self._grid, [slice(None)] * len(self._grid.axes)
        if grid.spatial:
            of_axis[grid.spatial[0]] = slice(left, right)
        if len(grid.spatial) > 1:
            of_axis[grid.spatial[1]] = slice(first, last)
        values = self._cube.values(*reversed(of_axis))
        # axes of the array: y, x, channel, then those of length one
        n = len(grid.axes)
        ordered = [*reversed(grid.spatial), grid.spectral_axis - 1]
        rest = [axis for axis in range(n) if axis not in ordered]
        return values.transpose([n - 1 - axis for axis in ordered + rest]).reshape(-1, self.layout.n_channels)


def open_zarr(file: BinaryIO, read: ReadRange) -> ZarrCube:
    """The cube in a ZIP file. file: the file, for its list of members; read: returns ranges of its bytes.

    Raises ValueError, whose text is a clause, if the file does not hold one, and the errors of `read`.
    """
    file_bytes = file.seek(0, io.SEEK_END)

    def read_inside(start: int, stop: int) -> bytes:
        return read(start, min(stop, file_bytes))

    store = _ZipStore(_members(file, file_bytes), read_inside)
    name, document = _find(store)
    description = describe(document, file_bytes)
    store.longest_member, store.longest_part = description.longest_member, description.longest_part
    try:
        path = StorePath(store, name.removesuffix(DESCRIPTION).rstrip("/"))
        array = zarr.Array(zarr.AsyncArray(cast("Any", document | {"codecs": description.codecs}), path))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"its description cannot be read ({error})") from error
    return ZarrCube(array, description, _cards(document["attributes"]), tuple(reversed(array.shape)))


def _members(file: BinaryIO, file_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """The members of the ZIP file by name. All of them lie inside the file."""
    try:
        with open_zip(file) as archive:
            members = {member.filename: member for member in archive.infolist() if not member.is_dir()}
    except zipfile.BadZipFile as error:
        raise ValueError(f"it is not a complete ZIP file ({error})") from error
    for name, member in members.items():
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"its file compresses {name}; write it uncompressed, as zarr's ZipStore does")
        if not 0 <= member.header_offset <= file_bytes - HEADER_BYTES - member.file_size:
            raise ValueError(f"its member {name} claims {member.file_size:,} bytes, but the file has {file_bytes:,}")
    return members


def _find(store: _ZipStore) -> tuple[str, dict[str, Any]]:
    """The name and content of the description of the array that holds the cube."""
    names = sorted(name for name in store.members if name == DESCRIPTION or name.endswith(f"/{DESCRIPTION}"))
    if len(names) > MAX_DESCRIPTIONS:
        raise ValueError(f"it has {len(names):,} arrays and groups; at most {MAX_DESCRIPTIONS} are looked through")
    if (total := sum(store.members[name].file_size for name in names)) > MAX_DESCRIPTION_BYTES:
        raise ValueError(f"its descriptions have {total:,} bytes; at most {MAX_DESCRIPTION_BYTES:,} are read")
    arrays = []
    for name in names:
        try:
            document = json.loads(store.read_member(name))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its {name} is damaged") from error
        if isinstance(document, dict) and document.get("node_type") == "array":
            arrays.append((name, document))
    with_header = [(name, found) for name, found in arrays if _has_header(found)]
    if len(with_header) != 1:
        raise ValueError(
            f"{len(with_header)} of its {len(arrays)} arrays have a FITS header as attributes (CTYPE1, ...), instead"
            " of one"
        )
    return with_header[0]


def _has_header(document: dict[str, Any]) -> bool:
    attributes = document.get("attributes")
    return isinstance(attributes, dict) and "CTYPE1" in attributes


def _cards(attributes: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """The attributes that are valid cards of a header."""
    return {
        name: value
        for name, value in attributes.items()
        if KEYWORD.fullmatch(name) and isinstance(value, (str, int, float, bool))
    }


class _ZipStore(Store):
    """The members of a ZIP file as a store of Zarr, for reading. Each is read by ranges, several at a time."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, members: dict[str, zipfile.ZipInfo], read: ReadRange) -> None:
        super().__init__(read_only=True)
        self.members = members
        self._read = read
        self._begins: dict[str, int] = {}
        #: Most bytes of a member, and of a part of it, that the array's values can need.
        self.longest_member = self.longest_part = MAX_DESCRIPTION_BYTES

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def read_member(self, name: str) -> bytes:
        """A complete member. Raises ValueError if it is damaged, or longer than the values of a stored chunk."""
        member = self.members[name]
        if member.file_size > self.longest_member:
            raise ValueError(f"{name} has {member.file_size:,} bytes, which is more than a stored chunk takes")
        start = member.header_offset
        # The header's length is in the header. To read a few bytes too many saves a request.
        length = HEADER_BYTES + len(member.filename.encode()) + EXTRA_BYTES + member.file_size
        body = self._read(start, start + length)
        skip = _header_length(body)
        if len(body) - skip < member.file_size:
            body = body[:skip] + self._read(start + skip, start + skip + member.file_size)
        content = body[skip : skip + member.file_size]
        if zlib.crc32(content) != member.CRC:
            raise ValueError(f"{name} is damaged: its checksum is wrong")
        return content

    def _part(self, name: str, request: ByteRequest) -> bytes:
        """A part of a member, for example a chunk of a shard. Raises ValueError if the member has no such part."""
        size = self.members[name].file_size
        if isinstance(request, RangeByteRequest):
            start, stop = request.start, request.end
        elif isinstance(request, OffsetByteRequest):
            start, stop = request.offset, size
        else:
            start, stop = size - request.suffix, size
        if not 0 <= start < stop <= size or stop - start > self.longest_part:
            raise ValueError(f"{name} is damaged: its index names the bytes {start} to {stop}")
        if name not in self._begins:
            at = self.members[name].header_offset
            self._begins[name] = at + _header_length(self._read(at, at + HEADER_BYTES))
        return self._read(self._begins[name] + start, self._begins[name] + stop)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """A member or a part of it; None if there is none."""
        if key not in self.members:
            return None
        reading = (self.read_member, key) if byte_range is None else (self._part, key, byte_range)
        body = await asyncio.to_thread(*cast("Any", reading))
        return prototype.buffer.from_bytes(body)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Parts of members."""
        return list(await asyncio.gather(*(self.get(key, prototype, wanted) for key, wanted in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Whether there is such a member."""
        return key in self.members

    async def set(self, key: str, value: Buffer) -> None:  # noqa: ARG002
        """Refuse it: the file is only read."""
        raise io.UnsupportedOperation("write")

    async def delete(self, key: str) -> None:  # noqa: ARG002
        """Refuse it: the file is only read."""
        raise io.UnsupportedOperation("write")

    async def list(self) -> AsyncIterator[str]:
        """All members."""
        for name in self.members:
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """The members below `prefix`."""
        for name in self.members:
            if name.startswith(prefix):
                yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """What is directly below `prefix`."""
        within = f"{prefix.rstrip('/')}/" if prefix else ""
        for name in {name[len(within) :].partition("/")[0] for name in self.members if name.startswith(within)}:
            yield name


def _header_length(header: bytes) -> int:
    """Length of a member's header in bytes. header: at least its fixed part."""
    if not header.startswith(ZIP_MAGIC):
        raise ValueError("a member of its file is damaged")
    return HEADER_BYTES + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
