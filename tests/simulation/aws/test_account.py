"""Features that only the fakes have: lags, duplicates, faults, hooks, the account of the templates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from prismline_localstack.testing import create_runs_table
from tests.simulation.aws import Aws, Change, Delivery, PlainHub, deployed
from tests.simulation.aws.backends import refusal

KEY: dict[str, Any] = {"PK": {"S": "run"}, "SK": {"S": "RUN"}}
OPEN = {"GSI2_PK": {"S": "OPEN"}, "GSI2_SK": {"S": "2026"}}


class Recorder(PlainHub):
    """A hub that holds back deliveries and records the calls at its gate."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: list[Delivery] = []
        self.calls: list[tuple[str, str]] = []

    def call_later(self, seconds: float, action: Callable[[], None], label: str) -> None:
        if isinstance(action, Delivery):
            assert label == f"deliver:{action.rule.name}"
            self.deliveries.append(action)
        else:
            super().call_later(seconds, action, label)

    def gate(self, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]) -> Any:
        self.calls.append((service, operation))
        return perform()


@pytest.fixture
def hub() -> PlainHub:
    return PlainHub()


@pytest.fixture
def aws(hub: PlainHub) -> Aws:
    aws = Aws(hub)
    create_runs_table(aws.dynamodb, "runs")  # type: ignore[arg-type]
    return aws


def open_runs(aws: Aws) -> int:
    answer = aws.dynamodb.query(
        TableName="runs",
        IndexName="GSI2",
        KeyConditionExpression="GSI2_PK = :open",
        ExpressionAttributeValues={":open": {"S": "OPEN"}},
    )
    return int(answer["Count"])


def test_an_index_lags_for_the_given_time(aws: Aws, hub: PlainHub) -> None:
    aws.tables["runs"].index_lag = 5
    aws.dynamodb.put_item(TableName="runs", Item=KEY | OPEN)
    hub.advance(4)
    assert open_runs(aws) == 0
    hub.advance(1)
    assert open_runs(aws) == 1
    aws.dynamodb.delete_item(TableName="runs", Key=KEY)
    assert open_runs(aws) == 1
    hub.advance(5)
    assert open_runs(aws) == 0


def test_writes_are_reported_after_the_whole_request(aws: Aws) -> None:
    noted: list[Any] = []
    aws.on_write.append(lambda table, key, before, after: noted.append((key, before, after, len(aws.tables[table]))))
    commits: list[list[Change]] = []
    aws.on_commit.append(commits.append)
    chunk = {"PK": {"S": "run"}, "SK": {"S": "CHUNK#1"}, "n": {"N": "1"}}
    puts = [{"Put": {"TableName": "runs", "Item": item}} for item in (KEY, chunk)]
    aws.dynamodb.transact_write_items(TransactItems=puts)
    plain = {"PK": "run", "SK": "CHUNK#1", "n": 1}
    assert noted == [(("run", "RUN"), None, {"PK": "run", "SK": "RUN"}, 2), (("run", "CHUNK#1"), None, plain, 2)]
    assert [len(commit) for commit in commits] == [2]
    add: dict[str, Any] = {
        "TableName": "runs",
        "Key": KEY | {"SK": chunk["SK"]},
        "UpdateExpression": "ADD n :n",
        "ExpressionAttributeValues": {":n": {"N": "2"}},
    }
    aws.dynamodb.update_item(**add)
    assert noted[2] == (("run", "CHUNK#1"), plain, plain | {"n": 3}, 2)
    assert aws.tables["runs"].get("run", "CHUNK#1") == plain | {"n": 3}
    code = refusal(aws.dynamodb.update_item, **add, ConditionExpression="attribute_not_exists(PK)")
    assert (code, len(noted)) == ("ConditionalCheckFailedException", 3)
    aws.dynamodb.delete_item(TableName="runs", Key=KEY)
    assert noted[3][1:3] == ({"PK": "run", "SK": "RUN"}, None)


