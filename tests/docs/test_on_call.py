"""The pages for people on call: their role allows every command of AWS, and each log group is named."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.docs.commands import all_commands
from tests.templates.reading import branches, of_kind, read_stacks, referred, statements

PAGES = [
    REPOSITORY / "docs/how-to" / f"{name}.md" for name in ("read-logs", "read-the-ledger", "alerts", "dead-letters")
]
STACKS = read_stacks()
#: What a command is allowed by, where it is not the command's own name in camel case.
ACTIONS = {
    "s3 ls": "s3:ListBucket",
    "logs tail": "logs:FilterLogEvents",
}
COMMANDS = sorted(
    {
        found[1]
        for page in PAGES
        for command in all_commands(page)
        for found in re.finditer(r"\baws ([a-z0-9]+ [a-z-]+)", command)
    }
)
GROUPS = sorted(
    group["LogGroupName"]["Fn::Sub"].replace("${Environment}", "<environment>")
    for _, _, group in of_kind(STACKS, "Logs::LogGroup")
)


def action_of(command: str) -> str:
    """The action that a command such as `logs filter-log-events` needs."""
    service, operation = command.split()
    return ACTIONS.get(command) or f"{service}:{''.join(word.title() for word in operation.split('-'))}"


@pytest.fixture(scope="module")
def allowed() -> set[str]:
    """The actions that the role for people on call may take, on any resource."""
    resources = STACKS["platform"]["Resources"]
    role = resources["OnCallRole"]["Properties"]
    policies = [role, *(resources[referred(policy)]["Properties"] for policy in role["ManagedPolicyArns"])]
    return {
        action for policy in policies for statement in statements(policy) for action in branches(statement["Action"])
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_the_role_for_people_on_call_allows_a_command_of_their_pages(command: str, allowed: set[str]) -> None:
    action = action_of(command)
    assert any(fnmatchcase(action, pattern) for pattern in allowed), (
        f"add {action} to OnCallRole, platform/template.yaml"
    )


@pytest.mark.parametrize("group", GROUPS)
def test_the_page_of_logs_names_a_log_group(group: str) -> None:
    assert f"`{group}`" in (REPOSITORY / "docs/how-to/read-logs.md").read_text(), (
        f"add a row for {group} to docs/how-to/read-logs.md"
    )
