"""The state of the emulator after a kill, and the behaviour that it adds to ministack."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from prismline_localstack.emulator import Emulator, emulator_python
from prismline_localstack.state import make_client
from prismline_localstack.testing import create_runs_table
from prismline_localstack.waiting import wait_until

pytestmark = pytest.mark.emulator

TABLE = "runs"


class Machine:
    """An emulator that a test can kill and start again in the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        self.emulator = Emulator.start(self.folder / "emulator", self.folder / "emulator.log", functions=True)
        self.environment = self.emulator.environment

    def kill(self) -> None:
        self.emulator.child.kill()
        self.emulator.child.wait()

    def client(self, service: str) -> Any:
        return make_client(service, self.environment)

    def items(self) -> dict[str, dict[str, Any]]:
        return {item["PK"]["S"]: item for item in self.client("dynamodb").scan(TableName=TABLE)["Items"]}

    def bases(self) -> list[Path]:
        return sorted(path for path in (self.folder / "emulator" / "state").iterdir() if path.name.isdigit())

    def written(self, text: str) -> bool:
        return any(text in path.read_text() for base in self.bases() for path in base.glob("*.json"))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    create_runs_table(made.client("dynamodb"), TABLE)
    made.emulator.keep()
    yield made
    made.emulator.stop()


