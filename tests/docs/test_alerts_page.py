"""`docs/how-to/alerts.md` says for every alarm what to check."""

from __future__ import annotations

import re

import pytest

from prismline_deploy.pool_template import POOL_TEMPLATE
from prismline_localstack.settings import REPOSITORY

PAGE = (REPOSITORY / "docs/how-to/alerts.md").read_text()
#: First cells of the table of alarms, and the alarm with its own section.
NAMED = [name for row in re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)]
NAMED += re.findall(r"`prismline-<environment>-([a-z-]+)`", PAGE)
ALARMS = sorted(
    name
    for template in [*REPOSITORY.glob("services/*/template.yaml"), REPOSITORY / POOL_TEMPLATE]
    for name in re.findall(
        r'AlarmName: !Sub "prismline-\$\{Environment\}-([a-z-]+)"', template.read_text().replace("${Pool}", "red")
    )
)


def matches(named: str, alarm: str) -> bool:
    """Whether a name on the page, for example `<queue>-age` or `...-dlq`, matches the name of an alarm."""
    pattern = re.sub(r"<\w+>|\.\.\.", "*", named)
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[a-z-]+?-?"), alarm) is not None


@pytest.mark.parametrize("alarm", ALARMS)
def test_the_page_says_what_to_look_at(alarm: str) -> None:
    assert any(matches(named, alarm) for named in NAMED), f"add a row for {alarm} to docs/how-to/alerts.md"
