"""DynamoDB: tables with global secondary indexes, conditional writes, queries, transactions.

Items are kept as immutable `Version`s, so an item that a reader holds never changes.
"""
# ruff: noqa: N803  boto3's parameter names

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from tests.simulation.aws import expressions
from tests.simulation.aws.base import ACCOUNT, REGION, Client, Paginator, client_error, operation
from tests.simulation.aws.expressions import ExpressionError, comparable, number

#: Largest item, in bytes.
MAX_ITEM_BYTES = 400 * 1024
#: Most bytes that one page of a query or scan reads.
PAGE_BYTES = 2**20
#: Bytes that one transaction may write.
MAX_TRANSACTION_BYTES = 4 * 2**20
#: How long, in seconds, a client token makes a transaction idempotent.
TOKEN_SECONDS = 600.0
#: Writes of a transaction, keys of a batch read, writes of a batch.
MAX_TRANSACTION, MAX_BATCH_GET, MAX_BATCH_WRITE = 100, 100, 25

_KEY_MISMATCH = "The provided key element does not match the schema"
_NO_TABLE = "Requested resource not found"
_RETURN_VALUES = {
    "put_item": frozenset({"NONE", "ALL_OLD"}),
    "delete_item": frozenset({"NONE", "ALL_OLD"}),
    "update_item": frozenset({"NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"}),
}

Wire = dict[str, Any]
Key = tuple[Any, ...]


class Change(NamedTuple):
    """One item that a request changed, before and after it, as plain Python. None if there is no item."""

    table: str
    key: Key
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class Shown(dict[str, Any]):
    """An item in the client's form that knows its version."""

    __slots__ = ("version",)

    def __init__(self, version: Version) -> None:
        super().__init__(version.wire)
        self.version = version


class Version:
    """One state of one item."""

    __slots__ = ("_plain", "key", "remembered", "size", "wire")

    def __init__(self, key: Key, wire: Wire, size: int) -> None:
        self.key = key
        self.wire = wire
        #: Size of the item in bytes.
        self.size = size
        self._plain: dict[str, Any] | None = None
        #: Cache for objects that are made from this version.
        self.remembered: Any = None

    @property
    def plain(self) -> Mapping[str, Any]:
        """The item as plain Python: int (or Decimal), str, bool, bytes, None, list, dict, set."""
        if self._plain is None:
            self._plain = {name: plain(value) for name, value in self.wire.items()}
        return self._plain

    def changed(self, changes: Mapping[str, Any]) -> Version:
        """The next version: with these attributes changed, and those that are None removed."""
        wire, size = self.wire.copy(), self.size
        known = None if self._plain is None else self._plain.copy()
        for name, value in changes.items():
            old = wire.get(name)
            if old is not None:
                size -= len(name) + _size(old)
            if value is None:
                wire.pop(name, None)
                if known is not None:
                    known.pop(name, None)
            else:
                wire[name] = value
                size += len(name) + _size(value)
                if known is not None:
                    known[name] = plain(value)
        version = Version(self.key, wire, size)
        version._plain = known
        return version


def plain(value: Mapping[str, Any]) -> Any:
    """A value in the client's form as plain Python."""
    ((kind, content),) = value.items()
    if kind in {"S", "BOOL", "B"}:
        return content
    if kind == "N":
        return _number(content)
    if kind == "NULL":
        return None
    if kind == "L":
        return [plain(each) for each in content]
    if kind == "M":
        return {name: plain(each) for name, each in content.items()}
    return set(map(_number, content)) if kind == "NS" else set(content)


def _number(text: str) -> int | Decimal:
    return int(text) if text.removeprefix("-").isdecimal() else Decimal(text)


def _size(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(content) if content.isascii() else len(content.encode())
    if kind == "N":
        return len(content) // 2 + 2
    if kind in {"BOOL", "NULL"}:
        return 1
    if kind == "L":
        return 3 + sum(1 + _size(each) for each in content)
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + _size(each) for name, each in content.items())
    if kind == "B":
        return len(content)
    return sum(_size({kind[0]: each}) for each in content)


def _stored(value: Mapping[str, Any]) -> Wire:
    """The stored form of a value: normalised numbers, no objects shared with the caller. Raises ExpressionError."""
    ((kind, content),) = value.items()
    if kind == "N":
        return {"N": number(content)}
    if kind == "L":
        return {"L": [_stored(each) for each in content]}
    if kind == "M":
        return {"M": {name: _stored(each) for name, each in content.items()}}
    if kind in {"SS", "NS", "BS"}:
        if not content:
            what = {"SS": "string", "NS": "number", "BS": "binary"}[kind]
            raise ExpressionError(f"One or more parameter values were invalid: An {what} set  may not be empty")
        elements = [number(each) for each in content] if kind == "NS" else list(content)
        if len(set(elements)) < len(elements):
            raise ExpressionError(
                f"One or more parameter values were invalid: Input collection [{', '.join(map(str, content))}] "
                "contains duplicates."
            )
        return {kind: elements}
    return {kind: content}


