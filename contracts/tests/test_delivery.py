"""The deployed queues have the limits of the table, and every queue follows one pattern.

The pattern: a queue, its dead-letter queue, an alarm, an event source, a process that polls it, and a container.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from prismline_contracts.commands import Queue, polled_queues
from prismline_contracts.delivery import (
    DEAD_LETTER_FUNCTION_SECONDS,
    DEAD_LETTER_RETENTION_SECONDS,
    LIMITS,
    VISIBILITY_PER_TIMEOUT,
    state_machine_name,
)

REPOSITORY = Path(__file__).parents[2]
TEMPLATES = sorted(REPOSITORY.glob("services/*/template.yaml"))


class _Loader(yaml.SafeLoader):
    """Replaces CloudFormation's short functions by their arguments."""


def _function(loader: yaml.Loader, _suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]


_Loader.add_multi_constructor("!", _function)


@cache
def read_template(path: Path) -> dict[str, Any]:
    """The resources of a template by logical id. Cached, so callers must not change them."""
    found: dict[str, Any] = yaml.load(path.read_text(), _Loader)["Resources"]
    return found


def resources(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The properties of all resources of this kind, each with the name of its template."""
    for template in TEMPLATES:
        for resource in read_template(template).values():
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
    assert dead_letters["VisibilityTimeout"] == VISIBILITY_PER_TIMEOUT * DEAD_LETTER_FUNCTION_SECONDS


def test_every_deployed_queue_is_in_the_table() -> None:
    assert {name.removesuffix("-dlq") for name in QUEUES} == set(Queue)


@pytest.mark.parametrize("queue", sorted(Queue))
def test_a_dead_letter_has_days_of_retention_left(queue: Queue) -> None:
    """A message keeps its age when SQS moves it to the dead-letter queue."""
    assert DEAD_LETTER_RETENTION_SECONDS - LIMITS[queue].retention_seconds >= 4 * 86_400


RULES = [
    pytest.param(target, id=f"{service}-{rule['Name']}-{target['Id']}")
    for service, rule in resources("AWS::Events::Rule")
    for target in rule["Targets"]
]


@pytest.mark.parametrize("target", RULES)
def test_an_event_that_a_rule_cannot_deliver_goes_to_the_dead_letter_queue_of_its_target(
    target: dict[str, Any],
) -> None:
    queue = target["Arn"].removesuffix("Queue.Arn")
    assert target["DeadLetterConfig"]["Arn"] == f"{queue}DeadLetterQueue.Arn"
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}


ALARMS = [
    pytest.param(alarm, id=f"{service}-{alarm['AlarmName']}") for service, alarm in resources("AWS::CloudWatch::Alarm")
]


@pytest.mark.parametrize("alarm", ALARMS)
def test_people_are_notified_of_an_alarm_and_of_its_end(alarm: dict[str, Any]) -> None:
    assert "-AlarmTopicArn" in str(alarm["AlarmActions"][0])
    assert alarm["OKActions"] == alarm["AlarmActions"]
    assert alarm["AlarmDescription"]


def test_the_state_machine_has_the_name_that_others_address_it_by() -> None:
    ((_, properties),) = resources("AWS::StepFunctions::StateMachine")
    assert properties["StateMachineName"].replace("${Environment}", "dev") == state_machine_name("dev")


# ---- one pattern for every queue


#: Queues whose dead-letter queues have no alarm, with the reason.
WITHOUT_ALARM = {Queue.SWEEPS: "the next sweep does the work of a lost one"}
#: Queues for which the batch sizes of event source and process differ, with the reason.
OTHER_BATCH = {Queue.ALERTS: "the function's timeout is enough for one post, and a local process has no such timeout"}


@dataclass
class Declared:
    """All places that declare queues."""

    #: Resources by template and logical id.
    templates: dict[str, dict[str, Any]]
    #: Tables `[[tool.prismline.processes]]` by service.
    processes: dict[str, list[dict[str, Any]]]
    #: Names of the containers in the compose file.
    containers: set[str]

    @classmethod
    @cache
    def read(cls) -> Declared:
        """What this checkout declares. Cached, so callers must not change it."""
        projects = {
            path.parent.name: tomllib.loads((path.parent / "pyproject.toml").read_text()).get("tool", {})
            for path in TEMPLATES
        }
        return cls(
            templates={path.parent.name: read_template(path) for path in TEMPLATES},
            processes={name: tool.get("prismline", {}).get("processes", []) for name, tool in projects.items()},
            containers=set(yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]),
        )

    def of_kind(self, service: str, kind: str) -> dict[str, dict[str, Any]]:
        """The properties of a template's resources of this kind, by logical id."""
        resources = self.templates[service].items()
        return {name: resource["Properties"] for name, resource in resources if resource["Type"] == f"AWS::{kind}"}


def owner_of(queue: str, declared: Declared) -> str | None:
    """The service whose template has the queue."""
    for service in declared.templates:
        for name, properties in declared.of_kind(service, "SQS::Queue").items():
            if properties["QueueName"] == f"prismline-${{Environment}}-{queue}" and name == f"{queue.title()}Queue":
                return service
    return None


def _polled(processes: list[dict[str, Any]]) -> list[str]:
    """The queues that these processes poll."""
    return polled_queues(name for process in processes for name in process.get("queues", []))


def missing(queue: Queue, declared: Declared) -> Iterator[str]:
    """The names of the missing parts of the declaration of `queue`."""
    owner = owner_of(queue, declared)
    if owner is None:
        yield f"no template has {queue.title()}Queue with the name prismline-${{Environment}}-{queue}"
        return
    where, dead_letters = f"services/{owner}/template.yaml", f"{queue.title()}DeadLetterQueue"
    queues = declared.of_kind(owner, "SQS::Queue")
    if queues.get(dead_letters, {}).get("QueueName") != f"prismline-${{Environment}}-{queue}-dlq":
        yield f"{where} lacks {dead_letters} with the name prismline-${{Environment}}-{queue}-dlq"
    if queues[f"{queue.title()}Queue"].get("RedrivePolicy", {}).get("deadLetterTargetArn") != f"{dead_letters}.Arn":
        yield f"{where}: the RedrivePolicy of {queue.title()}Queue does not name {dead_letters}"
    alarms = declared.of_kind(owner, "CloudWatch::Alarm").values()
    watching = [alarm for alarm in alarms if f"{dead_letters}.QueueName" in str(alarm)]
    if queue not in WITHOUT_ALARM and not any(
        alarm.get("AlarmActions") and alarm.get("OKActions") for alarm in watching
    ):
        yield f"{where} lacks an alarm on {dead_letters} with AlarmActions and OKActions"

    sources = declared.of_kind(owner, "Lambda::EventSourceMapping").values()
    source = next((each for each in sources if each["EventSourceArn"] == f"{queue.title()}Queue.Arn"), None)
    if source is None or source.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]:
        yield f"{where} lacks an event source of {queue.title()}Queue with ReportBatchItemFailures"
    if not any(each["EventSourceArn"] == f"{dead_letters}.Arn" for each in sources):
        yield f"{where} lacks an event source of {dead_letters}"
    consumer = "services/dlq-consumer"
    if f"{queue}-dlq" not in _polled(declared.processes["dlq-consumer"]):
        yield f"{consumer}/pyproject.toml lacks {queue}-dlq in the queues of a process"

    process = next((each for each in declared.processes[owner] if queue in each.get("queues", [])), None)
    if process is None:
        yield f"services/{owner}/pyproject.toml lacks a process that polls {queue}"
        return
    if process["name"] not in declared.containers:
        yield f"docker-compose.yml lacks the service {process['name']}, which polls {queue}"
    batches = (process.get("batch_size", 10), source.get("BatchSize", 10) if source else None)
    if source is not None and queue not in OTHER_BATCH and batches[0] != batches[1]:
        yield f"the process of {queue} takes batches of {batches[0]}, its event source batches of {batches[1]}"


