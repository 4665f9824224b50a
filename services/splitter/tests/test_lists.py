"""Lists of URLs: which lines are tasks, which are rejected and why, and that reading can continue at any line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import tracemalloc
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismline_splitter import lists, rows
from prismline_splitter.lists import UrlList
from prismline_splitter.rows import MAX_LINE_BYTES, MAX_RECORD_LINES, ListError, Position, Reject, blocks

URL = "https://example.org/a?b=c"


def opened(body: bytes, list_format: Any = "text", **options: Any) -> UrlList:
    return UrlList(io.BytesIO(body), list_format, name="uploads/t/list", **options)


def read(body: bytes, list_format: Any = "text", **options: Any) -> tuple[list[str], list[Reject]]:
    """The URLs and the rejects of a list."""
    lines = list(opened(body, list_format, **options).lines())
    return [line.value for line in lines if line.value], [line.reject for line in lines if line.reject]


def reason(line: str | bytes, list_format: Any = "text") -> str:
    """Why a line is rejected."""
    urls, (reject,) = read(line if isinstance(line, bytes) else line.encode(), list_format)
    assert urls == []
    return reject.reason


# ---- formats


def test_a_text_list_has_one_url_a_line() -> None:
    body = f"\ufeff{URL}\r\n\n   \n http://[::1]:80/x  \nhttps://bücher.example/ä".encode()
    assert read(body) == ([URL, "http://[::1]:80/x", "https://bücher.example/ä"], [])


def test_json_lines_are_strings_or_objects_with_a_url() -> None:
    body = f'"{URL}"\n{{"url": "{URL}", "note": [1]}}\n\n'.encode()
    assert read(body, "jsonl") == ([URL, URL], [])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_list_has_a_column_url_somewhere(delimiter: str) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerows([["id", " URL ", "note"], [1, URL, 'two\r\nlines, "quoted"'], [2, URL + delimiter, ""]])
    assert read(file.getvalue().encode(), "csv")[0] == [URL, (URL + delimiter).strip()]


def test_a_csv_list_without_a_url_column_says_what_its_header_is() -> None:
    with pytest.raises(ListError, match=r"uploads/t/list has no column 'url'.*is: 'id,link'"):
        read(b"id,link\n1,https://example.org\n", "csv")


@pytest.mark.parametrize("list_format", ["text", "jsonl", "csv"])
def test_an_empty_list_has_no_lines(list_format: str) -> None:
    assert read(b"", list_format) == ([], [])
    assert opened(b"", list_format).estimated_lines() == 0


# ---- bad lines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("example.org/a", "not an absolute http or https URL"),
        ("ftp://example.org/a", "not an absolute http or https URL"),
        ("https:///a", "not an absolute http or https URL"),
        ("https://example.org:99999/", "not a URL: Port out of range"),
        ("http://[::1/", "not a URL"),
        ("https://example.org/a b", "a space or a control character"),
        ("https://example.org/\x00", "a space or a control character"),
        ("https://example.org/" + "a" * 8192, "longer than 8192 characters"),
        (b"https://example.org/\xff", "not UTF-8 at byte 21"),
    ],
)
def test_a_line_without_a_usable_url_is_rejected_with_the_reason(line: str | bytes, message: str) -> None:
    assert message in reason(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[" * 60_000, "not JSON"),
        ("7" * 5_000, "not JSON"),
        ("7", "neither a string nor an object"),
        ('{"url": null}', "neither a string nor an object"),
        ('"\\ud800"', "a space or a control character"),
        ('""', "it has no URL"),
    ],
)
def test_a_json_line_without_a_usable_url_is_rejected_with_the_reason(line: str, message: str) -> None:
    assert message in reason(line, "jsonl")


def test_a_reject_has_the_number_of_its_line_and_how_the_line_begins() -> None:
    urls, rejects = read(f"{URL}\n\nnonsense {'x' * 300}\n{URL}\n".encode())
    assert urls == [URL, URL]
    assert [(reject.line, reject.excerpt) for reject in rejects] == [(3, f"nonsense {'x' * 191}")]


def test_a_csv_record_that_is_too_short_or_has_an_open_quote_is_rejected_alone() -> None:
    """A missing quote must not make the lines after it bad."""
    body = f'id,url\n1\n"2,{URL}\n' + f"3,{URL}\n" * (MAX_RECORD_LINES + 50)
    urls, rejects = read(body.encode(), "csv")
    assert len(urls) == MAX_RECORD_LINES + 50
    assert [(reject.line, reject.reason) for reject in rejects] == [
        (2, "it has 1 columns, and the URL is in column 2"),
        (3, "a quote is not closed"),
    ]


# ---- damaged files, and files made to exhaust the reader


def test_a_list_may_be_gzip_in_several_members_whether_declared_or_not() -> None:
    body = gzip.compress(f"{URL}\n{URL}".encode()) + gzip.compress(b"/2\n")
    for compressed in (True, False):
        assert read(body, compressed=compressed) == ([URL, URL + "/2"], [])


def test_a_list_that_is_not_the_gzip_file_it_was_submitted_as_is_an_error() -> None:
    with pytest.raises(ListError, match="is not a gzip file"):
        read(URL.encode(), compressed=True)


def test_a_truncated_or_damaged_gzip_list_is_an_error_that_says_what_to_do() -> None:
    body = gzip.compress("\n".join(f"{URL}{n}" for n in range(20_000)).encode())
    with pytest.raises(ListError, match=r"is truncated.*Upload it again"):
        read(body[: len(body) // 2])
    with pytest.raises(ListError, match=r"is a damaged gzip file.*Upload it again"):
        read(body[:1000] + bytes(100) + body[1100:])


def test_a_gzip_bomb_is_an_error_and_stays_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "FREE_EXPANSION_BYTES", 8 * 2**20)
    bomb = gzip.compress(bytes(64 * 2**20), compresslevel=9)
    tracemalloc.start()
    with pytest.raises(ListError, match="expands to more than 200 times"):
        read(bomb)
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()


class Endless(io.RawIOBase):
    """A file of `size` letters without a line end, followed by one good line. Its content is never in memory."""

    def __init__(self, size: int) -> None:
        self._tail = f"\n{URL}\n".encode()
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        end = self._size + len(self._tail)
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: end}[whence] + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        if self._at >= self._size:
            piece = self._tail[self._at - self._size :][: len(buffer)]
            buffer[: len(piece)] = piece
        else:
            piece = b"x" * min(len(buffer), self._size - self._at)
            buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


@pytest.mark.parametrize("list_format", ["text", "jsonl"])
def test_a_line_of_two_gigabytes_is_rejected_and_stays_out_of_memory(list_format: Any) -> None:
    file: BinaryIO = io.BufferedReader(Endless(2 * 2**30), rows.READ_BYTES)  # type: ignore[assignment]
    tracemalloc.start()
    first, second = UrlList(file, list_format).lines()
    assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    tracemalloc.stop()
    assert first.reject is not None
    assert first.reject.reason == f"it is longer than {MAX_LINE_BYTES} bytes"
    assert (second.after.line, second.value is None) == (2, list_format == "jsonl")


# ---- positions

LINES = st.one_of(
    st.sampled_from(
        ["", URL, f'"{URL}"', f'{{"url": "{URL}"}}', f"1,{URL}", f'"a\nb",{URL}', '"open', "x" * 70_000, "\x00"]
    ),
    st.text(max_size=40),
)
BODIES = st.builds(
    lambda lines, ends, last: (
        "".join(a + b for a, b in zip(lines, ends, strict=False)).encode("utf-8", "replace") + last
    ),
    st.lists(LINES, max_size=30),
    st.lists(st.sampled_from(["\n", "\r\n"]), min_size=30, max_size=30),
    st.sampled_from([b"", b"\xff\xfe", b"https://example.org"]),
)


@settings(deadline=None)
@given(body=BODIES, list_format=st.sampled_from(["text", "jsonl", "csv"]), compressed=st.booleans(), data=st.data())
def test_reading_continues_at_any_line_as_if_it_had_not_stopped(
    body: bytes, list_format: Any, compressed: bool, data: st.DataObject
) -> None:
    body = b"id,url\n" + body if list_format == "csv" else body
    file = gzip.compress(body) if compressed else body
    whole = list(opened(file, list_format).lines())
    at = data.draw(st.integers(0, len(whole)))
    start = whole[at - 1].after if at else Position()
    assert list(opened(file, list_format).lines(start)) == whole[at:]
    if whole:
        assert whole[-1].after == Position(len(body), body.count(b"\n") + (not body.endswith(b"\n")))


@settings(deadline=None)
@given(body=BODIES, size=st.integers(1, 7))
def test_blocks_have_each_line_once_and_in_order(body: bytes, size: int) -> None:
    lines = list(opened(body).lines())
    divided = list(blocks(iter(lines), size))
    assert [url for block in divided for url in block.values] == [line.value for line in lines if line.value]
    assert [reject for block in divided for reject in block.rejects] == [line.reject for line in lines if line.reject]
    assert [block.after for block in divided] == [line.after for line in (lines[size - 1 :: size] + lines[-1:])][
        : len(divided)
    ]


@given(
    st.one_of(
        st.from_regex(lists.PLAIN_URL, fullmatch=True),
        st.text("htps:/.-@[]?#%a0 é\x7f", max_size=40).map("http://".__add__),
    )
)
def test_a_plain_url_gives_the_same_result_without_parsing(url: str) -> None:
    def taken() -> str:
        try:
            return lists.checked_url(url)
        except rows.BadLineError as error:
            return str(error)

    found = taken()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "PLAIN_URL", re.compile("(?!)"))
        assert found == taken()


@given(urls=st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_every_format_gives_the_same_urls(urls: list[int]) -> None:
    wanted = [f"https://example.org/{n}?q=a,b;c" for n in urls]
    assert read("\n".join(wanted).encode())[0] == wanted
    assert read("\n".join(json.dumps({"url": url}) for url in wanted).encode(), "jsonl")[0] == wanted
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["n", "url"], *([n, url] for n, url in zip(urls, wanted, strict=True))])
    assert read(file.getvalue().encode(), "csv")[0] == wanted


@pytest.mark.parametrize("compressed", [False, True])
def test_the_number_of_lines_is_estimated_from_the_first_megabyte(compressed: bool) -> None:
    body = "".join(f"https://example.org/pages/{n}/{hash(str(n))}\n" for n in range(100_000)).encode()
    estimate = opened(gzip.compress(body) if compressed else body).estimated_lines()
    assert 70_000 < estimate < 140_000
