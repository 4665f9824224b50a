"""The pages on removing, restoring and pausing name what the templates have, in a possible order."""

from __future__ import annotations

import re

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.templates.reading import exports, imports, of_kind, read_stacks

HOW_TO = REPOSITORY / "docs/how-to"
STACKS = read_stacks()
TABLES = {
    str(table["TableName"]["Fn::Sub"]).removeprefix("prismline-${Environment}-")
    for _, _, table in of_kind(STACKS, "DynamoDB::Table")
}


def test_a_stack_is_deleted_after_the_stacks_that_import_its_exports() -> None:
    (loop,) = re.findall(r"for SERVICE in (.*); do", (HOW_TO / "remove-an-environment.md").read_text())
    order = loop.split()
    assert sorted(order) == sorted(STACKS)
    for position, stack in enumerate(order):
        later = set().union(*(imports(STACKS[each]) for each in order[position + 1 :]))
        assert exports(STACKS[stack]) & later == set(), f"{stack} is deleted too early"


@pytest.mark.parametrize("page", ["remove-an-environment", "restore-a-table"])
def test_every_table_is_named(page: str) -> None:
    text = (HOW_TO / f"{page}.md").read_text()
    assert {table for table in TABLES if not re.search(rf"[ `-]{table}\b", text)} == set()


def test_the_tables_can_be_restored_and_survive_their_stacks() -> None:
    for template in STACKS.values():
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::DynamoDB::Table":
                assert resource["DeletionPolicy"] == "Retain"
                assert resource["Properties"]["PointInTimeRecoverySpecification"] == {
                    "PointInTimeRecoveryEnabled": True
                }


def test_the_functions_of_the_worker_have_the_names_of_the_page() -> None:
    names = {str(f["FunctionName"]["Fn::Sub"]).rpartition("}-")[2] for _, _, f in of_kind(STACKS, "Lambda::Function")}
    page = (HOW_TO / "pause-a-queue.md").read_text()
    for name in ("worker", "slow-lane", "fetcher", "dead-letters"):
        assert name in names
        assert name in page
