"""The templates keep every rule, and each rule detects a broken template."""

from __future__ import annotations

import copy
import re
from importlib import import_module

import pytest

from prismline_api import pricing
from prismline_contracts.delivery import VISIBILITY_PER_TIMEOUT
from prismline_deploy.change_sets import TEMPLATE_BYTES, compact
from prismline_deploy.order import parse, stacks_of
from tests.templates import handlers, infrastructure, rights, roles, settings, worker_compute
from tests.templates.damage import Damage, Rule, without
from tests.templates.needs import KNOWN
from tests.templates.reading import REPOSITORY, Stacks, imports, of_kind, read_stacks, statements

CASES = [*infrastructure.CASES, *rights.CASES, *roles.CASES, *worker_compute.CASES]
RULES = list(dict.fromkeys(rule for rule, _ in CASES))


@pytest.fixture(scope="module")
def stacks() -> Stacks:
    return read_stacks(pools=True)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_templates_keep_the_rule(rule: Rule, stacks: Stacks) -> None:
    assert list(rule(stacks)) == []


@pytest.mark.parametrize(("rule", "damage"), CASES)
def test_a_broken_rule_is_reported(rule: Rule, damage: Damage, stacks: Stacks) -> None:
    broken = copy.deepcopy(stacks)
    damage(broken)
    assert list(rule(broken)) != []


@pytest.mark.parametrize("name", KNOWN)
def test_a_value_whose_origin_is_declared_exists(name: str) -> None:
    module, *path = re.split(r"\.(?=[A-Z])", name) if re.search("[A-Z]", name) else name.rsplit(".", 1)
    owner, _, field = path[0].partition(".")
    found = getattr(import_module(module), owner)
    assert not field or field in found.__annotations__


def test_the_table_of_limits_hides_messages_long_enough() -> None:
    assert VISIBILITY_PER_TIMEOUT >= 6


def test_the_cost_of_a_run_is_computed_with_the_memory_of_the_workers_functions(stacks: Stacks) -> None:
    sizes = {function.get("MemorySize") for _, _, function in of_kind({"worker": stacks["worker"]}, "Lambda::Function")}
    assert sizes == {pricing.WORKER_GB * 1024}


def test_the_dead_letter_consumer_is_deployed_before_those_who_map_their_dead_letters_to_it(stacks: Stacks) -> None:
    users = {name for name, template in stacks.items() if "DeadLettersFunction" in imports(template)}
    owners = {stack for stack, _, _ in of_kind(stacks, "SQS::Queue")}
    assert users == owners - {"dlq-consumer"}


def test_a_template_is_sent_without_comments_and_has_room_left() -> None:
    for name, path in stacks_of(REPOSITORY).items():
        text = path.read_text()
        assert parse(compact(text)) == parse(text)
        assert len(compact(text).encode()) < 0.98 * TEMPLATE_BYTES, f"{name}: divide the stack"


def test_every_alarm_of_a_service_has_a_saved_query(stacks: Stacks) -> None:
    assert list(infrastructure.unsaved_queries(stacks)) == []
    broken = copy.deepcopy(stacks)
    broken["dlq-consumer"]["Resources"]["DriftQuery"]["Properties"]["QueryString"] = "filter message = 'ledger_drifts'"
    del broken["exporter"]["Resources"]["TroubleQuery"]
    assert list(infrastructure.unsaved_queries(broken)) == [
        "dlq-consumer: no query looks for ledger_drift, which the alarm ledger-drift counts",
        "exporter: no query reads ExporterFunctionLogs",
    ]


def test_every_setting_has_a_parameter_or_a_reason() -> None:
    stacks = read_stacks()
    assert list(settings.unexplained(stacks)) == []
    broken = copy.deepcopy(stacks)
    without("splitter", "Function", "Environment", "Variables", "WRITE_CALLS")(broken)
    assert list(settings.unexplained(broken)) == [
        "splitter: no template sets WRITE_CALLS, and the table does not say why"
    ]


def test_a_parameter_has_the_default_of_its_setting() -> None:
    stacks = read_stacks()
    assert list(settings.other_defaults(stacks)) == []
    broken = copy.deepcopy(stacks)
    broken["dlq-consumer"]["Parameters"]["MaxAttempts"]["Default"] = 6
    assert list(settings.other_defaults(broken)) == [
        "dlq-consumer: MAX_ATTEMPTS is 5 in the code and 6.0 in the template"
    ]


def test_the_deployer_has_what_the_handlers_of_its_resources_need(stacks: Stacks) -> None:
    assert len(handlers.needed(stacks)) > 100, "the schemas list the permissions"
    assert list(handlers.missing_rights(stacks)) == []
    assert list(handlers.useless_reasons(stacks)) == []


def test_a_right_that_the_deployer_lacks_is_reported(stacks: Stacks) -> None:
    broken = copy.deepcopy(stacks)
    for statement in statements(broken["platform"]["Resources"]["DeployerRole"]["Properties"]):
        actions = statement.get("Action")
        if isinstance(actions, list) and "sqs:TagQueue" in actions:
            actions.remove("sqs:TagQueue")
    assert list(handlers.missing_rights(broken)) == ["the deployer may not sqs:TagQueue, which AWS::SQS::Queue needs"]
