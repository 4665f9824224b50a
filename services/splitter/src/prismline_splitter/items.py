"""What an item is: the row of a source, or what `select` takes of it, as canonical JSON text. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn, TypeAlias
from urllib.parse import unquote_plus

from pydantic import JsonValue

from prismline_contracts.item_sources import Constant, Select, canonical_json
from prismline_contracts.tasks import MAX_SOURCE_CHARS
from prismline_splitter.rows import BadLineError, ListError

#: Makes the item of a row, as the source of a task. None: the row has none. Raises BadLineError for a bad row.
ItemOf: TypeAlias = Callable[[JsonValue], str | None]

#: Members of a row of an inventory, by the names of its columns in CSV and in Parquet.
INVENTORY_MEMBERS = {
    "Bucket": "bucket",
    "Key": "key",
    "VersionId": "version_id",
    "Size": "size",
    "LastModifiedDate": "last_modified",
    "last_modified_date": "last_modified",
    "ETag": "etag",
    "e_tag": "etag",
    "StorageClass": "storage_class",
    **{name: name for name in ("bucket", "key", "version_id", "size", "storage_class")},
}
#: Columns of an inventory in Parquet that are read.
INVENTORY_COLUMNS = sorted({*INVENTORY_MEMBERS, "is_latest", "is_delete_marker"})


def item_maker(select: Select | None) -> ItemOf:
    """The function that makes an item of a row."""
    if select is None:
        return item_text
    members = [(name, _tokens(at) if isinstance(at, str) else at) for name, at in select.items()]

    def item_of(row: JsonValue) -> str:
        return item_text({name: at.constant if isinstance(at, Constant) else _at(row, at) for name, at in members})

    return item_of


def columns_of(select: Select | None) -> list[str] | None:
    """The columns of a table that `select` reads. None: all."""
    pointers = [at for at in (select or {}).values() if isinstance(at, str)]
    if not pointers or "" in pointers:
        return None
    return sorted({_tokens(pointer)[0] for pointer in pointers})


def item_text(item: JsonValue) -> str:
    """The source of the task of an item. Raises BadLineError if a task cannot hold it."""
    try:
        text = canonical_json(item)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise BadLineError("it contains half of a surrogate pair, which is not a character") from None
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"it is not JSON: {error}") from error
    if len(text) > MAX_SOURCE_CHARS:
        raise BadLineError(
            f"its item has {len(text)} characters of JSON, and at most {MAX_SOURCE_CHARS} fit; select fewer members"
        )
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


#: Made once: `json.loads` makes one for each call.
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def loaded(text: str) -> JsonValue:
    """The value of a line of JSON. Raises BadLineError for another one."""
    try:
        value: JsonValue = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"it is not JSON: {error}") from error
    return value


def column_names(names: list[str], file_name: str) -> list[str]:
    """The names in a CSV header. Raises ListError if one is there twice."""
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ListError(f"The header of {file_name} has the column {name!r} twice. Give each column its own name.")
    return names


def record_maker(names: list[str]) -> Callable[[list[str]], JsonValue]:
    """The function that makes a row of the fields of a CSV record."""

    def record_of(fields: list[str]) -> JsonValue:
        if len(fields) != len(names):
            raise BadLineError(f"it has {len(fields)} columns, and the header {len(names)}")
        return dict(zip(names, fields, strict=True))

    return record_of


def inventory_row(record: JsonValue, *, encoded: bool) -> JsonValue:
    """The row of an object in an inventory, or None for an earlier version or a delete marker.

    encoded: the record is one of a CSV file, where all values are text and the key is percent-encoded.
    """
    if not isinstance(record, dict):
        raise BadLineError("it is not a record of an inventory")
    latest = record.get("IsLatest", record.get("is_latest"))
    deleted = record.get("IsDeleteMarker", record.get("is_delete_marker"))
    if latest in (False, "false") or deleted in (True, "true"):
        return None
    row = {INVENTORY_MEMBERS[name]: value for name, value in record.items() if name in INVENTORY_MEMBERS}
    row = {name: value for name, value in row.items() if value not in (None, "")}
    if not isinstance(row.get("bucket"), str) or not isinstance(row.get("key"), str):
        raise BadLineError("it has no bucket or no key")
    if encoded:
        row["key"] = unquote_plus(str(row["key"]))
        size = str(row.get("size", "0"))
        if not size.isdecimal():
            raise BadLineError(f"its size is {size[:20]!r}, which is not a number")
        if "size" in row:
            row["size"] = int(size)
    return row


def _tokens(pointer: str) -> list[str]:
    """The tokens of a JSON pointer (RFC 6901)."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _at(row: JsonValue, tokens: list[str]) -> JsonValue:
    """The value to which a pointer points. Raises BadLineError if there is none."""
    value = row
    for token in tokens:
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isdecimal() and str(int(token)) == token and int(token) < len(value):
            value = value[int(token)]
        else:
            raise BadLineError(f"it has no value at {'/' + '/'.join(tokens)!r}")
    return value
