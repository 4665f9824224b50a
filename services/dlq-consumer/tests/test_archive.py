"""The archive's record has the structure of the Cumulus dead-letter archive, whatever the message holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dlq_world import DlqConsumerWorld, chunk_message
from hypothesis import example, given
from hypothesis import strategies as st

from prismline_contracts.deadletters import DeadLetterRecord
from prismline_dlq_consumer.archive import dead_letter_record, record_key, to_json
from prismline_dlq_consumer.dead_letter import describe, read_dead_letter

#: The fields of the Cumulus record.
FIELDS = (
    *("body", "error", "execution", "time", "collection", "granules", "stateMachine", "status", "md5OfBody"),
    *("eventSource", "awsRegion", "messageId", "receiptHandle", "attributes", "messageAttributes"),
)
#: What Prismline adds.
OWN = ("run_id", "chunk_id", "source_queue", "receive_count")
EXECUTION = "arn:aws:states:us-east-1:000000000000:execution:prismline-dev-run:r1"
MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:prismline-dev-run"


def sqs_record(body: str, **fields: Any) -> dict[str, Any]:
    return {
        "messageId": "059f36b4",
        "receiptHandle": "handle",
        "body": body,
        "md5OfBody": "m",
        "attributes": {"ApproximateReceiveCount": "7", "DeadLetterQueueSourceArn": "arn:x:chunks"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:prismline-dev-chunks-dlq",
        "awsRegion": "us-east-1",
    } | fields


def made(record: dict[str, Any], archived_at: str = "2026-03-02T12:00:00.000Z") -> DeadLetterRecord:
    return dead_letter_record(record, read_dead_letter(record, "chunks"), archived_at, "dev")


def archived(body: str, **fields: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_json(made(sqs_record(body, **fields))))
    return document


def status_change(**detail: Any) -> str:
    return json.dumps(
        {
            "version": "0",
            "id": "e",
            "detail-type": "Step Functions Execution Status Change",
            "source": "aws.states",
            "account": "000000000000",
            "time": "2026-03-01T12:00:00Z",
            "region": "us-east-1",
            "resources": [EXECUTION],
            "detail": {
                "executionArn": EXECUTION,
                "stateMachineArn": MACHINE,
                "name": "r1",
                "status": "FAILED",
                "startDate": 1,
                "stopDate": 2,
                "input": json.dumps({"survey": "grs", "run_id": "r1"}),
                "output": None,
                "error": "States.Timeout",
                "cause": "too slow",
            }
            | detail,
        }
    )


def test_a_record_has_every_field_of_the_archive() -> None:
    record = archived(chunk_message("r1", "chunk-0000005"))
    assert set(FIELDS) | set(OWN) <= set(record)
    DeadLetterRecord.model_validate(record)
    assert record["collection"] == "grs"
    assert record["granules"] == ["chunk-0000005"]
    assert (record["run_id"], record["chunk_id"]) == ("r1", "chunk-0000005")
    assert (record["source_queue"], record["receive_count"]) == ("chunks", 7)
    assert (record["eventSource"], record["awsRegion"]) == ("aws:sqs", "us-east-1")


@pytest.mark.parametrize(("ids", "granules"), [(["a", "b"], ["a", "b"]), ([], None), ("a", None), ([1, "b"], ["b"])])
def test_the_granules_of_a_letter_of_tasks_are_its_tasks(ids: Any, granules: list[str] | None) -> None:
    body = json.dumps({"specversion": "1.0", "data": {"run_id": "r1", "task_ids": ids}})
    assert archived(body)["granules"] == granules


def test_the_record_of_a_chunk_names_the_execution_of_its_run() -> None:
    """The execution of a run has the run's id as its name."""
    record = archived(chunk_message("r1", "chunk-0000005"))
    assert (record["execution"], record["stateMachine"]) == (EXECUTION, MACHINE)
    elsewhere = "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:prismline-dev-chunks-dlq"
    record = archived(chunk_message("r1", "chunk-0000005"), eventSourceARN=elsewhere)
    assert record["stateMachine"] == "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:prismline-dev-run"


def test_an_event_that_eventbridge_could_not_deliver_is_described_by_its_envelope() -> None:
    envelope = json.loads(chunk_message("r1", "chunk-0000005"))
    event = {"detail-type": envelope["type"], "source": "prismline/dev/splitter", "detail": envelope}
    why = {"ERROR_CODE": "NO_PERMISSIONS", "ERROR_MESSAGE": "not authorized"}
    attributes = {name: {"stringValue": text, "dataType": "String"} for name, text in why.items()}
    record = archived(json.dumps(event), messageAttributes=attributes)
    assert (record["run_id"], record["chunk_id"], record["collection"]) == ("r1", "chunk-0000005", "grs")
    assert record["error"] == "NO_PERMISSIONS: not authorized"


