"""The account that the repository's CloudFormation templates describe.

`blueprint` reads `platform/template.yaml`, every `services/*/template.yaml` and the template of a pool once.
`Blueprint.build` makes an account from it in well under a millisecond. An unknown resource type or intrinsic function
is an error, so that the simulation cannot silently differ from a deployment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismline_contracts.pools import pool_queue
from prismline_deploy.pool_template import POOL_TEMPLATE
from prismline_localstack.stacks import merge_outputs, templates
from tests.simulation.aws.base import ACCOUNT, REGION
from tests.simulation.aws.dynamodb import Table, table_of
from tests.simulation.aws.events import Rule, bus_arn, rule_of, target_of
from tests.simulation.aws.s3 import Bucket
from tests.simulation.aws.sqs import Queue, arn_of, url_of
from tests.simulation.aws.stepfunctions import StateMachine, machine_arn, machine_of
from tests.simulation.functions import POOL
from tests.templates.reading import read_template

if TYPE_CHECKING:
    from tests.simulation.aws import Aws
    from tests.simulation.aws.hub import Hub

ROOT = Path(__file__).parents[3]

#: Parameters for every template that declares them.
PARAMETERS = {"DeployFunctions": "true", "DeploySearch": "false", "Pool": POOL}

_PSEUDO_PARAMETERS = {
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::NoValue": None,
}

#: Resource types that do not affect messages, items and objects.
_WITHOUT_EFFECT = frozenset(
    {
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Role",
        "AWS::Lambda::Function",
        "AWS::Lambda::Permission",
        "AWS::Lambda::Url",
        "AWS::Logs::LogGroup",
        "AWS::Logs::QueryDefinition",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::Subscription",
        "AWS::SNS::Topic",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
        "AWS::Glue::Database",
        "AWS::Glue::Table",
        "AWS::Athena::WorkGroup",
        "AWS::Athena::NamedQuery",
    }
)

#: Properties of queues that become attributes, and properties without an effect in the simulation.
_QUEUE_ATTRIBUTES = ("VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds", "RedrivePolicy")
_QUEUE_PROPERTIES = frozenset(
    {
        *_QUEUE_ATTRIBUTES,
        "QueueName",
        "ReceiveMessageWaitTimeSeconds",
        "RedriveAllowPolicy",
        "SqsManagedSseEnabled",
        "Tags",
    }
)


@dataclass(frozen=True)
class EventSource:
    """A queue that feeds a function: Lambda's event source mapping."""

    #: Name of the queue.
    queue: str
    #: Name of the function.
    function: str
    batch_size: int
    #: Timeout of an invocation in seconds.
    timeout: float
    #: `module.function`
    handler: str


@dataclass
class Blueprint:
    """The resources of all templates."""

    environment: str
    tables: dict[str, Table] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    buses: set[str] = field(default_factory=set)
    rules: dict[str, Rule] = field(default_factory=dict)
    state_machines: dict[str, StateMachine] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    event_sources: list[EventSource] = field(default_factory=list)
    #: The handler of each function, `module.function`, by the function's name.
    handlers: dict[str, str] = field(default_factory=dict)
    #: The stacks' outputs as the services' environment variables, e.g. `RUNS_TABLE`.
    outputs: dict[str, str] = field(default_factory=dict)

    def build(self, hub: Hub) -> Aws:
        """A new, empty account with all resources."""
        from tests.simulation.aws import Aws  # noqa: PLC0415  the package imports this module

        aws = Aws(hub)
        aws.environment = self.environment
        aws.outputs = self.outputs
        aws.event_sources = self.event_sources
        aws.tables.update((name, table.empty_copy()) for name, table in self.tables.items())
        aws.queues.update((name, queue.empty_copy()) for name, queue in self.queues.items())
        aws.objects.update((name, bucket.empty_copy()) for name, bucket in self.buckets.items())
        aws.rules.update((name, rule.copy()) for name, rule in self.rules.items())
        aws.state_machines.update(self.state_machines)
        aws.parameters.update(self.parameters)
        aws.events.buses |= self.buses
        return aws


class TemplateError(ValueError):
    """A template has something that is not simulated or would not work."""


