"""Rules for the worker's template: the worker as Lambda functions, as services on Fargate, or as neither."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prismline_deploy.deploying import CODE_TYPES
from tests.templates.damage import Case, changed, properties, removed, without
from tests.templates.reading import Stacks, deployed, leaves, referred

#: The queues by the names of their resources, and the functions and services that consume them.
QUEUES = {"Chunks": "chunks", "Refits": "refits", "Tasks": "tasks"}
NAMES = {"Chunks": "worker", "Refits": "slow-lane", "Tasks": "fetcher"}
VPC = {"FunctionSubnetIds": "subnet-1", "FunctionSecurityGroupIds": "sg-1"}
FARGATE = {"DeployFunctions": "true", "WorkerCompute": "fargate", "ImageUri": "worker@sha256:0", **VPC}


def kind(resources: Mapping[str, dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    """The properties of the resources of `AWS::<name>`, by logical id."""
    return {key: each["Properties"] for key, each in resources.items() if each["Type"] == f"AWS::{name}"}


def consumers(resources: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Logical id of a queue, and the consumer that receives from it."""
    for mapping in kind(resources, "Lambda::EventSourceMapping").values():
        yield str(referred(mapping["EventSourceArn"])), "Lambda"
    definitions = kind(resources, "ECS::TaskDefinition")
    for service in kind(resources, "ECS::Service").values():
        (container,) = definitions[str(referred(service["TaskDefinition"]))]["ContainerDefinitions"]
        for argument in container["Command"]:
            if argument.startswith("--queue="):
                yield f"{argument.removeprefix('--queue=').capitalize()}Queue", "Fargate"


def other_consumers(stacks: Stacks) -> Iterator[str]:
    """Each queue is consumed by Lambda, by Fargate, or by processes elsewhere; dead letters always by a function."""
    dead = [(f"{each}DeadLetterQueue", "Lambda") for each in QUEUES]
    for functions, compute in itertools.product(("true", "false"), ("lambda", "fargate")):
        given = {"DeployFunctions": functions, "WorkerCompute": compute}
        here = "Lambda" if compute == "lambda" else "Fargate"
        expected = sorted([(f"{each}Queue", here) for each in QUEUES] + dead) if functions == "true" else []
        found = sorted(consumers(deployed(stacks["worker"], given)))
        if found != expected:
            yield f"worker: with {given}, queues are consumed by {found}"
    parameter = stacks["worker"]["Parameters"]["WorkerCompute"]
    if parameter["Default"] != "lambda":
        yield "worker: Lambda is not the default"


def missing_resources(stacks: Stacks) -> Iterator[str]:
    """With any parameters, the resources of a stack refer only to resources that the stack has."""
    for functions, compute, emulator in itertools.product(("true", "false"), ("lambda", "fargate"), ("true", "false")):
        given = {"DeployFunctions": functions, "WorkerCompute": compute, "Emulator": emulator}
        for stack, template in stacks.items():
            resources = deployed(template, given)
            absent = template["Resources"].keys() - resources.keys()
            for logical_id, resource in resources.items():
                if lost := sorted(absent & set(mentioned(resource))):
                    yield f"{stack}: with {given}, {logical_id} refers to {lost}"


def mentioned(value: Any) -> Iterator[str]:
    """The resources that a part of a template refers to."""
    if isinstance(value, Mapping):
        if (name := referred(value)) is not None:
            yield name
        if "DependsOn" in value:
            yield from [value["DependsOn"]] if isinstance(value["DependsOn"], str) else value["DependsOn"]
        for key, each in value.items():
            yield from re.findall(r"\$\{([^}.:]+)[.}]", str(each)) if key == "Fn::Sub" else mentioned(each)
    elif isinstance(value, list):
        for each in value:
            yield from mentioned(each)


