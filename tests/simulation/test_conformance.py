"""Compares the fakes with the emulator: the same tests on both, for everything that Prismline relies on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prismline_ledger import Counts, GivenBackTask, Ledger, NewChunk, NewRun, Outcome, Skipped, Started, TaskEnding
from prismline_ledger.testing import ingest_run
from prismline_localstack.testing import create_runs_table
from prismline_runtime import Change, Table, unchanged
from prismline_runtime.transport import TOKEN_GONE_CODES
from tests.simulation.aws.backends import Backend, Emulated, Fake, refusal
from tests.simulation.aws.loader import ROOT

LAX = "takes an expression that DynamoDB refuses"
#: Tests in which the emulator differs from AWS and the fake does not, with what the emulator does. Each test must
#: fail on the emulator.
DIFFERENCES: dict[str, str] = {
    "test_a_condition[begins_with(n, :prefix)-ConditionalCheckFailedException]": "refuses it for what the item holds",
    "test_a_condition[n BETWEEN :one AND :text-ValidationException]": LAX,
    "test_a_condition[flag < :true-ValidationException]": LAX,
    "test_a_condition[n = n-ValidationException]": LAX,
    "test_a_condition[nonsense(#s)-ValidationException]": LAX,
    "test_a_condition[if_not_exists(n, :five)-ValidationException]": LAX,
    "test_an_update[REMOVE elements[0], elements[1]]": "removes one element after the other",
    "test_an_update[SET n = #s + :one]": LAX,
    "test_an_update[SET n = n + :text]": LAX,
    "test_an_update[SET elements = list_append(elements, :a)]": LAX,
    "test_an_update[SET n = :one, n = :ten]": LAX,
    "test_an_update[SET nested = :map, nested.leaf = :a]": LAX,
    "test_an_update[SET n = :one SET flag = :true]": LAX,
    "test_an_update[SET n :one]": LAX,
    "test_an_invalid_query_is_refused[PK = :run OR SK = :one-options2]": LAX,
    "test_an_invalid_query_is_refused[PK = :run AND SK <> :one-options3]": LAX,
    "test_a_received_message_is_hidden_until_it_is_deleted": "refuses a receipt that was used",
    "test_an_older_receipt_deletes_nothing": "refuses a receipt that has expired",
    "test_visibility_of_an_expired_receipt_is_left_alone": "hides a message that nobody has received since",
    "test_a_message_is_hidden_for_at_most_twelve_hours[-1]": "checks no limit of the visibility",
    "test_a_message_is_hidden_for_at_most_twelve_hours[43201]": "checks no limit of the visibility",
    "test_the_twelve_hours_begin_with_the_receipt": "checks no limit of the visibility",
    "test_a_deleted_message_cannot_be_hidden": "refuses it with another code, ReceiptHandleIsInvalid",
    "test_an_entry_that_is_refused_leaves_the_others": "takes empty message attributes",
    "test_an_entry_that_is_refused[no-json]": "takes an event whose detail is no JSON",
    "test_an_entry_that_is_refused[no-object]": "takes an event whose detail is no object",
    "test_a_start_is_idempotent_while_it_runs": "answers ExecutionAlreadyExists",
    "test_a_token_dies_with_its_execution": "takes the answer to a task of a stopped execution",
    "test_what_is_no_token": "answers TaskDoesNotExist",
    "test_what_is_no_output": "takes an output that is no JSON",
    "test_a_task_that_is_tried_again_has_a_new_token": "gives every try of a task the same token",
    "test_a_heartbeat_that_stops": "HeartbeatSeconds never fires",
    "test_what_a_state_makes_of_its_input[boolean]": "formats a boolean as Python does",
    "test_a_null_is_present": "takes null for absent",
    "test_a_state_that_fails[no-path]": "makes null of a path that leads nowhere",
}
#: Errors in random updates and conditions that the emulator does not detect, by a part of DynamoDB's message.
LAX_ABOUT = ("overlap", "document path", "incorrect data type", "Incorrect operand type", "distinct", "same data type")


@pytest.fixture(scope="session")
def emulated(emulator_env: dict[str, str]) -> Emulated:
    return Emulated(emulator_env)


@pytest.fixture(params=["fake", pytest.param("emulator", marks=pytest.mark.emulator)])
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the two backends, without data that the test could see."""
    if request.param == "fake":
        return Fake()
    test = request.node.name.replace("[emulator-", "[").replace("[emulator]", "")
    if test in DIFFERENCES:
        request.node.add_marker(pytest.mark.xfail(reason=DIFFERENCES[test], strict=True))
    found: Emulated = request.getfixturevalue("emulated")
    found.renew()
    return found


# ---- DynamoDB

KEY: dict[str, Any] = {"PK": {"S": "run"}, "SK": {"S": "RUN"}}
ITEM: dict[str, Any] = KEY | {
    "status": {"S": "PENDING"},
    "n": {"N": "5"},
    "started_at": {"S": "2026-01-01T00:00:00Z"},
    "flag": {"BOOL": True},
    "nothing": {"NULL": True},
    "elements": {"L": [{"N": "1"}, {"S": "two"}]},
    "nested": {"M": {"leaf": {"S": "value"}, "deep": {"M": {"n": {"N": "1"}}}}},
    "texts": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1", "2"]},
}
VALUES = {
    ":pending": {"S": "PENDING"},
    ":done": {"S": "DONE"},
    ":five": {"N": "5"},
    ":fiveish": {"N": "5.0"},
    ":half": {"N": "0.5"},
    ":ten": {"N": "10"},
    ":one": {"N": "1"},
    ":seven": {"N": "7"},
    ":text": {"S": "5"},
    ":prefix": {"S": "PEN"},
    ":a": {"S": "a"},
    ":two": {"S": "two"},
    ":value": {"S": "value"},
    ":true": {"BOOL": True},
    ":null": {"NULL": True},
    ":late": {"S": "2026-02-01T00:00:00Z"},
    ":kind": {"S": "N"},
    ":list": {"L": [{"N": "1"}, {"S": "two"}]},
    ":more": {"L": [{"S": "three"}]},
    ":set": {"SS": ["b", "a"]},
    ":other_set": {"SS": ["b", "c"]},
    ":map": {"M": {"x": {"N": "1"}}},
}
REFUSED, INVALID = "ConditionalCheckFailedException", "ValidationException"

#: DynamoDB's answer to a write of `ITEM` over `ITEM` under a condition.
CONDITIONS = {
    "": [
        "#s = :pending",
        "#s <> :done",
        "#s IN (:done, :pending)",
        "n = :five",
        "n = :fiveish",
        "n <> :text",
        "n < :ten",
        "n >= :five",
        ":ten > n",
        "n BETWEEN :one AND :ten",
        "started_at < :late",
        "absent <> :five",
        "NOT absent = :five",
        "NOT absent < :five",
        "attribute_exists(PK)",
        "attribute_not_exists(absent)",
        "attribute_exists(nothing)",
        "attribute_exists(nested.leaf)",
        "attribute_exists(elements[1])",
        "attribute_type(n, :kind)",
        "begins_with(#s, :prefix)",
        "NOT begins_with(#s, :done)",
        "NOT begins_with(absent, :done)",
        "contains(texts, :a)",
        "contains(numbers, :one)",
        "contains(elements, :two)",
        "contains(#s, :prefix)",
        "size(#s) = :seven",
        "size(elements) < :five",
        "size(nested) < :five",
        "flag = :true",
        "nothing = :null",
        "elements = :list",
        "texts = :set",
        "nested.leaf = :value",
        "elements[0] = :one",
        "nested.deep.n < :five",
        "#s = :done OR n = :five",
        "#s = :pending AND (n = :ten OR n = :five)",
        "NOT #s = :done AND n = :five",
        "#s = :pending OR #s = :done AND n = :ten",
        "(#s = :pending)",
        "(#s = :pending) AND ((n = :five) OR (n = :ten))",
        "#s=:pending",
        "#s = :pending and n = :five",
        "#s <> :done AND (attribute_not_exists(given) OR given = :a OR NOT begins_with(given, :prefix))",
        "attribute_not_exists(PK) OR (#s = :pending AND (#o = :a OR attribute_not_exists(#lease) OR #lease < :late))",
    ],
    REFUSED: [
        "#s = :done",
        "#s IN (:done)",
        "n = :text",
        "n > :text",
        "started_at > :late",
        "absent = :five",
        "absent < :five",
        "absent IN (:five)",
        "attribute_exists(absent)",
        "attribute_not_exists(PK)",
        "attribute_exists(nested.nothing)",
        "attribute_exists(elements[2])",
        "begins_with(#s, :done)",
        "begins_with(n, :prefix)",
        "begins_with(absent, :prefix)",
        "contains(texts, :two)",
        "size(absent) < :five",
        "#s = :done AND n = :five",
        "NOT (#s = :pending AND n = :five)",
        "(#s = :done OR #s = :pending) AND n = :ten",
    ],
    INVALID: [
        "n BETWEEN :ten AND :one",
        "n BETWEEN :one AND :text",
        "begins_with(#s, :five)",
        "flag < :true",
        "n = n",
        "((#s = :pending))",
        "status = :pending",
        "error = :pending",
        "attribute_exists(owner)",
        "attribute_exists(ttl)",
        "attribute_exists(total)",
        "attribute_exists(count)",
        "attribute_exists(name)",
        "#s = :undefined",
        "#s == :pending",
        "#s = ",
        "nonsense(#s)",
        "attribute_exists(:five)",
        "if_not_exists(n, :five)",
    ],
}


@pytest.fixture
def table(backend: Backend) -> Iterator[str]:
    """A table with the ledger's keys and indexes."""
    create_runs_table(backend.dynamodb, backend.unique)
    yield backend.unique
    backend.dynamodb.delete_table(TableName=backend.unique)


def shared_table(backend: Backend) -> str:
    """A shared table for tests that begin with a write of their item."""
    if refusal(backend.dynamodb.describe_table, TableName="shared"):
        create_runs_table(backend.dynamodb, "shared")
    return "shared"


def placeholders(text: str) -> dict[str, Any]:
    """A request's names (`#a` for `a`, `#s` for `status`) and values, only those that `text` uses."""
    words = set("".join(" " if character in "(),.[]=<>+-" else character for character in text).split())
    names = {word: {"#s": "status"}.get(word, word[1:]) for word in words if word.startswith("#")}
    values = {name: value for name, value in VALUES.items() if name in words}
    found: dict[str, Any] = {"ExpressionAttributeNames": names} if names else {}
    return found | ({"ExpressionAttributeValues": values} if values else {})


def item_of(backend: Backend, table: str, key: Mapping[str, Any] = KEY) -> dict[str, Any] | None:
    """An item with sorted sets. None if there is no item."""
    found = backend.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
    return None if found is None else in_order(found)


def in_order(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {kind: sorted(content) if kind in {"SS", "NS"} else content for kind, content in value.items()}
        for name, value in item.items()
    }


@pytest.mark.parametrize(
    ("condition", "expected"), [(text, code) for code, texts in CONDITIONS.items() for text in texts]
)
def test_a_condition(backend: Backend, condition: str, expected: str) -> None:
    table = shared_table(backend)
    backend.dynamodb.put_item(TableName=table, Item=ITEM)
    request = {"TableName": table, "Item": ITEM, "ConditionExpression": condition, **placeholders(condition)}
    assert refusal(backend.dynamodb.put_item, **request) == expected


