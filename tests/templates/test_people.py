"""The page of commands and roles has every command of the documentation, with the least role that allows it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from typer.main import get_command

from prismline_cli.whole import app
from tests.docs.commands import all_commands
from tests.templates import people
from tests.templates.reading import REPOSITORY

#: The service and the operation of each AWS command in a line of shell.
AWS_COMMAND = re.compile(r"(?<![\w-])aws ([a-z0-9-]+ [a-z][a-z0-9-]+)")


def documented() -> Iterator[str]:
    """The AWS commands of all pages."""
    folders = ("docs", "platform", "deploy", "services", "localstack", "cli")
    pages = [page for folder in folders for page in REPOSITORY.glob(f"{folder}/**/*.md") if page.name != "CHANGELOG.md"]
    for page in [*pages, *REPOSITORY.glob("*.md")]:
        if page != people.PAGE:
            for command in all_commands(page):
                yield from AWS_COMMAND.findall(command)


def test_the_table_is_what_the_code_and_the_templates_say() -> None:
    (written,) = people.TABLE.findall(people.PAGE.read_text())
    assert written == people.table(), "python -m tests.templates.people writes it"


def test_every_command_of_prismline_has_a_row() -> None:
    named = {command.split()[1] for row in people.rows() for command in row.commands if command.startswith("prismline")}
    assert named == set(get_command(app).commands)  # type: ignore[attr-defined]


def test_every_aws_command_of_the_documentation_has_a_row() -> None:
    assert set(documented()) <= {*people.AWS, *people.EMULATOR_ONLY}


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("prismline submit", "submitter"),
        ("prismline results", "submitter"),
        ("prismline runs", "API key"),
        ("prismline cancel", "API key"),
        ("prismline retry", "API key"),
        ("prismline compare", "API key"),
        ("prismline deadletters", "API key"),
        ("prismline alerts", "API key"),
        ("prismline gpu", "operator"),
        ("prismline prune", "administrator"),
        ("prismline jobs keys create", "administrator"),
        ("aws logs filter-log-events", "on-call"),
        ("aws dynamodb query", "submitter"),
        ("aws ssm put-parameter", "on-call"),
    ],
)
def test_a_role_can_do_what_its_description_says_and_no_lesser_role_can(command: str, role: str) -> None:
    assert [row.role for row in people.rows() if command in row.commands] == [role]
