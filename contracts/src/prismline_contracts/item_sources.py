"""Sources of a list of items: where a run of a function takes its items from, and how an item is made of a row.

Each row of the source becomes at most one item, and each item is one task: `TaskItem.source` is the item as canonical
JSON text. A row is what the source consists of:

- `inline` and `jsonl`: a JSON value;
- `csv`: an object with the text of each column, under the names in the header;
- `parquet`: an object with the value of each column;
- `prefix` and `inventory`: an object that describes one S3 object: `bucket`, `key`, `size`, and if known `etag` and
  `last_modified`.

Without `select` the row is the item. With `select` the item is an object with the selected members.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints

from prismline_contracts.base import Contract, Key, Name, Submitted
from prismline_contracts.jobs import upload_key
from prismline_contracts.prefixes import JOBS_PREFIX
from prismline_contracts.tasks import MAX_INLINE_URLS

#: Most items in a manifest or a request. A longer list is an object in S3.
MAX_INLINE_ITEMS = MAX_INLINE_URLS
#: Most members that `select` gives to an item.
MAX_SELECTED = 100
#: Most items of a run, and so the greatest `max_items`.
MOST_ITEMS = 2**31 - 1

#: A JSON pointer (RFC 6901): `/user/id`, `/tags/0`, or the empty text for the whole row.
Pointer = Annotated[str, StringConstraints(pattern=r"^(/([^~/]|~[01])*)*$", max_length=1024)]


#: Made once: `json.dumps` makes one for each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def canonical_json(item: JsonValue) -> str:
    """The one text of a JSON value: members are sorted by their names, and nothing is between the tokens.

    Raises ValueError for a number that JSON does not have: an infinite one, or NaN.
    """
    return _ENCODER.encode(item)


def listing_prefix(job_id: str, run_id: str) -> str:
    """Prefix of the pages on which a run writes down the objects of an S3 prefix or the files of an inventory."""
    return f"{JOBS_PREFIX}{job_id}/listing-{run_id}/"


class Constant(Submitted, Contract, extra="forbid"):
    """A value that each item gets."""

    constant: JsonValue


#: What each item consists of: for each member its name, and where its value comes from. A text is a JSON pointer into
#: the row. `{"constant": value}` is that value. A row to which a pointer does not apply is rejected.
Select = Annotated[dict[Name, Pointer | Constant], Field(min_length=1, max_length=MAX_SELECTED)]


class _Items(Submitted, Contract, extra="forbid"):
    """What every source of items has."""

    #: What each item consists of. Absent: the row is the item.
    select: Select | None = None
    #: Most items that are taken. Absent: all.
    max_items: Annotated[int, Field(ge=1, le=MOST_ITEMS)] | None = None


class InlineItems(_Items):
    """Items in the manifest itself."""

    kind: Literal["inline"] = "inline"
    items: Annotated[list[JsonValue], Field(min_length=1, max_length=MAX_INLINE_ITEMS)]


#: How the rows of an object are written.
RowFormat = Literal["jsonl", "csv", "parquet"]


class ObjectItems(_Items):
    """The rows of one S3 object. JSON Lines and CSV may be compressed by gzip, which the reader recognises."""

    kind: Literal["object"]
    key: Key
    #: Bucket of the object. Absent: that of the manifest.
    bucket: Name | None = None
    #: ETag of the object that was submitted. An object that was replaced since is refused.
    etag: Name | None = None
    #: `jsonl`: a JSON value a line; `csv`: a table with a header; `parquet`: a Parquet file.
    format: RowFormat = "jsonl"


class UploadedItems(_Items):
    """The rows of a list that was uploaded through the API. Only a request names one: a manifest has its object."""

    kind: Literal["upload"]
    upload: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    format: RowFormat = "jsonl"

    def object(self, tenant: str, etag: str | None = None) -> ObjectItems:
        """The same source as a manifest names it."""
        return ObjectItems(
            kind="object",
            key=upload_key(tenant, self.upload),
            etag=etag,
            format=self.format,
            select=self.select,
            max_items=self.max_items,
        )


class PrefixItems(_Items):
    """The objects whose keys begin with a prefix, except empty ones whose key ends with `/`, in the order of the keys.

    They are listed once. An object that is created or deleted afterwards changes nothing.
    """

    kind: Literal["prefix"]
    prefix: Key
    #: Bucket of the objects. Absent: that of the manifest.
    bucket: Name | None = None


class InventoryItems(_Items):
    """The objects in an S3 inventory, in the order of its files."""

    kind: Literal["inventory"]
    #: Key of the inventory's `manifest.json`. Its files are in the same bucket.
    key: Key
    #: Bucket of the inventory. Absent: that of the manifest.
    bucket: Name | None = None
    #: ETag of the inventory's manifest.
    etag: Name | None = None


#: The source of a manifest.
ItemSource = Annotated[InlineItems | ObjectItems | PrefixItems | InventoryItems, Field(discriminator="kind")]
#: The source of a request over HTTP.
GivenItemSource = Annotated[
    InlineItems | UploadedItems | ObjectItems | PrefixItems | InventoryItems, Field(discriminator="kind")
]
