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
from tests.templates.rights import Role

#: The service and the operation of each AWS command in a line of shell.
AWS_COMMAND = re.compile(r"(?<![\w-])aws ([a-z0-9-]+ [a-z][a-z0-9-]+)")
#: The command of `prismline` in a line of shell.
PRISMLINE_COMMAND = re.compile(r"(?<![\w./-])prismline (?:--\S+ )*((?:jobs keys )?[a-z][a-z-]*)")
#: The environment in the examples of the pages.
ENVIRONMENT = re.compile(r"(?<=prismline[-/])(?:\$ENVIRONMENT|<environment>|dev|local)(?![\w])")
#: The pages for people on call, which say what to do about an alarm.
ON_CALL_PAGES = (
    "how-to/alerts",
    "how-to/dead-letters",
    "how-to/read-logs",
    "how-to/read-the-ledger",
    "tutorials/on-call",
)


def documented() -> Iterator[str]:
    """The AWS commands of all pages."""
    folders = ("docs", "platform", "deploy", "services", "localstack", "cli")
    pages = [page for folder in folders for page in REPOSITORY.glob(f"{folder}/**/*.md") if page.name != "CHANGELOG.md"]
    for page in [*pages, *REPOSITORY.glob("*.md")]:
        if page != people.PAGE:
            for command in all_commands(page):
                yield from AWS_COMMAND.findall(command)


def resources(command: str) -> set[str]:
    """The table, log groups, parameter or objects that an AWS command names, as roles name them."""
    command = ENVIRONMENT.sub("${Environment}", command)
    if table := re.search(r"--table-name prismline-\$\{Environment\}-([\w-]+)(?: --index-name (\w+))?", command):
        return {f"{table[1]}/index/{table[2]}" if table[2] else table[1]}
    if parameter := re.search(r"--name /prismline/\$\{Environment\}/(\S+)", command):
        return {people.PARAMETERS + parameter[1]}
    groups = re.findall(r"(?<= )/aws/[\w${}/-]+", command)
    return {people.LOG_GROUPS + group for group in groups} or set(re.findall(r"s3://[^/]+/(\S+)", command))


def denied(role: Role, command: str) -> Iterator[str]:
    """What a command in a line of shell needs and the role does not allow."""
    for part in re.split(r"(?<![\w-])(?=aws [a-z0-9-]+ [a-z])", command):
        if (found := AWS_COMMAND.match(part)) and found[1] not in people.EMULATOR_ONLY:
            for action, example in people.AWS[found[1]].items():
                named = {example} if example == "*" else resources(part) or {example}
                yield from (f"{action} on {on}" for on in named if not role.allows(action, on))
    for name in PRISMLINE_COMMAND.findall(command):
        rows = [row for row in people.rows() if f"prismline {name}" in row.commands]
        assert len(rows) == 1, f"one row has prismline {name}"
        if rows[0].role not in {people.KEY, people.NONE, *people.PEOPLE}:
            yield f"prismline {name}, which needs: {rows[0].role}"


@pytest.mark.parametrize("page", ON_CALL_PAGES)
def test_the_role_on_call_allows_every_command_of_the_pages_for_people_on_call(page: str) -> None:
    found = all_commands(REPOSITORY / f"docs/{page}.md")
    assert any("aws " in command for command in found)
    role = people.people()["on-call"]
    assert [f"{command}: {what}" for command in sorted(found) for what in denied(role, command)] == []


@pytest.mark.parametrize(
    "command",
    [
        "aws dynamodb query --table-name prismline-dev-jobs --limit 1",
        "aws dynamodb query --table-name prismline-dev-runs --index-name GSI2 --limit 1",
        "aws logs tail /aws/lambda/other-dev-worker --follow",
        "ID=$(aws dynamodb put-item --table-name prismline-$ENVIRONMENT-runs)",
        "aws ssm put-parameter --name /prismline/$ENVIRONMENT/deployed/worker --value 1",
        "aws s3 ls s3://bucket/ && prismline deploy --env prod",
        "prismline jobs keys create",
    ],
)
def test_a_command_that_the_role_on_call_denies_is_found(command: str) -> None:
    assert list(denied(people.people()["on-call"], command))


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
