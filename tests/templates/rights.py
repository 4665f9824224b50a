"""Rules for the rights of roles on objects, queues and tables: what the code of a service does, and nothing else.

`tests.templates.needs` tells what the code does. The role of a function or of a task on Fargate must allow it, and must
not allow more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from prismline_contracts.commands import Queue
from prismline_contracts.prefixes import ARCHIVE_PREFIX, POSTED_ALERTS_PREFIX, RESULTS_PREFIX, WORKLOADS_PREFIX
from tests.templates.damage import Case, Damage, properties
from tests.templates.needs import (
    ALL_QUEUES,
    DEAD_LETTERS,
    OWN_QUEUES,
    POOL_QUEUES,
    PREFIXES,
    RUN_QUEUES,
    Need,
    needs_of,
)
from tests.templates.reading import Stacks, branches, deployed, referred, statements, text_of

#: The two computes of the worker. Other stacks have no such parameter.
COMPUTES = {"lambda": {}, "fargate": {"WorkerCompute": "fargate"}}
DEPLOYED = {"DeployFunctions": "true", "ImageUri": "image@sha256:0"}
#: What Lambda does with a queue for a function, and what the consumer of a task on Fargate does beyond that.
RECEIVES = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
CONSUMES = RECEIVES | {"sqs:GetQueueUrl", "sqs:ChangeMessageVisibility"}
#: Rights on a queue that show only its address and its depth. A role may have them with any other right on the queue.
LOOKS = {"sqs:GetQueueUrl", "sqs:GetQueueAttributes"}
#: The end of a resource's ARN without the name that all resources of an environment share.
SHORT = (
    r"arn:.*:s3:::prismline-\$\{Environment\}-[^/]+/(.+)",
    r"arn:.*:sqs:.*:prismline-\$\{Environment\}-(.+)",
    r"arn:.*:dynamodb:.*:table/prismline-\$\{Environment\}-(.+)",
)
#: Sends messages for every service.
TRANSPORT = "prismline_runtime.transport.Transport."
HANDLER = re.compile(r"(prismline_\w+(?:\.\w+)*)[.:]\w+$")


@dataclass
class Role:
    """A role, the modules whose code runs with it, the queues that this code receives from, and what it is granted."""

    stack: str
    logical_id: str
    entries: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    on_fargate: bool = False
    #: For each action, what the role may do it on: the end of an ARN, a pattern.
    granted: set[tuple[str, str]] = field(default_factory=set)
    #: Prefixes of the bucket that the role may list, as patterns.
    listed: set[str] = field(default_factory=set)

    def needed(self) -> dict[tuple[str, str], str]:
        """The actions that the code takes, and on what. For each a function that does."""
        found: dict[tuple[str, str], str] = {}
        for entry in sorted(self.entries):
            for need in needs_of(entry):
                for each in self._own(need):
                    found.setdefault((need.action, each), need.function)
        for queue in self.received:
            for action in CONSUMES if self.on_fargate else RECEIVES:
                found.setdefault((action, queue), "the consumer")
        return found

    def _own(self, need: Need) -> set[str]:
        """On what the action is for this role: the code of the transport sends to the dead-letter queues of the queues
        from which the role receives."""
        dead = {_dead_letters_of(queue) for queue in self.received if not queue.endswith(DEAD_LETTERS)}
        if need.on == OWN_QUEUES:
            return self.received
        if need.on == f"{OWN_QUEUES}{DEAD_LETTERS}":
            return dead
        if need.on.endswith(DEAD_LETTERS) and need.function.startswith(TRANSPORT):
            return {need.on} & dead
        return {need.on}

    def allows(self, action: str, on: str) -> bool:
        """Whether the role allows the action."""
        if action == "s3:ListBucket":
            return any(fnmatchcase(on, pattern) for pattern in self.listed)
        example = f"{on}x" if on.endswith("/") else on
        return any(action == each and fnmatchcase(example, pattern) for each, pattern in self.granted)

    def __str__(self) -> str:
        return f"{self.stack}: {self.logical_id}"


def _dead_letters_of(queue: str) -> str:
    return f"{Queue.TASKS if queue == RUN_QUEUES else queue}{DEAD_LETTERS}"


def roles(stacks: Stacks, compute: str) -> list[Role]:
    """The roles of all functions and tasks, with the worker's `compute`."""
    resources = {stack: deployed(each, {**DEPLOYED, **COMPUTES[compute]}) for stack, each in stacks.items()}
    found: dict[tuple[str, str], Role] = {}
    functions: dict[tuple[str, str], Role] = {}
    for stack, logical_id, function in _of_kind(resources, "Lambda::Function"):
        role = _role(found, stack, function["Role"])
        role.entries |= _entries(function["ImageConfig"]["Command"])
        functions[stack, logical_id] = role
    for stack, _, mapping in _of_kind(resources, "Lambda::EventSourceMapping"):
        name = mapping["FunctionName"]
        imported = "Fn::ImportValue" in name
        role = functions["dlq-consumer", "DeadLettersFunction"] if imported else functions[stack, name["Ref"]]
        role.received.add(_short(text_of(stacks, stack, mapping["EventSourceArn"])))
    for stack, _, task in _of_kind(resources, "ECS::TaskDefinition"):
        role = _role(found, stack, task["TaskRoleArn"])
        role.on_fargate = True
        for container in task["ContainerDefinitions"]:
            command = [text_of(stacks, stack, each).replace("${Pool}", "*") for each in container["Command"]]
            role.entries |= _entries(command)
            role.received |= {each.removeprefix("--queue=") for each in command if "--queue=" in each}
    for (stack, logical_id), role in found.items():
        if Queue.TASKS in role.received:
            role.received.add(RUN_QUEUES)
        for statement in statements(resources[stack][logical_id]["Properties"]):
            grant(role, statement, stacks)
    return list(found.values())


