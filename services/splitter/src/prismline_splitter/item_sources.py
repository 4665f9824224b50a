"""The items of a run of a function: inline, in an S3 object, or S3 objects themselves.

Each source gives the rows after any position, and the same ones again: the contract
`prismline_contracts.item_sources` says what a row is. `prismline_splitter.items` makes an item of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from prismline_contracts.base import Count, Key, Name
from prismline_contracts.item_sources import (
    InlineItems,
    InventoryItems,
    ItemSource,
    ObjectItems,
    PrefixItems,
    RowFormat,
    listing_prefix,
)
from prismline_runtime import Bucket, PermanentError, describe_invalid
from prismline_splitter.items import (
    INVENTORY_COLUMNS,
    ItemOf,
    column_names,
    columns_of,
    inventory_row,
    item_maker,
    loaded,
    record_maker,
)
from prismline_splitter.rows import BEGINNING, BadLineError, Header, Line, ListError, Position, Reject, RowFile, Rows
from prismline_splitter.task_sources import RowTasks
from prismline_splitter.workload import TaskContext, TaskSource

#: Objects on a page of a listing, and in one answer of ListObjectsV2.
PAGE_OBJECTS = 1000
#: Pages of a prefix that are read for an estimate. A longer prefix counts as `MANY_OBJECTS`.
ESTIMATED_PAGES, MANY_OBJECTS = 10, 1_000_000
#: Longest manifest of an inventory, in bytes: a hundred thousand files.
MAX_MANIFEST_BYTES = 32 * 2**20


def item_source_of(source: ItemSource, context: TaskContext) -> TaskSource:
    """The items that a manifest names. An object is read in the version that was submitted, or else the first found."""
    bucket_name = getattr(source, "bucket", None)
    bucket = context.bucket if bucket_name is None else context.open_bucket(bucket_name)
    item_of = item_maker(source.select)
    prefix = listing_prefix(context.job_id, context.run_id)
    match source:
        case InlineItems():
            return RowTasks(lambda: InlineRows(source.items, item_of), source.max_items)
        case ObjectItems(key=key):
            etag = source.etag or str(context.pinned("etag", lambda: bucket.version(key)))
            if source.format == "parquet":
                columns = columns_of(source.select)
                return RowTasks(lambda: parquet_rows(bucket, key, etag, item_of, columns), source.max_items)
            return RowTasks(lambda: line_rows(bucket, key, etag, source.format, item_of), source.max_items)
        case PrefixItems():
            return RowTasks(
                lambda: PrefixRows(bucket, source.prefix, Listing(context.bucket, prefix), item_of), source.max_items
            )
        case InventoryItems(key=key):
            etag = source.etag or str(context.pinned("etag", lambda: bucket.version(key)))
            return RowTasks(
                lambda: InventoryRows(bucket, key, etag, Listing(context.bucket, prefix), item_of), source.max_items
            )


def line_rows(bucket: Bucket, key: str, etag: str, row_format: RowFormat, item_of: ItemOf) -> Rows:
    """The rows of a file of lines in the version `etag`."""
    file = RowFile(bucket.open(key, etag=etag), name=key)
    return CsvRows(file, item_of) if row_format == "csv" else JsonRows(file, item_of)


def parquet_rows(bucket: Bucket, key: str, etag: str, item_of: ItemOf, columns: list[str] | None) -> Rows:
    """The rows of a Parquet file, of which these columns are read (None: all). It is fetched as pyarrow reads it."""
    from prismline_splitter.parquet_rows import BUFFER_BYTES, ParquetRows  # noqa: PLC0415  pyarrow takes 40 MB

    size = bucket.size(key, etag=etag)
    file = bucket.open_version(key, etag=etag, size=size, part_bytes=BUFFER_BYTES)
    return ParquetRows(file, item_of, columns, name=key)


def _line(after: Position, row: JsonValue, item_of: ItemOf) -> Line[str]:
    """The line of a row: its item, or a reject."""
    try:
        return Line(after, value=item_of(row))
    except BadLineError as error:
        return Line(after, reject=Reject.of(after.line, error, json.dumps(row, ensure_ascii=False, default=str)))


@dataclass(frozen=True)
class InlineRows:
    """The items in a manifest. The offset of a position is the number of items before it."""

    items: list[JsonValue]
    item_of: ItemOf

    def estimated_lines(self) -> int:
        """The number of items."""
        return len(self.items)

    def lines(self, start: Position) -> Iterator[Line[str]]:
        """The items after `start`."""
        for number in range(start.offset, len(self.items)):
            yield _line(Position(number + 1, number + 1), self.items[number], self.item_of)


@dataclass(frozen=True)
class JsonRows:
    """The lines of a JSON Lines file."""

    file: RowFile
    item_of: ItemOf

    def estimated_lines(self) -> int:
        """About how many lines the file has."""
        return self.file.estimated_lines()

    def lines(self, start: Position) -> Iterator[Line[str]]:
        """The lines after `start`."""
        return self.file.lines(lambda text: self.item_of(loaded(text)), start)


@dataclass(frozen=True)
class CsvRows:
    """The records of a CSV file. The separator is the one that gives its header most columns."""

    file: RowFile
    item_of: ItemOf
    #: The header of a file that has none.
    header: Header | None = None

    def estimated_lines(self) -> int:
        """About how many lines the file has."""
        return self.file.estimated_lines()

    def lines(self, start: Position) -> Iterator[Line[str]]:
        """The records after `start`."""
        header = self.header or self.file.header(self._widest)
        if header is None:
            return iter(())
        record_of = record_maker(column_names(header.names, self.file.name))
        return self.file.records(header, lambda fields: self.item_of(record_of(fields)), start)

    def _widest(self, headers: list[Header]) -> Header:
        if not headers:
            raise ListError(f"The first line of {self.file.name} is not a CSV header.")
        return max(headers, key=lambda header: len(header.names))


# ---- S3 objects as items


@dataclass(frozen=True)
class Listing:
    """Pages in the bucket of a run. The first delivery that reads a page writes it; every later one takes that page."""

    bucket: Bucket
    prefix: str

    def once(self, name: str, body: bytes) -> bytes:
        """The page `name`: `body`, unless it is there already."""
        key = f"{self.prefix}{name}"
        return body if self.bucket.create(key, body) else self.bucket.read(key)

    def read(self, name: str) -> bytes:
        """A page that an earlier call has written."""
        return self.bucket.read(f"{self.prefix}{name}")


#: The rows of a page.
_PAGE = TypeAdapter(list[dict[str, JsonValue]])


@dataclass(frozen=True)
class PrefixRows:
    """The objects below a prefix, written down in pages of `PAGE_OBJECTS`. The last page, and only this one, has fewer.

    The offset of a position is the number of objects before it. Empty objects whose key ends with `/` stand for folders
    and give no item.
    """

    bucket: Bucket
    prefix: str
    listing: Listing
    item_of: ItemOf

    def estimated_lines(self) -> int:
        """The number of objects, or `MANY_OBJECTS` if there are more than some pages."""
        most = ESTIMATED_PAGES * PAGE_OBJECTS
        found = sum(1 for _ in islice(self.bucket.list(self.prefix), most + 1))
        return found if found <= most else MANY_OBJECTS

    def lines(self, start: Position) -> Iterator[Line[str]]:
        """The objects after `start`."""
        number, skip = divmod(start.offset, PAGE_OBJECTS)
        after = self._last_key(number - 1) if number else ""
        while True:
            page = self._page(number, after)
            for place, row in enumerate(page[skip:], number * PAGE_OBJECTS + skip + 1):
                position = Position(place, place)
                if row["size"] == 0 and str(row["key"]).endswith("/"):
                    yield Line(position)
                else:
                    yield _line(position, row, self.item_of)
            if len(page) < PAGE_OBJECTS:
                return
            number, skip, after = number + 1, 0, str(page[-1]["key"])

    def _page(self, number: int, after: str) -> list[dict[str, JsonValue]]:
        found: list[dict[str, JsonValue]] = [
            {"bucket": self.bucket.name, **entry}
            for entry in islice(self.bucket.entries(self.prefix, after=after), PAGE_OBJECTS)
        ]
        return _PAGE.validate_json(self.listing.once(_page_name(number), _PAGE.dump_json(found)))

    def _last_key(self, number: int) -> str:
        return str(_PAGE.validate_json(self.listing.read(_page_name(number)))[-1]["key"])


def _page_name(number: int) -> str:
    return f"{number:07d}.json"


class _InventoryFile(BaseModel):
    key: Key
    size: Count


class _InventoryManifest(BaseModel):
    """The members of an inventory's `manifest.json` that are read."""

    source_bucket: Name = Field(alias="sourceBucket")
    file_format: str = Field(alias="fileFormat")
    file_schema: str = Field(alias="fileSchema")
    files: list[_InventoryFile]


