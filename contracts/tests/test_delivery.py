"""The deployed queues do what the table of limits says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from prismline_contracts import DEAD_LETTER_RETENTION_SECONDS, LIMITS, Queue, QueueLimits, state_machine_name

REPOSITORY = Path(__file__).parents[2]
TEMPLATES = sorted(REPOSITORY.glob("services/*/template.yaml"))


class _Loader(yaml.SafeLoader):
    """Reads CloudFormation's short functions as what they are given."""


def _function(loader: yaml.Loader, _suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]


_Loader.add_multi_constructor("!", _function)


def resources(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The properties of all resources of this kind, with the template that they are in."""
    for template in TEMPLATES:
        for resource in yaml.load(template.read_text(), _Loader)["Resources"].values():
            if resource["Type"] == kind:
                yield template.parent.name, resource["Properties"]


QUEUES = {
    properties["QueueName"].removeprefix("prismline-${Environment}-"): properties
    for _, properties in resources("AWS::SQS::Queue")
}


@pytest.mark.parametrize("queue", sorted(Queue))
def test_a_queue_is_deployed_with_its_limits(queue: Queue) -> None:
    limits, deployed, dead_letters = LIMITS[queue], QUEUES[queue], QUEUES[f"{queue}-dlq"]
    assert deployed["RedrivePolicy"]["maxReceiveCount"] == limits.max_receives
    assert deployed["VisibilityTimeout"] == limits.visibility_seconds
    assert deployed["MessageRetentionPeriod"] == limits.retention_seconds
    assert dead_letters["MessageRetentionPeriod"] == DEAD_LETTER_RETENTION_SECONDS


def test_every_deployed_queue_is_in_the_table() -> None:
    assert {name.removesuffix("-dlq") for name in QUEUES} == set(Queue)


@pytest.mark.parametrize("queue", sorted(Queue))
def test_a_message_that_was_moved_has_days_left(queue: Queue) -> None:
    """The clock of a message does not start again when it is moved to its dead-letter queue."""
    assert DEAD_LETTER_RETENTION_SECONDS - LIMITS[queue].retention_seconds >= 4 * 86_400


DOCUMENTED = re.compile(r"^\| `(\w+)` \|.*\| (\d+) \| (\d+) s \| (\d+) (days?|hours?) \|$", re.MULTILINE)


def test_the_page_on_delivery_says_what_the_table_of_limits_says() -> None:
    page = (REPOSITORY / "docs/delivery.md").read_text()
    documented = {
        name: QueueLimits(int(receives), int(visibility), int(n) * (86_400 if unit.startswith("day") else 3600))
        for name, receives, visibility, n, unit in DOCUMENTED.findall(page)
    }
    assert documented == dict(LIMITS)
    assert f"keeps a message for {DEAD_LETTER_RETENTION_SECONDS // 86_400} days" in " ".join(page.split())


RULES = [
    pytest.param(target, id=f"{service}-{rule['Name']}-{target['Id']}")
    for service, rule in resources("AWS::Events::Rule")
    for target in rule["Targets"]
]


@pytest.mark.parametrize("target", RULES)
def test_what_a_rule_cannot_deliver_goes_to_the_dead_letter_queue_of_its_target(target: dict[str, Any]) -> None:
    queue = target["Arn"].removesuffix("Queue.Arn")
    assert target["DeadLetterConfig"]["Arn"] == f"{queue}DeadLetterQueue.Arn"
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}


def test_the_state_machine_has_the_name_that_others_address_it_by() -> None:
    ((_, properties),) = resources("AWS::StepFunctions::StateMachine")
    assert properties["StateMachineName"].replace("${Environment}", "dev") == state_machine_name("dev")
