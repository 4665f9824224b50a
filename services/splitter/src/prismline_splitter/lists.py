"""Reads a list of URLs line by line, in bounded memory, from any position. Pure: it takes an open file.

Formats: one URL a line; JSON Lines (a string, or an object with the member `url`); CSV with a column `url`. Each may be
compressed with gzip. A line that has no usable URL is a `Reject` with its number and the reason, and reading continues.

Every line carries the position after it, so that another reader can continue after a crash. A `Position` is a number of
bytes of the uncompressed list. In a gzip file the bytes before it are decompressed again and thrown away.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Literal
from urllib.parse import urlsplit

from prismline_contracts.tasks import MAX_SOURCE_CHARS
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
#: Matches most URLs. They need no parsing, which would take longer than all other work on a line.
PLAIN_URL = re.compile(r"https?://[a-z0-9.-]+(/[!-~]*)?")
#: Name of the column or member that holds the URL.
URL_NAME = "url"

ListFormat = Literal["jsonl", "text", "csv"]


class ListError(PermanentError):
    """The list as a whole cannot be read. The message is one sentence with the cause and what to do."""


class BadLineError(Exception):
    """A line has no usable URL. The message is the reason, a clause without a full stop."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two lines: bytes of the uncompressed list before it, and lines before it."""

    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected line: its number from 1, the reason, and how it begins."""

    line: int
    reason: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the list, or a CSV record. Without `url` and `reject` it is blank, or the header."""

    after: Position
    url: str | None = None
    reject: Reject | None = None


@dataclass(frozen=True, slots=True)
class _Raw:
    """A line as it is in the file. If it is longer than `MAX_LINE_BYTES`, `text` is None and `start` is cut off."""

    number: int
    start: bytes
    text: bytes | None
    after: int


class UrlList:
    """A list of URLs in an open file, which must be seekable.

    `name` appears in error texts. Every method raises ListError for a CSV without a `url` column, a damaged or
    truncated gzip file, or one that expands too far.
    """

    def __init__(
        self, file: BinaryIO, list_format: ListFormat, *, compressed: bool = False, name: str = "list"
    ) -> None:
        self._name = name
        self._format = list_format
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
        """About how many lines the list has, from its size and its first megabyte. Zero only for an empty list."""
        with self._readable():
            self._file.seek(0)
            sample = self._file.read(READ_BYTES)
            if len(sample) < READ_BYTES:
                return len(sample.splitlines())
            # bytes of the object that the sample took; a gzip reader reads a little ahead
            taken = self._file.fileobj.tell() if isinstance(self._file, gzip.GzipFile) else READ_BYTES
        return max(1, sample.count(b"\n")) * max(1, self.size // max(1, taken))

    def lines(self, start: Position = Position()) -> Iterator[Line]:
        """The lines after `start`, which is the position after a line of an earlier call."""
        if self._format == "csv":
            yield from self._csv_lines(start)
            return
        parse = _json_url if self._format == "jsonl" else _text_url
        for raw in self._raw_lines(start):
            after = Position(raw.after, raw.number)
            try:
                text = _decoded(raw).strip()
                yield Line(after, url=checked_url(parse(text)) if text else None)
            except BadLineError as error:
                yield Line(after, reject=_reject(raw, error))

    # ---- CSV

    def _csv_lines(self, start: Position) -> Iterator[Line]:
        """The records from `start` on. The header is always read from the beginning of the file."""
        header, delimiter, column, begin = self._header()
        if header is None:
            return
        if start.offset < begin.offset:
            yield Line(begin)
            start = begin
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
                row = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
                if len(row) <= column:
                    raise BadLineError(f"it has {len(row)} columns, and the URL is in column {column + 1}")
                yield Line(after, url=checked_url(row[column].strip()))
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

    def _header(self) -> tuple[str | None, str, int, Position]:
        """The header (None for an empty list), its separator, the index of the URL's column, and the position after it.

        Raises ListError if there is no such column.
        """
        for raw in self._raw_lines(Position()):
            try:
                text = _decoded(raw).strip()
            except BadLineError as error:
                raise ListError(f"The first line of {self._name} is not a CSV header: {error}.") from error
            if not text:
                continue
            for delimiter in DELIMITERS:
                try:
                    names = [name.strip().lower() for name in next(csv.reader([text], delimiter=delimiter))]
                except csv.Error:
                    continue
                if URL_NAME in names:
                    return text, delimiter, names.index(URL_NAME), Position(raw.after, raw.number)
            raise ListError(
                f"{self._name} has no column {URL_NAME!r}. Its first line must name the columns, and is:"
                f" {text[:EXCERPT_CHARS]!r}."
            )
        return None, DELIMITERS[0], 0, Position()

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
                f"{self._name} expands to more than {MAX_EXPANSION} times its {self.size} bytes: not a list of URLs."
            )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn the errors of a damaged gzip file into ListError."""
        try:
            yield
        except EOFError as error:
            raise ListError(f"{self._name} is truncated: its gzip stream has no end. Upload it again.") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ListError(f"{self._name} is a damaged gzip file: {error}. Upload it again.") from error


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


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines of a list: their URLs, their rejects, and the position after them."""

    urls: list[str]
    rejects: list[Reject]
    after: Position


def blocks(lines: Iterable[Line], size: int) -> Iterator[Block]:
    """Divide lines into blocks of `size` lines; the last block may be smaller. Bad and blank lines count too."""
    iterator = iter(lines)
    while taken := list(islice(iterator, size)):
        urls = [line.url for line in taken if line.url is not None]
        yield Block(urls, [line.reject for line in taken if line.reject is not None], taken[-1].after)


def checked_url(url: str) -> str:
    """`url`, if it is an absolute http or https URL that a task can hold. Raises BadLineError otherwise."""
    if PLAIN_URL.fullmatch(url) and len(url) <= MAX_SOURCE_CHARS:
        return url
    if not url:
        raise BadLineError("it has no URL")
    if len(url) > MAX_SOURCE_CHARS:
        raise BadLineError(f"the URL is longer than {MAX_SOURCE_CHARS} characters")
    if " " in url or not url.isprintable():
        raise BadLineError("the URL contains a space or a control character; it must be percent-encoded")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # an invalid port raises ValueError
    except ValueError as error:
        raise BadLineError(f"it is not a URL: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise BadLineError("it is not an absolute http or https URL")
    return url


def _decoded(raw: _Raw) -> str:
    if raw.text is None:
        raise BadLineError(f"it is longer than {MAX_LINE_BYTES} bytes")
    try:
        return raw.text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLineError(f"it is not UTF-8 at byte {error.start + 1}") from error


def _text_url(text: str) -> str:
    return text


def _json_url(text: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"it is not JSON: {error}") from error
    url = document.get(URL_NAME) if isinstance(document, dict) else document
    if not isinstance(url, str):
        raise BadLineError(f"it is neither a string nor an object with the text member {URL_NAME!r}")
    return url.strip()


def _reject(raw: _Raw, error: Exception) -> Reject:
    text = raw.start[: 4 * EXCERPT_CHARS].decode("utf-8", errors="replace").strip()
    return Reject(raw.number, str(error), text[:EXCERPT_CHARS])