@cache
def blueprint(environment: str = "sim", root: Path = ROOT) -> Blueprint:
    """The resources of the templates below `root` for `environment`. Raises TemplateError."""
    paths = {"platform": root / "platform" / "template.yaml", **templates(root), pool_queue(POOL): root / POOL_TEMPLATE}
    stacks = {name: _Stack(name, path, environment) for name, path in paths.items()}
    exports: dict[str, Any] = {}
    for stack in stacks.values():
        stack.exports = exports
        exports |= stack.own_exports()
    made = Blueprint(environment)
    functions = {name: each for stack in stacks.values() for name, each in stack.functions().items()}
    made.handlers = {name: each["ImageConfig"]["Command"][0] for name, each in functions.items()}
    for stack in stacks.values():
        stack.known_functions = functions
        stack.add_to(made)
    made.outputs = merge_outputs({name: stack.outputs() for name, stack in stacks.items()})
    _check_references(made, [policy for stack in stacks.values() for policy in stack.queue_policies()])
    return made


class _Stack:
    """One template and its resolved values."""

    def __init__(self, name: str, path: Path, environment: str) -> None:
        self.name = name
        self.path = path
        template = read_template(path)
        given = {"Environment": environment} | PARAMETERS
        self.parameters = {
            key: given.get(key, declared.get("Default", "")) for key, declared in template.get("Parameters", {}).items()
        }
        self.exports: Mapping[str, Any] = {}
        #: The properties of the functions of all stacks, by name.
        self.known_functions: Mapping[str, Mapping[str, Any]] = {}
        self._conditions: Mapping[str, Any] = template.get("Conditions", {})
        self._outputs: Mapping[str, Any] = template.get("Outputs", {})
        self.resources: dict[str, Mapping[str, Any]] = {
            key: resource
            for key, resource in template["Resources"].items()
            if "Condition" not in resource or self._holds(resource["Condition"])
        }

    # ---- resources

    def add_to(self, made: Blueprint) -> None:
        for logical_id, resource in self.resources.items():
            kind = resource["Type"]
            add = _ADD.get(kind)
            if add is not None:
                add(self, made, self.properties(logical_id))
            elif kind not in _WITHOUT_EFFECT:
                raise TemplateError(f"{self.path}: {logical_id}: {kind} is not simulated")

    def properties(self, logical_id: str) -> dict[str, Any]:
        resolved = self.resolve(self.resources[logical_id].get("Properties", {}))
        return {key: value for key, value in resolved.items() if value is not None}

    def own_exports(self) -> dict[str, Any]:
        return {
            self.resolve(output["Export"]["Name"]): self.resolve(output["Value"])
            for output in self._outputs.values()
            if "Export" in output and ("Condition" not in output or self._holds(output["Condition"]))
        }

    def functions(self) -> dict[str, Mapping[str, Any]]:
        """The properties of the functions of this stack, by name."""
        made = [self.properties(key) for key, each in self.resources.items() if each["Type"] == "AWS::Lambda::Function"]
        return {properties["FunctionName"]: properties for properties in made}

    def outputs(self) -> dict[str, str]:
        return {
            key: str(self.resolve(output["Value"]))
            for key, output in self._outputs.items()
            if "Condition" not in output or self._holds(output["Condition"])
        }

    def queue_policies(self) -> list[dict[str, Any]]:
        return [
            self.properties(logical_id)
            for logical_id, resource in self.resources.items()
            if resource["Type"] == "AWS::SQS::QueuePolicy"
        ]

    def add_queue(self, made: Blueprint, properties: dict[str, Any]) -> None:
        unknown = properties.keys() - _QUEUE_PROPERTIES
        if unknown:
            raise TemplateError(f"{self.path}: {properties['QueueName']}: {sorted(unknown)} is not simulated")
        attributes = {
            key: json.dumps(value) if isinstance(value, dict) else str(value)
            for key, value in properties.items()
            if key in _QUEUE_ATTRIBUTES
        }
        made.queues[properties["QueueName"]] = Queue(properties["QueueName"], attributes)

    def add_table(self, made: Blueprint, properties: dict[str, Any]) -> None:
        indexes = properties.get("GlobalSecondaryIndexes", [])
        for index in indexes:
            if index["Projection"]["ProjectionType"] != "ALL":
                raise TemplateError(f"{self.path}: {index['IndexName']}: only indexes of all attributes are simulated")
        name = properties["TableName"]
        made.tables[name] = table_of(name, properties["KeySchema"], properties["AttributeDefinitions"], indexes)

    def add_bucket(self, made: Blueprint, properties: dict[str, Any]) -> None:
        name = properties["BucketName"]
        notifications = properties.get("NotificationConfiguration", {})
        bridge = notifications.get("EventBridgeConfiguration", {})
        made.buckets[name] = Bucket(
            name,
            versioned=properties.get("VersioningConfiguration", {}).get("Status") == "Enabled",
            announces=str(bridge.get("EventBridgeEnabled", False)).lower() == "true",
        )

    def add_bus(self, made: Blueprint, properties: dict[str, Any]) -> None:
        made.buses.add(properties["Name"])

    def add_rule(self, made: Blueprint, properties: dict[str, Any]) -> None:
        name, bus = properties["Name"], properties.get("EventBusName", "default")
        rule = rule_of(name, bus, properties.get("EventPattern"), properties.get("ScheduleExpression"))
        rule.enabled = properties.get("State", "ENABLED") == "ENABLED"
        rule.targets = [target_of(target) for target in properties["Targets"]]
        made.rules[name] = rule

    def add_state_machine(self, made: Blueprint, properties: dict[str, Any]) -> None:
        (path,) = self.path.parent.glob("statemachine/*.asl.json")
        substitutions = properties.get("DefinitionSubstitutions", {})

        def value(match: re.Match[str]) -> str:
            return str(substitutions[match[1]])

        definition = json.loads(re.sub(r"\$\{(\w+)\}", value, path.read_text()))
        machine = machine_of(properties["StateMachineName"], definition)
        made.state_machines[machine.arn] = machine

    def add_parameter(self, made: Blueprint, properties: dict[str, Any]) -> None:
        made.parameters[properties["Name"]] = str(properties["Value"])

    def add_event_source(self, made: Blueprint, properties: dict[str, Any]) -> None:
        function = self.known_functions[properties["FunctionName"]]
        queue = properties["EventSourceArn"].rpartition(":")[2]
        size = int(properties.get("BatchSize", 10))
        timeout, handler = float(function.get("Timeout", 3)), function["ImageConfig"]["Command"][0]
        made.event_sources.append(EventSource(queue, function["FunctionName"], size, timeout, handler))

    # ---- values

    def resolve(self, value: Any) -> Any:
        """A value without intrinsic functions. Raises TemplateError."""
        if isinstance(value, list):
            return [found for each in value if (found := self.resolve(each)) is not None]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name == "Ref" or name.startswith("Fn::"):
                function = _FUNCTIONS.get(name)
                if function is None:
                    raise TemplateError(f"{self.path}: {name} is not simulated")
                return function(self, argument)
        resolved = {key: self.resolve(each) for key, each in value.items()}
        return {key: each for key, each in resolved.items() if each is not None}

    def ref(self, name: str) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        if name in _PSEUDO_PARAMETERS:
            return _PSEUDO_PARAMETERS[name]
        return self._attribute(name, "Ref")

    def attribute(self, argument: Any) -> Any:
        name, attribute = argument if isinstance(argument, list) else argument.split(".", 1)
        return self._attribute(name, attribute)

    def _attribute(self, logical_id: str, attribute: str) -> Any:
        resource = self.resources.get(logical_id)
        if resource is None:
            raise TemplateError(f"{self.path}: there is no {logical_id}")
        kind = resource["Type"]
        if kind not in _ATTRIBUTES:
            return f"{logical_id}.{attribute}"  # of a resource without an effect
        name_property, attributes = _ATTRIBUTES[kind]
        if attribute not in attributes:
            raise TemplateError(f"{self.path}: {logical_id}.{attribute} is not simulated")
        properties = resource["Properties"]
        bus = self.resolve(properties.get("EventBusName", "default"))
        return attributes[attribute](self.resolve(properties[name_property]), bus)

    def substitute(self, argument: Any) -> str:
        template, variables = argument if isinstance(argument, list) else (argument, {})

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("!"):
                return "${" + name[1:] + "}"
            if name in variables:
                return str(self.resolve(variables[name]))
            return str(self.attribute(name) if "." in name else self.ref(name))

        return re.sub(r"\$\{([^}]+)\}", value, template)

    def imported(self, argument: Any) -> Any:
        name = self.resolve(argument)
        if name not in self.exports:
            raise TemplateError(f"{self.path}: no stack exports {name}")
        return self.exports[name]

    def chosen(self, argument: Any) -> Any:
        condition, if_true, if_false = argument
        return self.resolve(if_true if self._holds(condition) else if_false)

    def _holds(self, condition: str) -> bool:
        return bool(self.resolve(self._conditions[condition]))

    def joined(self, argument: Any) -> str:
        return str(argument[0]).join(map(str, self.resolve(argument[1])))

    def split(self, argument: Any) -> list[str]:
        return str(self.resolve(argument[1])).split(argument[0])

    def selected(self, argument: Any) -> Any:
        return self.resolve(argument[1])[int(argument[0])]

    def equal(self, argument: Any) -> bool:
        return bool(self.resolve(argument[0]) == self.resolve(argument[1]))

    def negated(self, argument: Any) -> bool:
        return not self.resolve(argument[0])

    def all_hold(self, argument: Any) -> bool:
        return all(self.resolve(each) for each in argument)

    def any_holds(self, argument: Any) -> bool:
        return any(self.resolve(each) for each in argument)

    def holds(self, condition: str) -> bool:
        return self._holds(condition)


