"""One AWS account in this process: fakes of the services that Prismline uses, fast, deterministic, in virtual time.

`Aws(hub)` is an empty account, `deployed(hub)` one with everything that the CloudFormation templates declare. The
clients (`aws.dynamodb`, `aws.sqs`, ...) have boto3's method names, parameters, answers and errors; each call passes
`hub.gate`. The state behind them can be read without a gate: `aws.tables`, `aws.queues`, `aws.objects`,
`aws.executions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.simulation.aws.dynamodb import Change, DynamoDB, Table
from tests.simulation.aws.ec2 import EC2, Instance
from tests.simulation.aws.events import Delivery, Events, Rule
from tests.simulation.aws.hub import Hub, PlainHub
from tests.simulation.aws.loader import EventSource, blueprint
from tests.simulation.aws.s3 import S3, Bucket, Object
from tests.simulation.aws.sqs import SQS, Message, Queue
from tests.simulation.aws.ssm import SSM
from tests.simulation.aws.stepfunctions import Execution, StateMachine, StepFunctions

__all__ = [
    "Aws",
    "Bucket",
    "Change",
    "Delivery",
    "EventSource",
    "Execution",
    "Hub",
    "Instance",
    "Message",
    "Object",
    "PlainHub",
    "Queue",
    "Rule",
    "Table",
    "deployed",
]


class Aws:
    """The state of an account, its clients, and the listeners for changes."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        #: By name, without a gate.
        self.tables: dict[str, Table] = {}
        self.queues: dict[str, Queue] = {}
        #: `objects[bucket][key]` is the current object.
        self.objects: dict[str, Bucket] = {}
        self.rules: dict[str, Rule] = {}
        #: By ARN.
        self.executions: dict[str, Execution] = {}
        self.state_machines: dict[str, StateMachine] = {}
        #: Values by name.
        self.parameters: dict[str, str] = {}
        #: By instance id.
        self.instances: dict[str, Instance] = {}
        #: Of a deployed account: the environment's name, the services' environment variables, and the event source
        #: mappings.
        self.environment = ""
        self.outputs: Mapping[str, str] = {}
        self.event_sources: Sequence[EventSource] = ()

        #: Called after each committed change of an item, with the table's name, the key, the item before and after
        #: (plain Python, None where there is none): once for each item, after the whole request has been applied.
        self.on_write: list[
            Callable[[str, tuple[Any, ...], Mapping[str, Any] | None, Mapping[str, Any] | None], None]
        ] = []
        #: Called once for each request that changed an item, after `on_write`.
        self.on_commit: list[Callable[[list[Change]], None]] = []
        #: Called with bucket, key and object after an object was put.
        self.on_put_object: list[Callable[[str, str, Object], None]] = []
        #: Called with each event that a bus accepted, as its targets see it.
        self.on_event: list[Callable[[Mapping[str, Any]], None]] = []

        self.dynamodb = DynamoDB(self)
        self.sqs = SQS(self)
        self.s3 = S3(self)
        self.events = Events(self)
        self.stepfunctions = StepFunctions(self)
        self.ssm = SSM(self)
        self.ec2 = EC2(self)

    def table(self, name: str) -> Table:
        """A table of a deployed account by its short name: `table("runs")`."""
        return self.tables[f"prismline-{self.environment}-{name}"]

    def queue(self, name: str) -> Queue:
        """A queue of a deployed account by its short name: `queue("chunks")`."""
        return self.queues[f"prismline-{self.environment}-{name}"]


def deployed(hub: Hub, environment: str = "sim") -> Aws:
    """A new, empty account with all resources that the repository's templates declare."""
    return blueprint(environment).build(hub)