def test_the_emulator_starts_without_modules_that_it_does_not_need_yet() -> None:
    modules = {"boto3", "pydantic", "ministack.services.cloudformation"}
    program = f"import sys, prismline_emulator.server; print({modules} & set(sys.modules))"
    done = subprocess.run([emulator_python(), "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n", "with these modules, each start would take three times the processor time"


def put(machine: Machine, name: str, **values: str) -> None:
    item = {"PK": {"S": name}, "SK": {"S": "RUN"}} | {key: {"S": value} for key, value in values.items()}
    machine.client("dynamodb").put_item(TableName=TABLE, Item=item)


def test_every_write_to_dynamodb_that_was_answered_survives_a_kill_and_reads_and_refusals_do_no_harm(
    machine: Machine,
) -> None:
    dynamodb = machine.client("dynamodb")
    for name in ("a", "b", "c"):
        put(machine, name)
    key = {"PK": {"S": "a"}, "SK": {"S": "RUN"}}
    update = {
        "TableName": TABLE,
        "Key": key,
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    for _ in range(3):
        dynamodb.update_item(**update)
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.update_item(**update, ConditionExpression="attribute_not_exists(PK)")
    dynamodb.delete_item(TableName=TABLE, Key={"PK": {"S": "b"}, "SK": {"S": "RUN"}})
    dynamodb.transact_write_items(
        TransactItems=[
            {"Update": update},
            {"Put": {"TableName": TABLE, "Item": {"PK": {"S": "d"}, "SK": {"S": "RUN"}}}},
        ]
    )
    before = machine.items()
    machine.kill()
    machine.start()
    assert machine.items() == before
    assert (sorted(before), before["a"]["n"]) == (["a", "c", "d"], {"N": "4"})
    put(machine, "e")
    machine.kill()
    machine.start()
    assert sorted(machine.items()) == ["a", "c", "d", "e"]


def test_an_incomplete_write_in_the_journal_is_dropped_and_later_ones_are_kept(machine: Machine) -> None:
    put(machine, "whole")
    machine.kill()
    [base] = machine.bases()
    with (base / "journal.jsonl").open("a") as journal:
        journal.write('{"account": "0000')
    machine.start()
    put(machine, "later")
    machine.kill()
    machine.start()
    assert sorted(machine.items()) == ["later", "whole"]


def test_a_long_journal_is_replaced_by_a_base_and_nothing_is_done_twice(machine: Machine) -> None:
    update = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    key = {"PK": {"S": "counter"}, "SK": {"S": "RUN"}}
    [first] = machine.bases()
    for number in range(30):
        put(machine, "large", text=str(number % 10) * 300_000)
        machine.client("dynamodb").update_item(TableName=TABLE, Key=key, **update)
    assert wait_until(lambda: machine.bases() != [first] and len(machine.bases()) == 1, 20)
    machine.client("dynamodb").update_item(TableName=TABLE, Key=key, **update)
    machine.kill()
    machine.start()
    assert machine.items()["counter"]["n"] == {"N": "31"}


def test_objects_queues_and_parameters_survive_a_kill(machine: Machine) -> None:
    s3, sqs, ssm = (machine.client(service) for service in ("s3", "sqs", "ssm"))
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="kept", Body=b"object")
    url = sqs.create_queue(QueueName="queue")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="kept message")
    ssm.put_parameter(Name="/kept", Value="kept value", Type="String")
    assert wait_until(lambda: machine.written("kept message") and machine.written("kept value"), 20)
    machine.kill()
    machine.start()
    s3, sqs, ssm = (machine.client(service) for service in ("s3", "sqs", "ssm"))
    assert s3.get_object(Bucket="bucket", Key="kept")["Body"].read() == b"object"
    url = sqs.get_queue_url(QueueName="queue")["QueueUrl"]
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "kept message"
    assert ssm.get_parameter(Name="/kept")["Parameter"]["Value"] == "kept value"


def test_state_before_the_first_base_is_dropped_except_objects_which_come_back_with_their_bucket(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    make: Callable[[], Any] = lambda: machine.client("s3").create_bucket(Bucket="bucket")  # noqa: E731
    make()
    machine.client("s3").put_object(Bucket="bucket", Key="kept", Body=b"object")
    create_runs_table(machine.client("dynamodb"), TABLE)
    machine.kill()
    machine.start()
    try:
        assert machine.client("dynamodb").list_tables()["TableNames"] == []
        assert machine.client("s3").list_buckets()["Buckets"] == []
        make()
        machine.emulator.keep()
        assert machine.client("s3").get_object(Bucket="bucket", Key="kept")["Body"].read() == b"object"
    finally:
        machine.emulator.stop()


def test_a_range_of_a_large_object_is_read_without_the_rest(machine: Machine) -> None:
    s3 = machine.client("s3")
    s3.create_bucket(Bucket="bucket")
    body = bytes(range(256)) * 2**17  # 32 MiB
    etag = s3.put_object(Bucket="bucket", Key="large", Body=body)["ETag"]
    before = bytes_read(machine)
    for start in range(0, len(body), len(body) // 16):
        answer = s3.get_object(Bucket="bucket", Key="large", Range=f"bytes={start + 3}-{start + 1002}", IfMatch=etag)
        assert answer["Body"].read() == body[start + 3 : start + 1003]
        assert answer["ContentRange"] == f"bytes {start + 3}-{start + 1002}/{len(body)}"
    assert bytes_read(machine) - before < len(body)
    assert s3.get_object(Bucket="bucket", Key="large")["Body"].read() == body
    s3.put_object(Bucket="bucket", Key="large", Body=body[::-1])
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.get_object(Bucket="bucket", Key="large", Range="bytes=0-9", IfMatch=etag)
    assert s3.get_object(Bucket="bucket", Key="large", Range="bytes=0-9")["Body"].read() == body[::-1][:10]


def bytes_read(machine: Machine) -> int:
    """Number of bytes that the emulator has read from files and connections."""
    path = Path(f"/proc/{machine.emulator.child.pid}/io")
    if not path.exists():
        pytest.skip("this system does not count the bytes that a process reads")
    return int(path.read_text().partition("rchar: ")[2].split()[0])


def test_pages_of_a_large_partition_hold_all_its_items_in_order(machine: Machine) -> None:
    dynamodb, names = machine.client("dynamodb"), [f"CHUNK#{number:05d}" for number in range(2500)]
    items = [*(("large", name) for name in names), ("large", "RUN"), ("other", "CHUNK#00000")]
    for start in range(0, len(items), 25):
        puts = [
            {"PutRequest": {"Item": {"PK": {"S": pk}, "SK": {"S": sk}, "odd": {"BOOL": sk[-1] in "13579"}}}}
            for pk, sk in items[start : start + 25]
        ]
        dynamodb.batch_write_item(RequestItems={TABLE: puts})

    def walk(first: str | None, **options: Any) -> tuple[list[str], int]:
        found, pages = [], 0
        start = {"ExclusiveStartKey": {"PK": {"S": "large"}, "SK": {"S": first}}} if first else {}
        while True:
            answer = dynamodb.query(
                TableName=TABLE,
                KeyConditionExpression="PK = :pk AND SK BETWEEN :first AND :last",
                ExpressionAttributeValues={
                    ":pk": {"S": "large"},
                    ":first": {"S": "CHUNK#"},
                    ":last": {"S": "CHUNK#~"},
                    **options.get("values", {}),
                },
                **{name: value for name, value in options.items() if name != "values"},
                **start,
            )
            found += [item["SK"]["S"] for item in answer["Items"]]
            pages += 1
            if "LastEvaluatedKey" not in answer:
                return found, pages
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    assert walk(None, Limit=600) == (names, 5)
    assert walk("CHUNK#", Limit=600) == (names, 5)
    assert walk("CHUNK#02000", Limit=600) == (names[2001:], 1)
    assert walk("CHUNK#02000", Limit=499) == (names[2001:], 2)
    odd = {"FilterExpression": "odd = :odd", "values": {":odd": {"BOOL": True}}}
    assert walk("CHUNK#", Limit=600, **odd) == (names[1::2], 5)
    assert walk(None, ScanIndexForward=False, Limit=900)[0] == names[::-1]


FUNCTION = """
Parameters:
  Memory: {Type: Number}
  Reserved: {Type: String}
Conditions:
  Reserves: !Not [!Equals [!Ref Reserved, ""]]
Resources:
  Function:
    Type: AWS::Lambda::Function
    Properties:
      FunctionName: probe
      PackageType: Image
      Code: {ImageUri: "probe@sha256:0"}
      Role: arn:aws:iam::000000000000:role/probe
      MemorySize: !Ref Memory
      ReservedConcurrentExecutions: !If [Reserves, !Ref Reserved, !Ref AWS::NoValue]
"""


def test_a_stack_reserves_the_concurrency_of_its_functions(machine: Machine) -> None:
    cloudformation, functions = machine.client("cloudformation"), machine.client("lambda")

    def deploy(verb: str, memory: int, reserved: str) -> int | None:
        parameters = {"Memory": str(memory), "Reserved": reserved}
        getattr(cloudformation, f"{verb}_stack")(
            StackName="probe",
            TemplateBody=FUNCTION,
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        )
        waiter = cloudformation.get_waiter(f"stack_{verb}_complete")
        waiter.wait(StackName="probe", WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
        found: int | None = functions.get_function_concurrency(FunctionName="probe").get("ReservedConcurrentExecutions")
        return found

    assert deploy("create", 128, "3") == 3
    assert deploy("update", 256, "3") == 3
    assert deploy("update", 256, "0") == 0
    assert deploy("update", 256, "") is None
