"""Lists of URLs: what a line is worth, in each format. Pure.

Formats: one URL a line; JSON Lines (a string, or an object with the member `url`); CSV with a column `url`.
`prismline_splitter.rows` reads the lines. A line that has no usable URL is rejected with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import BinaryIO, Literal
from urllib.parse import urlsplit

from prismline_contracts.tasks import MAX_SOURCE_CHARS
from prismline_splitter.rows import BEGINNING, EXCERPT_CHARS, BadLineError, Header, Line, ListError, Position, RowFile

#: Matches most URLs. They need no parsing, which would take longer than all other work on a line.
PLAIN_URL = re.compile(r"https?://[a-z0-9.-]+(/[!-~]*)?")
#: Name of the column or member that holds the URL.
URL_NAME = "url"

ListFormat = Literal["jsonl", "text", "csv"]


class UrlList:
    """A list of URLs in an open file, which must be seekable.

    `name` appears in error texts. Every method raises ListError for a CSV without a `url` column, and the errors of
    `RowFile`.
    """

    def __init__(
        self, file: BinaryIO, list_format: ListFormat, *, compressed: bool = False, name: str = "list"
    ) -> None:
        self._file = RowFile(file, compressed=compressed, name=name)
        self._format = list_format

    def estimated_lines(self) -> int:
        """About how many lines the list has. Zero only for an empty list."""
        return self._file.estimated_lines()

    def lines(self, start: Position = BEGINNING) -> Iterator[Line[str]]:
        """The lines after `start`, each with its URL. The header of a CSV is always read from its beginning."""
        if self._format != "csv":
            return self._file.lines(_json_url if self._format == "jsonl" else checked_url, start)
        header = self._file.header(self._with_a_url)
        if header is None:
            return iter(())
        column = _url_column(header)

        def url_of(fields: list[str]) -> str:
            if len(fields) <= column:
                raise BadLineError(f"it has {len(fields)} columns, and the URL is in column {column + 1}")
            return checked_url(fields[column].strip())

        return self._file.records(header, url_of, start)

    def _with_a_url(self, headers: list[Header]) -> Header:
        for header in headers:
            if _url_column(header) >= 0:
                return header
        text = headers[0].names if headers else []
        raise ListError(
            f"{self._file.name} has no column {URL_NAME!r}. Its first line must name the columns, and is:"
            f" {','.join(text)[:EXCERPT_CHARS]!r}."
        )


def _url_column(header: Header) -> int:
    """The index of the column with the URL, or -1."""
    names = [name.lower() for name in header.names]
    return names.index(URL_NAME) if URL_NAME in names else -1


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


def _json_url(text: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"it is not JSON: {error}") from error
    url = document.get(URL_NAME) if isinstance(document, dict) else document
    if not isinstance(url, str):
        raise BadLineError(f"it is neither a string nor an object with the text member {URL_NAME!r}")
    return checked_url(url.strip())
