"""The records of a ZIP archive whose members are stored without compression. Pure: values in, bytes out.

Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3. The libraries that stream ZIP archives keep every member in
memory until the archive ends, and cannot be stopped and continued in another process. An export must do without that
memory and must be able to continue, so it writes the records itself. ZIP64 fields appear only where a number needs
them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime

#: The largest values of the 32-bit and 16-bit fields. They mean that the ZIP64 record has the value.
MAX32, MAX16 = 0xFFFF_FFFF, 0xFFFF
#: Versions that a reader needs: 2.0, and 4.5 for ZIP64.
_PLAIN, _ZIP64 = 20, 45
#: Host system Unix, in the upper byte of `version made by`.
_UNIX = 3 << 8
#: A regular file that everybody may read.
_ATTRIBUTES = 0o100644 << 16
#: Flag: length and checksum follow the data.
_DESCRIPTOR_FOLLOWS = 1 << 3
#: Header id of the ZIP64 extra field.
_ZIP64_EXTRA = 1
#: The earliest time that a ZIP archive can hold.
_EPOCH = datetime(1980, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Member:
    """One file in the archive. Its name is ASCII."""

    name: str
    #: Length in bytes.
    size: int
    modified: datetime
    #: CRC-32 of the content. None while it is unknown, because the content is read while the archive is written.
    crc: int | None
    #: Position of the local header in the archive.
    offset: int
    #: Whether the checksum follows the content instead of preceding it.
    streamed: bool = False

    @property
    def _large(self) -> bool:
        return self.size >= MAX32

    def local_header(self) -> bytes:
        """The local header, which precedes the content."""
        name = self.name.encode("ascii")
        crc, size = (0, 0) if self.streamed else (self.crc or 0, self.size)
        extra = struct.pack("<HHQQ", _ZIP64_EXTRA, 16, size, size) if self._large else b""
        field = MAX32 if self._large else size
        version, flags = _ZIP64 if self._large else _PLAIN, self._flags
        fields = (version, flags, 0, *_dos_time(self.modified), crc, field, field, len(name), len(extra))
        return struct.pack("<4s5H3L2H", b"PK\3\4", *fields) + name + extra

    def descriptor(self) -> bytes:
        """The data descriptor, which follows the content of a streamed member."""
        sizes = "QQ" if self._large else "LL"
        return struct.pack(f"<4sL{sizes}", b"PK\7\x08", self.crc, self.size, self.size)

    def directory_record(self) -> bytes:
        """The member's record in the central directory."""
        name = self.name.encode("ascii")
        far = self.offset >= MAX32
        wide = ([self.size, self.size] if self._large else []) + ([self.offset] if far else [])
        extra = struct.pack(f"<HH{len(wide)}Q", _ZIP64_EXTRA, 8 * len(wide), *wide) if wide else b""
        size, offset = MAX32 if self._large else self.size, MAX32 if far else self.offset
        version = _ZIP64 if wide else _PLAIN
        fields = (_UNIX | version, version, self._flags, 0, *_dos_time(self.modified), self.crc, size, size)
        return (
            struct.pack("<4s6H3L", b"PK\1\2", *fields)
            + struct.pack("<5H2L", len(name), len(extra), 0, 0, 0, _ATTRIBUTES, offset)
            + name
            + extra
        )

    @property
    def _flags(self) -> int:
        return _DESCRIPTOR_FOLLOWS if self.streamed else 0


def end_records(*, members: int, offset: int, size: int) -> bytes:
    """The end of an archive whose central directory has `members` records and `size` bytes, and begins at `offset`."""
    short = struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, *(min(members, MAX16),) * 2, min(size, MAX32), min(offset, MAX32), 0
    )
    if members < MAX16 and size < MAX32 and offset < MAX32:
        return short
    fields = (44, _UNIX | _ZIP64, _ZIP64, 0, 0, members, members, size, offset)
    return struct.pack("<4sQ2H2L4Q", b"PK\6\6", *fields) + struct.pack("<4sLQL", b"PK\6\7", 0, offset + size, 1) + short


def _dos_time(moment: datetime) -> tuple[int, int]:
    """Time and date in UTC, in the format of MS-DOS, which has steps of two seconds."""
    at = max(moment.astimezone(UTC), _EPOCH)
    return at.hour << 11 | at.minute << 5 | at.second // 2, (at.year - 1980) << 9 | at.month << 5 | at.day
