"""A DynamoDB table that takes and returns plain Python values, with the condition expressions of boto3.

    runs = Table(client, "prismline-dev-runs")
    open_still = Attr("latched_at").not_exists()
    runs.update({"PK": run_id, "SK": "RUN"}, Change({"latched_at": timestamp()}, condition=open_still))

A write whose condition does not hold raises ConditionFailedError. Every attribute name is sent as a placeholder, so
reserved words cannot break an expression.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from boto3.dynamodb.conditions import Attr, ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from prismline_runtime.errors import TransientError, UnavailableError, aws_errors, error_code
from prismline_runtime.settings import DynamoDBSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

T = TypeVar("T")
R = TypeVar("R")

#: Most items that DynamoDB returns from one BatchGetItem.
ITEMS_PER_READ = 100
#: Most items that DynamoDB writes in one BatchWriteItem.
ITEMS_PER_BATCH_WRITE = 25
#: Most calls that a process makes at the same time when it writes many items.
CONCURRENT_CALLS = 8
#: How long, in seconds, a write is retried while other transactions hold its items.
CONFLICT_SECONDS = 20.0

#: Whole numbers from here on may have more digits than DynamoDB keeps; boto3 refuses those.
EXACT = 10**38

_CONDITION_FAILED = "ConditionalCheckFailed"
_CONFLICT_CODES = frozenset({"TransactionConflictException", "TransactionInProgressException"})
_CONFLICT_REASON = "TransactionConflict"
#: Reasons of a cancelled transaction that are no collision but an outage: the table or the account is throttled.
_THROTTLED_REASONS = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


class ConditionFailedError(Exception):
    """A condition did not hold, and nothing was written.

    `failed` has one entry for each write of the transaction: whether the condition of that write did not hold.
    """

    def __init__(self, failed: list[bool]) -> None:
        super().__init__("A condition did not hold.")
        self.failed = failed


@dataclass(frozen=True)
class Change:
    """An update of one item, and its condition."""

    sets: Mapping[str, Any] = field(default_factory=dict)
    #: Attributes to set only if the item does not have them.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    adds: Mapping[str, int] = field(default_factory=dict)
    removes: Iterable[str] = ()
    #: Members to add to string sets.
    includes: Mapping[str, set[str]] = field(default_factory=dict)
    #: Members to remove from string sets.
    excludes: Mapping[str, set[str]] = field(default_factory=dict)
    condition: ConditionBase | None = None


@dataclass(frozen=True)
class Page:
    """Some items of a query in order, and the key after which the next page begins. None: there are no more."""

    items: list[dict[str, Any]]
    last_key: dict[str, Any] | None


def encode(item: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `item` to the format of the DynamoDB client. Raises TypeError for a float: write it as text."""
    return {name: _encoded(value) for name, value in item.items()}


def _encoded(value: Any) -> Any:
    """`value` as boto3 serializes it. boto3 is slow for text and whole numbers, so these are encoded here."""
    if type(value) is str:
        return {"S": value}
    if type(value) is int and abs(value) < EXACT:
        return {"N": str(value)}
    return _serialize(value)