def test_what_was_read_stays_as_it_was(aws: Aws) -> None:
    aws.dynamodb.put_item(TableName="runs", Item=KEY | {"list": {"L": [{"N": "1"}]}})
    read = aws.dynamodb.get_item(TableName="runs", Key=KEY)["Item"]
    seen = aws.tables["runs"].get("run", "RUN")
    values = {":v": {"N": "2"}}
    aws.dynamodb.update_item(
        TableName="runs",
        Key=KEY,
        UpdateExpression="SET #l[0] = :v",
        ExpressionAttributeNames={"#l": "list"},
        ExpressionAttributeValues=values,
    )
    assert read["list"] == {"L": [{"N": "1"}]}
    assert seen is not None
    assert seen["list"] == [1]


def test_every_call_passes_the_gate() -> None:
    hub = Recorder()
    aws = deployed(hub)
    aws.dynamodb.get_item(TableName=aws.outputs["RUNS_TABLE"], Key=KEY)
    aws.sqs.get_queue_url(QueueName="prismline-sim-chunks")
    assert hub.calls == [("dynamodb", "get_item"), ("sqs", "get_queue_url")]


def test_an_index_is_not_read_consistently(aws: Aws) -> None:
    with pytest.raises(ClientError, match="Consistent reads are not supported"):
        aws.dynamodb.query(
            TableName="runs",
            IndexName="GSI2",
            KeyConditionExpression="GSI2_PK = :o",
            ExpressionAttributeValues={":o": {"S": "OPEN"}},
            ConsistentRead=True,
        )


# ---- SQS


def test_a_second_delivery(aws: Aws) -> None:
    url = aws.sqs.create_queue(QueueName="q")["QueueUrl"]
    message_id = aws.sqs.send_message(QueueUrl=url, MessageBody="a")["MessageId"]
    (first,) = aws.sqs.receive_message(QueueUrl=url)["Messages"]
    assert aws.sqs.redeliver("q", message_id) is not None
    (second,) = aws.sqs.receive_message(QueueUrl=url)["Messages"]
    assert (second["MessageId"], second["Body"]) == (first["MessageId"], "a")
    aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert len(aws.queues["q"].messages) == 1
    aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    assert aws.sqs.redeliver("q", message_id) is None


def test_a_dead_letter_keeps_its_age(aws: Aws, hub: PlainHub) -> None:
    """The dead-letter queue's retention counts from the first send."""
    arn = "arn:aws:sqs:us-east-1:000000000000:dlq"
    hour = {"MessageRetentionPeriod": "3600"}
    aws.sqs.create_queue(QueueName="dlq", Attributes=hour)
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = aws.sqs.create_queue(QueueName="q", Attributes=hour | {"RedrivePolicy": redrive})["QueueUrl"]
    aws.sqs.send_message(QueueUrl=url, MessageBody="a")
    aws.sqs.receive_message(QueueUrl=url)
    hub.advance(3000)
    aws.sqs.receive_message(QueueUrl=url)
    dlq = aws.queues["dlq"]
    assert dlq.depths(hub.now()) == (1, 0, 0)
    hub.advance(600)
    assert "Messages" not in aws.sqs.receive_message(QueueUrl=dlq.url)
    assert dlq.messages == {}


def test_which_message_comes_is_the_hubs_choice() -> None:
    def order(seed: int) -> list[str]:
        aws = Aws(PlainHub(seed=seed))
        url = aws.sqs.create_queue(QueueName="q")["QueueUrl"]
        for number in range(6):
            aws.sqs.send_message(QueueUrl=url, MessageBody=str(number))
        return [aws.sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] for _ in range(6)]

    assert sorted(order(1)) == [str(number) for number in range(6)]
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_former_receipts_may_count(aws: Aws) -> None:
    url = aws.sqs.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
    aws.sqs.send_message(QueueUrl=url, MessageBody="a")
    first, _ = (aws.sqs.receive_message(QueueUrl=url)["Messages"][0] for _ in range(2))
    aws.sqs.stale_receipts_count = True
    aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert aws.queues["q"].messages == {}