class Index:
    """A global secondary index that projects all attributes. It is sparse: items without its keys are not in it."""

    def __init__(self, name: str, hash_key: str, range_key: str | None) -> None:
        self.name = name
        self.hash_key = hash_key
        self.range_key = range_key
        #: By hash key, then by sort key and the item's own key.
        self._partitions: dict[Any, dict[tuple[Any, Key], Version]] = {}
        self.pending: deque[tuple[float, Version | None, Version | None]] = deque()

    def copy(self) -> Index:
        return Index(self.name, self.hash_key, self.range_key)

    def write(self, before: Version | None, after: Version | None, visible_at: float | None) -> None:
        """Apply a change, at once or from a later moment."""
        name = self.hash_key
        if (before is None or name not in before.wire) and (after is None or name not in after.wire):
            return
        if visible_at is None:
            self._apply(before, after)
        else:
            last = self.pending[-1][0] if self.pending else visible_at
            self.pending.append((max(last, visible_at), before, after))

    def catch_up(self, now: float) -> None:
        """Apply the changes that are due."""
        while self.pending and self.pending[0][0] <= now:
            _, before, after = self.pending.popleft()
            self._apply(before, after)

    def _apply(self, before: Version | None, after: Version | None) -> None:
        if before is not None and (place := self._place(before)) is not None:
            partition = self._partitions[place[0]]
            del partition[place[1]]
            if not partition:
                del self._partitions[place[0]]
        if after is not None and (place := self._place(after)) is not None:
            self._partitions.setdefault(place[0], {})[place[1]] = after

    def _place(self, version: Version) -> tuple[Any, tuple[Any, Key]] | None:
        wire = version.wire
        partition = wire.get(self.hash_key)
        if partition is None:
            return None
        sort = None
        if self.range_key is not None:
            found = wire.get(self.range_key)
            if found is None:
                return None
            sort = comparable(found)
        return comparable(partition), (sort, version.key)

    def partition(self, key: Any) -> list[tuple[tuple[Any, Key], Version]]:
        """The items of a partition with their sort values, in order."""
        return sorted(self._partitions.get(key, {}).items(), key=_by_place)

    def everything(self) -> list[tuple[tuple[Any, Key], Version]]:
        """All items, partition by partition."""
        return [entry for key in sorted(self._partitions, key=str) for entry in self.partition(key)]


def _by_place(entry: tuple[Any, Version]) -> Any:
    return entry[0]