_FUNCTIONS: dict[str, Callable[[_Stack, Any], Any]] = {
    "Ref": _Stack.ref,
    "Fn::GetAtt": _Stack.attribute,
    "Fn::Sub": _Stack.substitute,
    "Fn::ImportValue": _Stack.imported,
    "Fn::If": _Stack.chosen,
    "Fn::Join": _Stack.joined,
    "Fn::Split": _Stack.split,
    "Fn::Select": _Stack.selected,
    "Fn::Equals": _Stack.equal,
    "Fn::Not": _Stack.negated,
    "Fn::And": _Stack.all_hold,
    "Fn::Or": _Stack.any_holds,
    "Fn::Condition": _Stack.holds,
}

_ADD: dict[str, Callable[[_Stack, Blueprint, dict[str, Any]], None]] = {
    "AWS::SQS::Queue": _Stack.add_queue,
    "AWS::DynamoDB::Table": _Stack.add_table,
    "AWS::S3::Bucket": _Stack.add_bucket,
    "AWS::Events::EventBus": _Stack.add_bus,
    "AWS::Events::Rule": _Stack.add_rule,
    "AWS::StepFunctions::StateMachine": _Stack.add_state_machine,
    "AWS::SSM::Parameter": _Stack.add_parameter,
    "AWS::Lambda::EventSourceMapping": _Stack.add_event_source,
}