#: The result of an update of `ITEM`: the changed attributes (None for a removed one), or an error code.
UPDATES: dict[str, Mapping[str, Any] | str] = {
    "SET #s = :done": {"status": {"S": "DONE"}},
    "SET #s = :done, n = :ten": {"status": {"S": "DONE"}, "n": {"N": "10"}},
    "SET n = n + :ten": {"n": {"N": "15"}},
    "SET n = n - :ten": {"n": {"N": "-5"}},
    "SET n = n + :half": {"n": {"N": "5.5"}},
    "SET n = :fiveish": {"n": {"N": "5"}},
    "SET n = if_not_exists(n, :ten)": {"n": {"N": "5"}},
    "SET fresh = if_not_exists(fresh, :ten)": {"fresh": {"N": "10"}},
    "SET fresh = if_not_exists(fresh, :ten) + :one": {"fresh": {"N": "11"}},
    "SET fresh = n": {"fresh": {"N": "5"}},
    "SET fresh = n, n = :ten": {"fresh": {"N": "5"}, "n": {"N": "10"}},
    "SET n = :ten, fresh = n": {"fresh": {"N": "5"}, "n": {"N": "10"}},
    "SET #n = :ten, #fresh = #n": {"fresh": {"N": "5"}, "n": {"N": "10"}},
    "SET elements = list_append(elements, :more)": {"elements": {"L": [{"N": "1"}, {"S": "two"}, {"S": "three"}]}},
    "SET elements = list_append(:more, elements)": {"elements": {"L": [{"S": "three"}, {"N": "1"}, {"S": "two"}]}},
    "SET fresh = list_append(if_not_exists(fresh, :more), :more)": {"fresh": {"L": [{"S": "three"}, {"S": "three"}]}},
    "SET nested.leaf = :a": {"nested": {"M": {"leaf": {"S": "a"}, "deep": {"M": {"n": {"N": "1"}}}}}},
    "SET nested.deep.n = :ten": {"nested": {"M": {"leaf": {"S": "value"}, "deep": {"M": {"n": {"N": "10"}}}}}},
    "SET elements[0] = :a": {"elements": {"L": [{"S": "a"}, {"S": "two"}]}},
    "SET elements[9] = :a": {"elements": {"L": [{"N": "1"}, {"S": "two"}, {"S": "a"}]}},
    "REMOVE n": {"n": None},
    "REMOVE absent": {},
    "REMOVE n, flag SET #s = :done": {"n": None, "flag": None, "status": {"S": "DONE"}},
    "REMOVE nested.leaf": {"nested": {"M": {"deep": {"M": {"n": {"N": "1"}}}}}},
    "REMOVE elements[0]": {"elements": {"L": [{"S": "two"}]}},
    "REMOVE elements[0], elements[1]": {"elements": {"L": []}},
    "ADD n :ten": {"n": {"N": "15"}},
    "ADD fresh :ten": {"fresh": {"N": "10"}},
    "ADD texts :other_set": {"texts": {"SS": ["a", "b", "c"]}},
    "ADD fresh :set": {"fresh": {"SS": ["a", "b"]}},
    "DELETE texts :other_set": {"texts": {"SS": ["a"]}},
    "DELETE texts :set": {"texts": None},
    "SET #s = :done ADD n :one REMOVE flag": {"status": {"S": "DONE"}, "n": {"N": "6"}, "flag": None},
    "SET fresh = absent": INVALID,
    "SET n = #s + :one": INVALID,
    "SET n = absent + :one": INVALID,
    "SET n = n + :text": INVALID,
    "SET elements = list_append(elements, :a)": INVALID,
    "SET absent.leaf = :a": INVALID,
    "SET #s.leaf = :a": INVALID,
    "SET n = :one, n = :ten": INVALID,
    "SET nested = :map, nested.leaf = :a": INVALID,
    "SET n = :one SET flag = :true": INVALID,
    "SET PK = :a": INVALID,
    "REMOVE SK": INVALID,
    "ADD #s :one": INVALID,
    "ADD n :text": INVALID,
    "SET status = :done": INVALID,
    "SET n :one": INVALID,
    "SET n = :undefined": INVALID,
    "SET GSI1_PK = :five": INVALID,
    "CHANGE n :one": INVALID,
    "": INVALID,
}


@pytest.mark.parametrize("update", UPDATES)
def test_an_update(backend: Backend, update: str) -> None:
    table = shared_table(backend)
    backend.dynamodb.put_item(TableName=table, Item=ITEM)
    expected = UPDATES[update]
    request = {"TableName": table, "Key": KEY, "UpdateExpression": update, **placeholders(update)}
    code = refusal(backend.dynamodb.update_item, **request)
    changes = {} if isinstance(expected, str) else dict(expected)
    assert code == (expected if isinstance(expected, str) else "")
    assert item_of(backend, table) == {name: value for name, value in (ITEM | changes).items() if value is not None}


def test_an_update_makes_the_item_that_is_not_there(backend: Backend, table: str) -> None:
    request = {"TableName": table, "Key": KEY, "ExpressionAttributeValues": {":n": {"N": "1"}}}
    backend.dynamodb.update_item(**request, UpdateExpression="ADD n :n")
    assert item_of(backend, table) == KEY | {"n": {"N": "1"}}
    other: dict[str, Any] = request | {"Key": KEY | {"SK": {"S": "CHUNK#1"}}}
    condition = "attribute_exists(PK)"
    assert refusal(
        backend.dynamodb.update_item, **other, UpdateExpression="ADD n :n", ConditionExpression=condition
    ) == (REFUSED)
    assert item_of(backend, table, other["Key"]) is None


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("NONE", None),
        ("ALL_OLD", KEY | {"n": {"N": "1"}, "text": {"S": "a"}}),
        ("ALL_NEW", KEY | {"n": {"N": "2"}, "fresh": {"N": "1"}, "text": {"S": "a"}}),
        ("UPDATED_OLD", {"n": {"N": "1"}}),
        ("UPDATED_NEW", {"n": {"N": "2"}, "fresh": {"N": "1"}}),
    ],
)
def test_what_an_update_returns(backend: Backend, table: str, wanted: str, expected: dict[str, Any] | None) -> None:
    backend.dynamodb.put_item(TableName=table, Item=KEY | {"n": {"N": "1"}, "#t": {"S": "a"}} | {"text": {"S": "a"}})
    backend.dynamodb.update_item(
        TableName=table, Key=KEY, UpdateExpression="REMOVE #t", ExpressionAttributeNames={"#t": "#t"}
    )
    answer = backend.dynamodb.update_item(
        TableName=table,
        Key=KEY,
        UpdateExpression="ADD n :one, fresh :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues=wanted,
    )
    assert answer.get("Attributes") == expected


def test_what_other_writes_return(backend: Backend, table: str) -> None:
    dynamodb = backend.dynamodb
    assert "Attributes" not in dynamodb.put_item(TableName=table, Item=KEY | {"n": {"N": "1"}}, ReturnValues="ALL_OLD")
    answer = dynamodb.put_item(TableName=table, Item=KEY | {"n": {"N": "2"}}, ReturnValues="ALL_OLD")
    assert answer["Attributes"] == KEY | {"n": {"N": "1"}}
    answer = dynamodb.delete_item(TableName=table, Key=KEY, ReturnValues="ALL_OLD")
    assert answer["Attributes"] == KEY | {"n": {"N": "2"}}
    assert "Attributes" not in dynamodb.delete_item(TableName=table, Key=KEY, ReturnValues="ALL_OLD")
    assert refusal(dynamodb.put_item, TableName=table, Item=KEY, ReturnValues="ALL_NEW") == INVALID
    assert refusal(dynamodb.get_item, TableName="nowhere", Key=KEY) == "ResourceNotFoundException"