def test_a_field_that_was_not_found_is_null() -> None:
    record = archived("not json at all")
    assert record["body"] == "not json at all"
    assert record["error"] == "It is not a JSON object."
    for field in ("execution", "time", "collection", "granules", "stateMachine", "status", "run_id", "chunk_id"):
        assert record[field] is None


@pytest.mark.parametrize("as_text", [False, True])
def test_a_step_functions_status_change_is_unwrapped(as_text: bool) -> None:
    body = status_change()
    if as_text:
        document = json.loads(body)
        body = json.dumps(document | {"detail": json.dumps(document["detail"])})
    record = archived(body)
    assert (record["execution"], record["stateMachine"]) == (EXECUTION, MACHINE)
    assert (record["status"], record["error"]) == ("FAILED", "States.Timeout")
    assert (record["time"], record["collection"], record["run_id"]) == ("2026-03-01T12:00:00Z", "grs", "r1")


def test_a_status_change_whose_parts_are_missing_is_described_as_far_as_it_goes() -> None:
    assert describe(status_change(input="{", error=None, cause="why")).error == "why"
    assert describe(status_change(input=None, executionArn=7)).execution is None
    assert describe(json.dumps({"detail-type": "Step Functions Execution Status Change"})).status is None


def test_the_reason_of_the_service_that_gave_up_is_the_error() -> None:
    attributes = {"error": {"stringValue": "There is no run r.", "dataType": "String"}}
    assert archived(chunk_message("r", "chunk-0000000"), messageAttributes=attributes)["error"] == "There is no run r."


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"raised": "ZeroDivisionError: division by zero"}, "ZeroDivisionError: division by zero"),
        ({"waits_for": "gpu"}, "It waits for the resource gpu."),
        ({}, "Its consumer died or did not answer: SQS moved the message after 7 receives."),
    ],
)
def test_no_record_has_an_empty_error(attributes: dict[str, str], error: str) -> None:
    given = {name: {"stringValue": text, "dataType": "String"} for name, text in attributes.items()}
    assert archived(chunk_message("r", "chunk-0000000"), messageAttributes=given)["error"] == error


def test_a_binary_attribute_is_kept() -> None:
    attributes = {"blob": {"binaryValue": b"\x00\xff", "dataType": "Binary"}}
    assert archived("{}", messageAttributes=attributes)["messageAttributes"]["blob"]["binaryValue"] == "AP8="


#: Any character, lone surrogates included. Unlike hypothesis' default, it needs no table of what UTF-8 can encode: the
#: first test that needs that table spends seconds on making it, and fails its health check.
CHARACTERS = st.characters(exclude_categories=())


@given(st.text(CHARACTERS))
@example("\ud800 is no Unicode")
def test_any_body_is_kept_as_it_came(body: str) -> None:
    assert archived(body)["body"] == body


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(CHARACTERS, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["specversion", "data", "detail", "detail-type", "source", "type", "time", "run_id", "input"])


@given(st.dictionaries(NAMES, JSON_VALUES | st.just("Step Functions Execution Status Change")))
def test_any_json_object_can_be_described(document: dict[str, Any]) -> None:
    record = archived(json.dumps(document))
    assert json.loads(record["body"]) == json.loads(json.dumps(document)) or "NaN" in record["body"]
    assert set(FIELDS) <= set(record)


@given(st.dictionaries(st.sampled_from(["attributes", "messageAttributes", "md5OfBody", "awsRegion"]), st.none()))
def test_a_record_without_attributes_of_sqs_is_archived(missing: dict[str, Any]) -> None:
    assert archived("{}", **missing)["messageId"] == "059f36b4"


@pytest.mark.emulator
def test_a_body_of_one_mebibyte_that_cannot_be_parsed_is_kept_unchanged(world: DlqConsumerWorld) -> None:
    body = "é{" * (2**20 // 3)
    world.send("chunks-dlq", body)
    assert world.handle("chunks-dlq") == []
    (record,) = world.records().values()
    assert record["body"] == body
    assert world.depth("chunks-dlq") == 0


@pytest.mark.emulator
def test_a_message_has_one_record_however_often_it_is_received(world: DlqConsumerWorld) -> None:
    """A day's outage of a resource is 96 receipts of each message that waits for it."""
    first = {"ApproximateFirstReceiveTimestamp": "1772409599000"}  # a second before the end of 1 March
    for receipt, day in ((1, 1), (2, 2), (96, 3)):
        attributes = first | {"ApproximateReceiveCount": str(receipt)}
        record = made(sqs_record("{}", attributes=attributes), f"2026-03-0{day}T12:00:00.000Z")
        assert world.deps.archive.write(record) == "dead-letter-archive/sqs/2026-03-01/059f36b4.json"
    (kept,) = world.records().values()
    assert (kept["receive_count"], kept["archived_at"]) == (96, "2026-03-03T12:00:00.000Z")


def test_a_message_without_the_time_of_its_first_receipt_is_kept_under_todays_date() -> None:
    assert record_key(dict(made(sqs_record("{}")))) == "dead-letter-archive/sqs/2026-03-02/059f36b4.json"