#: The property with the name, and functions for Ref and GetAtt of the name and the bus.
_ATTRIBUTES: dict[str, tuple[str, dict[str, Callable[[str, str], str]]]] = {
    "AWS::SQS::Queue": (
        "QueueName",
        {
            "Ref": lambda name, bus: url_of(name),
            "QueueUrl": lambda name, bus: url_of(name),
            "Arn": lambda name, bus: arn_of(name),
            "QueueName": lambda name, bus: name,
        },
    ),
    "AWS::DynamoDB::Table": (
        "TableName",
        {
            "Ref": lambda name, bus: name,
            "Arn": lambda name, bus: f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}",
        },
    ),
    "AWS::S3::Bucket": (
        "BucketName",
        {"Ref": lambda name, bus: name, "Arn": lambda name, bus: f"arn:aws:s3:::{name}"},
    ),
    "AWS::Events::EventBus": (
        "Name",
        {"Ref": lambda name, bus: name, "Name": lambda name, bus: name, "Arn": lambda name, bus: bus_arn(name)},
    ),
    "AWS::Events::Rule": (
        "Name",
        {"Ref": lambda name, bus: name, "Arn": lambda name, bus: Rule(name, bus, None).arn},
    ),
    "AWS::StepFunctions::StateMachine": (
        "StateMachineName",
        {
            "Ref": lambda name, bus: machine_arn(name),
            "Arn": lambda name, bus: machine_arn(name),
            "Name": lambda name, bus: name,
        },
    ),
    "AWS::SSM::Parameter": ("Name", {"Ref": lambda name, bus: name}),
    "AWS::Lambda::Function": (
        "FunctionName",
        {
            "Ref": lambda name, bus: name,
            "Arn": lambda name, bus: f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}",
        },
    ),
    "AWS::SNS::Topic": ("TopicName", {"Ref": lambda name, bus: f"arn:aws:sns:{REGION}:{ACCOUNT}:{name}"}),
}


def _check_references(made: Blueprint, policies: list[dict[str, Any]]) -> None:
    """Refuse what would lose messages on AWS: redrives to missing queues, and rules that may not send to a queue."""
    for queue in made.queues.values():
        if queue.dead_letter_queue is not None and queue.dead_letter_queue not in made.queues:
            raise TemplateError(f"{queue.name} redrives to {queue.dead_letter_queue}, which does not exist")
    allowed = {
        (source, url.rpartition("/")[2])
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "events.amazonaws.com"}
        for source in _listed(statement["Condition"]["ArnEquals"]["aws:SourceArn"])
        for url in policy["Queues"]
    }
    for rule in made.rules.values():
        for target in rule.targets:
            for arn in filter(None, (target.arn, target.dead_letter_arn)):
                name = arn.rpartition(":")[2]
                if ":sqs:" not in arn:
                    continue
                if name not in made.queues:
                    raise TemplateError(f"The rule {rule.name} sends to {name}, which does not exist")
                if (rule.arn, name) not in allowed:
                    raise TemplateError(f"The queue policy of {name} does not let the rule {rule.name} send")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
