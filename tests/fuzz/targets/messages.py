"""Messages: the bodies of SQS messages, into the real handler of every process that takes messages.

The examples are those of the pacts, one of every message that a service takes, and the events of AWS services.
"""

from __future__ import annotations

import copy
import json
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prismline_contracts.events import RunSubmitted
from prismline_ledger import Ledger, NewChunk
from prismline_ledger.testing import ingest_run, split_run
from tests.fuzz.account import Process, empty
from tests.fuzz.mutations import json_bytes
from tests.fuzz.target import Target
from tests.simulation.processes import Service, declared_services

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PACTS = Path(__file__).parents[3] / "contracts" / "pacts"
#: The events of AWS services, by the process that takes them.
AWS_EVENTS: dict[str, list[Any]] = {
    "splitter": [
        {
            "version": "0",
            "source": "aws.s3",
            "detail-type": "Object Created",
            "time": "2026-03-01T12:00:00Z",
            "detail": {
                "bucket": {"name": "prismline-sim-000000000000-us-east-1"},
                "object": {"key": "manifests/a.json", "size": 100, "etag": "e", "sequencer": "00"},
            },
        }
    ],
    "status": [
        {
            "source": "aws.states",
            "detail-type": "Step Functions Execution Status Change",
            "detail": {
                "executionArn": "arn:aws:states:us-east-1:000000000000:execution:prismline-sim:r",
                "name": "2d8e8c2e-24e0-5baa-a51f-9247927e610e",
                "status": "FAILED",
                "error": "States.Timeout",
                "cause": "It took too long.",
                "input": "{}",
            },
        }
    ],
    "notifier": [
        {
            "Type": "Notification",
            "TopicArn": "arn:aws:sns:us-east-1:1:alarms",
            "Timestamp": "2026-03-01T12:00:00Z",
            "Message": json.dumps(
                {
                    "AlarmName": "prismline-sim-chunks-dlq",
                    "AlarmDescription": "Dead letters.",
                    "NewStateValue": "ALARM",
                    "NewStateReason": "Threshold crossed.",
                    "StateChangeTime": "2026-03-01T12:00:00.000+0000",
                    "Trigger": {"Threshold": 0, "Dimensions": [{"name": "QueueName", "value": "prismline-sim-chunks"}]},
                }
            ),
        }
    ],
    "recovery": [{"source": "aws.events", "detail-type": "Scheduled Event", "time": "2026-03-01T12:00:00Z"}],
}


def changed(document: Any, value: Any, *path: str) -> Any:
    """A copy of `document` with another value at `path`."""
    name, *rest = path
    return document | {name: changed(document[name], value, *rest) if rest else value}


#: Processes whose handler another process has, too.
SAME_HANDLER = {"slow-lane", "fetcher", "sweeper"}
HOSTILE: dict[str, Any] = {
    "an_empty_object": {},
    "a_list": [],
    "an_envelope_without_data": {"specversion": "1.0", "type": "prismline.run.split.v1"},
    "an_event_that_could_not_be_delivered_and_has_no_detail": {"detail-type": "x", "detail": None},
    "a_type_that_is_a_list": {"specversion": "1.0", "type": []},
}
#: Past findings and their likes, by process. `\\ud800` is half of a surrogate pair, which no AWS service accepts.
PAST: dict[str, dict[str, Any]] = {
    "splitter": {
        "an_object_without_a_key": changed(AWS_EVENTS["splitter"][0], None, "detail", "object", "key"),
        "a_bucket_whose_name_is_an_object": changed(AWS_EVENTS["splitter"][0], {}, "detail", "bucket", "name"),
        "a_key_with_half_of_a_surrogate_pair": changed(
            AWS_EVENTS["splitter"][0], "manifests/\ud800.json", "detail", "object", "key"
        ),
    },
    "status": {
        "an_execution_whose_error_is_a_number": changed(AWS_EVENTS["status"][0], 7, "detail", "error"),
        "an_execution_whose_arn_is_a_list": changed(AWS_EVENTS["status"][0], [[]], "detail", "executionArn"),
        "an_execution_whose_name_is_no_run_id": changed(AWS_EVENTS["status"][0], "a b", "detail", "name"),
        "an_execution_whose_status_is_a_list": changed(AWS_EVENTS["status"][0], [], "detail", "status"),
    },
}


@cache
def process(service: Service) -> Process:
    return Process(service)


@cache
def scene(service: Service) -> dict[str, Any]:
    """The tables of an account that knows the runs of the examples, with their chunks and tasks."""
    aws = empty()
    ledger = Ledger(cast("DynamoDBClient", aws.dynamodb), aws.outputs["RUNS_TABLE"])
    data = [each["data"] for each in examples(service) if "run_id" in each.get("data", {})]
    for run_id in {each["run_id"] for each in data}:
        of_run = [each for each in data if each["run_id"] == run_id]
        if any("task_ids" in each for each in of_run):
            ingest_run(ledger, run_id, ["https://example.com/"] * 3)
            continue
        found = {each["chunk_id"]: each for each in of_run if "chunk_id" in each}
        chunks = [NewChunk(name, each["chunk_key"], each.get("n_items", 1)) for name, each in found.items()]
        split_run(ledger, run_id, chunks or 1)
    for example in examples(service):
        if example.get("type") == RunSubmitted.TYPE:
            process(service).take(json.dumps(example))
    return copy.deepcopy(aws.tables)


def take(data: bytes, service: Service) -> str | None:
    """Let a process take `data` as the body of a message, in an account that knows the runs of the examples."""
    tables = scene(service)
    empty().tables.update(copy.deepcopy(tables))
    return process(service).take(data.decode("utf-8", errors="replace"))


def examples(service: Service) -> list[Any]:
    """Valid messages of a process."""
    name = service.package.removeprefix("prismline_").replace("_", "-")
    pacts = [json.loads(path.read_text()) for path in sorted(PACTS.glob(f"{name}-*.json"))]
    contents = [each["contents"]["content"] for pact in pacts for each in pact["interactions"]]
    return contents + AWS_EVENTS.get(service.name, [])


def corpus(service: Service) -> dict[str, bytes]:
    """Hostile bodies: the same for every process, and the past findings of this one."""
    nested = {
        "a_document_that_is_nested_a_hundred_thousand_times": b'{"specversion":' * 100_000,
        "a_body_that_is_not_utf_8": b"\xff\xfe",
        "a_number_of_five_thousand_digits": b'{"specversion": ' + b"9" * 5_000 + b"}",
    }
    hostile = HOSTILE | PAST.get(service.name, {})
    return {name: json.dumps(document).encode() for name, document in hostile.items()} | nested


TARGETS = [
    Target(
        f"messages-{service.name}",
        run=partial(take, service=service),
        inputs=json_bytes(*examples(service)),
        hostile=corpus(service),
        prepare=partial(scene, service),
    )
    for service in declared_services().values()
    if service.name not in SAME_HANDLER
]
