"""Measures the calls of the fakes: `python -m tests.simulation.aws.speed` prints microseconds for each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tests.simulation.aws import Aws, PlainHub, deployed

#: Number of rounds. The best one counts, because other processes can only add time.
ROUNDS = 15
CALLS = 300


def microseconds(call: Callable[[], Any], calls: int = CALLS) -> float:
    """The time of one call in the quickest round."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(calls):
            call()
        rounds.append((time.process_time() - start) / calls)
    return min(rounds) * 1e6


def measurements() -> dict[str, Callable[[], Any]]:
    """Calls by name, on an account with forty chunks and a listener for every change."""
    hub = PlainHub()
    aws = deployed(hub)
    aws.on_write.append(lambda *change: None)
    table, bucket = aws.outputs["RUNS_TABLE"], aws.outputs["BUCKET"]
    key: dict[str, Any] = {"PK": {"S": "run"}, "SK": {"S": "RUN"}}
    attributes = {f"attribute_{number}": {"S": "x" * 20} for number in range(15)}
    run = {**key, "jobs_completed": {"N": "0"}, **attributes}
    aws.dynamodb.put_item(TableName=table, Item={**run, "GSI2_PK": {"S": "OPEN"}, "GSI2_SK": {"S": "2026"}})
    chunks = [
        {"PK": {"S": "run"}, "SK": {"S": f"CHUNK#{number:05}"}, "status": {"S": "PENDING"}, **attributes}
        for number in range(40)
    ]
    for chunk in chunks:
        aws.dynamodb.put_item(TableName=table, Item=chunk)
    update: dict[str, Any] = {
        "TableName": table,
        "Key": {name: chunks[0][name] for name in ("PK", "SK")},
        "UpdateExpression": "SET #status = :status, #started_at = :started_at ADD #attempts :attempts",
        "ConditionExpression": "#status IN (:from0, :from1)",
        "ExpressionAttributeNames": {name: name[1:] for name in ("#status", "#started_at", "#attempts")},
        "ExpressionAttributeValues": {
            ":status": {"S": "IN_PROGRESS"},
            ":started_at": {"S": "2026-01-01T00:00:00Z"},
            ":attempts": {"N": "1"},
            ":from0": {"S": "PENDING"},
            ":from1": {"S": "IN_PROGRESS"},
        },
    }
    count: dict[str, Any] = {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "ADD #jobs_completed :jobs_completed",
        "ConditionExpression": "attribute_exists(PK)",
        "ExpressionAttributeNames": {"#jobs_completed": "jobs_completed"},
        "ExpressionAttributeValues": {":jobs_completed": {"N": "1"}},
    }
    refused = update | {"ConditionExpression": "#status IN (:from0, :from0) AND #status = :from1"}

    def refuse() -> None:
        try:
            aws.dynamodb.update_item(**refused)
        except ClientError:
            return

    query: dict[str, Any] = {
        "TableName": table,
        "KeyConditionExpression": "PK = :pk AND begins_with(SK, :prefix)",
        "ExpressionAttributeValues": {":pk": {"S": "run"}, ":prefix": {"S": "CHUNK#"}},
        "ConsistentRead": True,
    }
    open_runs: dict[str, Any] = {
        "TableName": table,
        "IndexName": "GSI2",
        "KeyConditionExpression": "GSI2_PK = :open",
        "ExpressionAttributeValues": {":open": {"S": "OPEN"}},
    }
    queue = aws.queue("chunks")
    body = json.dumps({"type": "prismline.chunk.process.v1", "data": {"text": "x" * 400}})
    batch = [{"Id": str(number), "MessageBody": body} for number in range(10)]

    def send_ten() -> None:
        aws.sqs.send_message_batch(QueueUrl=queue.url, Entries=batch)
        queue.messages.clear()

    def receive_and_delete() -> None:
        aws.sqs.enqueue(queue, body)
        (message,) = aws.sqs.receive_message(
            QueueUrl=queue.url, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
        )["Messages"]
        aws.sqs.delete_message(QueueUrl=queue.url, ReceiptHandle=message["ReceiptHandle"])

    content = b"x" * 2000
    entry = {
        "EventBusName": aws.outputs["EVENT_BUS"],
        "Source": "prismline/sim/worker",
        "DetailType": "prismline.run.drained.v1",
        "Detail": body,
    }

    def publish() -> None:
        aws.events.put_events(Entries=[entry])
        hub.advance()
        aws.queue("runs").messages.clear()

    return {
        "dynamodb.get_item": partial(aws.dynamodb.get_item, TableName=table, Key=key, ConsistentRead=True),
        "dynamodb.put_item (18 attributes)": partial(aws.dynamodb.put_item, TableName=table, Item=chunks[1]),
        "dynamodb.update_item (condition, ALL_NEW)": partial(
            aws.dynamodb.update_item, **update, ReturnValues="ALL_NEW"
        ),
        "dynamodb.update_item (refused)": refuse,
        "dynamodb.transact_write_items (2 updates)": partial(
            aws.dynamodb.transact_write_items, TransactItems=[{"Update": update}, {"Update": count}]
        ),
        "dynamodb.query (40 items)": partial(aws.dynamodb.query, **query),
        "dynamodb.query (index, 1 item)": partial(aws.dynamodb.query, **open_runs),
        "sqs.send_message_batch (10)": send_ten,
        "sqs.receive_message + delete_message": receive_and_delete,
        "s3.put_object (2 kB)": partial(aws.s3.put_object, Bucket=bucket, Key="a", Body=content),
        "s3.get_object (2 kB)": partial(aws.s3.get_object, Bucket=bucket, Key="a"),
        "events.put_events + delivery": publish,
        "a whole execution (4 tasks)": whole_execution(aws, hub),
        "a new account": partial(deployed, hub),
    }


def whole_execution(aws: Aws, hub: PlainHub) -> Callable[[], Any]:
    """A function that starts a run's execution and answers its tasks until it ends."""
    machine = aws.outputs["STATE_MACHINE_ARN"]
    document = dict.fromkeys(("run_id", "job_id", "bucket", "manifest_key", "traceparent", "trace_id"))
    text = json.dumps({**document, "run_id": "r", "tolerated_failure_percent": 0, "tolerated": "0 %"})
    updated = {"data": {"updated": True}}

    def run() -> None:
        execution = aws.stepfunctions.start(machine, text)
        for output in ({}, updated, {"failed_percent": 0, "summary": ""}, updated):
            hub.advance()
            assert execution.token is not None
            aws.stepfunctions.send_task_success(taskToken=execution.token, output=json.dumps(output))
        hub.advance()
        assert execution.status == "SUCCEEDED"
        for name in ("split", "status"):
            aws.queue(name).messages.clear()

    return run


if __name__ == "__main__":
    for name, call in measurements().items():
        print(f"{microseconds(call):8.1f}  {name}")
