"""The ZIP writer: other programs read its archives, wherever the writer was stopped and continued."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismline_exporter import zip_archive
from prismline_exporter.entries import Entry
from prismline_exporter.zip_archive import Body, Kind, ZipArchive
from prismline_exporter.zip_records import Member, end_records
from prismline_runtime import PermanentError

NOON = datetime(2026, 3, 1, 12, 0, 2, tzinfo=UTC)
SLICE = 1000


class Store:
    """Results and segments in memory."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents
        self.segments: dict[tuple[Kind, int], bytes] = {}

    def read(self, key: str) -> Body:
        if key not in self.contents:
            raise PermanentError(f"Could not read {key}: it does not exist.")
        content = self.contents[key]
        return Body(len(content), f"etag of {key}", content if len(content) <= SLICE else None)

    def read_slice(self, key: str, etag: str, start: int, stop: int) -> bytes:
        assert etag == f"etag of {key}"
        return self.contents[key][start:stop]


class Segments:
    def __init__(self) -> None:
        self.stored: dict[tuple[Kind, int], bytes] = {}

    def write(self, kind: Kind, number: int, content: bytes) -> None:
        self.stored[kind, number] = content

    def read(self, kind: Kind, number: int) -> bytes:
        return self.stored[kind, number]


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "SLICE_BYTES", SLICE)
    monkeypatch.setattr(zip_archive, "LINES_PER_SEGMENT", 7)


def entries_of(contents: dict[str, bytes], cursor: str | None = None) -> list[Entry]:
    """An entry for each content, in order. A cursor is the number of an entry."""
    start = 0 if cursor is None else int(cursor) + 1
    return [
        Entry({"n": n, "url": f"https://example.org/ü/{key}"}, str(n), NOON, key, f"bodies/{n:09d}", len(contents[key]))
        for n, key in enumerate(contents)
        if n >= start
    ]


def archive(
    contents: dict[str, bytes],
    pool: ThreadPoolExecutor,
    segments: Segments,
    state: str | None = None,
    entries: list[Entry] | None = None,
) -> ZipArchive:
    made = entries_of(contents) if entries is None else entries
    return ZipArchive(
        entries=lambda cursor: made[0 if cursor is None else int(cursor) + 1 :],
        bodies=Store(contents),
        segments=segments,
        pool=pool,
        made_at=NOON,
        state=state,
    )


def whole(writer: ZipArchive) -> bytes:
    for _ in writer.steps():
        pass
    return bytes(writer.cut()[0])


def manifest(content: bytes) -> list[dict[str, object]]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return [json.loads(line) for line in opened.read("manifest.jsonl").splitlines()]


CONTENTS = {f"k{n}": random.Random(n).randbytes(n * 37 % 400) for n in range(40)} | {
    "long": random.Random(99).randbytes(5 * SLICE + 3),
    "empty": b"",
    "exact": bytes(SLICE),
    "one more": bytes(SLICE + 1),
}


def test_an_archive_holds_every_file_and_a_line_for_each(pool: ThreadPoolExecutor) -> None:
    content = whole(archive(CONTENTS, pool, Segments()))
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert opened.testzip() is None
        assert {name: opened.read(name) for name in opened.namelist()[:-1]} == {
            f"bodies/{n:09d}": each for n, each in enumerate(CONTENTS.values())
        }
        assert opened.infolist()[0].date_time == (2026, 3, 1, 12, 0, 2)
    lines = manifest(content)
    assert [line["n"] for line in lines] == list(range(len(CONTENTS)))
    assert lines[3] == {
        "n": 3,
        "url": "https://example.org/ü/k3",
        "file": "bodies/000000003",
        "length": len(CONTENTS["k3"]),
        "sha256": sha256(CONTENTS["k3"]).hexdigest(),
    }


@pytest.mark.parametrize("reader", [["unzip", "-tq"], ["bsdtar", "-tf"]], ids=lambda reader: reader[0])
def test_other_programs_read_an_archive(reader: list[str], pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    if shutil.which(reader[0]) is None:
        pytest.skip(f"{reader[0]} is not installed")
    path = tmp_path / "export.zip"
    path.write_bytes(whole(archive(CONTENTS, pool, Segments())))
    subprocess.run([*reader, path], check=True, capture_output=True)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4 * SLICE), max_size=30),
    part=st.integers(1, 6 * SLICE),
    lost=st.lists(st.booleans(), max_size=40),
)
def test_an_archive_that_was_stopped_anywhere_is_the_same(sizes: list[int], part: int, lost: list[bool]) -> None:
    """The writer is stopped after each part. A `lost` writer had written more, of which no state was stored."""
    contents = {f"k{n}": random.Random(n).randbytes(size) for n, size in enumerate(sizes)}
    with ThreadPoolExecutor(2) as pool:
        expected = whole(archive(contents, pool, Segments()))
        segments, state, parts, fates = Segments(), None, [], iter(lost)
        for _ in range(10_000):
            writer = archive(contents, pool, segments, state)
            for _ in writer.steps():
                if writer.buffered >= part:
                    break
            if not writer.buffered:
                break
            content, after = writer.cut()
            if next(fates, False):
                continue
            parts.append(bytes(content))
            state = after
    assert b"".join(parts) == expected


