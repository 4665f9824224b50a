"""Reads a file of rows line by line, in bounded memory, from any position. Pure: it takes an open file.

A `RowFile` gives lines, or the records of a CSV file; each may be compressed with gzip. Its caller says what a row is
worth: a URL (`prismline_splitter.lists`) or an item (`prismline_splitter.item_sources`). A line that has no usable row
is a `Reject` with its number and the reason, and reading continues.

Every line carries the position after it, so that another reader can continue after a crash. A `Position` in such a file
is a number of bytes of the uncompressed file. In a gzip file the bytes before it are decompressed again and thrown
away.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Generic, Protocol, TypeVar

from prismline_runtime import PermanentError

#: Longest line, in bytes, and longest CSV record. A longer one is rejected without being held in memory.
MAX_LINE_BYTES = 64 * 1024
#: Most lines of one CSV record: a quoted field may contain line ends. It limits how many lines a missing quote affects.
MAX_RECORD_LINES = 100
#: How much of a rejected line is kept, in characters.
EXCERPT_CHARS = 200
#: Bytes that are read at a time.
READ_BYTES = 2**20
#: A gzip file may expand to this many bytes, or to `MAX_EXPANSION` times its size if that is more. Lists of URLs stay
#: well below 100 times; a gzip bomb reaches 1000 times.
FREE_EXPANSION_BYTES, MAX_EXPANSION = 256 * 2**20, 200

GZIP_MAGIC = b"\x1f\x8b"
#: Separators of CSV files that are recognised in the header.
DELIMITERS = (",", ";", "\t")

#: The value of a row.
T = TypeVar("T")


class ListError(PermanentError):
    """The list as a whole cannot be read. The message is one sentence with the cause and what to do."""


class BadLineError(Exception):
    """A line has no usable row. The message is the reason, a clause without a full stop."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two lines: how far the reader has come, in its own unit, and the lines before it.

    The unit of a file of lines is a byte of the uncompressed file. `part` is the number of the file, from 0, if the
    source consists of several; the offset is one in this file.
    """

    offset: int = 0
    line: int = 0
    part: int = 0


BEGINNING = Position()


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected line: its number from 1, the reason, and how it begins."""

    line: int
    reason: str
    excerpt: str

    @classmethod
    def of(cls, number: int, error: Exception, text: str) -> Reject:
        """The reject of a line with this text, of which the beginning is kept."""
        return cls(number, str(error), text[:EXCERPT_CHARS])


@dataclass(frozen=True, slots=True)
class Line(Generic[T]):
    """A line of the file, or another row. Without `value` and `reject` it is blank, or the header."""

    after: Position
    value: T | None = None
    reject: Reject | None = None