def test_a_refused_condition_can_show_the_item(backend: Backend, table: str) -> None:
    backend.dynamodb.put_item(TableName=table, Item=KEY | {"n": {"N": "1"}})
    with pytest.raises(ClientError) as caught:
        backend.dynamodb.put_item(
            TableName=table,
            Item=KEY,
            ConditionExpression="attribute_not_exists(PK)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    response: Mapping[str, Any] = caught.value.response
    assert response["Item"] == KEY | {"n": {"N": "1"}}


@pytest.mark.parametrize(
    "request_",
    [
        {"ExpressionAttributeNames": {"#unused": "n"}},
        {"ExpressionAttributeValues": {":unused": {"N": "1"}}},
        {"ConditionExpression": "attribute_exists(PK)", "ExpressionAttributeNames": {"#unused": "n"}},
        {"ConditionExpression": "attribute_exists(PK)", "ExpressionAttributeValues": {":unused": {"N": "1"}}},
        {"ConditionExpression": "attribute_exists(#undefined)"},
        {"ConditionExpression": "attribute_exists(#a)", "ExpressionAttributeNames": {"#a": "a", "#b": "b"}},
        {"Item": {"PK": {"S": "run"}}},
        {"Item": KEY | {"SK": {"S": ""}}},
        {"Item": KEY | {"SK": {"N": "1"}}},
        {"Item": KEY | {"GSI1_PK": {"N": "1"}, "GSI1_SK": {"S": "a"}}},
        {"Item": KEY | {"GSI1_PK": {"S": ""}, "GSI1_SK": {"S": "a"}}},
        {"Item": KEY | {"n": {"N": "five"}}},
        {"Item": KEY | {"set": {"SS": []}}},
        {"Item": KEY | {"set": {"SS": ["a", "a"]}}},
        {"Item": KEY | {"large": {"S": "x" * 410_000}}},
    ],
)
def test_an_invalid_request_is_refused(backend: Backend, table: str, request_: dict[str, Any]) -> None:
    assert refusal(backend.dynamodb.put_item, **{"TableName": table, "Item": KEY} | request_) == INVALID
    assert item_of(backend, table) is None


@pytest.mark.parametrize(
    "key", [{"PK": {"S": "run"}}, KEY | {"other": {"S": "a"}}, KEY | {"SK": {"N": "1"}}, KEY | {"SK": {"S": ""}}]
)
def test_a_key_that_does_not_fit_is_refused(backend: Backend, table: str, key: dict[str, Any]) -> None:
    assert refusal(backend.dynamodb.get_item, TableName=table, Key=key) == INVALID
    assert refusal(backend.dynamodb.delete_item, TableName=table, Key=key) == INVALID


@pytest.mark.parametrize(
    "number", ["0", "-0", "007", "1.50", "1e3", "1E-3", "-12.340", "12345678901234567890123456789012345678"]
)
def test_numbers_come_back_in_one_form(backend: Backend, table: str, number: str) -> None:
    backend.dynamodb.put_item(TableName=table, Item=KEY | {"n": {"N": number}})
    found = item_of(backend, table)
    assert found is not None
    expected = {"-0": "0", "007": "7", "1.50": "1.5", "1e3": "1000", "1E-3": "0.001", "-12.340": "-12.34"}
    assert found["n"] == {"N": expected.get(number, number)}


def chunk_key(number: int) -> dict[str, Any]:
    return {"PK": {"S": "run"}, "SK": {"S": f"CHUNK#{number:05}"}}


def put_if_absent(table: str, number: int) -> dict[str, Any]:
    return {"Put": {"TableName": table, "Item": chunk_key(number), "ConditionExpression": "attribute_not_exists(PK)"}}


def test_a_transaction_is_all_or_nothing(backend: Backend, table: str) -> None:
    dynamodb = backend.dynamodb
    dynamodb.transact_write_items(TransactItems=[put_if_absent(table, 1)])
    one = {":one": {"N": "1"}}
    update = {
        "TableName": table,
        "Key": KEY,
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": one,
        "ConditionExpression": "attribute_exists(PK)",
    }
    writes = [
        put_if_absent(table, 2),
        put_if_absent(table, 1),
        {"Update": update},
        {"ConditionCheck": {"TableName": table, "Key": chunk_key(1), "ConditionExpression": "attribute_exists(PK)"}}
        | {"ConditionCheck": {"TableName": table, "Key": chunk_key(9), "ConditionExpression": "attribute_exists(PK)"}},
        {"Delete": {"TableName": table, "Key": chunk_key(7)}},
    ]
    with pytest.raises(ClientError) as caught:
        dynamodb.transact_write_items(TransactItems=writes)
    assert caught.value.response["Error"]["Code"] == "TransactionCanceledException"
    reasons = caught.value.response["CancellationReasons"]
    failed = "ConditionalCheckFailed"
    assert [reason["Code"] for reason in reasons] == ["None", failed, failed, failed, "None"]
    assert "[None, ConditionalCheckFailed, " in caught.value.response["Error"]["Message"]
    assert item_of(backend, table, chunk_key(2)) is None

    dynamodb.put_item(TableName=table, Item=KEY)
    delete = {"Delete": {"TableName": table, "Key": chunk_key(1)}}
    dynamodb.transact_write_items(TransactItems=[put_if_absent(table, 2), {"Update": update}, delete])
    assert item_of(backend, table) == KEY | {"n": {"N": "1"}}
    assert item_of(backend, table, chunk_key(1)) is None
    assert item_of(backend, table, chunk_key(2)) is not None


def test_a_transaction_names_an_item_once(backend: Backend, table: str) -> None:
    writes = [put_if_absent(table, 1), {"Delete": {"TableName": table, "Key": chunk_key(1)}}]
    assert refusal(backend.dynamodb.transact_write_items, TransactItems=writes) == INVALID
    too_many = [put_if_absent(table, number) for number in range(101)]
    assert refusal(backend.dynamodb.transact_write_items, TransactItems=too_many) == INVALID
    assert refusal(backend.dynamodb.transact_write_items, TransactItems=too_many[:100]) == ""


def test_an_update_that_cannot_be_made_cancels_its_transaction(backend: Backend, table: str) -> None:
    backend.dynamodb.put_item(TableName=table, Item=ITEM)
    bad = {
        "TableName": table,
        "Key": KEY,
        "UpdateExpression": "SET n = absent + :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    with pytest.raises(ClientError) as caught:
        backend.dynamodb.transact_write_items(TransactItems=[put_if_absent(table, 1), {"Update": bad}])
    reasons = caught.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ValidationError"]
    assert item_of(backend, table, chunk_key(1)) is None


def test_a_client_token_makes_a_transaction_idempotent(backend: Backend, table: str) -> None:
    add = {
        "TableName": table,
        "Key": KEY,
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    token = backend.unique
    for _ in range(2):
        backend.dynamodb.transact_write_items(TransactItems=[{"Update": add}], ClientRequestToken=token)
    assert item_of(backend, table) == KEY | {"n": {"N": "1"}}
    other = [put_if_absent(table, 1)]
    code = refusal(backend.dynamodb.transact_write_items, TransactItems=other, ClientRequestToken=token)
    assert code == "IdempotentParameterMismatchException"


@pytest.fixture
def filled(backend: Backend, table: str) -> str:
    """A table with a run, its five chunks and another run. Some of the chunks are in the indexes."""
    items: list[dict[str, Any]] = [KEY, {"PK": {"S": "other"}, "SK": {"S": "RUN"}}]
    for number in (3, 1, 4, 0, 2):
        state = {"S": "COMPLETED" if number % 2 else "PENDING"}
        indexed: dict[str, Any] = {"GSI1_PK": {"S": "survey"}, "GSI1_SK": {"S": f"2026-0{9 - number}"}}
        items.append(chunk_key(number) | {"status": state, "n": {"N": str(number)}} | (indexed if number else {}))
    requests = [{"PutRequest": {"Item": item}} for item in items]
    assert backend.dynamodb.batch_write_item(RequestItems={table: requests})["UnprocessedItems"] == {}
    return table


def found(backend: Backend, table: str, condition: str, **options: Any) -> list[str]:
    """The sort keys of a query's results, page by page."""
    values = {
        ":run": {"S": "run"},
        ":chunk": {"S": "CHUNK#"},
        ":one": chunk_key(1)["SK"],
        ":three": chunk_key(3)["SK"],
        ":survey": {"S": "survey"},
        ":july": {"S": "2026-07"},
        ":pending": {"S": "PENDING"},
        ":two": {"N": "2"},
    }
    used = {name: value for name, value in values.items() if name in condition + options.get("FilterExpression", "")}
    request = {"TableName": table, "KeyConditionExpression": condition, "ExpressionAttributeValues": used, **options}
    keys = []
    while True:
        answer = backend.dynamodb.query(**request)
        assert answer["Count"] == len(answer["Items"])
        keys += [item["SK"]["S"].removeprefix("CHUNK#0000") for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            return keys
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


STATUS = {"ExpressionAttributeNames": {"#s": "status"}}


@pytest.mark.parametrize(
    ("condition", "options", "expected"),
    [
        ("PK = :run", {}, ["0", "1", "2", "3", "4", "RUN"]),
        ("PK = :run AND begins_with(SK, :chunk)", {"ConsistentRead": True}, ["0", "1", "2", "3", "4"]),
        ("begins_with(SK, :chunk) AND PK = :run", {}, ["0", "1", "2", "3", "4"]),
        ("PK = :run AND SK BETWEEN :one AND :three", {}, ["1", "2", "3"]),
        ("PK = :run AND SK > :one", {}, ["2", "3", "4", "RUN"]),
        ("PK = :run AND SK <= :one", {}, ["0", "1"]),
        ("PK = :run AND SK = :one", {}, ["1"]),
        ("PK = :survey", {}, []),
        ("PK = :run AND SK > :one", {"ScanIndexForward": False}, ["RUN", "4", "3", "2"]),
        ("PK = :run AND SK > :one", {"ScanIndexForward": False, "Limit": 1}, ["RUN", "4", "3", "2"]),
        ("PK = :run", {"Limit": 2}, ["0", "1", "2", "3", "4", "RUN"]),
        ("PK = :run", {"FilterExpression": "#s = :pending", **STATUS}, ["0", "2", "4"]),
        ("PK = :run", {"FilterExpression": "#s = :pending AND n > :two", "Limit": 1, **STATUS}, ["4"]),
        ("GSI1_PK = :survey", {"IndexName": "GSI1"}, ["4", "3", "2", "1"]),
        ("GSI1_PK = :survey", {"IndexName": "GSI1", "Limit": 1}, ["4", "3", "2", "1"]),
        ("GSI1_PK = :survey AND GSI1_SK >= :july", {"IndexName": "GSI1", "ScanIndexForward": False}, ["1", "2"]),
        ("GSI1_PK = :survey", {"IndexName": "GSI1", "ScanIndexForward": False, "Limit": 3}, ["1", "2", "3", "4"]),
        ("GSI2_PK = :survey", {"IndexName": "GSI2"}, []),
    ],
)
def test_a_query(
    backend: Backend, filled: str, condition: str, options: dict[str, Any], expected: Sequence[str]
) -> None:
    assert found(backend, filled, condition, **options) == expected


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("SK = :one", {}),
        ("PK > :run", {}),
        ("PK = :run OR SK = :one", {}),
        ("PK = :run AND SK <> :one", {}),
        ("PK = :run AND n = :two", {}),
        ("PK = :run AND SK = :two", {}),
        ("GSI1_PK = :survey", {}),
        ("GSI1_PK = :survey", {"IndexName": "GSI1", "ConsistentRead": True}),
        ("GSI1_PK = :survey", {"IndexName": "GSI9"}),
        ("PK = :run", {"FilterExpression": "status = :pending"}),
        ("PK = :run", {"FilterExpression": "begins_with(n, :two)"}),
        ("PK = :run", STATUS),
    ],
)
def test_an_invalid_query_is_refused(backend: Backend, filled: str, condition: str, options: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        found(backend, filled, condition, **options)
    assert caught.value.response["Error"]["Code"] == INVALID


def test_a_query_goes_on_where_an_item_was(backend: Backend, filled: str) -> None:
    request = {
        "TableName": filled,
        "KeyConditionExpression": "PK = :run",
        "ExpressionAttributeValues": {":run": {"S": "run"}},
        "Limit": 2,
    }
    start = backend.dynamodb.query(**request)["LastEvaluatedKey"]
    backend.dynamodb.delete_item(TableName=filled, Key=start)
    assert start == chunk_key(1)
    rest = backend.dynamodb.query(**request | {"ExclusiveStartKey": start, "Limit": 9})
    assert [item["SK"] for item in rest["Items"][:2]] == [chunk_key(2)["SK"], chunk_key(3)["SK"]]


def test_an_index_page_says_where_it_ends(backend: Backend, filled: str) -> None:
    request = {
        "TableName": filled,
        "IndexName": "GSI1",
        "KeyConditionExpression": "GSI1_PK = :survey",
        "ExpressionAttributeValues": {":survey": {"S": "survey"}},
    }
    page = backend.dynamodb.query(**request, Limit=4)
    assert page["LastEvaluatedKey"] == chunk_key(1) | {"GSI1_PK": {"S": "survey"}, "GSI1_SK": {"S": "2026-08"}}
    after = backend.dynamodb.query(**request, ExclusiveStartKey=page["LastEvaluatedKey"])
    assert (after["Count"], "LastEvaluatedKey" in after) == (0, False)


def test_an_item_enters_and_leaves_a_sparse_index(backend: Backend, filled: str) -> None:
    request = {"TableName": filled, "Key": chunk_key(3)}
    backend.dynamodb.update_item(**request, UpdateExpression="REMOVE GSI1_PK, GSI1_SK")
    assert found(backend, filled, "GSI1_PK = :survey", IndexName="GSI1") == ["4", "2", "1"]
    values = {":s": {"S": "survey"}, ":t": {"S": "2026-99"}}
    backend.dynamodb.update_item(
        **request, UpdateExpression="SET GSI1_PK = :s, GSI1_SK = :t", ExpressionAttributeValues=values
    )
    assert found(backend, filled, "GSI1_PK = :survey", IndexName="GSI1") == ["4", "2", "1", "3"]
    backend.dynamodb.delete_item(**request)
    assert found(backend, filled, "GSI1_PK = :survey", IndexName="GSI1") == ["4", "2", "1"]


def test_a_page_has_at_most_a_megabyte(backend: Backend, table: str) -> None:
    for number in range(4):
        backend.dynamodb.put_item(TableName=table, Item=chunk_key(number) | {"text": {"S": "x" * 300_000}})
    page = backend.dynamodb.query(
        TableName=table,
        KeyConditionExpression="PK = :run",
        ExpressionAttributeValues={":run": {"S": "run"}},
    )
    assert (page["Count"], page["LastEvaluatedKey"]) == (3, chunk_key(2))
    scan = backend.dynamodb.scan(TableName=table)
    assert (scan["Count"], scan["LastEvaluatedKey"]) == (3, chunk_key(2))


def test_a_scan_reads_everything(backend: Backend, filled: str) -> None:
    assert backend.dynamodb.scan(TableName=filled)["Count"] == 7
    values = {":pending": {"S": "PENDING"}}
    filtered = backend.dynamodb.scan(
        TableName=filled, FilterExpression="#s = :pending", ExpressionAttributeValues=values, **STATUS
    )
    assert (filtered["Count"], filtered["ScannedCount"]) == (3, 7)
    assert backend.dynamodb.scan(TableName=filled, IndexName="GSI1")["Count"] == 4
    pages = list(backend.dynamodb.get_paginator("scan").paginate(TableName=filled, Limit=3))
    assert [page["Count"] for page in pages][:2] == [3, 3]
    assert sum(page["Count"] for page in pages) == 7


def test_a_batch_read(backend: Backend, filled: str) -> None:
    keys = [chunk_key(1), chunk_key(8), chunk_key(2)]
    answer = backend.dynamodb.batch_get_item(RequestItems={filled: {"Keys": keys, "ConsistentRead": True}})
    assert sorted(item["SK"]["S"] for item in answer["Responses"][filled]) == ["CHUNK#00001", "CHUNK#00002"]
    assert answer["UnprocessedKeys"] == {}
    assert refusal(backend.dynamodb.batch_get_item, RequestItems={filled: {"Keys": [KEY, KEY]}}) == INVALID
    many = [chunk_key(number) for number in range(101)]
    assert refusal(backend.dynamodb.batch_get_item, RequestItems={filled: {"Keys": many}}) == INVALID


def test_a_batch_of_writes(backend: Backend, filled: str) -> None:
    delete = {"DeleteRequest": {"Key": chunk_key(1)}}
    backend.dynamodb.batch_write_item(RequestItems={filled: [delete, {"PutRequest": {"Item": chunk_key(9)}}]})
    assert item_of(backend, filled, chunk_key(1)) is None
    assert item_of(backend, filled, chunk_key(9)) == chunk_key(9)
    twice = [delete, {"PutRequest": {"Item": chunk_key(1)}}]
    assert refusal(backend.dynamodb.batch_write_item, RequestItems={filled: twice}) == INVALID
    many = [{"PutRequest": {"Item": chunk_key(number)}} for number in range(26)]
    assert refusal(backend.dynamodb.batch_write_item, RequestItems={filled: many}) == INVALID


def test_a_projection(backend: Backend, table: str) -> None:
    backend.dynamodb.put_item(TableName=table, Item=ITEM)
    answer = backend.dynamodb.get_item(
        TableName=table,
        Key=KEY,
        ProjectionExpression="#s, n, absent, nested.leaf",
        ExpressionAttributeNames={"#s": "status"},
    )
    assert answer["Item"] == {"status": ITEM["status"], "n": ITEM["n"], "nested": {"M": {"leaf": {"S": "value"}}}}


# ---- random sequences of operations, against the emulator

NAMES = ["n", "status", "a", "b", "m"]
ATTRIBUTE_VALUES = st.one_of(
    st.integers(-3, 3).map(lambda number: {"N": str(number)}),
    st.sampled_from(["", "a", "b", "PENDING"]).map(lambda text: {"S": text}),
    st.just({"NULL": True}),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True).map(lambda texts: {"SS": texts}),
    st.just({"M": {"x": {"N": "1"}}}),
)
PATHS = st.sampled_from(["#0", "#1", "#2", "#3", "#4", "#4.#5", "#4.#5.#5"])
ATOMS = st.one_of(
    st.builds("attribute_{}({})".format, st.sampled_from(["exists", "not_exists"]), PATHS),
    st.builds("{} {} :{}".format, PATHS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.integers(0, 2)),
    st.builds("{} IN (:0, :1)".format, PATHS),
    st.builds("{} BETWEEN :0 AND :1".format, PATHS),
    st.builds("contains({}, :{})".format, PATHS, st.integers(0, 2)),
    st.builds("size({}) {} :2".format, PATHS, st.sampled_from(["=", "<", ">"])),
)
CONDITION_TEXTS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("({} OR {})".format, inner, inner),
    ),
    max_leaves=4,
)
CLAUSES = {
    "SET": st.one_of(
        st.builds("{} = :{}".format, PATHS, st.integers(0, 2)),
        st.builds("{} = {} {} :{}".format, PATHS, PATHS, st.sampled_from("+-"), st.integers(0, 2)),
        st.builds("{} = if_not_exists({}, :{})".format, PATHS, PATHS, st.integers(0, 2)),
    ),
    "REMOVE": PATHS,
    "ADD": st.builds("{} :{}".format, PATHS, st.integers(0, 2)),
    "DELETE": st.builds("{} :{}".format, PATHS, st.integers(0, 2)),
}
UPDATE_TEXTS = st.lists(st.sampled_from(list(CLAUSES)), min_size=1, max_size=2, unique=True).flatmap(
    lambda sections: st.tuples(
        *(
            st.lists(CLAUSES[section], min_size=1, max_size=2).map(", ".join).map(f"{section} {{}}".format)
            for section in sections
        )
    ).map(" ".join)
)
SORT_KEYS = st.sampled_from(["RUN", "CHUNK#1", "CHUNK#2"])
THREE_VALUES = st.lists(ATTRIBUTE_VALUES, min_size=3, max_size=3)