# ---- S3


def test_a_conditional_write_may_conflict(aws: Aws) -> None:
    aws.s3.create_bucket(Bucket="b")
    aws.s3.conflicts.add("a")
    code = refusal(aws.s3.put_object, Bucket="b", Key="a", Body=b"1", IfNoneMatch="*")
    assert (code, dict(aws.objects["b"])) == ("ConditionalRequestConflict", {})
    assert refusal(aws.s3.put_object, Bucket="b", Key="a", Body=b"1", IfNoneMatch="*") == ""


def test_puts_are_reported(aws: Aws) -> None:
    noted: list[tuple[str, str, bytes]] = []
    aws.on_put_object.append(lambda bucket, key, put: noted.append((bucket, key, put.body)))
    aws.s3.create_bucket(Bucket="b")
    aws.s3.put_object(Bucket="b", Key="a", Body=b"1")
    assert noted == [("b", "a", b"1")]
    assert aws.objects["b"]["a"].body == b"1"


# ---- EventBridge


def drained(aws: Aws) -> None:
    aws.events.put_events(
        Entries=[
            {
                "EventBusName": aws.outputs["EVENT_BUS"],
                "Source": "prismline/sim/worker",
                "DetailType": "prismline.run.drained.v1",
                "Detail": '{"runid": "r"}',
            }
        ]
    )


def test_a_delivery_is_in_the_hubs_hands() -> None:
    """A delivery may come late, twice or never."""
    hub = Recorder()
    aws = deployed(hub)
    events: list[Mapping[str, Any]] = []
    aws.on_event.append(events.append)
    drained(aws)
    assert [event["detail-type"] for event in events] == ["prismline.run.drained.v1"]
    (delivery,) = hub.deliveries
    assert aws.queue("runs").messages == {}
    delivery()
    delivery()
    assert [message.body for message in aws.queue("runs").messages.values()] == ['{"runid":"r"}'] * 2


def test_a_delivery_that_failed_goes_to_the_dead_letter_queue_of_its_target() -> None:
    hub = Recorder()
    aws = Aws(hub)
    for name in ("q", "dlq"):
        aws.sqs.create_queue(QueueName=name)
    arn = "arn:aws:sqs:us-east-1:000000000000:"
    aws.events.put_rule(Name="rule", EventPattern='{"source": ["a"]}')
    target = {"Id": "q", "Arn": f"{arn}q", "InputPath": "$.detail", "DeadLetterConfig": {"Arn": f"{arn}dlq"}}
    aws.events.put_targets(Rule="rule", Targets=[target])
    aws.events.put_events(Entries=[{"Source": "a", "DetailType": "b", "Detail": "{}"}])
    hub.deliveries[0].fail()
    (letter,) = aws.queues["dlq"].messages.values()
    assert json.loads(letter.body)["source"] == "a"
    assert letter.attributes["TARGET_ARN"]["StringValue"] == f"{arn}q"
    assert aws.queues["q"].messages == {}


def test_a_schedule(hub: PlainHub) -> None:
    aws = deployed(hub)
    aws.events.start_schedules()
    hub.advance(59)
    assert aws.queue("sweeps").messages == {}
    hub.advance(121)
    bodies = [json.loads(message.body) for message in aws.queue("sweeps").messages.values()]
    assert [body["detail-type"] for body in bodies] == ["Scheduled Event"] * 3


# ---- the templates' account