class Table:
    """A table: its keys, its indexes, its items."""

    def __init__(
        self, name: str, hash_key: str, range_key: str | None, types: Mapping[str, str], indexes: Iterable[Index] = ()
    ) -> None:
        self.name = name
        self.hash_key = hash_key
        self.range_key = range_key
        #: `S`, `N` or `B` of each key attribute.
        self.types = types
        self.indexes = {index.name: index for index in indexes}
        #: Seconds until a write is visible in the indexes. 0: at once.
        self.index_lag = 0.0
        #: Seconds until a write is visible to reads that are not consistent. 0: at once.
        self.read_lag = 0.0
        #: When each item was last written, and the version before, for these reads.
        self._recent: dict[Key, tuple[float, Version | None]] = {}
        self.key_names = (hash_key,) if range_key is None else (hash_key, range_key)
        self._text_keys = all(types[name] == "S" for name in self.key_names)
        self._index_keys = frozenset(name for name in types if name not in self.key_names)
        self.versions: dict[Key, Version] = {}
        self._partitions: dict[Any, dict[Any, Version]] = {}
        self._orders: dict[Any, list[Any]] = {}

    def empty_copy(self) -> Table:
        """A table like this one, without items."""
        return Table(self.name, self.hash_key, self.range_key, self.types, [i.copy() for i in self.indexes.values()])

    def items(self) -> list[Mapping[str, Any]]:
        """All items as plain Python, in the order of their first write."""
        return [version.plain for version in self.versions.values()]

    def get(self, *key: Any) -> Mapping[str, Any] | None:
        """The item with a key, e.g. `get(run_id, "RUN")`, as plain Python, or None."""
        version = self.versions.get(key)
        return None if version is None else version.plain

    def __len__(self) -> int:
        return len(self.versions)

    # ---- for the client

    def version(self, key: Key) -> Version | None:
        return self.versions.get(key)

    def version_for(self, key: Key, now: float, *, consistent: bool) -> Version | None:
        """The version that a read sees. One that is not consistent misses the latest write for `read_lag` seconds."""
        if not consistent and self.read_lag and key in self._recent:
            written, before = self._recent[key]
            if now - written < self.read_lag:
                return before
        return self.versions.get(key)

    def key_of(self, given: Mapping[str, Any], *, exact: bool = True) -> Key:
        """The key in a request's `Key` (exact) or item. Raises ExpressionError."""
        names, types = self.key_names, self.types
        if exact and len(given) != len(names):
            raise ExpressionError(_KEY_MISMATCH)
        try:
            usual = tuple([given[name]["S"] for name in names])
            if all(usual) and self._text_keys:
                return usual
        except KeyError:
            pass  # the code below reports the error
        key = []
        for name in names:
            value = given.get(name)
            if value is None:
                if exact:
                    raise ExpressionError(_KEY_MISMATCH)
                raise ExpressionError(f"One or more parameter values were invalid: Missing the key {name} in the item")
            content = value.get(types[name])
            if content is None:
                if exact:
                    raise ExpressionError(_KEY_MISMATCH)
                raise ExpressionError(
                    f"One or more parameter values were invalid: Type mismatch for key {name} "
                    f"expected: {types[name]} actual: {next(iter(value))}"
                )
            if content == "" or content == b"":
                raise ExpressionError(
                    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain "
                    f"an empty string value. Key: {name}"
                )
            key.append(content if types[name] != "N" else comparable({"N": number(content)}))
        return tuple(key)

    def check_index_keys(self, attributes: Mapping[str, Any]) -> None:
        """Check the values of index keys. Raises ExpressionError."""
        if self._index_keys.isdisjoint(attributes):
            return
        for name in sorted(self._index_keys):
            value = attributes.get(name)
            if value is None:
                continue
            index = next(i.name for i in self.indexes.values() if name in {i.hash_key, i.range_key})
            content = value.get(self.types[name])
            if content is None:
                raise ExpressionError(
                    f"One or more parameter values were invalid: Type mismatch for Index Key {name} "
                    f"Expected: {self.types[name]} Actual: {next(iter(value))} IndexName: {index}"
                )
            if content == "" or content == b"":
                raise ExpressionError(
                    "One or more parameter values are not valid. A value specified for a secondary index key is not "
                    "supported. The AttributeValue for a key attribute cannot contain an empty string value. "
                    f"IndexName: {index}, IndexKey: {name}"
                )

    def commit(self, key: Key, after: Version | None, now: float) -> Version | None:
        """Replace an item's version. Return the previous one."""
        before = self.versions.get(key)
        if self.read_lag:
            self._recent[key] = now, before
        partition_key, sort = key[0], key[-1]
        if after is None:
            if before is None:
                return None
            del self.versions[key]
            partition = self._partitions[partition_key]
            del partition[sort]
            self._orders.pop(partition_key, None)
            if not partition:
                del self._partitions[partition_key]
        else:
            self.versions[key] = after
            if before is None:
                self._partitions.setdefault(partition_key, {})[sort] = after
                self._orders.pop(partition_key, None)
            else:
                self._partitions[partition_key][sort] = after
        visible_at = now + self.index_lag if self.index_lag else None
        for index in self.indexes.values():
            if visible_at is None and index.pending:
                index.catch_up(float("inf"))  # the lag was switched off
            index.write(before, after, visible_at)
        return before

    def partition(self, key: Any) -> list[tuple[tuple[Any, Key], Version]]:
        """The items of a partition with their sort values, in order."""
        partition = self._partitions.get(key)
        if partition is None:
            return []
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = sorted(partition)
        return [((sort, partition[sort].key), partition[sort]) for sort in order]

    def everything(self) -> list[tuple[tuple[Any, Key], Version]]:
        """All items, partition by partition."""
        return [entry for key in sorted(self._partitions, key=str) for entry in self.partition(key)]


class _ConditionFailedError(Exception):
    """A condition was false for `version`."""

    def __init__(self, version: Version | None) -> None:
        super().__init__()
        self.version = version


class _Write(NamedTuple):
    """A write that has been checked and may be committed."""

    table: Table
    key: Key
    before: Version | None
    after: Version | None
    #: Top-level attributes that an update names.
    named: Collection[str] = ()