def careless_tasks(stacks: Stacks) -> Iterator[str]:
    """A task runs the released image with the function's permissions, writes only to /tmp, and does not run as root."""
    resources = deployed(stacks["worker"], FARGATE)
    groups = kind(resources, "Logs::LogGroup")
    functions = kind(stacks["worker"]["Resources"], "Lambda::Function").values()
    roles = {referred(each["Role"]) for each in functions}
    for logical_id, definition in kind(resources, "ECS::TaskDefinition").items():
        (container,) = definition["ContainerDefinitions"]
        if container["Image"] != {"Ref": "ImageUri"}:
            yield f"worker: {logical_id} does not run the deployed image, which is named by its digest"
        if container.get("User") != "10001:10001" or container["LinuxParameters"].get("Capabilities") != {
            "Drop": ["ALL"]
        }:
            yield f"worker: {logical_id} runs as root, or with capabilities"
        mounts = [(each["SourceVolume"], each["ContainerPath"]) for each in container["MountPoints"]]
        if container.get("ReadonlyRootFilesystem") is not True or mounts != [("tmp", "/tmp")]:
            yield f"worker: {logical_id} writes to its image"
        if {referred(definition["TaskRoleArn"])} != roles:
            yield f"worker: {logical_id} has other permissions than the function"
        group = groups.get(str(referred(container["LogConfiguration"]["Options"]["awslogs-group"])))
        if group is None or "RetentionInDays" not in group:
            yield f"worker: {logical_id} has no log group with a retention"
        settings = {each["Name"]: each["Value"] for each in container["Environment"]}
        if float(settings["PRISMLINE_GRACE_SECONDS"]) + 10 > container["StopTimeout"]:
            yield f"worker: {logical_id} is killed before it releases its messages"
        if settings["PRISMLINE_HEARTBEAT_FILE"] not in container["HealthCheck"]["Command"][1]:
            yield f"worker: {logical_id} is not replaced when it hangs"


def other_settings(stacks: Stacks) -> Iterator[str]:
    """A task has the settings of the function with the same name."""
    lambda_ = kind(deployed(stacks["worker"], {"DeployFunctions": "true", **VPC}), "Lambda::Function")
    definitions = kind(deployed(stacks["worker"], FARGATE), "ECS::TaskDefinition")
    for queue in QUEUES:
        function = lambda_[f"{queue}Function"]["Environment"]["Variables"]
        (container,) = definitions[f"{queue}TaskDefinition"]["ContainerDefinitions"]
        settings = {each["Name"]: each["Value"] for each in container["Environment"]}
        if not function.items() <= settings.items():
            yield f"worker: tasks of {queue} lack settings of the function"


def neglected_runs(stacks: Stacks) -> Iterator[str]:
    """The fetcher on Fargate polls the queues of single runs, and is allowed to list them."""
    resources = deployed(stacks["worker"], FARGATE)
    (fetcher,) = kind(resources, "ECS::TaskDefinition")["TasksTaskDefinition"]["ContainerDefinitions"]
    if "--more-queues=prismline_worker.run_queues:run_queues" not in fetcher["Command"]:
        yield "worker: no task polls the queues of runs"
    policies = str(kind(resources, "IAM::Role")["FunctionRole"]["Policies"])
    if not ("dynamodb:Query" in policies and "/index/GSI2" in policies):
        yield "worker: tasks cannot list the queues of runs"


def wrong_scaling(stacks: Stacks) -> Iterator[str]:
    """A service scales on the messages per task of its queue, between one task and the queue's concurrency."""
    resources = deployed(stacks["worker"], FARGATE)
    targets = kind(resources, "ApplicationAutoScaling::ScalableTarget")
    policies = kind(resources, "ApplicationAutoScaling::ScalingPolicy")
    (insights,) = kind(resources, "ECS::Cluster").values()
    if {"Name": "containerInsights", "Value": "enabled"} not in insights.get("ClusterSettings", []):
        yield "worker: running tasks are not counted"
    for queue, name in NAMES.items():
        target = targets.get(f"{queue}Scaling", {})
        cluster, service = f"prismline-${{Environment}}-{NAMES['Chunks']}", f"prismline-${{Environment}}-{name}"
        if target.get("ResourceId") != {"Fn::Sub": f"service/{cluster}/{service}"}:
            yield f"worker: the service of {queue} does not scale"
        if (target.get("MinCapacity"), target.get("MaxCapacity")) != (
            {"Ref": "FargateMinimum"},
            {"Ref": f"{queue}Concurrency"},
        ):
            yield f"worker: the service of {queue} has other limits than its queue"
        configuration = policies[f"{queue}BacklogPolicy"]["TargetTrackingScalingPolicyConfiguration"]
        metrics = {each["Id"]: each for each in configuration["CustomizedMetricSpecification"]["Metrics"]}
        seen = {
            key: (each["MetricStat"]["Metric"]["MetricName"], each["MetricStat"]["Metric"]["Dimensions"])
            for key, each in metrics.items()
            if "MetricStat" in each
        }
        own = [{"Name": "QueueName", "Value": {"Fn::GetAtt": f"{queue}Queue.QueueName"}}]
        tasks = [
            {"Name": "ClusterName", "Value": {"Fn::Sub": cluster}},
            {"Name": "ServiceName", "Value": {"Fn::Sub": service}},
        ]
        if (
            seen
            != {
                "visible": ("ApproximateNumberOfMessagesVisible", own),
                "hidden": ("ApproximateNumberOfMessagesNotVisible", own),
                "running": ("RunningTaskCount", tasks),
            }
            or metrics["backlog"]["Expression"] != "(visible + hidden) / running"
            or configuration["TargetValue"] != {"Ref": "BacklogPerTask"}
        ):
            yield f"worker: the service of {queue} does not scale on its backlog per task"
        if resources[f"{queue}Service"]["Properties"]["ServiceName"] != {"Fn::Sub": service}:
            yield f"worker: the service of {queue} does not have the name in its scaling target"
    if stacks["worker"]["Parameters"]["FargateMinimum"]["MinValue"] < 1:
        yield "worker: a service with 0 tasks has no backlog per task and would never start one"
    if "TasksLoadPolicy" not in policies:
        yield "worker: the scaling ignores the queues of runs"