def test_the_account_is_what_the_templates_declare(hub: PlainHub) -> None:
    aws = deployed(hub, "test")
    chunks = aws.queue("chunks")
    assert chunks.name == "prismline-test-chunks"
    assert (chunks.visibility, chunks.max_receive_count, chunks.dead_letter_queue) == (
        5400,
        5,
        "prismline-test-chunks-dlq",
    )
    assert aws.queue("sweeps").retention == 3600
    runs = aws.table("runs")
    assert (runs.hash_key, runs.range_key, sorted(runs.indexes)) == ("PK", "SK", ["GSI1", "GSI2"])
    assert aws.table("workflow-state").range_key is None
    assert aws.objects[aws.outputs["BUCKET"]].announces
    assert aws.outputs["STATE_MACHINE_ARN"] in aws.state_machines
    fed = {source.queue: source for source in aws.event_sources}
    assert (fed["prismline-test-chunks"].batch_size, fed["prismline-test-chunks"].timeout) == (1, 900)
    assert fed["prismline-test-status"].batch_size == 10
    assert aws.parameters["/prismline/test/platform/bucket"] == aws.outputs["BUCKET"]


def test_a_manifest_reaches_the_splitter(hub: PlainHub) -> None:
    aws = deployed(hub)
    bucket = aws.outputs["BUCKET"]
    for key in ("cubes/a", "manifests/a.json"):
        aws.s3.put_object(Bucket=bucket, Key=key, Body=b"{}")
    hub.advance()
    (message,) = aws.queue("split").messages.values()
    assert json.loads(message.body)["detail"]["object"]["key"] == "manifests/a.json"


def test_accounts_share_nothing(hub: PlainHub) -> None:
    first, second = deployed(hub), deployed(PlainHub())
    first.dynamodb.put_item(TableName=first.outputs["RUNS_TABLE"], Item=KEY | OPEN)
    first.sqs.enqueue(first.queue("chunks"), "a")
    first.s3.put_object(Bucket=first.outputs["BUCKET"], Key="a", Body=b"1")
    first.parameters["a"] = "b"
    third = deployed(PlainHub())
    for other in (second, third):
        assert len(other.table("runs")) == 0
        assert other.queue("chunks").messages == {}
        assert dict(other.objects[other.outputs["BUCKET"]]) == {}
        assert "a" not in other.parameters


# ---- Step Functions


def started(aws: Aws, hub: PlainHub) -> str:
    names = ("job_id", "bucket", "manifest_key", "traceparent", "trace_id", "tolerated")
    document = {"run_id": "r", **dict.fromkeys(names), "tolerated_failure_percent": 0}
    answer = aws.stepfunctions.start_execution(
        stateMachineArn=aws.outputs["STATE_MACHINE_ARN"], name="r", input=json.dumps(document)
    )
    hub.advance()
    return str(answer["executionArn"])


def impatient(aws: Aws) -> None:
    """Retry failed calls five times and timeouts once, instead of for a week."""
    arn = aws.outputs["STATE_MACHINE_ARN"]
    machine = aws.state_machines[arn]
    states = {name: replace(state, raw=_hasty(state.raw)) for name, state in machine.states.items()}
    aws.state_machines[arn] = replace(machine, states=states)


def _hasty(raw: Mapping[str, Any]) -> dict[str, Any]:
    attempts = (5, 1)
    retriers = [{**retrier, "MaxAttempts": most} for retrier, most in zip(raw.get("Retry", ()), attempts, strict=False)]
    return {**raw, "Retry": retriers}


def test_a_task_that_cannot_be_called_is_tried_again(hub: PlainHub) -> None:
    aws = deployed(hub)
    failures = iter([("SQS.AmazonSQSException", "no")] * 2)
    aws.stepfunctions.task_fault = lambda execution, state: next(failures, None)
    execution = aws.executions[started(aws, hub)]
    assert aws.queue("split").messages == {}
    hub.advance(1.9)
    assert execution.retries == {0: 1}
    hub.advance(0.1 + 4)  # two seconds, then twice that
    assert len(aws.queue("split").messages) == 1
    assert (execution.visited, execution.retries) == (["Split"], {0: 2})