@dataclass(frozen=True, slots=True)
class _Raw:
    """A line as it is in the file. If it is longer than `MAX_LINE_BYTES`, `text` is None and `start` is cut off."""

    number: int
    start: bytes
    text: bytes | None
    after: int


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a CSV file: the separator, the names of the columns, and the position after it."""

    delimiter: str
    names: list[str]
    after: Position


class RowFile:
    """An open file of rows, which must be seekable.

    `name` appears in error texts. Every method raises ListError for a damaged or truncated gzip file, or one that
    expands too far.
    """

    def __init__(self, file: BinaryIO, *, compressed: bool = False, name: str = "list") -> None:
        """compressed: it was submitted as a gzip file. One that was not is recognised."""
        self.name = name
        magic = file.read(len(GZIP_MAGIC))
        #: Bytes of the object.
        self.size = file.seek(0, io.SEEK_END)
        file.seek(0)
        self._compressed = compressed or magic == GZIP_MAGIC
        if compressed and self.size and magic != GZIP_MAGIC:
            raise ListError(f"{name} is not a gzip file, although it was submitted as one.")
        self._most = max(FREE_EXPANSION_BYTES, MAX_EXPANSION * self.size) if self._compressed else self.size
        self._file: BinaryIO = gzip.GzipFile(fileobj=file) if self._compressed else file  # type: ignore[assignment]

    def estimated_lines(self) -> int:
        """About how many lines the file has, from its size and its first megabyte. Zero only for an empty list."""
        with self._readable():
            self._file.seek(0)
            sample = self._file.read(READ_BYTES)
            if len(sample) < READ_BYTES:
                return len(sample.splitlines())
            taken = _compressed_bytes(self._file.fileobj) if isinstance(self._file, gzip.GzipFile) else READ_BYTES
        return round(max(1, sample.count(b"\n")) * max(1.0, self.size / max(1, taken)))

    def lines(self, parse: Callable[[str], T | None], start: Position = BEGINNING) -> Iterator[Line[T]]:
        """The lines after `start`, which is the position after a line of an earlier call.

        parse: makes the value of a line that is not blank, or None if the line has to be skipped. Raises BadLineError
        for a line that is rejected.
        """
        for raw in self._raw_lines(start):
            after = Position(raw.after, raw.number)
            try:
                text = _decoded(raw).strip()
                yield Line(after, value=parse(text) if text else None)
            except BadLineError as error:
                yield Line(after, reject=_reject(raw, error))

    # ---- CSV

    def records(
        self, header: Header, parse: Callable[[list[str]], T | None], start: Position = Position()
    ) -> Iterator[Line[T]]:
        """The records after `start`. A record has the fields that the file has; `parse` compares them with the header.

        header: as `header` found it, or one at the beginning of the file if the file has none.
        """
        if start.offset < header.after.offset:
            yield Line(header.after)
            start = header.after
        lines = _PushBack(self._raw_lines(start))
        for first in lines:
            raws = [first]
            try:
                text = _decoded(first)
                if text.count('"') % 2:
                    text += self._rest_of_record(raws, lines)
                after = Position(raws[-1].after, raws[-1].number)
                if not text.strip():
                    yield Line(after)
                    continue
                fields = next(csv.reader(io.StringIO(text, newline=""), delimiter=header.delimiter), [])
                yield Line(after, value=parse(fields))
            except csv.Error as error:
                yield Line(Position(raws[-1].after, raws[-1].number), reject=_reject(first, error))
            except BadLineError as error:
                yield Line(Position(raws[-1].after, raws[-1].number), reject=_reject(first, error))

    def _rest_of_record(self, raws: list[_Raw], lines: _PushBack) -> str:
        """The remaining lines of the record that begins with `raws[0]`, which has an open quote. Adds them to `raws`.

        If no line closes the quote, only the first line is bad: the others are pushed back to `lines`.
        """
        rest, size = [], len(raws[0].start)
        for raw in islice(lines, MAX_RECORD_LINES - 1):
            raws.append(raw)
            size += len(raw.start)
            if raw.text is None or size > MAX_LINE_BYTES:
                break
            try:
                rest.append(_decoded(raw))
            except BadLineError:
                break
            if rest[-1].count('"') % 2:
                return "".join(rest)
        lines.push_back(raws[1:])
        del raws[1:]
        raise BadLineError("a quote is not closed")

    def header(self, choose: Callable[[list[Header]], Header]) -> Header | None:
        """The header of a CSV file, or None for an empty file. Raises ListError if the first line is not one.

        choose: takes one of the headers that the line is with each separator. It may raise ListError.
        """
        for raw in self._raw_lines(BEGINNING):
            try:
                text = _decoded(raw).strip()
            except BadLineError as error:
                raise ListError(f"The first line of {self.name} is not a CSV header: {error}.") from error
            if text:
                return choose(list(_headers(text, Position(raw.after, raw.number))))
        return None

    # ---- lines as bytes

    def _raw_lines(self, start: Position) -> Iterator[_Raw]:
        """The lines from `start` on. A line that is too long is skipped in pieces of `READ_BYTES`."""
        number, offset = start.line, start.offset
        with self._readable():  # it does not see the errors of the code that consumes these lines
            self._file.seek(offset)
            while text := self._file.readline(MAX_LINE_BYTES + 1):
                number += 1
                offset += len(text)
                whole = len(text) <= MAX_LINE_BYTES or text.endswith(b"\n")
                piece = text
                while not whole and piece and not piece.endswith(b"\n"):
                    piece = self._file.readline(READ_BYTES)
                    offset += len(piece)
                    self._check_expansion(offset)
                self._check_expansion(offset)
                if number == 1:
                    text = text.removeprefix(b"\xef\xbb\xbf")  # the byte order mark that some editors write
                yield _Raw(number, text, text if whole else None, offset)

    def _check_expansion(self, offset: int) -> None:
        if offset > self._most:
            raise ListError(
                f"{self.name} expands to more than {MAX_EXPANSION} times its {self.size} bytes: it is not a list."
            )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn the errors of a damaged gzip file into ListError."""
        try:
            yield
        except EOFError as error:
            raise ListError(f"{self.name} is truncated: its gzip stream has no end. Upload it again.") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ListError(f"{self.name} is a damaged gzip file: {error}. Upload it again.") from error