def rollbacks_that_touch_more(stacks: Stacks) -> Iterator[str]:
    """No other resource refers to a service or task definition: it would change with a release, but a rollback may only
    change code."""
    resources = deployed(stacks["worker"], FARGATE)
    code = {key for key, each in resources.items() if each["Type"].startswith(CODE_TYPES)}
    for logical_id, resource in resources.items():
        if logical_id not in code and code & set(mentioned(resource["Properties"])):
            yield f"worker: {logical_id} would change with a release"
        if logical_id not in code and "ImageUri" in list(leaves(resource["Properties"])):
            yield f"worker: {logical_id} would change with a release"


# ---- damage that each rule has to detect


def container(queue: str, value: Any, *path: str) -> Callable[[Stacks], None]:
    """Damage that sets a property of the container that consumes a queue."""

    def damage(stacks: Stacks) -> None:
        at = properties(stacks, "worker", f"{queue}TaskDefinition")["ContainerDefinitions"][0]
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return damage


def of_condition(logical_id: str, condition: str) -> Callable[[Stacks], None]:
    """Damage that gives a resource another condition."""

    def damage(stacks: Stacks) -> None:
        stacks["worker"]["Resources"][logical_id]["Condition"] = condition

    return damage


def _no_minimum(stacks: Stacks) -> None:
    stacks["worker"]["Parameters"]["FargateMinimum"]["MinValue"] = 0


def _visible_only(stacks: Stacks) -> None:
    policy = properties(stacks, "worker", "ChunksBacklogPolicy")["TargetTrackingScalingPolicyConfiguration"]
    policy["CustomizedMetricSpecification"]["Metrics"][0]["Expression"] = "visible"


SHELL = ["--queue=tasks", "--batch-size=1", "prismline_worker.handler:handler"]
CASES: list[Case] = [
    (other_consumers, of_condition("ChunksEventSource", "WithConsumers")),
    (other_consumers, of_condition("ChunksDeadLettersEventSource", "WithFunction")),
    (other_consumers, removed("worker", "RefitsService")),
    (other_consumers, container("Refits", SHELL, "Command")),
    (missing_resources, of_condition("TaskLogs", "WithFunction")),
    (missing_resources, of_condition("ChunksFunctionLogs", "WithFargate")),
    (careless_tasks, container("Chunks", "worker:latest", "Image")),
    (careless_tasks, container("Chunks", "0:0", "User")),
    (careless_tasks, container("Refits", False, "ReadonlyRootFilesystem")),
    (careless_tasks, changed("worker", "TasksTaskDefinition", {"Fn::GetAtt": "ExecutionRole.Arn"}, "TaskRoleArn")),
    (careless_tasks, without("worker", "TaskLogs", "RetentionInDays")),
    (careless_tasks, container("Tasks", 30, "StopTimeout")),
    (careless_tasks, container("Tasks", ["CMD-SHELL", "true"], "HealthCheck", "Command")),
    (other_settings, container("Tasks", [], "Environment")),
    (neglected_runs, container("Tasks", SHELL, "Command")),
    (neglected_runs, without("worker", "FunctionRole", "Policies", -1)),
    (wrong_scaling, removed("worker", "TasksScaling")),
    (wrong_scaling, changed("worker", "RefitsScaling", {"Ref": "ChunksConcurrency"}, "MaxCapacity")),
    (wrong_scaling, _visible_only),
    (wrong_scaling, _no_minimum),
    (wrong_scaling, without("worker", "Cluster", "ClusterSettings")),
    (rollbacks_that_touch_more, changed("worker", "ChunksScaling", {"Fn::GetAtt": "ChunksService.Name"}, "ResourceId")),
]