def test_a_task_whose_retries_are_used_up_goes_to_its_catcher(hub: PlainHub) -> None:
    aws = deployed(hub)
    impatient(aws)
    aws.stepfunctions.task_fault = lambda execution, state: (
        ("SQS.AmazonSQSException", "no") if state == "Split" else None
    )
    execution = aws.executions[started(aws, hub)]
    hub.advance(2 + 4 + 8 + 16 + 31)
    assert execution.visited == ["Split"]
    hub.advance(1)
    assert execution.visited == ["Split", "Cleanup", "UpdateStatusFailed"]
    assert execution.data["error"] == {"Error": "SQS.AmazonSQSException", "Cause": "no"}


def test_each_retrier_counts_for_itself(hub: PlainHub) -> None:
    """Timeouts and failed calls have separate counts of attempts."""
    aws = deployed(hub)
    impatient(aws)
    failures = iter([("SQS.AmazonSQSException", "no"), None, ("SQS.AmazonSQSException", "no")])
    aws.stepfunctions.task_fault = lambda execution, state: next(failures, None)
    execution = aws.executions[started(aws, hub)]
    hub.advance(2 + 3600 + 1)
    assert execution.retries == {0: 2, 1: 1}
    hub.advance(4 + 3600)
    assert execution.visited[:2] == ["Split", "SplitTimedOut"]


def test_two_weeks_pass_at_once(hub: PlainHub) -> None:
    aws = deployed(hub)
    execution = aws.executions[started(aws, hub)]
    for output in ({}, {"data": {"updated": True}}):
        assert execution.token is not None
        aws.stepfunctions.send_task_success(taskToken=execution.token, output=json.dumps(output))
        hub.advance()
    hub.advance(14 * 86_400 + 13 - 1)  # the state machine asks every day, one second later than the day before
    assert execution.state == "AwaitChunks"
    hub.advance(1)
    assert execution.visited[-3:] == ["ChunksTimedOut", "Cleanup", "UpdateStatusFailed"]


def test_tokens_may_be_those_of_the_emulator(hub: PlainHub) -> None:
    aws = deployed(hub)
    impatient(aws)
    aws.stepfunctions.tokens_reused = True
    execution = aws.executions[started(aws, hub)]
    token = execution.token
    hub.advance(3601)
    assert (execution.token, len(aws.queue("split").messages)) == (token, 2)
    hub.advance(3600)
    assert execution.state == "UpdateStatusFailed"


def test_the_next_state_has_retries_of_its_own(hub: PlainHub) -> None:
    aws = deployed(hub)
    failures = iter([("SQS.AmazonSQSException", "no")] * 3 + [None] + [("SQS.AmazonSQSException", "no")] * 5)
    aws.stepfunctions.task_fault = lambda execution, state: next(failures, None)
    execution = aws.executions[started(aws, hub)]
    hub.advance(2 + 4 + 8)
    assert execution.token is not None
    aws.stepfunctions.send_task_success(taskToken=execution.token, output="{}")
    hub.advance(2 + 4 + 8 + 16 + 32)
    assert (execution.state, execution.retries) == ("UpdateStatusRunning", {0: 5})
    assert len(aws.queue("status").messages) == 1


def test_a_timer_that_comes_twice_counts_once() -> None:
    class Twice(PlainHub):
        def call_later(self, seconds: float, action: Callable[[], None], label: str) -> None:
            super().call_later(seconds, action, label)
            super().call_later(seconds + 1, action, label)

    hub = Twice()
    aws = deployed(hub)
    execution = aws.executions[started(aws, hub)]
    hub.advance(1)
    assert (execution.visited, len(aws.queue("split").messages)) == (["Split"], 1)
    assert execution.token is not None
    aws.stepfunctions.send_task_success(taskToken=execution.token, output="{}")
    hub.advance(1)
    assert (execution.visited, len(aws.queue("status").messages)) == (["Split", "UpdateStatusRunning"], 1)