@st.composite
def writes(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An operation and its parameters without the table. The partition key is `{}`."""
    kind = draw(st.sampled_from(["Put", "Update", "Update", "Update", "Delete", "ConditionCheck"]))
    key = {"PK": {"S": "{}"}, "SK": {"S": draw(SORT_KEYS)}}
    request: dict[str, Any] = {}
    if kind == "Put":
        request["Item"] = key | draw(st.dictionaries(st.sampled_from(NAMES), ATTRIBUTE_VALUES, max_size=4))
    else:
        request["Key"] = key
    if kind == "Update":
        request["UpdateExpression"] = draw(UPDATE_TEXTS)
    if kind == "ConditionCheck" or draw(st.booleans()):
        request["ConditionExpression"] = draw(CONDITION_TEXTS)
    text = f"{request.get('UpdateExpression', '')} {request.get('ConditionExpression', '')}"
    names = {f"#{n}": name for n, name in enumerate([*NAMES, "x"]) if f"#{n}" in text}
    values = {f":{n}": value for n, value in enumerate(draw(THREE_VALUES)) if f":{n}" in text}
    if names:
        request["ExpressionAttributeNames"] = names
    if values:
        request["ExpressionAttributeValues"] = values
    return kind, request


def written(backend: Backend, table: str, partition: str, batch: list[tuple[str, dict[str, Any]]]) -> Any:
    """Make one write, or several as a transaction. Return the result."""

    def of(request: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in request.items() if name not in {"Key", "Item"}}
        name = "Item" if "Item" in request else "Key"
        return kept | {"TableName": table, name: request[name] | {"PK": {"S": partition}}}

    try:
        if len(batch) == 1 and batch[0][0] != "ConditionCheck":
            ((kind, request),) = batch
            more = {"ReturnValues": "ALL_NEW" if kind == "Update" else "ALL_OLD"}
            answer = getattr(backend.dynamodb, f"{kind.lower()}_item")(**of(request), **more)
            return {k: v for k, v in in_order(answer.get("Attributes", {})).items() if k != "PK"}
        backend.dynamodb.transact_write_items(TransactItems=[{kind: of(request)} for kind, request in batch])
    except ClientError as error:
        reasons: Any = error.response.get("CancellationReasons", [])
        output = error.response["Error"]["Message"] + "".join(reason.get("Message", "") for reason in reasons)
        if backend.name == "fake" and any(part in output for part in LAX_ABOUT):
            return SKIPPED
        codes = [reason["Code"] for reason in reasons]
        # An update that cannot be made cancels alone. The two backends report the other conditions differently.
        return error.response["Error"]["Code"], ["ValidationError"] if "ValidationError" in codes else codes
    return None


#: Number of sequences. They are the same each time, so a failure comes from a change and not from chance.
EXAMPLES = 100
PARTITIONS = count()
#: Result of a write that the fake refuses and the emulator accepts.
SKIPPED = object()


@pytest.fixture(scope="session")
def tables(emulated: Emulated) -> Iterator[tuple[Fake, Emulated, str]]:
    """A table with the same name on both backends."""
    fake, name = Fake(), "random-operations"
    create_runs_table(fake.dynamodb, name)
    create_runs_table(emulated.dynamodb, name)
    yield fake, emulated, name
    emulated.dynamodb.delete_table(TableName=name)


@pytest.mark.emulator
@settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=st.lists(st.lists(writes(), min_size=1, max_size=3), min_size=1, max_size=6))
def test_random_writes_do_the_same(
    tables: tuple[Fake, Emulated, str], operations: list[list[tuple[str, dict[str, Any]]]]
) -> None:
    fake, emulated, table = tables
    partition = f"p{next(PARTITIONS)}"
    for batch in operations:
        expected = written(fake, table, partition, batch)
        if expected is not SKIPPED:
            assert expected == written(emulated, table, partition, batch), batch
    query = {
        "TableName": table,
        "KeyConditionExpression": "PK = :p",
        "ExpressionAttributeValues": {":p": {"S": partition}},
    }
    left, right = (
        [in_order(item) for item in backend.dynamodb.query(**query)["Items"]] for backend in (fake, emulated)
    )
    assert left == right


def test_independent_writes_are_executed_each_for_itself(backend: Backend, table: str) -> None:
    """The writes of a table for many items."""
    items = Table(backend.dynamodb, table)
    keys = [{"PK": "p", "SK": f"row-{number}"} for number in range(30)]
    rows: list[dict[str, Any]] = [{**key, "n": number, "status": "PENDING"} for number, key in enumerate(keys)]
    assert items.create(rows[3], key="PK")
    assert items.create_each(rows, key="PK") == [number != 3 for number in range(30)]
    done = items.change_each(
        [
            (keys[0], Change({"n": 10, "status": "DONE"}, condition=unchanged({"n": 0, "result": None}))),
            (keys[1], Change({"n": 10}, condition=unchanged({"n": 7}))),
            (keys[2], Change({"n": 10}, condition=unchanged({"n": 2, "status": None}))),
            ({"PK": "p", "SK": "nothing"}, Change({"n": 10}, condition=unchanged({"n": 1}))),
        ]
    )
    assert done == [True, False, False, False]
    kept = list(items.query(Key("PK").eq("p")))
    assert {item["SK"]: item["n"] for item in kept} == {row["SK"]: row["n"] for row in rows} | {"row-0": 10}


@pytest.mark.parametrize("shard_count", [1, 3])
def test_the_ledger_leaves_the_same_tasks(backend: Backend, table: str, shard_count: int) -> None:
    ledger = Ledger(backend.dynamodb, table)
    ingest_run(ledger, "r", [f"https://example.org/{number}" for number in range(30)], shard_count=shard_count)
    run = ledger.run("r")
    started = ledger.start_tasks(run, ledger.tasks(run))
    ledger.give_back_tasks(run, [GivenBackTask(started[0], "503", interrupted=True)])
    ended = ledger.end_tasks(run, [TaskEnding(task, error="404") for task in started])
    assert (len(ended.changed), ended.drained) == (30, True)
    assert ended.run is not None
    assert ended.run.chunks_failed == 30
    assert len(ledger.reopen_tasks(run, ended.changed[:12], "recovery-1")) == 12
    assert ledger.counts(ledger.run("r")) == Counts(30, 0, 18)


def test_the_ledger_leaves_the_same_items(backend: Backend, table: str) -> None:
    """The real writes of all writers of the ledger, one after the other."""
    moments = count()
    ledger = Ledger(backend.dynamodb, table, clock=lambda: f"2026-01-01T00:{next(moments):02}:00Z")
    ledger.stop_run("r", "failed")
    for _ in range(2):
        ledger.open_run(NewRun(run_id="r", survey="s", job_id="j", workload="spectra"))
    assert ledger.resume_run(ledger.run("r"))
    chunks = [NewChunk(f"chunk-{number:07}", f"chunks/{number}", 10) for number in range(6)]
    ledger.add_chunks("r", chunks[:3])
    ledger.add_chunks("r", chunks)
    ledger.set_total("r", n_chunks=6, n_items=60, n_blank=0)
    assert [run.run_id for run in ledger.open_runs()] == ["r"]
    assert [run.run_id for run in ledger.runs_of("s", not_before="2026")] == ["r"]
    for number, new in enumerate(chunks):
        started = ledger.start_chunk("r", new.chunk_id)
        assert isinstance(started, Started)
        ledger.record_deferral("r", new.chunk_id)
        if number % 3:
            ledger.complete_chunk(started.chunk, Outcome(f"o/{number}", n_timed_out=number % 2), duration_ms=5)
        else:
            assert ledger.end_attempt(started.chunk, "it did not answer", interrupted=True)
            assert ledger.fail_chunk(ledger.chunk("r", new.chunk_id), "a permanent one").changed
    assert ledger.record_refit("r", "chunk-0000001", remaining=0)
    assert ledger.give_up_refit("r", "chunk-0000005", "no time")
    run = ledger.latch("r")
    assert (run.chunks_completed, run.chunks_failed, run.n_timed_out, run.n_refit_failed, run.drains) == (4, 2, 0, 1, 1)
    assert ledger.record_end(run, "failed")
    assert ledger.close_run(ledger.run("r"))
    assert list(ledger.open_runs()) == []
    assert ledger.reopen_chunk(ledger.chunk("r", "chunk-0000000"), "op")
    late = ledger.complete_chunk(ledger.chunk("r", "chunk-0000003"), Outcome("o/3"), duration_ms=7)
    assert (late.late, late.run.drained_at) == (True, None)
    assert ledger.record_resend(ledger.chunk("r", "chunk-0000000"), "lost")
    assert ledger.correct_counters(ledger.run("r"), {"chunks_completed": 5, "chunks_failed": 0})
    assert ledger.claim_sweep(ledger.run("r")) is not None
    assert isinstance(ledger.start_chunk("r", "chunk-0000001"), Skipped)
    reopened = ledger.chunk("r", "chunk-0000000")
    assert (reopened.status, reopened.attempts, reopened.interruptions, reopened.recovery) == ("PENDING", 1, 1, "op")
    assert sorted(chunk.chunk_id for chunk in ledger.chunks("r")) == sorted(chunk.chunk_id for chunk in chunks)


# ---- SQS


def attributes_of(backend: Backend, url: str, *names: str) -> list[int]:
    asked = [f"ApproximateNumberOfMessages{name}" for name in names]
    answer = backend.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=asked)["Attributes"]
    return [int(answer[name]) for name in asked]


def depths(backend: Backend, url: str) -> list[int]:
    """Numbers of messages that are visible, in flight, and delayed."""
    return attributes_of(backend, url, "", "NotVisible", "Delayed")


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def test_a_message_comes_with_its_attributes(backend: Backend) -> None:
    url = backend.queue()
    sent = backend.sqs.send_message(QueueUrl=url, MessageBody='{"a": "ä"}', MessageAttributes={"error": text("why")})
    (message,) = backend.receive(url)
    assert message["MessageId"] == sent["MessageId"]
    assert (message["Body"], message["MessageAttributes"]) == ('{"a": "ä"}', {"error": text("why")})
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["SentTimestamp"] <= message["Attributes"]["ApproximateFirstReceiveTimestamp"]
    assert "DeadLetterQueueSourceArn" not in message["Attributes"]
    backend.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    (bare,) = backend.sqs.receive_message(QueueUrl=url)["Messages"]
    assert bare.keys() == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


def test_a_received_message_is_hidden_until_it_is_deleted(backend: Backend) -> None:
    url = backend.queue()
    assert backend.receive(url) == []
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    assert depths(backend, url) == [1, 0, 0]
    (message,) = backend.receive(url)
    assert backend.receive(url) == []
    assert depths(backend, url) == [0, 1, 0]
    for _ in range(2):  # the second deletion finds no message, which is not an error
        backend.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert depths(backend, url) == [0, 0, 0]


def test_a_message_is_visible_again_when_its_time_is_over(backend: Backend) -> None:
    url = backend.queue(VisibilityTimeout="1")
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    (first,) = backend.receive(url)
    assert backend.receive(url) == []
    second = backend.receive_one(url, VisibilityTimeout=30)
    assert (second["MessageId"], second["Attributes"]["ApproximateReceiveCount"]) == (first["MessageId"], "2")
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["SentTimestamp"] == first["Attributes"]["SentTimestamp"]
    assert (
        second["Attributes"]["ApproximateFirstReceiveTimestamp"]
        == first["Attributes"]["ApproximateFirstReceiveTimestamp"]
    )


def test_an_older_receipt_deletes_nothing(backend: Backend) -> None:
    url = backend.queue(VisibilityTimeout="0")
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    first = backend.receive_one(url)
    second = backend.receive_one(url, VisibilityTimeout=30)
    backend.sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert depths(backend, url) == [0, 1, 0]
    backend.sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    assert depths(backend, url) == [0, 0, 0]


def test_an_expired_receipt_deletes_what_nobody_received_since(backend: Backend) -> None:
    url = backend.queue(VisibilityTimeout="0")
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    message = backend.receive_one(url)
    assert depths(backend, url) == [1, 0, 0]
    backend.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert depths(backend, url) == [0, 0, 0]


def test_visibility_can_be_changed(backend: Backend) -> None:
    url = backend.queue()
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    (message,) = backend.receive(url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    backend.sqs.change_message_visibility(**change, VisibilityTimeout=3000)
    assert backend.receive(url) == []
    backend.sqs.change_message_visibility(**change, VisibilityTimeout=0)
    (again,) = backend.receive(url)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_visibility_of_an_expired_receipt_is_left_alone(backend: Backend) -> None:
    url = backend.queue(VisibilityTimeout="0")
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    message = backend.receive_one(url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 30}
    assert refusal(backend.sqs.change_message_visibility, **change) == ""
    assert depths(backend, url) == [1, 0, 0]


@pytest.mark.parametrize("seconds", [-1, 43_201])
def test_a_message_is_hidden_for_at_most_twelve_hours(backend: Backend, seconds: int) -> None:
    url = backend.queue()
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    (message,) = backend.receive(url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": seconds}
    assert refusal(backend.sqs.change_message_visibility, **change) == "InvalidParameterValue"


def test_the_twelve_hours_begin_with_the_receipt(backend: Backend) -> None:
    url = backend.queue()
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    (message,) = backend.receive(url)
    backend.wait(1.1)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 43_200}
    assert refusal(backend.sqs.change_message_visibility, **change) == "InvalidParameterValue"


def test_a_deleted_message_cannot_be_hidden(backend: Backend) -> None:
    url = backend.queue()
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    (message,) = backend.receive(url)
    backend.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 30}
    assert refusal(backend.sqs.change_message_visibility, **change) == "InvalidParameterValue"


def test_what_is_no_receipt_is_refused(backend: Backend) -> None:
    url = backend.queue()
    assert refusal(backend.sqs.delete_message, QueueUrl=url, ReceiptHandle="none") == "ReceiptHandleIsInvalid"
    change = {"QueueUrl": url, "ReceiptHandle": "none", "VisibilityTimeout": 30}
    assert refusal(backend.sqs.change_message_visibility, **change) == "ReceiptHandleIsInvalid"


def test_a_queue_that_does_not_exist(backend: Backend) -> None:
    code = "AWS.SimpleQueueService.NonExistentQueue"
    assert refusal(backend.sqs.get_queue_url, QueueName=f"{backend.unique}-none") == code
    url = backend.queue()
    assert backend.sqs.get_queue_url(QueueName=backend.unique)["QueueUrl"] == url
    assert refusal(backend.sqs.receive_message, QueueUrl=f"{url}-none") == code
    assert refusal(backend.sqs.send_message, QueueUrl=f"{url}-none", MessageBody="a") == code


def test_a_deleted_queue_loses_its_messages(backend: Backend) -> None:
    code, tags = "AWS.SimpleQueueService.NonExistentQueue", {"prismline:run": "run-1"}
    url = backend.sqs.create_queue(QueueName=backend.unique, tags=tags)["QueueUrl"]
    assert backend.sqs.list_queue_tags(QueueUrl=url)["Tags"] == tags
    assert not backend.sqs.list_queue_tags(QueueUrl=backend.queue("-other")).get("Tags")
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    backend.sqs.delete_queue(QueueUrl=url)
    assert refusal(backend.sqs.receive_message, QueueUrl=url) == code
    assert refusal(backend.sqs.list_queue_tags, QueueUrl=url) == code
    assert refusal(backend.sqs.delete_queue, QueueUrl=url) == code


def test_the_name_of_a_deleted_queue_is_refused_for_a_minute() -> None:
    """The emulator takes it at once."""
    backend = Fake()
    url = backend.queue()
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    backend.sqs.delete_queue(QueueUrl=url)
    backend.wait(59.0)
    code = "AWS.SimpleQueueService.QueueDeletedRecently"
    assert refusal(backend.sqs.create_queue, QueueName=backend.unique) == code
    backend.wait(2.0)
    assert backend.receive(backend.queue()) == []


def test_batches(backend: Backend) -> None:
    url = backend.queue()
    entries = [{"Id": str(number), "MessageBody": f"body {number}"} for number in range(10)]
    answer = backend.sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == [entry["Id"] for entry in entries]
    messages = backend.receive(url)
    while len(messages) < 10:
        messages += backend.receive(url)
    assert sorted(message["Body"] for message in messages) == [entry["MessageBody"] for entry in entries]
    handles = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(messages)]
    hidden = [handle | {"VisibilityTimeout": 0} for handle in handles[:4]]
    assert not backend.sqs.change_message_visibility_batch(QueueUrl=url, Entries=hidden).get("Failed")
    assert depths(backend, url) == [4, 6, 0]
    bad = {"Id": "bad", "ReceiptHandle": "none"}
    answer = backend.sqs.delete_message_batch(QueueUrl=url, Entries=[*handles[4:], bad])
    assert [each["Id"] for each in answer["Successful"]] == [handle["Id"] for handle in handles[4:]]
    assert [(each["Id"], each["Code"]) for each in answer["Failed"]] == [("bad", "ReceiptHandleIsInvalid")]
    assert depths(backend, url) == [4, 0, 0]
    backend.sqs.purge_queue(QueueUrl=url)
    assert depths(backend, url) == [0, 0, 0]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(number), "MessageBody": "a"} for number in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "same", "MessageBody": "a"}] * 2, "BatchEntryIdsNotDistinct"),
        ([{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)], "BatchRequestTooLong"),
    ],
    ids=["empty", "eleven", "same-ids", "too-long"],
)
def test_a_batch_that_is_refused(backend: Backend, entries: list[dict[str, str]], code: str) -> None:
    url = backend.queue()
    refused = refusal(backend.sqs.send_message_batch, QueueUrl=url, Entries=entries)
    assert refused == f"AWS.SimpleQueueService.{code}"
    assert depths(backend, url) == [0, 0, 0]


def test_an_entry_that_is_refused_leaves_the_others(backend: Backend) -> None:
    url = backend.queue()
    entries = [
        {"Id": "good", "MessageBody": "a"},
        {"Id": "bad", "MessageBody": "a", "MessageAttributes": {"error": text("")}},
    ]
    answer = backend.sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["good"]
    assert [(each["Id"], each["Code"], each["SenderFault"]) for each in answer["Failed"]] == [
        ("bad", "InvalidParameterValue", True)
    ]


def test_a_message_that_is_too_large_is_refused(backend: Backend) -> None:
    url = backend.queue()
    assert refusal(backend.sqs.send_message, QueueUrl=url, MessageBody="x" * 2**20) == ""
    code = refusal(backend.sqs.send_message, QueueUrl=url, MessageBody="x" * (2**20 + 1))
    assert code == "InvalidParameterValue"


def test_a_delayed_message_shows_later(backend: Backend) -> None:
    url = backend.queue()
    backend.sqs.send_message(QueueUrl=url, MessageBody="a", DelaySeconds=1)
    assert depths(backend, url) == [0, 0, 1]
    assert backend.receive(url) == []
    assert backend.receive_one(url)["Body"] == "a"


def test_a_message_is_given_up_after_its_receipts(backend: Backend) -> None:
    """The receive over the limit moves it, with its id, body, attributes, count and age."""
    dead = backend.queue("-dlq")
    redrive = {"deadLetterTargetArn": backend.queue_arn(dead), "maxReceiveCount": 2}
    url = backend.queue(VisibilityTimeout="0", RedrivePolicy=json.dumps(redrive))
    backend.sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes={"error": text("why")})
    received = [backend.receive_one(url) for _ in range(2)]
    assert depths(backend, dead) == [0, 0, 0]
    assert backend.receive(url) == []
    assert (depths(backend, url), depths(backend, dead)) == ([0, 0, 0], [1, 0, 0])
    (letter,) = backend.receive(dead)
    assert letter["MessageId"] == received[0]["MessageId"]
    assert (letter["Body"], letter["MessageAttributes"]) == ("a", {"error": text("why")})
    assert letter["Attributes"]["ApproximateReceiveCount"] == "3"
    assert letter["Attributes"]["SentTimestamp"] == received[0]["Attributes"]["SentTimestamp"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == backend.queue_arn(url)


def test_a_queue_forgets_old_messages(backend: Backend) -> None:
    url = backend.queue(MessageRetentionPeriod="60")
    backend.sqs.send_message(QueueUrl=url, MessageBody="a")
    if isinstance(backend, Fake):  # the emulator also needs a minute; its shortest retention is the same
        backend.wait(59)
        assert depths(backend, url) == [1, 0, 0]
        backend.wait(1)
        assert depths(backend, url) == [0, 0, 0]
    attributes = backend.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["MessageRetentionPeriod"])
    assert attributes["Attributes"] == {"MessageRetentionPeriod": "60"}


# ---- S3


@pytest.fixture
def bucket(backend: Backend) -> str:
    backend.s3.create_bucket(Bucket=backend.unique)
    return backend.unique


def status_of(call: Any, **parameters: Any) -> tuple[str, int]:
    """Error code and HTTP status of a refused request."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_an_object(backend: Backend, bucket: str) -> None:
    put = backend.s3.put_object(Bucket=bucket, Key="a/b.json", Body=b"0123456789")
    answer = backend.s3.get_object(Bucket=bucket, Key="a/b.json")
    assert answer["Body"].read() == b"0123456789"
    assert (answer["ETag"], answer["ContentLength"]) == (put["ETag"], 10)
    assert put["ETag"] == '"781e5e245d69b566979b86e28d23f2c7"'
    head = backend.s3.head_object(Bucket=bucket, Key="a/b.json")
    assert (head["ETag"], head["ContentLength"]) == (put["ETag"], 10)
    backend.s3.delete_object(Bucket=bucket, Key="a/b.json")
    backend.s3.delete_object(Bucket=bucket, Key="a/b.json")
    assert status_of(backend.s3.get_object, Bucket=bucket, Key="a/b.json") == ("NoSuchKey", 404)
    assert status_of(backend.s3.head_object, Bucket=bucket, Key="a/b.json") == ("404", 404)
    assert status_of(backend.s3.get_object, Bucket=f"{bucket}-none", Key="a") == ("NoSuchBucket", 404)


@pytest.mark.parametrize(
    ("range_", "content", "message"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
    ],
)
def test_a_range_of_an_object(backend: Backend, bucket: str, range_: str, content: bytes, message: str) -> None:
    backend.s3.put_object(Bucket=bucket, Key="a", Body=b"0123456789")
    answer = backend.s3.get_object(Bucket=bucket, Key="a", Range=range_)
    assert (answer["Body"].read(), answer["ContentRange"], answer["ContentLength"]) == (content, message, len(content))


def test_an_object_in_parts(backend: Backend, bucket: str) -> None:
    named = {"Bucket": bucket, "Key": "a/b.zip"}
    upload = backend.s3.create_multipart_upload(**named, ContentType="application/zip")["UploadId"]
    bodies = [b"a" * 5 * 2**20, b"b"]
    parts = [
        {
            "PartNumber": number,
            "ETag": backend.s3.upload_part(**named, UploadId=upload, PartNumber=number, Body=body)["ETag"],
        }
        for number, body in enumerate(bodies, 1)
    ]
    assert status_of(backend.s3.head_object, **named) == ("404", 404)
    done = backend.s3.complete_multipart_upload(**named, UploadId=upload, MultipartUpload={"Parts": parts})
    found = backend.s3.get_object(**named)
    assert (found["Body"].read(), found["ETag"]) == (b"".join(bodies), done["ETag"])
    assert done["ETag"].endswith('-2"')
    gone = backend.s3.create_multipart_upload(**named, ContentType="application/zip")["UploadId"]
    backend.s3.abort_multipart_upload(**named, UploadId=gone)
    complete = {**named, "UploadId": gone, "MultipartUpload": {"Parts": parts}}
    assert status_of(backend.s3.complete_multipart_upload, **complete) == ("NoSuchUpload", 404)


def test_a_range_of_one_version_of_an_object(backend: Backend, bucket: str) -> None:
    key = {"Bucket": bucket, "Key": "a"}
    first = backend.s3.put_object(**key, Body=b"0123456789")["ETag"]
    assert backend.s3.get_object(**key, Range="bytes=2-3", IfMatch=first)["Body"].read() == b"23"
    assert backend.s3.head_object(**key, IfMatch=first)["ContentLength"] == 10
    second = backend.s3.put_object(**key, Body=b"9876543210")["ETag"]
    replaced = ("PreconditionFailed", 412)
    assert status_of(backend.s3.get_object, **key, Range="bytes=2-3", IfMatch=first) == replaced
    assert status_of(backend.s3.head_object, **key, IfMatch=first) == ("412", 412)
    assert backend.s3.get_object(**key, Range="bytes=2-3", IfMatch=second)["Body"].read() == b"76"
    assert status_of(backend.s3.get_object, **key, Range="bytes=20-", IfMatch=first) == replaced


def test_a_range_beyond_an_object(backend: Backend, bucket: str) -> None:
    backend.s3.put_object(Bucket=bucket, Key="a", Body=b"0123456789")
    assert status_of(backend.s3.get_object, Bucket=bucket, Key="a", Range="bytes=10-") == ("InvalidRange", 416)


def test_conditional_writes_and_reads(backend: Backend, bucket: str) -> None:
    failed = ("PreconditionFailed", 412)
    key = {"Bucket": bucket, "Key": "a"}
    first = backend.s3.put_object(**key, Body=b"1", IfNoneMatch="*")["ETag"]
    assert status_of(backend.s3.put_object, **key, Body=b"2", IfNoneMatch="*") == failed
    second = backend.s3.put_object(**key, Body=b"2", IfMatch=first)["ETag"]
    assert status_of(backend.s3.put_object, **key, Body=b"3", IfMatch=first) == failed
    assert status_of(backend.s3.get_object, **key, IfMatch=first) == failed
    assert backend.s3.get_object(**key, IfMatch=second)["Body"].read() == b"2"


def test_a_replacement_of_what_is_not_there(backend: Backend, bucket: str) -> None:
    replace = {"Bucket": bucket, "Key": "a", "Body": b"1", "IfMatch": '"781e5e245d69b566979b86e28d23f2c7"'}
    assert status_of(backend.s3.put_object, **replace) == ("NoSuchKey", 404)


def test_versions_of_an_object(backend: Backend, bucket: str) -> None:
    backend.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    key = {"Bucket": bucket, "Key": "a"}
    old, new = (backend.s3.put_object(**key, Body=body)["VersionId"] for body in (b"old", b"new"))
    assert backend.s3.get_object(**key)["VersionId"] == new
    assert backend.s3.get_object(**key, VersionId=old)["Body"].read() == b"old"
    backend.s3.delete_object(**key)
    assert status_of(backend.s3.get_object, **key) == ("NoSuchKey", 404)
    assert backend.s3.get_object(**key, VersionId=old)["Body"].read() == b"old"
    assert status_of(backend.s3.get_object, **key, VersionId="3sL4kqtJlcpXroDTDmJ+rmSpXd3dIbrHY")[1] == 404


def test_listings(backend: Backend, bucket: str) -> None:
    keys = ["a/1", "a/2", "a/3", "a/b/4", "a/b/5", "c"]
    for key in reversed(keys):
        backend.s3.put_object(Bucket=bucket, Key=key, Body=b"x")

    def listed(**options: Any) -> list[str]:
        return [each["Key"] for each in backend.s3.list_objects_v2(Bucket=bucket, **options).get("Contents", [])]

    assert listed() == keys
    assert listed(Prefix="a/b/") == ["a/b/4", "a/b/5"]
    assert listed(Prefix="none/") == []
    assert listed(StartAfter="a/2") == ["a/3", "a/b/4", "a/b/5", "c"]
    assert listed(StartAfter="a/2x", Prefix="a/") == ["a/3", "a/b/4", "a/b/5"]
    page = backend.s3.list_objects_v2(Bucket=bucket, MaxKeys=4)
    assert (page["IsTruncated"], page["KeyCount"]) == (True, 4)
    rest = backend.s3.list_objects_v2(Bucket=bucket, ContinuationToken=page["NextContinuationToken"])
    assert ([each["Key"] for each in rest["Contents"]], rest["IsTruncated"]) == (keys[4:], False)
    folders = backend.s3.list_objects_v2(Bucket=bucket, Prefix="a/", Delimiter="/")
    assert [each["Prefix"] for each in folders["CommonPrefixes"]] == ["a/b/"]
    assert [each["Key"] for each in folders["Contents"]] == keys[:3]
    pages = backend.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, MaxKeys=2)
    assert [each["Key"] for page in pages for each in page["Contents"]] == keys
    assert page["Contents"][0]["Size"] == 1


