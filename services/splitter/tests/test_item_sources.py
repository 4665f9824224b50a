"""Items of a list: what an item is in each source, which rows are rejected and why, and that reading can continue."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from pydantic import TypeAdapter

from prismline_contracts.item_sources import ItemSource
from prismline_runtime import PermanentError
from prismline_splitter import item_sources
from prismline_splitter.item_sources import item_source_of
from prismline_splitter.rows import ListError
from prismline_splitter.workload import TaskBlock, TaskContext, TaskSource

SOURCE: TypeAdapter[Any] = TypeAdapter(ItemSource)
LISTED = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class MemoryBucket:
    """The methods of a bucket that a source calls, on a dict."""

    objects: dict[str, bytes] = field(default_factory=dict)
    name: str = "b"

    def version(self, key: str) -> str:
        return f'"{hashlib.md5(self.objects[key]).hexdigest()}"'

    def size(self, key: str, *, etag: str) -> int:
        self._check(key, etag)
        return len(self.objects[key])

    def open(self, key: str, *, etag: str) -> BinaryIO:
        self._check(key, etag)
        return io.BytesIO(self.objects[key])

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> BinaryIO:
        return self.open(key, etag=etag)

    def read(self, key: str, *, most: int | None = None) -> bytes:
        return self.objects[key]

    def create(self, key: str, body: bytes) -> bool:
        return self.objects.setdefault(key, body) is body

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        return (key for key in sorted(self.objects) if key.startswith(prefix) and key > after)

    def entries(self, prefix: str, *, after: str = "") -> Iterator[dict[str, str | int]]:
        for key in self.list(prefix, after=after):
            yield {"key": key, "size": len(self.objects[key]), "etag": self.version(key)}

    def _check(self, key: str, etag: str) -> None:
        if self.version(key) != etag:
            raise PermanentError(f"{key} was replaced.")


@dataclass
class World:
    """A bucket and the plan of a run. Each call of `source` is another delivery."""

    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    plan: dict[str, Any] = field(default_factory=dict)

    def put(self, key: str, body: bytes) -> str:
        self.bucket.objects[key] = body
        return key

    def source(self, **document: Any) -> TaskSource:
        context = TaskContext("run", "job", self.bucket, None, self._pinned, lambda name: self.bucket)  # type: ignore[arg-type]
        return item_source_of(SOURCE.validate_python(document), context)

    def _pinned(self, name: str, find: Callable[[], Any]) -> Any:
        return self.plan.setdefault(name, None) or self.plan.update({name: find()}) or self.plan[name]


@pytest.fixture
def world() -> World:
    return World()


def blocks_of(source: TaskSource, size: int = 1000) -> list[TaskBlock]:
    return list(source.blocks(None, 0, size))


def items(source: TaskSource) -> list[Any]:
    return [json.loads(text) for block in blocks_of(source) for text in block.sources]


def rejects(source: TaskSource) -> list[tuple[int, str]]:
    return [(reject.line, reject.reason) for block in blocks_of(source) for reject in block.rejects]


def table(rows: list[dict[str, Any]], group: int = 3) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=group)
    return file.getvalue()


def inventory(world: World, files: list[bytes], file_format: str, schema: str) -> str:
    listed = []
    for number, body in enumerate(files):
        key = world.put(f"inv/data/{number}", body)
        listed.append({"key": key, "size": len(body), "MD5checksum": hashlib.md5(body).hexdigest()})
    manifest = {"sourceBucket": "src", "fileFormat": file_format, "fileSchema": schema, "files": listed}
    return world.put("inv/manifest.json", json.dumps(manifest).encode())


# ---- what an item is


def test_an_item_is_the_row_as_canonical_json(world: World) -> None:
    source = world.source(kind="inline", items=[{"b": 1, "a": "ä"}, [1.5, None], "x", 7])
    assert [text for block in blocks_of(source) for text in block.sources] == [
        '{"a":"ä","b":1}',
        "[1.5,null]",
        '"x"',
        "7",
    ]


@pytest.mark.parametrize("compressed", [False, True])
def test_json_lines_may_be_compressed_and_have_blank_lines(world: World, compressed: bool) -> None:
    body = b'{"n": 1}\n\n{"n": 2}\n'
    key = world.put("sources/a.jsonl", gzip.compress(body) if compressed else body)
    assert items(world.source(kind="object", key=key)) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_row_has_the_text_of_each_column(world: World, delimiter: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows([["id", "Note"], ["007", 'two\r\nlines, "a"']])
    key = world.put("sources/a.csv", file.getvalue().encode())
    assert items(world.source(kind="object", key=key, format="csv")) == [{"id": "007", "Note": 'two\r\nlines, "a"'}]


def test_a_parquet_row_has_the_value_of_each_column_as_json(world: World) -> None:
    row = {
        "n": 3,
        "at": LISTED,
        "price": Decimal("1.50"),
        "nan": math.nan,
        "raw": b"\x00",
        "inner": {"tags": ["a"]},
        "none": None,
    }
    key = world.put("sources/a.parquet", table([row]))
    (item,) = items(world.source(kind="object", key=key, format="parquet"))
    assert item == {
        "n": 3,
        "at": "2026-03-01T00:00:00+00:00",
        "price": "1.50",
        "nan": None,
        "raw": "AA==",
        "inner": {"tags": ["a"]},
        "none": None,
    }


def test_the_objects_of_a_prefix_are_items_without_those_that_stand_for_folders(world: World) -> None:
    for key, body in (("in/", b""), ("in/a", b"xyz"), ("in/b/", b"1"), ("in/empty", b""), ("other", b"")):
        world.put(key, body)
    found = items(world.source(kind="prefix", prefix="in/"))
    assert [item["key"] for item in found] == ["in/a", "in/b/", "in/empty"]
    assert found[0] == {"bucket": "b", "key": "in/a", "size": 3, "etag": world.bucket.version("in/a")}


def test_an_inventory_gives_the_current_objects_of_all_its_files(world: World) -> None:
    schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, ETag"
    first = b'"src","a%20b%2Bc","v1","true","false","12","e1"\n"src","old","v0","false","false","1","e0"\n'
    second = b'"src","gone","v2","true","true","",""\n"src","d","v3","true","false","0","e3"\n'
    key = inventory(world, [gzip.compress(first), gzip.compress(second)], "CSV", schema)
    assert items(world.source(kind="inventory", key=key)) == [
        {"bucket": "src", "key": "a b+c", "version_id": "v1", "size": 12, "etag": "e1"},
        {"bucket": "src", "key": "d", "version_id": "v3", "size": 0, "etag": "e3"},
    ]


def test_an_inventory_in_parquet_gives_the_same_members(world: World) -> None:
    rows = [
        {"bucket": "src", "key": "a b", "is_latest": True, "is_delete_marker": False, "size": 12, "e_tag": "e1"},
        {"bucket": "src", "key": "old", "is_latest": False, "is_delete_marker": False, "size": 1, "e_tag": "e0"},
    ]
    key = inventory(world, [table(rows)], "Parquet", "message s3.inventory {}")
    assert items(world.source(kind="inventory", key=key)) == [{"bucket": "src", "key": "a b", "size": 12, "etag": "e1"}]


def test_select_takes_values_by_pointers_and_constants(world: World) -> None:
    select = {"id": "/user/id", "first": "/tags/0", "odd": "/a~1b~0", "all": "", "unit": {"constant": ["K"]}}
    row = {"user": {"id": 7}, "tags": ["x", "y"], "a/b~": True}
    source = world.source(kind="inline", items=[row], select=select)
    assert items(source) == [{"id": 7, "first": "x", "odd": True, "all": row, "unit": ["K"]}]


def test_select_reads_only_the_columns_that_it_needs(world: World) -> None:
    key = world.put("a.parquet", table([{"a": {"b": n}, "rest": "x" * 9000} for n in range(3)]))
    source = world.source(kind="object", key=key, format="parquet", select={"b": "/a/b"})
    assert items(source) == [{"b": 0}, {"b": 1}, {"b": 2}]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_max_items_counts_items_and_not_rejected_rows(world: World, size: int) -> None:
    key = world.put("a.jsonl", b"1\n{\n2\n\n3\n{\n")
    source = world.source(kind="object", key=key, max_items=2)
    found = blocks_of(source, size)
    assert [text for block in found for text in block.sources] == ["1", "2"]
    assert sum(len(block.rejects) for block in found) == 1
    assert blocks_of(world.source(kind="object", key=key, max_items=3))[-1].sources[-1] == "3"
    last = found[-1]
    assert list(source.blocks(last.cursor, last.first_index + len(last.sources), size)) == []
    assert source.estimate() == 2


# ---- rejected rows and refused sources


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "it is not JSON"),
        ("NaN", "JSON has no NaN"),
        ("1e999", "it is not JSON"),
        ("[" * 60_000, "it is not JSON"),
        *[("[" * depth + "]" * depth, "it is not JSON") for depth in (1_000, 5_000)],
        ('"\\ud800"', "half of a surrogate pair"),
        (json.dumps("a" * 8191), "its item has 8193 characters of JSON, and at most 8192 fit"),
        (b'"\xff"', "it is not UTF-8"),
    ],
)
def test_a_json_line_that_is_not_an_item_is_rejected_with_the_reason(world: World, line: Any, message: str) -> None:
    key = world.put("a.jsonl", b"1\n" + (line if isinstance(line, bytes) else line.encode()) + b"\n2\n")
    source = world.source(kind="object", key=key)
    assert items(source) == [1, 2]
    ((number, reason),) = rejects(source)
    assert number == 2
    assert message in reason


@pytest.mark.parametrize("pointer", ["/missing", "/n/x", "/list/1", "/list/01", "/list/-"])
def test_a_row_to_which_a_pointer_does_not_apply_is_rejected(world: World, pointer: str) -> None:
    source = world.source(kind="inline", items=[{"n": 1, "list": [1]}], select={"x": pointer})
    assert rejects(source) == [(1, f"it has no value at {pointer!r}")]


def test_a_csv_record_with_other_columns_than_the_header_is_rejected(world: World) -> None:
    key = world.put("a.csv", b"a,b\n1,2\n3\n4,5,6\n")
    source = world.source(kind="object", key=key, format="csv")
    assert items(source) == [{"a": "1", "b": "2"}]
    assert rejects(source) == [(3, "it has 1 columns, and the header 2"), (4, "it has 3 columns, and the header 2")]


@pytest.mark.parametrize(
    ("body", "row_format", "message"),
    [
        (b"a,a\n1,2\n", "csv", "has the column 'a' twice"),
        (b"no parquet at all", "parquet", "is not a Parquet file"),
        (b"", "parquet", "is not a Parquet file"),
        (table([{"n": n} for n in range(10)])[:4] + bytes(100) + table([{"n": 1}])[104:], "parquet", "Parquet file"),
    ],
)
def test_a_source_of_another_format_is_refused_as_a_whole(
    world: World, body: bytes, row_format: str, message: str
) -> None:
    key = world.put("a", body)
    with pytest.raises(ListError, match=message):
        items(world.source(kind="object", key=key, format=row_format))


def test_an_inventory_in_orc_is_refused_with_what_to_do(world: World) -> None:
    with pytest.raises(ListError, match=r"has the format ORC\. Configure it to write CSV or Parquet\."):
        items(world.source(kind="inventory", key=inventory(world, [], "ORC", "")))


def test_a_manifest_of_something_else_is_refused(world: World) -> None:
    with pytest.raises(ListError, match="is not the manifest of an S3 inventory"):
        items(world.source(kind="inventory", key=world.put("m.json", b'{"files": 3}')))


# ---- a source repeats exactly


@pytest.mark.parametrize("row_format", ["jsonl", "csv", "parquet"])
def test_an_object_that_is_replaced_during_the_run_is_refused(world: World, row_format: str) -> None:
    key = world.put("a", b"x\n1\n" if row_format != "parquet" else table([{"x": 1}]))
    blocks_of(world.source(kind="object", key=key, format=row_format))
    world.put(key, b"other")
    with pytest.raises(PermanentError, match="was replaced"):
        items(world.source(kind="object", key=key, format=row_format))


def test_objects_that_come_and_go_do_not_change_the_items_of_a_prefix(world: World) -> None:
    for name in "bdf":
        world.put(f"in/{name}", b"")
    before = blocks_of(world.source(kind="prefix", prefix="in/"), 2)
    world.put("in/a", b"")
    world.put("in/e", b"")
    del world.bucket.objects["in/f"]
    assert blocks_of(world.source(kind="prefix", prefix="in/"), 2) == before


def test_a_file_of_an_inventory_that_is_replaced_is_refused(world: World) -> None:
    key = inventory(world, [b'"s","a"\n', b'"s","b"\n'], "CSV", "Bucket, Key")
    first = next(world.source(kind="inventory", key=key).blocks(None, 0, 1))
    world.put("inv/data/1", b'"s","c"\n')
    with pytest.raises(PermanentError, match="was replaced"):
        list(world.source(kind="inventory", key=key).blocks(first.cursor, 1, 1))


ROWS = st.lists(
    st.one_of(
        st.integers(0, 99).map(lambda n: {"n": n}),
        st.just({"other": 1}),
        st.just({"n": "x" * 9000}),
    ),
    max_size=25,
)


def source_with(world: World, kind: str, rows: list[dict[str, Any]], chunk: int) -> TaskSource:
    """A source of this kind with these rows, as far as it can have them."""
    if kind == "inline":
        return world.source(kind="inline", items=rows or [{"n": 0}], select={"n": "/n"})
    if kind == "prefix":
        for number, row in enumerate(rows):
            world.put(f"in/{number:03d}" + "/" * ("other" in row), b"" if "other" in row else b"1")
        return world.source(kind="prefix", prefix="in/")
    if kind.startswith("inventory"):
        parts = [rows[start : start + chunk] for start in range(0, len(rows), chunk)]
        if kind == "inventory-csv":
            files = [
                "".join(f'"s","{row["n"]}"\n' if "n" in row else '"s"\n' for row in part).encode() for part in parts
            ]
            key = inventory(world, [gzip.compress(file, mtime=0) for file in files], "CSV", "Bucket, Key")
        else:
            files = [
                table([{"bucket": "s", "key": str(row["n"]) if "n" in row else None} for row in part], 2)
                for part in parts
            ]
            key = inventory(world, files, "Parquet", "message")
        return world.source(kind="inventory", key=key)
    if kind == "parquet":
        body = table([{"n": str(row.get("n", "y" * 9000))} for row in rows] or [{"n": "0"}], chunk)
    elif kind == "csv":
        body = ("n,m\n" + "".join(f'{row["n"]},"a\nb"\n' if "n" in row else "1\n" for row in rows)).encode()
    else:
        body = "".join(json.dumps(row) + "\n\n"[: 1 + ("other" in row)] for row in rows).encode()
    if kind == "jsonl.gz":
        body = gzip.compress(body, mtime=0)
    key = world.put(f"sources/{kind}", body)
    return world.source(kind="object", key=key, format=kind.removesuffix(".gz"), select={"n": "/n"})


KINDS = ["inline", "jsonl", "jsonl.gz", "csv", "parquet", "prefix", "inventory-csv", "inventory-parquet"]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(rows=ROWS, chunk=st.integers(1, 7), size=st.integers(1, 6), page=st.integers(1, 5))
def test_another_delivery_continues_at_each_cursor_as_if_none_had_stopped(
    kind: str, rows: list[dict[str, Any]], chunk: int, size: int, page: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_sources, "PAGE_OBJECTS", page)
        world = World()
        whole = blocks_of(source_with(world, kind, rows, chunk), size)
        indices = count()
        for number, block in enumerate(whole, 1):
            assert [block.first_index + n for n in range(len(block.sources))] == [next(indices) for _ in block.sources]
            again = source_with(world, kind, rows, chunk)
            cursor = json.loads(json.dumps(block.cursor))
            assert list(again.blocks(cursor, block.first_index + len(block.sources), size)) == whole[number:]
    lines = [reject.line for block in whole for reject in block.rejects]
    assert lines == sorted(set(lines))
    if kind in ("jsonl", "jsonl.gz", "csv", "inventory-csv", "inventory-parquet", "parquet") and rows:
        taken = sum(len(block.sources) for block in whole)
        assert taken + len(lines) == len(rows)