class DynamoDB(Client):
    """The part of boto3's DynamoDB client that Prismline uses."""

    service = "dynamodb"

    def __init__(self, aws: Any) -> None:
        super().__init__(aws)
        self._tables: dict[str, Table] = aws.tables
        self._tokens: dict[str, tuple[float, str]] = {}

    # ---- tables

    @operation
    def create_table(
        self,
        *,
        TableName: str,
        KeySchema: Sequence[Mapping[str, str]],
        AttributeDefinitions: Sequence[Mapping[str, str]],
        GlobalSecondaryIndexes: Sequence[Mapping[str, Any]] = (),
        **others: Any,
    ) -> dict[str, Any]:
        if TableName in self._tables:
            raise client_error("CreateTable", "ResourceInUseException", f"Table already exists: {TableName}")
        self._tables[TableName] = table_of(TableName, KeySchema, AttributeDefinitions, GlobalSecondaryIndexes)
        return {"TableDescription": {"TableName": TableName, "TableStatus": "ACTIVE"}}

    @operation
    def describe_table(self, *, TableName: str) -> dict[str, Any]:
        table = self._table("DescribeTable", TableName)
        return {
            "Table": {
                "TableName": table.name,
                "TableStatus": "ACTIVE",
                "TableArn": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table.name}",
                "ItemCount": len(table),
            }
        }

    @operation
    def delete_table(self, *, TableName: str) -> dict[str, Any]:
        self._table("DeleteTable", TableName)
        del self._tables[TableName]
        return {"TableDescription": {"TableName": TableName, "TableStatus": "DELETING"}}

    def get_paginator(self, operation_name: str) -> Paginator:
        return Paginator(getattr(self, operation_name), ("LastEvaluatedKey", "ExclusiveStartKey"))

    # ---- one item

    @operation
    def get_item(
        self,
        *,
        TableName: str,
        Key: Mapping[str, Any],
        ConsistentRead: bool = False,
        ProjectionExpression: str | None = None,
        ExpressionAttributeNames: Mapping[str, str] | None = None,
        ReturnConsumedCapacity: str = "NONE",
    ) -> dict[str, Any]:
        table = self._table("GetItem", TableName)
        try:
            key = table.key_of(Key)
            wanted = expressions.projection(ProjectionExpression) if ProjectionExpression else None
            names = _names(ExpressionAttributeNames, {}, wanted)
        except ExpressionError as error:
            raise _invalid("GetItem", error) from None
        version = table.version_for(key, self._hub.now(), consistent=ConsistentRead)
        if version is None:
            return {}
        return {"Item": wanted.of(version.wire, names) if wanted else Shown(version)}

    @operation
    def put_item(self, *, TableName: str, Item: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        return self._single("PutItem", TableName, options, lambda table: self._put(table, Item, options))

    @operation
    def update_item(self, *, TableName: str, Key: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        return self._single("UpdateItem", TableName, options, lambda table: self._update(table, Key, options))

    @operation
    def delete_item(self, *, TableName: str, Key: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        return self._single("DeleteItem", TableName, options, lambda table: self._delete(table, Key, options))

    def _single(
        self, name: str, table_name: str, options: Mapping[str, Any], prepare: Callable[[Table], _Write]
    ) -> dict[str, Any]:
        table = self._table(name, table_name)
        wanted = options.get("ReturnValues", "NONE")
        allowed = _RETURN_VALUES[{"PutItem": "put_item", "UpdateItem": "update_item"}.get(name, "delete_item")]
        if wanted not in allowed:
            raise client_error(name, "ValidationException", "Return values set to invalid value")
        try:
            write = prepare(table)
        except ExpressionError as error:
            raise _invalid(name, error) from None
        except _ConditionFailedError as failed:
            more: dict[str, Any] = {}
            if options.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and failed.version is not None:
                more = {"Item": failed.version.wire.copy()}
            raise client_error(
                name, "ConditionalCheckFailedException", "The conditional request failed", **more
            ) from None
        self._commit([write])
        attributes = _returned(wanted, write)
        return {"Attributes": attributes} if attributes else {}

    # ---- checked writes

    def _put(self, table: Table, item: Mapping[str, Any], options: Mapping[str, Any]) -> _Write:
        key = table.key_of(item, exact=False)
        wire = {name: value if "S" in value else _stored(value) for name, value in item.items()}
        table.check_index_keys(wire)
        before = table.version(key)
        self._require(before, options, None)
        return _Write(table, key, before, _checked_size(_version(key, wire)))

    def _update(self, table: Table, given: Mapping[str, Any], options: Mapping[str, Any]) -> _Write:
        key = table.key_of(given)
        text = options.get("UpdateExpression")
        compiled = None if text is None else expressions.update(text)
        values = options.get("ExpressionAttributeValues") or {}
        before = table.version(key)
        names = self._require(before, options, compiled)
        start = before or _version(key, {name: _stored(value) for name, value in given.items()})
        if compiled is None:
            return _Write(table, key, before, before or start)
        named = _written(table, compiled, names)
        changes = compiled.changes(start.wire if before else {}, names, values)
        if not compiled.flat:
            changes = {name: expressions.without_marks(value) for name, value in changes.items()}
        changes = {name: value if value is None or "S" in value else _stored(value) for name, value in changes.items()}
        table.check_index_keys(changes)
        return _Write(table, key, before, _checked_size(start.changed(changes), update=True), named)

    def _delete(self, table: Table, given: Mapping[str, Any], options: Mapping[str, Any]) -> _Write:
        key = table.key_of(given)
        before = table.version(key)
        self._require(before, options, None)
        return _Write(table, key, before, None)

    def _require(
        self, before: Version | None, options: Mapping[str, Any], update: expressions.CompiledUpdate | None
    ) -> Mapping[str, str]:
        """Check placeholders and the condition. Return the names. Raises ExpressionError and _ConditionFailedError."""
        text = options.get("ConditionExpression")
        condition = None if text is None else expressions.condition(text)
        values = options.get("ExpressionAttributeValues") or {}
        names = _names(options.get("ExpressionAttributeNames"), values, update, condition)
        if condition is not None:
            for check in condition.checks:
                check(values)
        if update is not None:
            for check in update.checks:
                check(values)
        if condition is not None and not condition.holds(before.wire if before else {}, names, values):
            raise _ConditionFailedError(before)
        return names

    def _commit(self, writes: Sequence[_Write]) -> None:
        now = self._hub.now()
        done = [write for write in writes if not (write.before is None and write.after is None)]
        for write in done:
            write.table.commit(write.key, write.after, now)
        aws = self._aws
        if done and (aws.on_write or aws.on_commit):
            changes = [
                Change(
                    write.table.name,
                    write.key,
                    None if write.before is None else write.before.plain,
                    None if write.after is None else write.after.plain,
                )
                for write in done
            ]
            for change in changes:
                for listener in aws.on_write:
                    listener(*change)
            for committed in aws.on_commit:
                committed(changes)

    # ---- several items

    @operation
    def batch_get_item(self, *, RequestItems: Mapping[str, Mapping[str, Any]], **others: Any) -> dict[str, Any]:
        if sum(len(request["Keys"]) for request in RequestItems.values()) > MAX_BATCH_GET:
            raise client_error(
                "BatchGetItem", "ValidationException", "Too many items requested for the BatchGetItem call"
            )
        responses: dict[str, list[Wire]] = {}
        for name, request in RequestItems.items():
            table = self._table("BatchGetItem", name)
            text = request.get("ProjectionExpression")
            try:
                keys = [table.key_of(key) for key in request["Keys"]]
                wanted = expressions.projection(text) if text else None
                names = _names(request.get("ExpressionAttributeNames"), {}, wanted)
            except ExpressionError as error:
                raise _invalid("BatchGetItem", error) from None
            if len(set(keys)) < len(keys):
                raise client_error(
                    "BatchGetItem", "ValidationException", "Provided list of item keys contains duplicates"
                )
            consistent, now = bool(request.get("ConsistentRead")), self._hub.now()
            versions = (table.version_for(key, now, consistent=consistent) for key in keys)
            found = [version for version in versions if version is not None]
            responses[name] = [wanted.of(each.wire, names) if wanted else Shown(each) for each in found]
        return {"Responses": responses, "UnprocessedKeys": {}}

    @operation
    def batch_write_item(self, *, RequestItems: Mapping[str, Sequence[Mapping[str, Any]]], **others: Any) -> Wire:
        if sum(map(len, RequestItems.values())) > MAX_BATCH_WRITE:
            raise client_error(
                "BatchWriteItem",
                "ValidationException",
                "1 validation error detected: Value at 'requestItems' failed to satisfy constraint: "
                "Map value must satisfy constraint: [Member must have length less than or equal to 25, "
                "Member must have length greater than or equal to 1]",
            )
        writes: dict[tuple[str, Key], _Write] = {}
        for name, requests in RequestItems.items():
            table = self._table("BatchWriteItem", name)
            for request in requests:
                ((kind, content),) = request.items()
                try:
                    write = (
                        self._put(table, content["Item"], {})
                        if kind == "PutRequest"
                        else self._delete(table, content["Key"], {})
                    )
                except ExpressionError as error:
                    raise _invalid("BatchWriteItem", error) from None
                if (name, write.key) in writes:
                    raise client_error(
                        "BatchWriteItem", "ValidationException", "Provided list of item keys contains duplicates"
                    )
                writes[name, write.key] = write
        self._commit(list(writes.values()))
        return {"UnprocessedItems": {}}

    @operation
    def transact_write_items(
        self, *, TransactItems: Sequence[Mapping[str, Any]], ClientRequestToken: str | None = None, **others: Any
    ) -> dict[str, Any]:
        name = "TransactWriteItems"
        if not 1 <= len(TransactItems) <= MAX_TRANSACTION:
            raise client_error(
                name,
                "ValidationException",
                "1 validation error detected: Value at 'transactItems' failed to satisfy constraint: "
                "Member must have length less than or equal to 100",
            )
        if ClientRequestToken is not None and self._is_repeated(ClientRequestToken, repr(TransactItems)):
            return {}
        writes: list[_Write | None] = []
        reasons: list[dict[str, Any]] = []
        seen: set[tuple[str, Key]] = set()
        for entry in TransactItems:
            ((kind, request),) = entry.items()
            table = self._table(name, request["TableName"])
            try:
                key = table.key_of(request["Item"], exact=False) if kind == "Put" else table.key_of(request["Key"])
                self._check_syntax(request)
            except ExpressionError as error:
                raise _invalid(name, error) from None
            if (table.name, key) in seen:
                raise client_error(
                    name,
                    "ValidationException",
                    "Transaction request cannot include multiple operations on one item",
                )
            seen.add((table.name, key))
        for entry in TransactItems:
            ((kind, request),) = entry.items()
            write, reason = self._prepared(kind, request)
            writes.append(write)
            reasons.append(reason)
        if any(reason["Code"] != "None" for reason in reasons):
            codes = ", ".join(reason["Code"] for reason in reasons)
            message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
            raise client_error(name, "TransactionCanceledException", message, CancellationReasons=reasons)
        if sum(write.after.size for write in writes if write and write.after) > MAX_TRANSACTION_BYTES:
            raise client_error(
                name, "ValidationException", "Collection size exceeded: Transaction item size exceeds 4MB limit"
            )
        self._commit([write for write in writes if write is not None])
        if ClientRequestToken is not None:
            self._tokens[ClientRequestToken] = (self._hub.now(), repr(TransactItems))
        return {}

    def _is_repeated(self, token: str, request: str) -> bool:
        at, before = self._tokens.get(token, (float("-inf"), ""))
        if self._hub.now() - at > TOKEN_SECONDS:
            return False
        if before != request:
            raise client_error(
                "TransactWriteItems",
                "IdempotentParameterMismatchException",
                "The provided token was already used with a different request",
            )
        return True

    @staticmethod
    def _check_syntax(request: Mapping[str, Any]) -> None:
        """Check a write of a transaction independently of the item. Raises ExpressionError."""
        text, changing = request.get("ConditionExpression"), request.get("UpdateExpression")
        condition = None if text is None else expressions.condition(text)
        update = None if changing is None else expressions.update(changing)
        values = request.get("ExpressionAttributeValues") or {}
        _names(request.get("ExpressionAttributeNames"), values, update, condition)
        for compiled in (condition, update):
            for check in compiled.checks if compiled else ():
                check(values)

    def _prepared(self, kind: str, request: Mapping[str, Any]) -> tuple[_Write | None, dict[str, Any]]:
        """A transaction's write, or the reason for which it cancels the transaction."""
        table = self._tables[request["TableName"]]
        try:
            if kind == "Put":
                return self._put(table, request["Item"], request), {"Code": "None"}
            if kind == "Update":
                return self._update(table, request["Key"], request), {"Code": "None"}
            write = self._delete(table, request["Key"], request)
            return (write if kind == "Delete" else None), {"Code": "None"}
        except ExpressionError as error:
            return None, {"Code": "ValidationError", "Message": str(error)}
        except _ConditionFailedError as failed:
            reason: dict[str, Any] = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
            if request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and failed.version is not None:
                reason["Item"] = failed.version.wire.copy()
            return None, reason

    # ---- queries

    @operation
    def query(self, *, TableName: str, KeyConditionExpression: str, **options: Any) -> dict[str, Any]:
        table = self._table("Query", TableName)
        values = options.get("ExpressionAttributeValues") or {}
        try:
            source = self._source(table, options)
            compiled, _ = expressions.key_condition(KeyConditionExpression)
            aliases = options.get("ExpressionAttributeNames") or {}
            filtered, wanted = self._filter(options)
            names = _names(aliases, values, compiled, filtered, wanted)
            keys = expressions.keys_of(
                KeyConditionExpression, tuple(aliases.items()), source.hash_key, source.range_key
            )
            for check in compiled.checks:
                check(values)
            self._check_key_values(table, keys, values)
        except ExpressionError as error:
            raise _invalid("Query", error) from None
        entries = source.partition(comparable(values[keys.partition]))
        if source is table and table.read_lag and not options.get("ConsistentRead"):
            seen = ((place, table.version_for(place[1], self._hub.now(), consistent=False)) for place, _ in entries)
            entries = [(place, version) for place, version in seen if version is not None]
        if keys.admits is not None:
            admits = keys.admits(values)
            entries = [entry for entry in entries if admits(entry[0][0])]
        return self._page(table, source, entries, options, names, filtered, wanted)

    @operation
    def scan(self, *, TableName: str, **options: Any) -> dict[str, Any]:
        table = self._table("Scan", TableName)
        values = options.get("ExpressionAttributeValues") or {}
        try:
            source = self._source(table, options)
            filtered, wanted = self._filter(options)
            names = _names(options.get("ExpressionAttributeNames"), values, filtered, wanted)
        except ExpressionError as error:
            raise _invalid("Scan", error) from None
        return self._page(table, source, source.everything(), options, names, filtered, wanted)

    def _source(self, table: Table, options: Mapping[str, Any]) -> Table | Index:
        name = options.get("IndexName")
        if name is None:
            return table
        if name not in table.indexes:
            raise ExpressionError(f"The table does not have the specified index: {name}")
        if options.get("ConsistentRead"):
            raise ExpressionError("Consistent reads are not supported on global secondary indexes")
        index = table.indexes[name]
        index.catch_up(self._hub.now())
        return index

    @staticmethod
    def _filter(options: Mapping[str, Any]) -> tuple[expressions.Compiled | None, expressions.Projection | None]:
        text, paths = options.get("FilterExpression"), options.get("ProjectionExpression")
        filtered = None if text is None else expressions.condition(text, "FilterExpression")
        if filtered is not None:
            for check in filtered.checks:
                check(options.get("ExpressionAttributeValues") or {})
        return filtered, None if paths is None else expressions.projection(paths)

    @staticmethod
    def _check_key_values(table: Table, keys: expressions.KeyCondition, values: Mapping[str, Any]) -> None:
        compared = [(keys.hash_part, keys.partition), *((keys.range_part, each) for each in keys.range_values)]
        for name, reference in compared:
            expected = table.types[name or ""]
            if expected not in values[reference]:
                raise ExpressionError(
                    "One or more parameter values were invalid: Condition parameter type does not match schema type"
                )
            if values[reference][expected] in {"", b""}:
                raise ExpressionError(
                    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain "
                    f"an empty string value. Key: {name}"
                )

    def _page(
        self,
        table: Table,
        source: Table | Index,
        entries: list[tuple[tuple[Any, Key], Version]],
        options: Mapping[str, Any],
        names: Mapping[str, str],
        filtered: expressions.Compiled | None,
        wanted: expressions.Projection | None,
    ) -> dict[str, Any]:
        if not options.get("ScanIndexForward", True):
            entries = entries[::-1]
        start = options.get("ExclusiveStartKey")
        if start:
            entries = _after(table, source, entries, start, backwards=not options.get("ScanIndexForward", True))
        limit = options.get("Limit") or len(entries) + 1
        values = options.get("ExpressionAttributeValues") or {}
        found: list[Wire] = []
        scanned = size = 0
        last: Version | None = None
        for _, version in entries:
            if scanned == limit or (scanned and size + version.size > PAGE_BYTES):
                break
            scanned += 1
            size += version.size
            last = version
            if filtered is None or filtered.holds(version.wire, names, values):
                found.append(wanted.of(version.wire, names) if wanted else Shown(version))
        answer: dict[str, Any] = {"Count": len(found), "ScannedCount": scanned}
        if options.get("Select") != "COUNT":
            answer["Items"] = found
        if last is not None and (scanned < len(entries) or scanned == limit):
            answer["LastEvaluatedKey"] = _start_key(table, source, last)
        return answer

    # ---- common

    def _table(self, operation_name: str, name: str) -> Table:
        try:
            return self._tables[name]
        except KeyError:
            raise client_error(operation_name, "ResourceNotFoundException", _NO_TABLE) from None


def table_of(
    name: str,
    key_schema: Iterable[Mapping[str, str]],
    attributes: Iterable[Mapping[str, str]],
    indexes: Iterable[Mapping[str, Any]] = (),
) -> Table:
    """An empty table from the parameters of CreateTable or of a template's resource."""
    types = {each["AttributeName"]: each["AttributeType"] for each in attributes}
    made = [Index(each["IndexName"], *_keys(each["KeySchema"])) for each in indexes]
    return Table(name, *_keys(key_schema), types, made)


def _keys(schema: Iterable[Mapping[str, str]]) -> tuple[str, str | None]:
    by_type = {each["KeyType"]: each["AttributeName"] for each in schema}
    return by_type["HASH"], by_type.get("RANGE")


def _version(key: Key, wire: Wire) -> Version:
    size = 0
    for name, value in wire.items():
        content = value.get("S")
        size += len(name)
        size += len(content) if content is not None and content.isascii() else _size(value)
    return Version(key, wire, size)


def _checked_size(version: Version, *, update: bool = False) -> Version:
    if version.size > MAX_ITEM_BYTES:
        raise ExpressionError(
            "Item size to update has exceeded the maximum allowed size"
            if update
            else "Item size has exceeded the maximum allowed size"
        )
    return version


def _names(given: Mapping[str, str] | None, values: Mapping[str, Any], *used: Any) -> Mapping[str, str]:
    """The names of a request whose placeholders are all used and all defined. Raises ExpressionError."""
    names = given or {}
    used_names, used_values = _used(*used)
    if names.keys() != used_names or values.keys() != used_values:
        _complain(names, values, used_names, used_values, any(each is not None for each in used))
    return names


@lru_cache(maxsize=4096)
def _used(*compiled: Any) -> tuple[frozenset[str], frozenset[str]]:
    """The placeholders of names and of values that the expressions use."""
    wanted = [each for each in compiled if each is not None]
    return (
        frozenset[str]().union(*(each.names for each in wanted)),
        frozenset[str]().union(*(each.values for each in wanted)),
    )


def _complain(
    names: Mapping[str, str],
    values: Mapping[str, Any],
    used_names: Collection[str],
    used_values: Collection[str],
    any_expression: bool,
) -> None:
    if not any_expression:
        kind = "Names" if names else "Values"
        raise ExpressionError(f"ExpressionAttribute{kind} can only be specified when using expressions")
    for name in sorted(used_names - names.keys()):
        raise ExpressionError(
            f"Invalid expression: An expression attribute name used in the document path is not defined; "
            f"attribute name: {name}"
        )
    for name in sorted(used_values - values.keys()):
        raise ExpressionError(
            f"Invalid expression: An expression attribute value used in expression is not defined; "
            f"attribute value: {name}"
        )
    kind, unused = (
        ("Names", names.keys() - used_names)
        if names.keys() - used_names
        else (
            "Values",
            values.keys() - used_values,
        )
    )
    raise ExpressionError(
        f"Value provided in ExpressionAttribute{kind} unused in expressions: keys: {{{', '.join(sorted(unused))}}}"
    )


def _written(table: Table, update: expressions.CompiledUpdate, names: Mapping[str, str]) -> Collection[str]:
    """The top-level attributes that an update names. Raises ExpressionError for keys and overlapping paths."""
    tops: list[Any] = [names.get(path[0], path[0]) for path in update.paths]  # type: ignore[arg-type]
    if len(set(tops)) < len(tops):
        paths = [expressions.resolve(path, names) for path in update.paths]
        for position, one in enumerate(paths):
            for other in paths[position + 1 :]:
                shared = min(len(one), len(other))
                if one[:shared] == other[:shared]:
                    raise ExpressionError(
                        "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite "
                        f"one of these paths; path one: {_shown(one)}, path two: {_shown(other)}"
                    )
    for name in table.key_names:
        if name in tops:
            raise ExpressionError(
                f"One or more parameter values were invalid: Cannot update attribute {name}. "
                "This attribute is part of the key"
            )
    return dict.fromkeys(tops)


def _shown(path: Iterable[str | int]) -> str:
    return "[" + ", ".join(f"[{part}]" if isinstance(part, int) else part for part in path) + "]"


def _returned(wanted: str, write: _Write) -> Wire | None:
    if wanted == "NONE":
        return None
    version = write.before if wanted.endswith("_OLD") else write.after
    if version is None:
        return None
    if wanted.startswith("ALL"):
        return Shown(version)
    return {name: version.wire[name] for name in write.named if name in version.wire}


def _start_key(table: Table, source: Table | Index, version: Version) -> Wire:
    names = dict.fromkeys(table.key_names)
    names |= dict.fromkeys(name for name in (source.hash_key, source.range_key) if name is not None)
    return {name: version.wire[name] for name in names}


def _after(
    table: Table,
    source: Table | Index,
    entries: list[tuple[tuple[Any, Key], Version]],
    start: Mapping[str, Any],
    *,
    backwards: bool,
) -> list[tuple[tuple[Any, Key], Version]]:
    """The entries after a start key, which need not exist any more."""
    try:
        key = table.key_of({name: start[name] for name in table.key_names})
    except (KeyError, ExpressionError):
        raise client_error("Query", "ValidationException", "The provided starting key is invalid") from None
    for position, (_, version) in enumerate(entries):
        if version.key == key:
            return entries[position + 1 :]
    sort = comparable(start[source.range_key]) if source.range_key is not None else None
    place = (sort, key)
    return [entry for entry in entries if (entry[0] < place if backwards else entry[0] > place)]


def _invalid(operation_name: str, error: ExpressionError) -> Any:
    return client_error(operation_name, "ValidationException", str(error))