def test_objects_are_deleted_together(backend: Backend, bucket: str) -> None:
    for key in "abc":
        backend.s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    delete = {"Objects": [{"Key": "a"}, {"Key": "none"}]}
    answer = backend.s3.delete_objects(Bucket=bucket, Delete=delete)
    assert sorted(each["Key"] for each in answer["Deleted"]) == ["a", "none"]
    answer = backend.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "b"}], "Quiet": True})
    assert "Deleted" not in answer
    assert "Errors" not in answer
    assert [each["Key"] for each in backend.s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["c"]


def test_a_copy(backend: Backend, bucket: str) -> None:
    backend.s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    backend.s3.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a"})
    assert backend.s3.get_object(Bucket=bucket, Key="b")["Body"].read() == b"x"
    source = {"Bucket": bucket, "Key": "none"}
    assert status_of(backend.s3.copy_object, Bucket=bucket, Key="b", CopySource=source) == ("NoSuchKey", 404)


def test_files(backend: Backend, bucket: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 100)
    backend.s3.upload_file(str(source), bucket, "a")
    backend.s3.download_file(bucket, "a", str(target))
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(ClientError) as missing:
        backend.s3.download_file(bucket, "none", str(target))
    assert missing.value.response["Error"]["Code"] == "404"
    with pytest.raises(S3UploadFailedError) as failed:
        backend.s3.upload_file(str(source), f"{bucket}-none", "a")
    assert isinstance(failed.value.__context__, ClientError)


# ---- EventBridge

DETAIL = {"runid": "r", "data": {"count": 3, "list": ["a", "b"], "flag": True, "nothing": None}}
#: An event, and patterns with whether they match it.
PATTERNS: list[tuple[dict[str, Any], bool]] = [
    ({"source": ["prismline/test/worker"]}, True),
    ({"source": ["prismline/test/worker", "other"], "detail-type": ["prismline.run.drained.v1"]}, True),
    ({"source": ["other"]}, False),
    ({"source": ["prismline/test/worker"], "detail-type": ["other"]}, False),
    ({"source": [{"prefix": "prismline/"}]}, True),
    ({"source": [{"prefix": "aws."}]}, False),
    ({"source": [{"suffix": "/worker"}]}, True),
    ({"detail": {"runid": ["r"]}}, True),
    ({"detail": {"data": {"list": ["b", "c"]}}}, True),
    ({"detail": {"data": {"list": ["c"]}}}, False),
    ({"detail": {"data": {"flag": [True]}}}, True),
    ({"detail": {"data": {"nothing": [None]}}}, True),
    ({"detail": {"data": {"count": [3]}}}, True),
    ({"detail": {"data": {"count": [{"numeric": [">", 2, "<=", 3]}]}}}, True),
    ({"detail": {"data": {"count": [{"numeric": ["<", 3]}]}}}, False),
    ({"detail": {"runid": [{"exists": True}]}}, True),
    ({"detail": {"tasktoken": [{"exists": False}]}}, True),
    ({"detail": {"tasktoken": [{"exists": True}]}}, False),
    ({"detail": {"runid": [{"anything-but": ["q", "s"]}]}}, True),
    ({"detail": {"runid": [{"anything-but": "r"}]}}, False),
    ({"detail": {"runid": [{"anything-but": {"prefix": "r"}}]}}, False),
    ({"detail": {"tasktoken": [{"anything-but": "r"}]}}, False),
    ({"detail": {"runid": [{"equals-ignore-case": "R"}]}}, True),
    ({"$or": [{"source": ["other"]}, {"detail": {"runid": ["r"]}}]}, True),
]


def put(backend: Backend, bus: str = "default", **changes: Any) -> dict[str, Any]:
    entry = {
        "EventBusName": bus,
        "Source": "prismline/test/worker",
        "DetailType": "prismline.run.drained.v1",
        "Detail": json.dumps(DETAIL),
    }
    answer: dict[str, Any] = backend.events.put_events(Entries=[entry | changes])
    return answer


def rule_to(
    backend: Backend, pattern: Mapping[str, Any], *, bus: str = "default", suffix: str = "", **target: Any
) -> str:
    """Make a rule whose target is a new queue. Return the queue's URL."""
    url = backend.queue(suffix)
    name = f"{backend.unique}{suffix}"
    backend.events.put_rule(Name=name, EventBusName=bus, EventPattern=json.dumps(pattern))
    backend.events.put_targets(
        Rule=name, EventBusName=bus, Targets=[{"Id": "queue", "Arn": backend.queue_arn(url), **target}]
    )
    return url


def test_patterns(backend: Backend) -> None:
    bus = backend.unique
    backend.events.create_event_bus(Name=bus)
    urls = [rule_to(backend, pattern, bus=bus, suffix=f"-{number}") for number, (pattern, _) in enumerate(PATTERNS)]
    assert put(backend, bus)["FailedEntryCount"] == 0
    backend.eventually(
        lambda: all(depths(backend, url)[0] for url, (_, hit) in zip(urls, PATTERNS, strict=True) if hit)
    )
    hits = [depths(backend, url)[0] == 1 for url in urls]
    assert [pattern for (pattern, hit), found in zip(PATTERNS, hits, strict=True) if hit != found] == []


def test_an_event_as_a_queue_gets_it(backend: Backend) -> None:
    url = rule_to(backend, {"detail": {"unique": [backend.unique]}})
    answer = put(backend, Detail=json.dumps({"unique": backend.unique}), Resources=["a"])
    event = json.loads(backend.receive_one(url)["Body"])
    assert event["id"] == answer["Entries"][0]["EventId"]
    assert event["time"].endswith("Z")
    assert {name: event[name] for name in ("version", "source", "detail-type", "resources", "detail")} == {
        "version": "0",
        "source": "prismline/test/worker",
        "detail-type": "prismline.run.drained.v1",
        "resources": ["a"],
        "detail": {"unique": backend.unique},
    }


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"InputPath": "$.detail"}, DETAIL),
        ({"InputPath": "$.detail.data.list"}, ["a", "b"]),
        ({"Input": '{"constant": 1}'}, {"constant": 1}),
        (
            {
                "InputTransformer": {
                    "InputPathsMap": {"run": "$.detail.runid", "data": "$.detail.data"},
                    "InputTemplate": '{"run": <run>, "message": "run <run> is done", "data": <data>}',
                }
            },
            {"run": "r", "message": "run r is done", "data": DETAIL["data"]},
        ),
    ],
    ids=["path", "deep-path", "constant", "transformer"],
)
def test_what_a_target_gets(backend: Backend, target: dict[str, Any], expected: Any) -> None:
    backend.events.create_event_bus(Name=backend.unique)
    url = rule_to(backend, {"source": [{"prefix": ""}]}, bus=backend.unique, **target)
    put(backend, backend.unique)
    assert json.loads(backend.receive_one(url)["Body"]) == expected