class _PushBack:
    """An iterator of lines to which lines can be returned."""

    def __init__(self, lines: Iterator[_Raw]) -> None:
        self._lines = lines
        self._again: deque[_Raw] = deque()

    def __iter__(self) -> Iterator[_Raw]:
        return self

    def __next__(self) -> _Raw:
        return self._again.popleft() if self._again else next(self._lines)

    def push_back(self, raws: list[_Raw]) -> None:
        """Return these lines. They come next, in the same order."""
        self._again.extendleft(reversed(raws))


class Rows(Protocol):
    """A source of rows that gives the same lines again from any position."""

    def estimated_lines(self) -> int:
        """About how many lines there are."""
        ...

    def lines(self, start: Position) -> Iterator[Line[str]]:
        """The lines after `start`, each with the source of its task."""
        ...


@dataclass(frozen=True, slots=True)
class Block(Generic[T]):
    """Consecutive lines: their values, their rejects, and the position after them."""

    values: list[T]
    rejects: list[Reject]
    after: Position


def blocks(lines: Iterable[Line[T]], size: int, most: int | None = None) -> Iterator[Block[T]]:
    """Divide lines into blocks of `size` lines; the last block may be smaller. Bad and blank lines count too.

    most: end after this many values.
    """
    iterator = iter(lines)
    while (most is None or most > 0) and (taken := list(islice(iterator, size))):
        values = [line.value for line in taken if line.value is not None]
        if most is not None:
            if len(values) > most:
                taken, values = _until(taken, most), values[:most]
            most -= len(values)
        yield Block(values, [line.reject for line in taken if line.reject is not None], taken[-1].after)


def _until(lines: list[Line[T]], most: int) -> list[Line[T]]:
    """The first lines, of which `most` have a value. The last one has."""
    found = 0
    for count, line in enumerate(lines, 1):
        found += line.value is not None
        if found == most:
            return lines[:count]
    return lines


def _headers(text: str, after: Position) -> Iterator[Header]:
    """What a line is with each separator."""
    for delimiter in DELIMITERS:
        try:
            yield Header(delimiter, [name.strip() for name in next(csv.reader([text], delimiter=delimiter))], after)
        except csv.Error:
            continue


def _decoded(raw: _Raw) -> str:
    if raw.text is None:
        raise BadLineError(f"it is longer than {MAX_LINE_BYTES} bytes")
    try:
        return raw.text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLineError(f"it is not UTF-8 at byte {error.start + 1}") from error


def _compressed_bytes(file: BinaryIO) -> int:
    """How many bytes at the beginning of a gzip file hold the first megabyte. Its reader is still where it was.

    A gzip reader reads ahead, later Pythons more than earlier ones.
    """
    here = file.tell()
    file.seek(0)
    start = file.read(READ_BYTES)
    file.seek(here)
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    decompressor.decompress(start, READ_BYTES)
    return len(start) - len(decompressor.unconsumed_tail) - len(decompressor.unused_data)


def _reject(raw: _Raw, error: Exception) -> Reject:
    text = raw.start[: 4 * EXCERPT_CHARS].decode("utf-8", errors="replace").strip()
    return Reject.of(raw.number, error, text)
