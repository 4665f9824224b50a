"""A list in a file: its rows, their places, and what is rejected."""

from pathlib import Path

import pytest

from prismline.sources import MAX_LINE_BYTES, Row, read_jsonl


def rows(tmp_path: Path, content: bytes) -> list[Row]:
    path = tmp_path / "items.jsonl"
    path.write_bytes(content)
    found = list(read_jsonl(path))
    lines = [content[row.offset :].split(b"\n", 1)[0] for row in found]
    assert all(line.strip() for line in lines)
    return found


def test_a_row_has_its_item_its_index_and_where_it_begins(tmp_path: Path) -> None:
    assert rows(tmp_path, '{"a": 1}\n\n  \r\n"ü"\r\n[3]'.encode()) == [
        Row(0, 0, {"a": 1}),
        Row(1, 14, "ü"),
        Row(2, 20, [3]),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"a": ', "It is no JSON: Expecting value"),
        (b"\xff\xfe", "It is no JSON: "),
        (b'{"a": NaN}', "It is no JSON: NaN is no JSON value"),
        (b"[" * 100_000, "It is no JSON: "),
        (b'"' + b"x" * (3 * MAX_LINE_BYTES) + b'"', "The line is longer than 1,048,576 bytes."),
    ],
    ids=["cut", "no-utf-8", "not-a-number", "nested", "long"],
)
def test_a_line_that_is_no_item_is_rejected_and_the_next_one_is_read(tmp_path: Path, line: bytes, text: str) -> None:
    first, second, third = rows(tmp_path, b"1\n" + line + b"\n3\n")
    assert (first.item, third.item, third.index) == (1, 3, 2)
    assert second.rejected.startswith(text)
    assert second.offset == 2


def test_a_long_last_line_without_an_end_is_rejected(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, b"7" * (MAX_LINE_BYTES + 5))
    assert row.rejected


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path, b"") == []