def _of_kind(resources: Mapping[str, Mapping[str, Any]], kind: str) -> Iterator[tuple[str, str, Any]]:
    for stack, each in resources.items():
        for logical_id, resource in each.items():
            if resource["Type"] == f"AWS::{kind}":
                yield stack, logical_id, resource["Properties"]


def _role(found: dict[tuple[str, str], Role], stack: str, arn: Any) -> Role:
    logical_id = str(referred(arn))
    return found.setdefault((stack, logical_id), Role(stack, logical_id))


def _entries(command: list[str]) -> set[str]:
    return {match[1] for each in command if (match := HANDLER.search(each))}


def _short(arn: str) -> str:
    arn = arn.replace("${Pool}_*", "*").replace("${Pool}", "*")  # the template of pools stands for each of them
    return next((match[1] for pattern in SHORT if (match := re.fullmatch(pattern, arn))), arn)


def grant(role: Role, statement: Mapping[str, Any], stacks: Stacks) -> None:
    """Add the rights of a statement to a role."""
    for action in branches(statement["Action"]):
        if action == "s3:ListBucket":
            role.listed |= set(branches(statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", "*")))
        else:
            role.granted |= {
                (action, _short(text_of(stacks, role.stack, each))) for each in branches(statement["Resource"])
            }


def lacking_rights(stacks: Stacks) -> Iterator[str]:
    """A role allows everything that the code does on AWS."""
    for compute in COMPUTES:
        for role in roles(stacks, compute):
            for (action, on), function in sorted(role.needed().items()):
                if not role.allows(action, on):
                    yield f"{role} does not allow {action} on {on} ({function}; {compute})"


def needless_rights(stacks: Stacks) -> Iterator[str]:
    """A role allows nothing that the code does not do."""
    for compute in COMPUTES:
        for role in roles(stacks, compute):
            needed = role.needed()
            used = {on for _, on in needed}
            for action, pattern in sorted(role.granted):
                for on in _covered(action, pattern):
                    # Who deletes a dead letter may also send one: a policy cannot tell the queues of one pattern apart.
                    archives = on.endswith(DEAD_LETTERS) and ("sqs:DeleteMessage", on) in needed
                    if (action, on) not in needed and not (action in LOOKS and on in used) and not archives:
                        yield f"{role} allows {action} on {on}, which its code does not do ({compute})"
            if role.listed and not any(action.startswith("s3:") for action, _ in needed):
                yield f"{role} may list the bucket, which its code does not read ({compute})"


def _covered(action: str, pattern: str) -> Iterator[str]:
    """The prefixes, queues or tables that a pattern covers. The pattern itself if it covers none that is known."""
    if pattern == "${SourceObjects}":
        return
    if action.startswith("s3:"):
        leaves = PREFIXES - {ARCHIVE_PREFIX}
        yield from sorted(each for each in leaves if fnmatchcase(f"{each}x", pattern)) or [pattern]
    elif action.startswith("dynamodb:") or (action.startswith("sqs:") and pattern in (RUN_QUEUES, POOL_QUEUES)):
        yield pattern
    elif action.startswith("sqs:") and action != "sqs:ListQueues":
        yield from sorted(each for each in ALL_QUEUES if fnmatchcase(each, pattern)) or [pattern]


def hidden_absences(stacks: Stacks) -> Iterator[str]:
    """A role that reads objects may list the bucket: without it S3 answers 403 instead of 404 for a missing object, and
    the consumer repeats the message for ever. The notifier creates each object before it reads it."""
    for role in roles(stacks, "lambda"):
        # The splitter has read the registration of a function before a pool does, and a long value is written before an
        # item names it.
        of_pool = {WORKLOADS_PREFIX, RESULTS_PREFIX} if role.stack == "pool" else set()
        seen = {POSTED_ALERTS_PREFIX} | of_pool
        read = {on for action, on in role.needed() if action == "s3:GetObject"} - seen
        if read and "*" not in role.listed:
            yield f"{role} cannot tell that an object is missing"


# ---- damage that each rule has to detect


def _statement(stacks: Stacks, stack: str, role: str, action: str, text: str) -> dict[str, Any]:
    """The statement of a role that allows an action on resources with a text in their ARNs."""
    found = statements(properties(stacks, stack, role))
    return next(each for each in found if action in branches(each["Action"]) and text in str(each["Resource"]))


def _no(stack: str, role: str, action: str, text: str) -> Damage:
    """Damage: the statement no longer names the resource."""

    def damage(stacks: Stacks) -> None:
        statement = _statement(stacks, stack, role, action, text)
        statement["Resource"] = [each for each in branches(statement["Resource"]) if text not in str(each)]

    return damage


def _also(stack: str, role: str, action: str, text: str, more: str) -> Damage:
    """Damage: the statement allows one more action."""

    def damage(stacks: Stacks) -> None:
        statement = _statement(stacks, stack, role, action, text)
        statement["Action"] = [*branches(statement["Action"]), more]

    return damage


def _without(stack: str, role: str, action: str, text: str) -> Damage:
    """Damage: the statement does not allow the action any more."""

    def damage(stacks: Stacks) -> None:
        statement = _statement(stacks, stack, role, action, text)
        statement["Action"] = [each for each in branches(statement["Action"]) if each != action]

    return damage


def _lists_only_exports(stacks: Stacks) -> None:
    statement = _statement(stacks, "exporter", "ExporterRole", "s3:ListBucket", "")
    statement["Condition"] = {"StringLike": {"s3:prefix": "exports/*"}}


def _lists_for_nothing(stacks: Stacks) -> None:
    statement = _statement(stacks, "status", "FunctionRole", "events:PutEvents", "")
    statement["Action"] = ["events:PutEvents", "s3:ListBucket"]


CASES: list[Case] = [
    (lacking_rights, _no("worker", "FunctionRole", "s3:GetObject", "/uploads/")),
    (lacking_rights, _no("api", "ApiRole", "s3:GetObject", "/failed-sqs/")),
    (lacking_rights, _no("splitter", "FunctionRole", "s3:DeleteObject", "/exports/")),
    (lacking_rights, _no("worker", "FunctionRole", "sqs:SendMessage", "RefitsDeadLetterQueue")),
    (lacking_rights, _no("dlq-consumer", "FunctionRole", "sqs:SendMessage", "${Environment}-*")),
    (lacking_rights, _without("worker", "FunctionRole", "dynamodb:UpdateItem", "RunsTable")),
    (lacking_rights, _without("worker", "FunctionRole", "dynamodb:Query", "GSI2")),  # only tasks on Fargate need it
    (lacking_rights, _without("api", "ApiRole", "dynamodb:Scan", "workflow-state")),
    (lacking_rights, _without("exporter", "ExporterRole", "sqs:ReceiveMessage", "")),
    (needless_rights, _also("api", "ApiRole", "dynamodb:PutItem", "JobsTable", "dynamodb:DeleteItem")),
    (needless_rights, _also("worker", "FunctionRole", "s3:GetObject", "/chunks/", "s3:PutObject")),
    (needless_rights, _also("status", "FunctionRole", "sqs:SendMessage", "Dead", "sqs:DeleteQueue")),
    (needless_rights, _lists_for_nothing),
    (hidden_absences, _lists_only_exports),
]
