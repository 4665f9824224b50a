"""A table on a real DynamoDB interface: items are read as they were written, and a failed condition changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from prismline_runtime import (
    Change,
    ConditionFailedError,
    PermanentError,
    Table,
    TransientError,
    UnavailableError,
    call_concurrently,
    decode,
    encode,
    unchanged,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1), VALUES))
def test_an_item_is_decoded_as_it_was_encoded(item: dict[str, Any]) -> None:
    assert decode(encode(item)) == item


def test_numbers_inside_maps_and_lists_are_int_or_float() -> None:
    (value,) = decode(encode({"result": {"status": 200, "sizes": [1, 2]}})).values()
    assert [type(number) for number in (value["status"], *value["sizes"])] == [int, int, int]


def test_a_fraction_cannot_be_written_but_can_be_read() -> None:
    with pytest.raises(TypeError, match="Float"):
        encode({"percent": 7.5})
    assert decode({"percent": {"N": "7.5"}, "count": {"N": "7"}}) == {"percent": 7.5, "count": 7}


class PartialDynamoDB:
    """Answers batches in part, and has nothing new for a read that is not consistent."""

    def __init__(self, n_items: int) -> None:
        self.items = {str(n): encode(key(str(n))) for n in range(n_items)}

    def get_item(self, *, Key: Any, ConsistentRead: bool = False, **_: Any) -> Any:  # noqa: N803
        return {"Item": self.items[Key["SK"]["S"]]} if ConsistentRead else {}

    def batch_get_item(self, *, RequestItems: Any) -> Any:  # noqa: N803
        ((table, asked),) = RequestItems.items()
        first, *others = asked["Keys"]
        found = [self.items[first["SK"]["S"]]] if asked.get("ConsistentRead") else []
        left = {table: {"Keys": others, "ConsistentRead": True}} if others else {}
        return {"Responses": {table: found}, "UnprocessedKeys": left}

    def batch_write_item(self, *, RequestItems: Any) -> Any:  # noqa: N803
        ((table, (first, *others)),) = RequestItems.items()
        del self.items[first["DeleteRequest"]["Key"]["SK"]["S"]]
        return {"UnprocessedItems": {table: others} if others else {}}

    def query(self, *, ConsistentRead: bool = False, **_: Any) -> Any:  # noqa: N803
        return {"Items": list(self.items.values()) if ConsistentRead else []}


def test_keys_that_a_batch_leaves_unprocessed_are_read_again() -> None:
    partial: Any = PartialDynamoDB(5)
    assert sorted(item["SK"] for item in Table(partial, "t").batch_get(key(str(n)) for n in range(5))) == list("01234")


def test_items_that_a_batch_leaves_undeleted_are_deleted_again() -> None:
    partial: Any = PartialDynamoDB(4)
    Table(partial, "t").delete_each(key(str(n)) for n in range(3))
    assert list(partial.items) == ["3"]


def test_reads_see_what_was_just_written() -> None:
    partial: Any = PartialDynamoDB(2)
    table = Table(partial, "t")
    assert table.get(key("1")) == key("1")
    assert len(list(table.batch_get([key("0"), key("1")]))) == 2
    assert len(list(table.query(Key("PK").eq("p")))) == 2
    assert len(table.page(Key("PK").eq("p"), limit=2).items) == 2


@pytest.fixture
def table(aws_env: dict[str, str]) -> Iterator[Table]:
    client, name = boto3.client("dynamodb"), f"items-{aws_env['ENVIRONMENT']}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("PK", "SK")],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
    )
    yield Table(client, name)
    client.delete_table(TableName=name)


def key(name: str) -> dict[str, str]:
    return {"PK": "p", "SK": name}


@pytest.mark.emulator
class TestTable:
    def test_the_first_of_two_items_stays(self, table: Table) -> None:
        assert table.create({**key("a"), "n": 1}, key="PK")
        assert not table.create({**key("a"), "n": 2}, key="PK")
        assert table.get(key("a")) == {**key("a"), "n": 1}
        assert table.get(key("b")) is None

    def test_an_update_returns_what_it_wrote(self, table: Table) -> None:
        """`status`, `count` and `owner` are reserved words of DynamoDB."""
        table.create({**key("a"), "count": 1, "gone": "x"}, key="PK")
        change = Change({"status": "s"}, defaults={"owner": "me", "count": 9}, adds={"n": 2}, removes=("gone",))
        written = table.update(key("a"), change)
        assert written == {**key("a"), "status": "s", "owner": "me", "count": 1, "n": 2}
        assert table.update(key("a"), Change({"status": "t"}), returns="ALL_OLD") == written

    def test_members_of_a_set_are_added_to_it(self, table: Table) -> None:
        for token in ("one", "two", "one"):
            item = table.update(key("a"), Change(includes={"tokens": {token}}))
        assert item["tokens"] == {"one", "two"}

    def test_members_of_a_set_are_removed_and_the_others_stay(self, table: Table) -> None:
        table.create({**key("a"), "tokens": {"one", "two", "three"}}, key="PK")
        item = table.update(key("a"), Change(excludes={"tokens": {"one", "never there"}}))
        assert item["tokens"] == {"two", "three"}
        assert table.update(key("a"), Change(excludes={"tokens": {"two", "three"}})) == key("a")

    def test_an_update_of_an_item_that_changed_since_it_was_read_is_refused(self, table: Table) -> None:
        table.create({**key("a"), "n": 1}, key="PK")
        read = {"n": 1, "other": None}
        table.update(key("a"), Change({"n": 2}, condition=unchanged(read)))
        with pytest.raises(ConditionFailedError):
            table.update(key("a"), Change({"n": 3}, condition=unchanged(read)))
        assert table.get(key("a")) == {**key("a"), "n": 2}

    def test_a_transaction_writes_everything_or_nothing(self, table: Table) -> None:
        table.create({**key("a"), "n": 1}, key="PK")
        with pytest.raises(ConditionFailedError) as refused:
            table.transact(
                table.creation({**key("b")}, key="PK"),
                table.changing(key("a"), Change(adds={"n": 1}, condition=Attr("n").eq(5))),
            )
        assert refused.value.failed == [False, True]
        assert table.get(key("b")) is None
        table.transact(table.creation({**key("b")}, key="PK"), table.changing(key("a"), Change(adds={"n": 1})))
        assert [item["SK"] for item in table.query(Key("PK").eq("p"))] == ["a", "b"]
        assert table.get(key("a")) == {**key("a"), "n": 2}

    def test_pages_of_a_partition_follow_each_other(self, table: Table) -> None:
        for name in "abcde":
            table.create({**key(name), "odd": name in "ace"}, key="PK")
        first = table.page(Key("PK").eq("p"), limit=2)
        second = table.page(Key("PK").eq("p"), limit=9, after=first.last_key)
        assert [item["SK"] for item in (*first.items, *second.items)] == list("abcde")
        assert second.last_key is None
        newest = table.page(Key("PK").eq("p"), limit=1, descending=True)
        assert newest.items[0]["SK"] == "e"
        filtered = table.page(Key("PK").eq("p"), limit=2, where=Attr("odd").eq(value=True))
        assert [item["SK"] for item in filtered.items] == ["a"]
        assert filtered.last_key == key("b")

    def test_a_partition_is_read_over_many_pages(self, table: Table) -> None:
        for n in range(15):
            table.create({**key(f"{n:03d}"), "n": n, "fill": "x" * 100_000}, key="PK")
        everything = Key("PK").eq("p")
        assert [item["n"] for item in table.query(everything)] == list(range(15))
        assert [item["n"] for item in table.query(everything, descending=True)] == list(range(15))[::-1]
        assert [item["n"] for item in table.query(everything, where=Attr("n").gte(12))] == [12, 13, 14]
        assert table.count(everything) == 15
        found = table.batch_get([key(f"{n:03d}") for n in range(0, 30, 2)])
        assert sorted(item["n"] for item in found) == [0, 2, 4, 6, 8, 10, 12, 14]


class Failing:
    """A client whose calls fail with one of these codes after the other, and then always with the last one."""

    def __init__(self, *codes: str, reasons: list[dict[str, str]] | None = None) -> None:
        self.codes = list(codes)
        self.reasons = reasons
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        def call(**_: object) -> None:
            self.calls += 1
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            raise ClientError({"Error": {"Code": code}, "CancellationReasons": self.reasons or []}, name)  # type: ignore[typeddict-unknown-key]

        return call


def test_only_a_collision_is_retried() -> None:
    client = Failing("TransactionConflictException", "TransactionConflictException", "InternalServerError")
    with pytest.raises(UnavailableError, match="InternalServerError"):
        Table(client, "t").update(key("a"), Change({"n": 1}))  # type: ignore[arg-type]
    assert client.calls == 3


def test_a_refused_transaction_names_the_writes_whose_condition_failed_and_not_those_that_collided() -> None:
    client = Failing(
        "TransactionCanceledException", reasons=[{"Code": "ConditionalCheckFailed"}, {"Code": "TransactionConflict"}]
    )
    table = Table(client, "t")  # type: ignore[arg-type]
    with pytest.raises(ConditionFailedError) as refused:
        table.transact(*(table.changing(key(name), Change({"n": 1})) for name in "ab"))
    assert refused.value.failed == [True, False]


@pytest.mark.parametrize("reason", ["ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_throttled_transaction_is_an_outage_and_no_collision(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """An attempt that an outage ended does not count against its chunk or task."""
    monkeypatch.setattr("prismline_runtime.dynamodb.CONFLICT_SECONDS", 0.0)
    client = Answering(*[["TransactionConflict", reason]] * 20)
    table = Table(client, "t")  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match=reason):
        table.transact(*(table.changing(key(name), Change({"n": 1})) for name in "ab"))
    collided = Table(Answering(*[["TransactionConflict", None]] * 20), "t")  # type: ignore[arg-type]
    with pytest.raises(TransientError) as collision:
        collided.transact(*(table.changing(key(name), Change({"n": 1})) for name in "ab"))
    assert not isinstance(collision.value, UnavailableError)


def test_a_throttled_transaction_is_retried_first() -> None:
    client = Answering(["ThrottlingError", None])
    table = Table(client, "t")  # type: ignore[arg-type]
    table.transact(*(table.changing(key(name), Change({"n": 1})) for name in "ab"))
    assert client.asked == [2, 2]


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException"])
def test_a_call_that_writes_many_items_and_is_denied_or_throttled_is_an_outage(code: str) -> None:
    table = Table(Failing(code), "t")  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match=code):
        table.change_each([(key(name), Change({"n": 1})) for name in "abc"])
    with pytest.raises(UnavailableError, match=code):
        table.create_each(rows(3), key="PK")


def test_a_wrong_request_is_permanent() -> None:
    with pytest.raises(PermanentError):
        Table(Failing("ValidationException"), "t").get(key("a"))  # type: ignore[arg-type]


class Answering:
    """A client of DynamoDB that answers transactions with these reasons, one after the other. None: it executes them.

    A reason stands for one write: None, or the code of what stopped it.
    """

    def __init__(self, *answers: list[str | None] | None) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def transact_write_items(self, *, TransactItems: list[Any]) -> None:  # noqa: N803  boto3's parameter
        self.asked.append(len(TransactItems))
        codes = self.answers.pop(0) if self.answers else None
        if codes is not None:
            response: Any = {
                "Error": {"Code": "TransactionCanceledException"},
                "CancellationReasons": [{"Code": code or "None"} for code in codes],
            }
            raise ClientError(response, "TransactWriteItems")


def rows(n: int) -> list[dict[str, Any]]:
    return [{**key(f"row-{number:03d}"), "n": number} for number in range(n)]


@pytest.mark.emulator
class TestManyWrites:
    def test_existing_items_stay_when_many_are_created(self, table: Table) -> None:
        table.create({**key("row-003"), "n": -1}, key="PK")
        put = table.create_each(rows(60), key="PK")
        assert put == [number != 3 for number in range(60)]
        kept = list(table.query(Key("PK").eq("p")))
        assert [item["n"] for item in kept] == [-1 if number == 3 else number for number in range(60)]

    def test_an_item_that_has_changed_since_it_was_read_is_not_replaced(self, table: Table) -> None:
        table.create_each(rows(3), key="PK")
        done = table.change_each(
            [
                (key("row-000"), Change({"n": 10, "status": "A"}, condition=unchanged({"n": 0, "status": None}))),
                (key("row-001"), Change({"n": 10}, condition=unchanged({"n": 7}))),
                (key("row-002"), Change({"n": 10}, condition=unchanged({"n": 2, "missing": "x"}))),
                (key("nothing"), Change({"n": 10}, condition=unchanged({"n": 1}))),
            ]
        )
        assert done == [True, False, False, False]
        assert [item["n"] for item in table.query(Key("PK").eq("p"))] == [10, 1, 2]

    def test_an_empty_list_of_writes_makes_no_request(self) -> None:
        client: Any = Answering()
        assert Table(client, "t").create_each([], key="PK") == []

    def test_a_page_begins_after_the_given_key(self, table: Table) -> None:
        table.create_each(rows(5), key="PK")
        first = table.page(Key("PK").eq("p"), limit=3)
        assert [item["n"] for item in first.items] == [0, 1, 2]
        rest = table.page(Key("PK").eq("p"), limit=3, after=first.last_key, where=Attr("n").gt(3))
        assert [item["n"] for item in rest.items] == [4]
        assert rest.last_key is None


REFUSED = "ConditionalCheckFailed"


def test_the_writes_of_a_refused_transaction_whose_condition_holds_are_sent_again() -> None:
    client: Any = Answering([None, None, REFUSED, None], [None, REFUSED, None])
    assert Table(client, "t").create_each(rows(4), key="PK") == [True, False, False, True]
    assert client.asked == [4, 3, 2]


def test_no_transaction_is_sent_if_every_condition_failed() -> None:
    client: Any = Answering([REFUSED, REFUSED])
    assert Table(client, "t").create_each(rows(2), key="PK") == [False, False]
    assert client.asked == [2]


def test_a_transaction_that_collided_is_sent_again_whole() -> None:
    client: Any = Answering(["TransactionConflict", None, None])
    assert Table(client, "t").create_each(rows(3), key="PK") == [True, True, True]
    assert client.asked == [3, 3]


@pytest.mark.parametrize(("setting", "asked"), [(None, [100, 100, 50]), ("10", [10] * 25)])
def test_a_transaction_has_as_many_writes_as_the_endpoint_accepts(
    setting: str | None, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        monkeypatch.setenv("PRISMLINE_WRITES_PER_TRANSACTION", setting)
    client: Any = Answering()
    assert all(Table(client, "t", calls_at_a_time=1).create_each(rows(250), key="PK"))
    assert client.asked == asked


def test_an_endpoint_that_accepts_fewer_writes_is_an_error_and_no_reason_to_send_fewer() -> None:
    client = Failing("ValidationException")
    table = Table(client, "t")  # type: ignore[arg-type]
    for calls in (1, 2):
        with pytest.raises(PermanentError):
            table.create_each(rows(50), key="PK")
        assert client.calls == calls


def test_items_are_deleted_whether_they_exist_or_not(table: Table) -> None:
    table.create_each(rows(60), key="PK")
    assert table.delete_each([key(f"row-{number:03d}") for number in range(10, 70)]) == 60
    assert [item["n"] for item in table.query(Key("PK").eq("p"))] == list(range(10))


def test_writes_that_always_collide_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismline_runtime.dynamodb.CONFLICT_SECONDS", 0)
    client: Any = Answering(["TransactionConflict"])
    with pytest.raises(TransientError, match="collided"):
        Table(client, "t").create_each(rows(1), key="PK")


@pytest.mark.parametrize("at_a_time", [1, 2, 3])
def test_no_more_calls_are_made_at_the_same_time_than_allowed(at_a_time: int) -> None:
    under_way, most, lock = 0, 0, threading.Lock()
    others = threading.Barrier(at_a_time, timeout=20)

    def call(number: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        others.wait()  # until as many calls run as are allowed
        with lock:
            under_way -= 1
        return number * number

    arguments = range(4 * at_a_time)
    assert call_concurrently(call, arguments, at_a_time) == [number * number for number in arguments]
    assert most == at_a_time


def test_the_error_of_a_call_is_raised_after_the_other_calls_have_ended() -> None:
    failed, ended = threading.Event(), threading.Event()

    def call(number: int) -> None:
        if number == 0:
            failed.set()
            raise ValueError(number)
        assert failed.wait(20)
        ended.set()

    with pytest.raises(ValueError, match="0"):
        call_concurrently(call, range(2), 2)
    assert ended.is_set()