def test_a_bus_keeps_its_events_to_itself(backend: Backend) -> None:
    backend.events.create_event_bus(Name=backend.unique)
    other = rule_to(backend, {"source": ["prismline/test/worker"]})
    own = rule_to(backend, {"source": ["prismline/test/worker"]}, bus=backend.unique, suffix="-own")
    put(backend, backend.unique)
    backend.receive_one(own)
    assert depths(backend, other) == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Detail": "not JSON"}, "MalformedDetail"),
        ({"Detail": "[1]"}, "MalformedDetail"),
    ],
    ids=["no-json", "no-object"],
)
def test_an_entry_that_is_refused(backend: Backend, changes: dict[str, str], code: str) -> None:
    answer = put(backend, **changes)
    assert (answer["FailedEntryCount"], answer["Entries"][0]["ErrorCode"]) == (1, code)


def test_a_call_takes_ten_events(backend: Backend) -> None:
    entry = {"Source": "a", "DetailType": "b", "Detail": "{}"}
    assert refusal(backend.events.put_events, Entries=[entry] * 11) == "ValidationException"
    assert len(backend.events.put_events(Entries=[entry] * 10)["Entries"]) == 10


def test_a_new_object_is_announced(backend: Backend, bucket: str) -> None:
    url = rule_to(
        backend,
        {
            "source": ["aws.s3"],
            "detail-type": ["Object Created"],
            "detail": {"bucket": {"name": [bucket]}, "object": {"key": [{"prefix": "manifests/"}]}},
        },
    )
    backend.s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    backend.s3.put_object(Bucket=bucket, Key="cubes/a", Body=b"xy")
    etag = backend.s3.put_object(Bucket=bucket, Key="manifests/a", Body=b"xyz")["ETag"]
    event = json.loads(backend.receive_one(url)["Body"])
    assert event["detail"]["bucket"] == {"name": bucket}
    described = event["detail"]["object"]
    assert (described["key"], described["size"], described["etag"]) == ("manifests/a", 3, etag.strip('"'))
    assert event["detail"]["reason"] == "PutObject"
    assert depths(backend, url) == [0, 1, 0]