class _PinnedFile(BaseModel):
    key: Key
    size: Count
    etag: Name


_PINNED = TypeAdapter(list[_PinnedFile])


@dataclass(frozen=True)
class InventoryRows:
    """The objects in an inventory: current versions that are not delete markers. A position counts in one file.

    The ETags of the inventory's files are written down once, because its manifest does not have them.
    """

    bucket: Bucket
    key: str
    etag: str
    listing: Listing
    item_of: ItemOf

    def estimated_lines(self) -> int:
        """About how many rows the inventory has, if all its files are like the first one."""
        files = self._manifest.files
        if not files:
            return 0
        first, total = files[0], sum(file.size for file in files)
        rows = self._rows(first.key, self.bucket.version(first.key)).estimated_lines()
        return round(rows * max(1.0, total / max(1, first.size)))

    def lines(self, start: Position) -> Iterator[Line[str]]:
        """The objects after `start`."""
        offset, number = start.offset, start.line
        for part, file in enumerate(self._files[start.part :], start.part):
            for line in self._rows(file.key, file.etag).lines(Position(offset, number)):
                number = line.after.line
                yield Line(Position(line.after.offset, number, part), line.value, line.reject)
            offset = 0

    @cached_property
    def _manifest(self) -> _InventoryManifest:
        body = self.bucket.read(self.key, most=MAX_MANIFEST_BYTES)
        if self.bucket.version(self.key) != self.etag:
            raise PermanentError(f"{self.key} was replaced after the run had been submitted; submit it again.")
        try:
            manifest = _InventoryManifest.model_validate_json(body)
        except ValidationError as error:
            raise ListError(f"{self.key} is not the manifest of an S3 inventory: {describe_invalid(error)}.") from error
        if manifest.file_format not in ("CSV", "Parquet"):
            raise ListError(
                f"The inventory {self.key} has the format {manifest.file_format}. Configure it to write CSV or Parquet."
            )
        return manifest

    @cached_property
    def _files(self) -> list[_PinnedFile]:
        found = [_PinnedFile(**dict(file), etag=self.bucket.version(file.key)) for file in self._manifest.files]
        return _PINNED.validate_json(self.listing.once("files.json", _PINNED.dump_json(found)))

    def _rows(self, key: str, etag: str) -> Rows:
        if self._manifest.file_format == "Parquet":
            return parquet_rows(self.bucket, key, etag, self._item_of_record, INVENTORY_COLUMNS)
        names = [name.strip() for name in self._manifest.file_schema.split(",")]
        file = RowFile(self.bucket.open(key, etag=etag), name=key)
        return CsvRows(file, self._item_of_record, Header(",", names, BEGINNING))

    def _item_of_record(self, record: JsonValue) -> str | None:
        row = inventory_row(record, encoded=self._manifest.file_format == "CSV")
        return None if row is None else self.item_of(row)
