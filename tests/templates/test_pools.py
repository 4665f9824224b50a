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
from prismline_deploy.deploying import CODE_TYPES
from prismline_localstack.registry import POOL_HANDLER
from prismline_localstack.settings import HarnessSettings
from tests.templates.reading import (
    REPOSITORY,
    Stacks,
    branches,
    deployed,
    leaves,
    read_stacks,
    statements,
    text_of,
)
from tests.templates.worker_compute import mentioned

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
        "AWS::ECS::Cluster": "ClusterName",
        "AWS::ECS::Service": "ServiceName",
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


FARGATE = {"DeployFunctions": "true", "WorkerCompute": "fargate", "FunctionSubnetIds": "subnet-1"}


def on_fargate(stacks: Stacks) -> dict[str, dict[str, Any]]:
    return {key: each["Properties"] for key, each in deployed(stacks["pool"], FARGATE).items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"DeployFunctions": "true"}, {"EventSource", "DeadLettersEventSource"}),
        (FARGATE, {"Service", "DeadLettersEventSource"}),
        ({"DeployFunctions": "false", "WorkerCompute": "fargate"}, set()),
    ],
)
def test_the_queues_of_a_pool_have_one_consumer_each(stacks: Stacks, given: dict[str, str], expected: set[str]) -> None:
    found = deployed(stacks["pool"], given)
    consumers = ("AWS::Lambda::EventSourceMapping", "AWS::ECS::Service")
    assert {key for key, each in found.items() if each["Type"] in consumers} == expected


def test_a_task_of_a_pool_is_like_its_function(stacks: Stacks) -> None:
    """It takes the queue of its pool alone, with the role and the settings of the function, and harms nothing."""
    task, function = on_fargate(stacks)["TaskDefinition"], stacks["pool"]["Resources"]["Function"]["Properties"]
    (container,) = task["ContainerDefinitions"]
    assert container["Command"][0] == {"Fn::Sub": f"--queue={pool_queue('${Pool}')}"}
    assert container["Command"][-1] == POOL_HANDLER
    assert container["Image"] == function["Code"]["ImageUri"] == {"Ref": "ImageUri"}
    assert task["TaskRoleArn"] == function["Role"]
    settings = {each["Name"]: each["Value"] for each in container["Environment"]}
    variables = deployed(stacks["pool"], FARGATE | {"WorkerCompute": "lambda"})["Function"]["Properties"]["Environment"]
    assert variables["Variables"].items() <= settings.items()
    worker = stacks["worker"]["Resources"]["TasksTaskDefinition"]["Properties"]["ContainerDefinitions"][0]
    for name in ("User", "ReadonlyRootFilesystem", "LinuxParameters", "MountPoints", "StopTimeout", "HealthCheck"):
        assert container[name] == worker[name], name


def test_a_pool_on_fargate_scales_on_its_own_backlog_up_to_its_concurrency(stacks: Stacks) -> None:
    found = on_fargate(stacks)
    name = {"Fn::Sub": "prismline-${Environment}-pool-${Pool}"}
    assert found["Service"]["ServiceName"] == found["Cluster"]["ClusterName"] == name
    assert found["Scaling"]["ResourceId"] == {"Fn::Sub": f"service/{name['Fn::Sub']}/{name['Fn::Sub']}"}
    assert (found["Scaling"]["MinCapacity"], found["Scaling"]["MaxCapacity"]) == (
        {"Ref": "FargateMinimum"},
        {"Ref": "Concurrency"},
    )
    assert stacks["pool"]["Parameters"]["FargateMinimum"]["MinValue"] == 1, "0 tasks have no backlog per task"
    metrics = found["BacklogPolicy"]["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"][
        "Metrics"
    ]
    measured = {each["Id"]: each["MetricStat"]["Metric"] for each in metrics if "MetricStat" in each}
    queue = [{"Name": "QueueName", "Value": {"Fn::GetAtt": "Queue.QueueName"}}]
    tasks = [{"Name": "ClusterName", "Value": name}, {"Name": "ServiceName", "Value": name}]
    assert [measured[each]["Dimensions"] for each in ("visible", "hidden", "running")] == [queue, queue, tasks]
    assert found["ServiceAlarm"]["Dimensions"] == tasks


def test_another_image_of_a_pool_changes_only_what_a_rollback_may_change(stacks: Stacks) -> None:
    resources = deployed(stacks["pool"], FARGATE)
    code = {key for key, each in resources.items() if each["Type"].startswith(CODE_TYPES)}
    for logical_id in resources.keys() - code:
        resource = resources[logical_id]["Properties"]
        assert not code & set(mentioned(resource)), logical_id
        assert "ImageUri" not in set(leaves(resource)), logical_id