def test_an_archive_continues_from_its_last_part_and_not_from_the_first_result(pool: ThreadPoolExecutor) -> None:
    segments, asked = Segments(), []
    first = archive(CONTENTS, pool, segments)
    steps = first.steps()
    for _ in range(20):
        next(steps)
    _, state = first.cut()

    def entries(cursor: str | None) -> list[Entry]:
        asked.append(cursor)
        return entries_of(CONTENTS, cursor)

    second = ZipArchive(
        entries=entries, bodies=Store(CONTENTS), segments=segments, pool=pool, made_at=NOON, state=state
    )
    whole(second)
    assert asked == ["19"]


def test_a_result_without_a_file_has_a_line_with_the_reason(pool: ThreadPoolExecutor) -> None:
    contents = {"there": b"body"}
    entries = [
        Entry({"outcome": "failed", "error": "HTTP 404"}, "0", NOON),
        Entry({"outcome": "succeeded"}, "1", NOON, "gone", "bodies/1", 4),
        Entry({"outcome": "succeeded", "sha256": "0" * 64}, "2", NOON, "there", "bodies/2", 4),
        Entry(None, "3", NOON, "there", "rejects.jsonl", 4),
    ]
    content = whole(archive(contents, pool, Segments(), entries=entries))
    digest = sha256(b"body").hexdigest()
    assert manifest(content) == [
        {"outcome": "failed", "error": "HTTP 404", "file": None},
        {"outcome": "succeeded", "file": None, "error": "Could not read gone: it does not exist."},
        {"outcome": "succeeded", "sha256": digest, "file": "bodies/2", "length": 4, "ledger_sha256": "0" * 64},
    ]
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert opened.namelist() == ["bodies/2", "rejects.jsonl", "manifest.jsonl"]


def test_an_archive_of_nothing_is_an_archive(pool: ThreadPoolExecutor) -> None:
    assert manifest(whole(archive({}, pool, Segments()))) == []


def test_more_files_than_the_old_format_counts(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "LINES_PER_SEGMENT", 20_000)
    entries = [Entry({"n": n}, str(n), NOON, "k", f"bodies/{n}", 1) for n in range(70_000)]
    content = whole(archive({"k": b"x"}, pool, Segments(), entries=entries))
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert len(opened.namelist()) == 70_001
        assert opened.read("bodies/69999") == b"x"


class _SparseFile(io.RawIOBase):
    """A file of zeros of any size, with other bytes at a few positions."""

    def __init__(self, size: int, pieces: dict[int, bytes]) -> None:
        self._size, self._pieces, self._at = size, pieces, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._at + size)
        content = bytearray(max(0, stop - self._at))
        for start, piece in self._pieces.items():
            low, high = max(start, self._at), min(start + len(piece), stop)
            if low < high:
                content[low - self._at : high - self._at] = piece[low - start : high - start]
        self._at = max(stop, self._at)
        return bytes(content)


@pytest.mark.parametrize("streamed", [True, False])
def test_sizes_and_positions_beyond_four_gigabytes(streamed: bool) -> None:
    size = 5 * 2**30
    large = Member("large", size, NOON, 0x1234, 0, streamed=streamed)
    pieces = {0: large.local_header()}
    after = len(pieces[0]) + size
    if streamed:
        pieces[after] = large.descriptor()
        after += len(pieces[after])
    small = Member("small", 3, NOON, zlib.crc32(b"abc"), after)
    pieces[after] = small.local_header() + b"abc"
    directory = after + len(pieces[after])
    records = large.directory_record() + small.directory_record()
    pieces[directory] = records + end_records(members=2, offset=directory, size=len(records))
    with zipfile.ZipFile(_SparseFile(directory + len(pieces[directory]), pieces)) as opened:
        assert opened.getinfo("large").file_size == size
        assert opened.read("small") == b"abc"
        with opened.open("large") as stream:
            assert stream.read(10) == bytes(10)