# ---- Step Functions

DEFINITION = (ROOT / "services/status/statemachine/run.asl.json").read_text()
INPUT = {
    "run_id": "r",
    "job_id": "j",
    "bucket": "b",
    "manifest_key": "manifests/r.json",
    "tolerated_failure_percent": 10,
    "tolerated": "10 %",
    "traceparent": None,
    "trace_id": None,
}


class Runs:
    """A deployed state machine, its two queues, its bus."""

    def __init__(self, backend: Backend, definition: str) -> None:
        self.backend = backend
        self.split, self.status = backend.queue("-split"), backend.queue("-status")
        backend.events.create_event_bus(Name=backend.unique)
        for name, value in {
            "SplitQueueUrl": self.split,
            "StatusQueueUrl": self.status,
            "EventBus": backend.unique,
            "Environment": "test",
        }.items():
            definition = definition.replace(f"${{{name}}}", value)
        self.arn = backend.stepfunctions.create_state_machine(
            name=backend.unique, definition=definition, roleArn="arn:aws:iam::000000000000:role/states"
        )["stateMachineArn"]
        self.bus = rule_to(backend, {"source": [{"prefix": "prismline/"}]}, bus=backend.unique, suffix="-bus")

    def start(self, name: str = "r", document: Any = INPUT) -> str:
        started = self.backend.stepfunctions.start_execution(
            stateMachineArn=self.arn, name=name, input=json.dumps(document)
        )
        return str(started["executionArn"])

    def next(self, url: str) -> dict[str, Any]:
        """Receive and delete the message of the next task."""
        message = self.backend.receive_one(url)
        self.backend.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        found: dict[str, Any] = json.loads(message["Body"])
        return found

    def answer(self, url: str, output: Any) -> dict[str, Any]:
        """Answer the next task."""
        message = self.next(url)
        self.backend.stepfunctions.send_task_success(taskToken=message["tasktoken"], output=json.dumps(output))
        return message

    def refuse(self, url: str, error: str, cause: str) -> dict[str, Any]:
        message = self.next(url)
        self.backend.stepfunctions.send_task_failure(taskToken=message["tasktoken"], error=error, cause=cause)
        return message

    def described(self, arn: str) -> dict[str, Any]:
        found: dict[str, Any] = self.backend.stepfunctions.describe_execution(executionArn=arn)
        return found

    def end(self, arn: str) -> dict[str, Any]:
        """Wait for the execution to end and return it."""

        def ended() -> dict[str, Any] | None:
            found = self.described(arn)
            return found if found["status"] != "RUNNING" else None

        return self.backend.eventually(ended)

    def visited(self, arn: str) -> list[str]:
        """The states of the execution, in order."""
        events = self.backend.stepfunctions.get_execution_history(executionArn=arn, maxResults=1000)["events"]
        return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]


@pytest.fixture
def runs(backend: Backend) -> Runs:
    return Runs(backend, DEFINITION)


UPDATED = {"data": {"updated": True}}


def test_a_run_that_completes(runs: Runs) -> None:
    arn = runs.start()
    assert arn == runs.arn.replace(":stateMachine:", ":execution:") + ":r"
    split = runs.answer(runs.split, {"n_chunks": 3})
    token, moment = split.pop("tasktoken"), split.pop("time")
    assert token
    assert moment.endswith("Z")
    assert split == {
        "specversion": "1.0",
        "id": "r/split",
        "source": "prismline/test/state-machine",
        "type": "prismline.run.split.v1",
        "datacontenttype": "application/json",
        "runid": "r",
        "traceparent": None,
        "data": {"run_id": "r", "job_id": "j", "bucket": "b", "manifest_key": "manifests/r.json"},
    }
    running = runs.answer(runs.status, UPDATED)
    assert running["data"]["execution_arn"] == arn
    assert running["data"]["started_at"] == running["time"]
    assert runs.answer(runs.status, {"failed_percent": 10, "summary": "s"})["data"]["wait_for"] == "drained"
    assert runs.answer(runs.status, UPDATED)["data"]["status"] == "COMPLETED"
    ended = runs.end(arn)
    assert ended["status"] == "SUCCEEDED"
    assert json.loads(ended["output"]) == INPUT | {
        "split": {"n_chunks": 3},
        "running": UPDATED,
        "chunks": {"failed_percent": 10, "summary": "s"},
        "completed": UPDATED,
    }
    assert runs.visited(arn) == [
        "Split",
        "UpdateStatusRunning",
        "IsRunning",
        "AwaitChunks",
        "CheckFailures",
        "UpdateStatusCompleted",
        "IsCompleted",
        "RunCompleted",
    ]


def test_a_run_with_too_many_failures(runs: Runs) -> None:
    arn = runs.start()
    runs.answer(runs.split, {})
    runs.answer(runs.status, UPDATED)
    runs.answer(runs.status, {"failed_percent": 10.5, "summary": "21 of 200 chunks failed"})
    failed = runs.next(runs.status)
    assert failed["data"]["error"] == {
        "Error": "TooManyFailures",
        "Cause": "21 of 200 chunks failed, 10 % are tolerated.",
    }
    event = json.loads(runs.backend.receive_one(runs.bus)["Body"])
    assert event["detail-type"] == "prismline.run.cleanup.requested.v1"
    assert (event["detail"]["id"], event["detail"]["data"]) == ("r/cleanup", {"run_id": "r"})
    runs.backend.stepfunctions.send_task_success(taskToken=failed["tasktoken"], output="{}")
    ended = runs.end(arn)
    assert (ended["status"], ended["error"]) == ("FAILED", "RunFailed")
    assert runs.visited(arn)[4:] == ["CheckFailures", "TooManyFailures", "Cleanup", "UpdateStatusFailed", "RunFailed"]


def test_a_run_that_is_not_valid(runs: Runs) -> None:
    arn = runs.start()
    runs.refuse(runs.split, "ValidationFailed", "no such cube")
    failed = runs.answer(runs.status, {})
    assert failed["id"] == "r/validation-failed"
    assert failed["data"]["error"] == {"Error": "ValidationFailed", "Cause": "no such cube"}
    assert runs.end(arn)["error"] == "ValidationFailed"
    assert runs.visited(arn) == ["Split", "UpdateStatusValidationFailed", "ValidationFailed"]


def test_a_run_that_ended_elsewhere(runs: Runs) -> None:
    arn = runs.start()
    runs.answer(runs.split, {})
    runs.answer(runs.status, UPDATED)
    runs.refuse(runs.status, "RunEnded", "it was cancelled")
    assert runs.end(arn)["status"] == "SUCCEEDED"
    assert runs.visited(arn)[-2:] == ["AwaitChunks", "EndedElsewhere"]


def test_a_run_that_was_not_updated(runs: Runs) -> None:
    arn = runs.start()
    runs.answer(runs.split, {})
    runs.answer(runs.status, {"data": {"updated": False}})
    assert runs.end(arn)["status"] == "SUCCEEDED"
    assert runs.visited(arn) == ["Split", "UpdateStatusRunning", "IsRunning", "EndedElsewhere"]


def test_a_name_is_started_once(runs: Runs) -> None:
    runs.start()
    assert refusal(runs.start, document=INPUT | {"job_id": "other"}) == "ExecutionAlreadyExists"
    unknown = {"stateMachineArn": f"{runs.arn}-none", "name": "a", "input": "{}"}
    assert refusal(runs.backend.stepfunctions.start_execution, **unknown) == "StateMachineDoesNotExist"


def test_a_start_is_idempotent_while_it_runs(runs: Runs) -> None:
    arn = runs.start()
    assert runs.start() == arn
    runs.refuse(runs.split, "ValidationFailed", "")
    runs.answer(runs.status, {})
    runs.end(arn)
    assert refusal(runs.start) == "ExecutionAlreadyExists"


def test_a_token_is_good_for_one_answer(runs: Runs) -> None:
    runs.start()
    token = runs.answer(runs.split, {})["tasktoken"]
    late = refusal(runs.backend.stepfunctions.send_task_success, taskToken=token, output="{}")
    assert late in TOKEN_GONE_CODES
    assert runs.next(runs.status)["tasktoken"] != token


def test_a_token_dies_with_its_execution(runs: Runs) -> None:
    arn = runs.start()
    token = runs.next(runs.split)["tasktoken"]
    runs.backend.stepfunctions.stop_execution(executionArn=arn)
    late = refusal(runs.backend.stepfunctions.send_task_failure, taskToken=token, error="a", cause="b")
    assert late in TOKEN_GONE_CODES


def test_what_is_no_token(runs: Runs) -> None:
    code = refusal(runs.backend.stepfunctions.send_task_success, taskToken="none", output="{}")
    assert code == "InvalidToken"


