"""The template of a pool: its queues have the limits of the table, and its role reaches the runs of this pool alone."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
import yaml

from prismline_contracts.commands import EVERY_DEAD_LETTER_QUEUE, Queue, dead_letter_queue_name
from prismline_contracts.delivery import LIMITS, limits_of
from prismline_contracts.pools import POOL_PATTERN, in_pool, pool_queue
from prismline_contracts.tasks import partition, task_id, value_key
from prismline_localstack.registry import POOL_HANDLER
from prismline_localstack.settings import HarnessSettings
from tests.templates.reading import REPOSITORY, Stacks, branches, read_stacks, statements, text_of

TABLE = ("dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:BatchGetItem")
QUEUE = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:SendMessage", "sqs:ChangeMessageVisibility")
RUNS = "table/prismline-${Environment}-runs"
RED, BLUE, COMMON = in_pool("run", "red"), in_pool("run", "blue"), "run"


@pytest.fixture(scope="module")
def stacks() -> Stacks:
    return read_stacks(pools=True)


def allows(stacks: Stacks, pool: str, action: str, name: str, *, key: str | None = None) -> bool:
    """Whether the role of a pool allows an action on the resource whose ARN ends so, for an item with this key."""

    def texts(values: Any) -> list[str]:
        return [text_of(stacks, "pool", each).replace("${Pool}", pool) for each in branches(values)]

    for statement in statements(stacks["pool"]["Resources"]["FunctionRole"]["Properties"]):
        names = [re.sub(r"^arn:.*?:(s3:::|\$\{AWS::AccountId\}:)", "", each) for each in texts(statement["Resource"])]
        if action in branches(statement["Action"]) and any(fnmatchcase(name, each) for each in names):
            keys = statement.get("Condition", {}).get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys")
            return keys is None or any(fnmatchcase(key or "", each) for each in texts(keys))
    return False


def objects(run_id: str) -> str:
    bucket = "prismline-${Environment}-${AWS::AccountId}-${AWS::Region}"
    return f"{bucket}/{value_key(run_id, task_id(run_id, 0), 1)}"


@pytest.mark.parametrize("shards", [1, 4])
def test_a_pool_works_on_the_items_of_its_own_runs_alone(stacks: Stacks, shards: int) -> None:
    for run_id, own in ((RED, True), (BLUE, False), (in_pool("run", "red-2"), False), (COMMON, False)):
        for action in TABLE:
            for key in (run_id, partition(run_id, 0, shards)):
                assert allows(stacks, "red", action, "table/prismline-${Environment}-runs", key=key) is own, (
                    action,
                    key,
                )
        for action in ("s3:PutObject", "s3:GetObject"):
            assert allows(stacks, "red", action, objects(run_id)) is own
    for action in (*TABLE, "dynamodb:Query", "dynamodb:Scan", "dynamodb:PutItem", "dynamodb:DeleteItem"):
        assert not allows(stacks, "red", action, RUNS, key=BLUE)
        assert not allows(stacks, "red", action, f"{RUNS}/index/GSI2", key="OPEN")
    for action in ("s3:GetObject", "s3:DeleteObject", "s3:ListBucket"):
        assert not allows(stacks, "red", action, objects(BLUE))


def test_a_pool_takes_from_and_sends_to_its_own_queues_alone(stacks: Stacks) -> None:
    for action in QUEUE:
        assert allows(stacks, "red", action, "prismline-${Environment}-pool-red")
        for queue in ("pool-blue", "pool-blue-dlq", "pool-red-2", "tasks", "tasks-run", "chunks", "status"):
            assert not allows(stacks, "red", action, f"prismline-${{Environment}}-{queue}"), (action, queue)
    assert allows(stacks, "red", "sqs:SendMessage", "prismline-${Environment}-pool-red-dlq")
    assert not allows(stacks, "red", "sqs:ReceiveMessage", "prismline-${Environment}-pool-red-dlq")


def test_the_queues_of_a_pool_have_the_limits_of_the_table(stacks: Stacks) -> None:
    limits = limits_of(pool_queue("red"))
    assert limits is not None
    assert limits == LIMITS[Queue.TASKS]
    resources: dict[str, Any] = stacks["pool"]["Resources"]
    queue, common = resources["Queue"]["Properties"], stacks["worker"]["Resources"]["TasksQueue"]["Properties"]
    for name in ("MessageRetentionPeriod", "VisibilityTimeout", "SqsManagedSseEnabled"):
        assert queue[name] == common[name]
    assert queue["RedrivePolicy"]["maxReceiveCount"] == limits.max_receives
    assert resources["Function"]["Properties"]["Timeout"] == limits.function_seconds
    assert queue["QueueName"]["Fn::Sub"] == f"prismline-${{Environment}}-{pool_queue('${Pool}')}"


def test_the_template_takes_the_names_that_the_contract_takes(stacks: Stacks) -> None:
    assert stacks["pool"]["Parameters"]["Pool"]["AllowedPattern"] == POOL_PATTERN


def test_two_pools_stand_side_by_side(stacks: Stacks) -> None:
    """Each resource with a name of its own has the name of its pool."""
    named = {
        "AWS::SQS::Queue": "QueueName",
        "AWS::Lambda::Function": "FunctionName",
        "AWS::Logs::LogGroup": "LogGroupName",
        "AWS::CloudWatch::Alarm": "AlarmName",
        "AWS::Logs::QueryDefinition": "Name",
    }
    for logical_id, resource in stacks["pool"]["Resources"].items():
        if resource["Type"] in named:
            name = resource["Properties"][named[resource["Type"]]]["Fn::Sub"]
            assert re.search(r"prismline-\$\{Environment\}[-/]pool-\$\{Pool\}", name), logical_id


def test_a_pool_in_containers_polls_its_queues_and_has_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / "docker-compose.pool.yml").read_text().replace("${POOL}", "red")
    services = yaml.safe_load(text)["services"]
    assert services["pool"]["command"][1] == pool_queue("red")
    assert services["pool"]["command"][-1] == POOL_HANDLER
    assert dead_letter_queue_name(pool_queue("red")) in services["dlq-consumer"]["command"]
    assert EVERY_DEAD_LETTER_QUEUE in services["dlq-consumer"]["command"]
    assert services["pool"]["build"]["dockerfile_inline"].startswith("FROM prismline/worker:")
    ((name, _),) = services["deploy"]["environment"].items()
    monkeypatch.setenv(name, "red")
    assert HarnessSettings().prismline_pools == "red"