def decode(item: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an item from the format of the DynamoDB client. Whole numbers become int, fractions float."""
    return {name: _plain(_deserialize(value)) for name, value in item.items()}


def _plain(value: Any) -> Any:
    """`value` with Python's int and float for Decimal, also inside lists and maps."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def unchanged(read: Mapping[str, Any]) -> ConditionBase:
    """The condition that the attributes still have the values in `read`. None stands for an absent attribute."""
    conditions = [
        Attr(name).not_exists() if value is None else Attr(name).eq(value) for name, value in sorted(read.items())
    ]
    return all_of(conditions)


def all_of(conditions: Iterable[ConditionBase]) -> ConditionBase:
    """The conjunction of `conditions`. There must be at least one."""
    first, *others = conditions
    for condition in others:
        first = first & condition
    return first


class Table:
    """One table. It writes many items with up to `calls_at_a_time` calls at the same time.

    `PRISMLINE_WRITES_PER_TRANSACTION` says how many writes the endpoint takes in one transaction.

    Raises UnavailableError if DynamoDB does not answer or is throttled, also inside a transaction. Raises
    TransientError if a collision outlasts the retries.
    """

    def __init__(self, client: DynamoDBClient, name: str, *, calls_at_a_time: int = CONCURRENT_CALLS) -> None:
        self._client = client
        self.name = name
        self._calls_at_a_time = calls_at_a_time
        #: Most writes of one transaction.
        self.writes_per_transaction = DynamoDBSettings().writes_per_transaction

    @property
    def writes_at_a_time(self) -> int:
        """The number of independent writes that need each call at a time once."""
        return self.writes_per_transaction * self._calls_at_a_time

    # ---- reads

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The item with `key`, or None. A consistent read."""
        with aws_errors(f"read {_named(key)} in {self.name}"):
            answer = self._client.get_item(TableName=self.name, Key=encode(key), ConsistentRead=True)
        return decode(answer["Item"]) if "Item" in answer else None

    def batch_get(self, keys: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """The items with `keys` that exist, in no order. Consistent reads."""
        encoded = [encode(key) for key in keys]
        for start in range(0, len(encoded), ITEMS_PER_READ):
            left: list[Any] = encoded[start : start + ITEMS_PER_READ]
            while left:
                with aws_errors(f"read {len(left)} items in {self.name}"):
                    answer = self._client.batch_get_item(
                        RequestItems={self.name: {"Keys": left, "ConsistentRead": True}}
                    )
                yield from map(decode, answer["Responses"].get(self.name, []))
                unprocessed = answer.get("UnprocessedKeys") or {}
                left = list(unprocessed[self.name]["Keys"]) if self.name in unprocessed else []

    def query(
        self,
        key: ConditionBase,
        *,
        where: ConditionBase | None = None,
        index: str | None = None,
        descending: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """The items of one partition, in the order of their sort keys. A consistent read unless `index` is given."""
        for answer in self._pages(key, where, index, descending):
            yield from map(decode, answer["Items"])

    def page(
        self,
        key: ConditionBase,
        *,
        limit: int,
        after: Mapping[str, Any] | None = None,
        where: ConditionBase | None = None,
        index: str | None = None,
        descending: bool = False,
    ) -> Page:
        """At most `limit` items of one partition, after the item with the key `after`. One request.

        A consistent read unless `index` is given. DynamoDB applies `where` to what it has read. So a page may be short,
        or empty, although more items follow.
        """
        begin: dict[str, Any] = {} if after is None else {"ExclusiveStartKey": encode(after)}
        return _page_in(next(self._pages(key, where, index, descending, Limit=limit, **begin)))

    def page_of(
        self, attributes: Sequence[str], key: ConditionBase, *, limit: int, after: Mapping[str, Any] | None = None
    ) -> Page:
        """The same page with only the `attributes`, such as `status` and `result.length`. It reads whole items."""
        begin: dict[str, Any] = {} if after is None else {"ExclusiveStartKey": encode(after)}
        return _page_in(
            next(self._pages(key, None, None, descending=False, attributes=attributes, Limit=limit, **begin))
        )

    def scan(self) -> Iterator[dict[str, Any]]:
        """All items of the table, in no order. The reads are not consistent."""
        with aws_errors(f"scan {self.name}"):
            for answer in self._client.get_paginator("scan").paginate(TableName=self.name):
                yield from map(decode, answer["Items"])

    def count(self, key: ConditionBase) -> int:
        """The number of items that a query for `key` finds."""
        return sum(answer["Count"] for answer in self._pages(key, None, None, descending=False, Select="COUNT"))

    def _pages(
        self,
        key: ConditionBase,
        where: ConditionBase | None,
        index: str | None,
        descending: bool,
        attributes: Sequence[str] | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        builder = ConditionExpressionBuilder()
        built = builder.build_expression(key, is_key_condition=True)
        names, values = dict(built.attribute_name_placeholders), dict(built.attribute_value_placeholders)
        request: dict[str, Any] = {"KeyConditionExpression": built.condition_expression, **options}
        if where is not None:
            filtered = builder.build_expression(where)
            names |= filtered.attribute_name_placeholders
            values |= filtered.attribute_value_placeholders
            request["FilterExpression"] = filtered.condition_expression
        if attributes is not None:
            steps = {
                step: f"#step{number}" for number, step in enumerate(dict.fromkeys(".".join(attributes).split(".")))
            }
            names |= {placeholder: step for step, placeholder in steps.items()}
            paths = (".".join(steps[step] for step in attribute.split(".")) for attribute in attributes)
            request["ProjectionExpression"] = ", ".join(paths)
        request |= {"IndexName": index} if index else {"ConsistentRead": True}
        if descending:
            request["ScanIndexForward"] = False
        while True:
            with aws_errors(f"query {self.name}"):
                answer = self._client.query(
                    TableName=self.name,
                    ExpressionAttributeNames=names,
                    ExpressionAttributeValues=encode(values),
                    **request,
                )
            yield answer
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    # ---- writes

    def create(self, item: Mapping[str, Any], *, key: str) -> bool:
        """Put `item` if no item has its key. False if one has. `key` names one attribute of the table's key."""
        try:
            self._write(f"create {item[key]}", lambda: self._client.put_item(**self._creation(item, key)))
        except ConditionFailedError:
            return False
        return True

    def update(self, key: Mapping[str, Any], change: Change, *, returns: str = "ALL_NEW") -> dict[str, Any]:
        """Change one item. Return the item after the change (`ALL_NEW`) or before it (`ALL_OLD`)."""
        request = self._update(key, change)
        answer = self._write(
            f"update {_named(key)} in {self.name}",
            lambda: self._client.update_item(**request, ReturnValues=returns),  # type: ignore[arg-type]
        )
        return decode(answer.get("Attributes", {}))

    def transact(self, *writes: Any) -> None:
        """Execute all `writes`, made by `creation` and `changing`, in one transaction."""
        self._write(
            f"write to {self.name}", lambda: self._client.transact_write_items(TransactItems=list(writes)), len(writes)
        )

    def delete_each(self, keys: Iterable[Mapping[str, Any]]) -> int:
        """Delete the items with `keys` unconditionally. Return how many keys there were."""
        encoded = [encode(key) for key in keys]
        starts = range(0, len(encoded), ITEMS_PER_BATCH_WRITE)
        groups = [encoded[start : start + ITEMS_PER_BATCH_WRITE] for start in starts]
        call_concurrently(self._delete_batch, groups, self._calls_at_a_time)
        return len(encoded)

    def _delete_batch(self, keys: list[dict[str, Any]]) -> None:
        left: list[Any] = [{"DeleteRequest": {"Key": key}} for key in keys]
        doing = f"delete {len(keys)} items in {self.name}"
        for attempt in _retrying():
            with attempt, aws_errors(doing):
                answer = self._client.batch_write_item(RequestItems={self.name: left})
                left = list(answer.get("UnprocessedItems", {}).get(self.name, []))
                if left:
                    raise _ThrottledError(f"Could not {doing}: {len(left)} were not processed.")

    def create_each(self, items: Iterable[Mapping[str, Any]], *, key: str) -> list[bool]:
        """Put each item if no item has its key. Return for each whether it was put."""
        return self._write_each([self.creation(item, key=key) for item in items])

    def change_each(self, changes: Iterable[tuple[Mapping[str, Any], Change]]) -> list[bool]:
        """Make each change, given with its key, whose condition holds. Return for each whether it did."""
        return self._write_each([self.changing(key, change) for key, change in changes])

    def _write_each(self, writes: Sequence[Any]) -> list[bool]:
        """Execute independent writes of different items in concurrent transactions. Return whether each was executed.

        A transaction costs twice the write units of single writes. But DynamoDB knows a repeated one by its token, so
        a retry whose first answer was lost does not report that somebody else has written the items.
        """
        starts = range(0, len(writes), self.writes_per_transaction)
        groups = [writes[start : start + self.writes_per_transaction] for start in starts]
        done = call_concurrently(self._write_group, groups, self._calls_at_a_time)
        return [each for group in done for each in group]

    def _write_group(self, writes: Sequence[Any]) -> list[bool]:
        """Execute the writes whose conditions hold in one transaction. Return for each whether its condition held."""
        done, left = [True] * len(writes), list(range(len(writes)))
        while left:
            try:
                self.transact(*(writes[position] for position in left))
                break
            except ConditionFailedError as refused:
                for position, failed in zip(left, refused.failed, strict=True):
                    done[position] = not failed
                left = [position for position in left if done[position]]
        return done

    def creation(self, item: Mapping[str, Any], *, key: str) -> Any:
        """A write for `transact`: put `item` if no item has its key."""
        return {"Put": self._creation(item, key)}

    def changing(self, key: Mapping[str, Any], change: Change) -> Any:
        """A write for `transact`: update one item."""
        return {"Update": self._update(key, change)}

    def _creation(self, item: Mapping[str, Any], key: str) -> dict[str, Any]:
        return {
            "TableName": self.name,
            "Item": encode(item),
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": key},
        }

    def _update(self, key: Mapping[str, Any], change: Change) -> dict[str, Any]:
        assignments = [f"#{name} = :{name}" for name in change.sets]
        assignments += [f"#{name} = if_not_exists(#{name}, :{name})" for name in change.defaults]
        additions = {**change.adds, **change.includes}
        removes = tuple(change.removes)
        clauses = [
            f"{verb} {', '.join(parts)}"
            for verb, parts in (
                ("SET", assignments),
                ("ADD", [f"#{name} :{name}" for name in additions]),
                ("REMOVE", [f"#{name}" for name in removes]),
                ("DELETE", [f"#{name} :{name}" for name in change.excludes]),
            )
            if parts
        ]
        written = {**change.sets, **change.defaults, **additions, **change.excludes}
        names = {f"#{name}": name for name in (*written, *removes)}
        values = {f":{name}": value for name, value in written.items()}
        request: dict[str, Any] = {"TableName": self.name, "Key": encode(key), "UpdateExpression": " ".join(clauses)}
        if change.condition is not None:
            built = ConditionExpressionBuilder().build_expression(change.condition)
            request["ConditionExpression"] = built.condition_expression
            names |= built.attribute_name_placeholders
            values |= built.attribute_value_placeholders
        request["ExpressionAttributeNames"] = names
        if values:
            request["ExpressionAttributeValues"] = encode(values)
        return request

    @staticmethod
    def _write(doing: str, call: Callable[[], Any], n_writes: int = 1) -> Any:
        """Execute a conditional write. Retry it while it collides with other writes."""
        for attempt in _retrying():
            with attempt, aws_errors(doing):
                try:
                    return call()
                except ClientError as error:
                    reasons = _cancellation_reasons(error, n_writes)
                    if _CONDITION_FAILED in reasons:
                        raise ConditionFailedError([reason == _CONDITION_FAILED for reason in reasons]) from error
                    if throttled := _THROTTLED_REASONS & set(reasons):
                        raise _ThrottledError(f"Could not {doing}: {min(throttled)}.") from error
                    if error_code(error) in _CONFLICT_CODES or _CONFLICT_REASON in reasons:
                        raise _CollisionError(f"Could not {doing}: it collided with another write.") from error
                    raise
        raise AssertionError("unreachable: Retrying returns or raises")


def _page_in(answer: Mapping[str, Any]) -> Page:
    last = answer.get("LastEvaluatedKey")
    return Page([decode(item) for item in answer["Items"]], None if last is None else decode(last))


class _CollisionError(TransientError):
    """Another write held one of the items."""


class _ThrottledError(UnavailableError):
    """DynamoDB executed only a part of the call, or nothing, because it is throttled. The work is not to blame."""


def _retrying() -> Retrying:
    return Retrying(
        retry=retry_if_exception_type((_CollisionError, _ThrottledError)),
        wait=wait_random_exponential(0.02, 2.0),
        stop=stop_after_delay(CONFLICT_SECONDS),
        sleep=time.sleep,
        reraise=True,
    )


def call_concurrently(call: Callable[[T], R], arguments: Sequence[T], at_a_time: int = CONCURRENT_CALLS) -> list[R]:
    """The answers of `call` to each argument, in order, from up to `at_a_time` calls at the same time.

    If a call fails, its error is raised after all calls that have begun have ended. `call` must not use this function,
    because all callers in a process share its threads.
    """
    lanes = min(at_a_time, len(arguments))
    if lanes <= 1:
        return [call(argument) for argument in arguments]
    answers: list[Any] = [None] * len(arguments)

    def work_off(lane: int) -> None:
        for position in range(lane, len(arguments), lanes):
            answers[position] = call(arguments[position])

    futures = [_threads().submit(work_off, lane) for lane in range(lanes)]
    wait(futures)
    for future in futures:
        future.result()
    return answers


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads, which are kept: on a busy processor, to start eight takes as long as their calls."""
    return ThreadPoolExecutor(CONCURRENT_CALLS, thread_name_prefix="dynamodb")


def _cancellation_reasons(error: ClientError, n_writes: int) -> list[str]:
    """The error code of each write of a cancelled transaction, or of the single write."""
    code = error_code(error)
    if code == "ConditionalCheckFailedException":
        return [_CONDITION_FAILED] * n_writes
    if code == "TransactionCanceledException":
        reasons: list[dict[str, Any]] = error.response.get("CancellationReasons", [])  # type: ignore[assignment]
        return [reason.get("Code", "None") for reason in reasons]
    return []


def _named(key: Mapping[str, Any]) -> str:
    return "/".join(str(value) for value in key.values())