def test_what_is_no_output(runs: Runs) -> None:
    runs.start()
    token = runs.next(runs.split)["tasktoken"]
    assert refusal(runs.backend.stepfunctions.send_task_success, taskToken=token, output="{") == "InvalidOutput"


def test_a_run_that_is_stopped(runs: Runs) -> None:
    arn = runs.start()
    runs.next(runs.split)
    runs.backend.stepfunctions.stop_execution(executionArn=arn, error="RunCancelled", cause="on request")
    ended = runs.end(arn)
    assert (ended["status"], ended["error"], ended["cause"]) == ("ABORTED", "RunCancelled", "on request")
    code = refusal(runs.backend.stepfunctions.stop_execution, executionArn=f"{arn}-none")
    assert code == "ExecutionDoesNotExist"
    assert refusal(runs.described, arn=f"{arn}-none") == "ExecutionDoesNotExist"


def test_the_end_of_an_execution_is_published(runs: Runs) -> None:
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"stateMachineArn": [runs.arn], "status": ["FAILED", "TIMED_OUT", "ABORTED"]},
    }
    url = rule_to(runs.backend, pattern, suffix="-ends")
    arn = runs.start()
    runs.next(runs.split)
    runs.backend.stepfunctions.stop_execution(executionArn=arn, error="RunCancelled", cause="on request")
    event = json.loads(runs.backend.receive_one(url)["Body"])
    detail = event["detail"]
    assert (detail["executionArn"], detail["name"], detail["status"]) == (arn, "r", "ABORTED")
    assert json.loads(detail["input"]) == INPUT
    assert detail["output"] is None


def short(**changes: Any) -> str:
    """The state machine with shorter times for its first state and for every retry."""
    definition = json.loads(DEFINITION)
    for state in definition["States"].values():
        for retrier in state.get("Retry", []):
            retrier["IntervalSeconds"] = 1
    definition["States"]["Split"] |= changes
    return json.dumps(definition)


def test_a_task_that_is_not_answered_in_time(backend: Backend) -> None:
    """`Split` with one retry is given up after it."""
    once_more = [{"ErrorEquals": ["States.Timeout"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    runs = Runs(backend, short(TimeoutSeconds=1, Retry=once_more))
    arn = runs.start()
    first, second = (runs.next(runs.split) for _ in range(2))
    assert first["id"] == second["id"]
    failed = runs.answer(runs.status, {})
    assert failed["data"]["error"]["Error"] == "SplitTimedOut"
    late = refusal(backend.stepfunctions.send_task_success, taskToken=second["tasktoken"], output="{}")
    assert late in TOKEN_GONE_CODES
    assert runs.end(arn)["status"] == "FAILED"
    assert runs.visited(arn) == ["Split", "SplitTimedOut", "Cleanup", "UpdateStatusFailed", "RunFailed"]


def test_a_task_that_is_tried_again_has_a_new_token(backend: Backend) -> None:
    runs = Runs(backend, short(TimeoutSeconds=1))
    runs.start()
    first, second = (runs.next(runs.split)["tasktoken"] for _ in range(2))
    assert first != second
    late = refusal(backend.stepfunctions.send_task_success, taskToken=first, output="{}")
    assert late in TOKEN_GONE_CODES


def test_a_heartbeat_that_stops(backend: Backend) -> None:
    runs = Runs(backend, short(TimeoutSeconds=60, HeartbeatSeconds=2, Retry=[]))
    arn = runs.start()
    token = runs.next(runs.split)["tasktoken"]
    backend.wait(1.2)
    backend.stepfunctions.send_task_heartbeat(taskToken=token)
    backend.wait(1.2)
    assert runs.described(arn)["status"] == "RUNNING"
    backend.eventually(lambda: depths(backend, runs.status)[0], patience=2)


#: States, and their output for the input `{"n": 3, "text": "a", "flag": true, "list": [1, 2], "nothing": null}`.
SMALL: dict[str, tuple[dict[str, Any], Any]] = {
    "pass": ({"Type": "Pass", "Result": {"a": 1}, "ResultPath": "$.new", "End": True}, {"new": {"a": 1}}),
    "deep": ({"Type": "Pass", "Result": 1, "ResultPath": "$.new.deep", "End": True}, {"new": {"deep": 1}}),
    "none": ({"Type": "Pass", "Result": 1, "ResultPath": None, "End": True}, {}),
    "all": ({"Type": "Pass", "Parameters": {"m.$": "$.n", "c": "d"}, "End": True}, [{"m": 3, "c": "d"}]),
    "input": ({"Type": "Pass", "InputPath": "$.list", "End": True}, [[1, 2]]),
    "output": ({"Type": "Pass", "OutputPath": "$.text", "End": True}, ["a"]),
    "format": (
        {"Type": "Pass", "Parameters": {"x.$": "States.Format('{} \\'{}\\' {}', $.n, $.text, $.list[1])"}, "End": True},
        [{"x": "3 'a' 2"}],
    ),
    "boolean": (
        {"Type": "Pass", "Parameters": {"x.$": "States.Format('{}', $.flag)"}, "End": True},
        [{"x": "true"}],
    ),
    "array": ({"Type": "Pass", "Parameters": {"x.$": "States.Array($.n, 'b')"}, "End": True}, [{"x": [3, "b"]}]),
    "sum": ({"Type": "Pass", "Parameters": {"x.$": "States.MathAdd($.n, -1)"}, "End": True}, [{"x": 2}]),
    "length": ({"Type": "Pass", "Parameters": {"x.$": "States.ArrayLength($.list)"}, "End": True}, [{"x": 2}]),
    "json": (
        {"Type": "Pass", "Parameters": {"x.$": "States.StringToJson(States.JsonToString($.list))"}, "End": True},
        [{"x": [1, 2]}],
    ),
    "context": ({"Type": "Pass", "Parameters": {"x.$": "$$.Execution.Input.n"}, "End": True}, [{"x": 3}]),
    "state": ({"Type": "Pass", "Parameters": {"x.$": "$$.State.Name"}, "End": True}, [{"x": "First"}]),
    "wait": ({"Type": "Wait", "Seconds": 1, "End": True}, {}),
}


def ran(backend: Backend, states: Mapping[str, Any], document: Any) -> dict[str, Any]:
    """The ended execution of a machine with these states, which begins with `First`."""
    arn = backend.stepfunctions.create_state_machine(
        name=backend.unique,
        definition=json.dumps({"StartAt": "First", "States": states}),
        roleArn="arn:aws:iam::000000000000:role/states",
    )["stateMachineArn"]
    started = backend.stepfunctions.start_execution(stateMachineArn=arn, name="a", input=json.dumps(document))

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = backend.stepfunctions.describe_execution(executionArn=started["executionArn"])
        return found if found["status"] != "RUNNING" else None

    return backend.eventually(ended)


FACTS = {"n": 3, "text": "a", "flag": True, "list": [1, 2], "nothing": None}


@pytest.mark.parametrize("name", SMALL)
def test_what_a_state_makes_of_its_input(backend: Backend, name: str) -> None:
    state, expected = SMALL[name]
    ended = ran(backend, {"First": state}, FACTS)
    assert ended["status"] == "SUCCEEDED"
    (whole,) = expected if isinstance(expected, list) else (FACTS | expected,)
    assert json.loads(ended["output"]) == whole


CHOICES: list[tuple[dict[str, Any], bool]] = [
    ({"Variable": "$.n", "NumericEquals": 3}, True),
    ({"Variable": "$.n", "NumericLessThanEquals": 2.5}, False),
    ({"Variable": "$.n", "NumericGreaterThanPath": "$.list[1]"}, True),
    ({"Variable": "$.n", "NumericLessThanEqualsPath": "$.n"}, True),
    ({"Variable": "$.text", "NumericEquals": 3}, False),
    ({"Variable": "$.text", "StringEquals": "a"}, True),
    ({"Variable": "$.text", "StringGreaterThan": "b"}, False),
    ({"Variable": "$.text", "StringMatches": "a*"}, True),
    ({"Variable": "$.flag", "BooleanEquals": True}, True),
    ({"Variable": "$.flag", "BooleanEquals": False}, False),
    ({"Variable": "$.nothing", "IsNull": True}, True),
    ({"Variable": "$.nothing", "BooleanEquals": True}, False),
    ({"Variable": "$.none", "IsPresent": False}, True),
    ({"Variable": "$.n", "IsNumeric": True}, True),
    ({"Variable": "$.n", "IsString": True}, False),
    ({"And": [{"Variable": "$.n", "NumericEquals": 3}, {"Variable": "$.flag", "BooleanEquals": False}]}, False),
    ({"Or": [{"Variable": "$.n", "NumericEquals": 4}, {"Variable": "$.flag", "BooleanEquals": True}]}, True),
    ({"Not": {"Variable": "$.n", "NumericEquals": 4}}, True),
]


def chosen(backend: Backend, rules: Sequence[Mapping[str, Any]]) -> list[bool]:
    """The rules that are true for `FACTS`, from one execution with a Choice state for each rule."""
    states: dict[str, Any] = {}
    for number, rule in enumerate(rules):
        name, following = f"{number}" if number else "First", f"{number + 1}"
        states |= {
            name: {"Type": "Choice", "Choices": [{**rule, "Next": f"{name} holds"}], "Default": f"{name} does not"},
            f"{name} holds": {"Type": "Pass", "Result": True, "ResultPath": f"$.r{number}", "Next": following},
            f"{name} does not": {"Type": "Pass", "Result": False, "ResultPath": f"$.r{number}", "Next": following},
        }
    output = json.loads(ran(backend, states | {f"{len(rules)}": {"Type": "Succeed"}}, FACTS)["output"])
    return [output[f"r{number}"] for number in range(len(rules))]


def test_choices(backend: Backend) -> None:
    assert chosen(backend, [rule for rule, _ in CHOICES]) == [holds for _, holds in CHOICES]


def test_a_null_is_present(backend: Backend) -> None:
    assert chosen(backend, [{"Variable": "$.nothing", "IsPresent": True}]) == [True]


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({"Type": "Pass", "Parameters": {"x.$": "$.none"}, "End": True}, "States.Runtime"),
        (
            {"Type": "Choice", "Choices": [{"Variable": "$.n", "NumericEquals": 4, "Next": "Last"}]},
            "States.NoChoiceMatched",
        ),
        ({"Type": "Fail", "Error": "Own", "Cause": "why"}, "Own"),
    ],
    ids=["no-path", "no-choice", "fail"],
)
def test_a_state_that_fails(backend: Backend, state: dict[str, Any], error: str) -> None:
    ended = ran(backend, {"First": state, "Last": {"Type": "Succeed"}}, FACTS)
    assert (ended["status"], ended["error"]) == ("FAILED", error)


# ---- SSM and EC2


def test_a_parameter(backend: Backend) -> None:
    name = f"/{backend.unique}/instance"
    assert refusal(backend.ssm.get_parameter, Name=name) == "ParameterNotFound"
    backend.ssm.put_parameter(Name=name, Value="a", Type="String")
    assert refusal(backend.ssm.put_parameter, Name=name, Value="b", Type="String") == "ParameterAlreadyExists"
    backend.ssm.put_parameter(Name=name, Value="c", Type="String", Overwrite=True)
    answer = backend.ssm.get_parameter(Name=name)["Parameter"]
    assert (answer["Name"], answer["Value"], answer["Version"]) == (name, "c", 2)


def test_an_instance_is_found_by_its_tags_and_its_state(backend: Backend) -> None:
    instance_id = backend.new_instance(unique=backend.unique)

    def found(tag: str, state: str) -> list[dict[str, Any]]:
        filters = [
            {"Name": "tag:unique", "Values": [tag]},
            {"Name": "instance-state-name", "Values": [state]},
        ]
        reservations = backend.ec2.describe_instances(Filters=filters)["Reservations"]
        return [instance for reservation in reservations for instance in reservation["Instances"]]

    backend.eventually(lambda: found(backend.unique, "running"))
    (instance,) = found(backend.unique, "running")
    assert instance["InstanceId"] == instance_id
    assert instance["PrivateIpAddress"]
    assert found("another", "running") == []
    backend.stop_instance(instance_id)
    backend.eventually(lambda: found(backend.unique, "stopped"))
    assert found(backend.unique, "running") == []