@pytest.mark.parametrize("queue", sorted(Queue))
def test_a_queue_follows_the_pattern(queue: Queue) -> None:
    assert list(missing(queue, Declared.read())) == []


def test_no_process_polls_a_queue_that_is_not_in_the_table() -> None:
    polled = {queue for tables in Declared.read().processes.values() for queue in _polled(tables)}
    assert polled == {str(queue) for queue in Queue} | {f"{queue}-dlq" for queue in Queue}


def _rename_queue(declared: Declared) -> None:
    declared.templates["splitter"]["SplitQueue"]["Properties"]["QueueName"] = "other"


def _drop_dead_letter_queue(declared: Declared) -> None:
    del declared.templates["splitter"]["SplitDeadLetterQueue"]


def _drop_redrive(declared: Declared) -> None:
    del declared.templates["splitter"]["SplitQueue"]["Properties"]["RedrivePolicy"]


def _drop_alarm_actions(declared: Declared) -> None:
    del declared.templates["splitter"]["DeadLetterAlarm"]["Properties"]["AlarmActions"]


def _drop_event_source(declared: Declared) -> None:
    del declared.templates["splitter"]["EventSource"]


def _drop_event_source_of_dead_letters(declared: Declared) -> None:
    del declared.templates["splitter"]["SplitDeadLettersEventSource"]


def _stop_polling_dead_letters(declared: Declared) -> None:
    declared.processes["dlq-consumer"][0]["queues"] = ["chunks-dlq"]


def _drop_process(declared: Declared) -> None:
    declared.processes["splitter"].clear()


def _drop_container(declared: Declared) -> None:
    declared.containers.remove("splitter")


def _change_batch_size(declared: Declared) -> None:
    declared.processes["splitter"][0]["batch_size"] = 5


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_rename_queue, "no template has SplitQueue"),
        (_drop_dead_letter_queue, "lacks SplitDeadLetterQueue"),
        (_drop_redrive, "RedrivePolicy of SplitQueue"),
        (_drop_alarm_actions, "lacks an alarm on SplitDeadLetterQueue"),
        (_drop_event_source, "lacks an event source of SplitQueue"),
        (_drop_event_source_of_dead_letters, "lacks an event source of SplitDeadLetterQueue"),
        (_stop_polling_dead_letters, "dlq-consumer/pyproject.toml lacks split-dlq"),
        (_drop_process, "services/splitter/pyproject.toml lacks a process that polls split"),
        (_drop_container, "docker-compose.yml lacks the service splitter"),
        (_change_batch_size, "the process of split takes batches of 5"),
    ],
)
def test_a_missing_part_of_a_queue_is_reported_by_name(damage: Callable[[Declared], None], message: str) -> None:
    declared = copy.deepcopy(Declared.read())
    damage(declared)
    assert [sentence for sentence in missing(Queue.SPLIT, declared) if message in sentence]
