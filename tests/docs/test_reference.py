"""The generated pages of docs/reference are as `make reference` writes them now, and say what the code says."""

from __future__ import annotations

import pytest

from docs import reference
from prismline_contracts.decomposition import COLUMNS, MetadataKey
from prismline_contracts.delivery import LIMITS
from prismline_localstack.settings import REPOSITORY
from tests.templates.reading import read_stacks


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return {path.stem: text for path, text in reference.pages().items()}


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_current(name: str, written: dict[str, str]) -> None:
    assert (reference.FOLDER / f"{name}.md").read_text() == written[name], "run make reference"


def test_every_option_of_submit_and_every_command_is_there(written: dict[str, str]) -> None:
    page = written["commands"]
    for option in ("--beta", "--second-pass", "--chunk-size", "--noise", "--wait"):
        assert f"`{option}`" in page.partition("## prismline submit\n")[2].partition("\n## ")[0]
    assert "## prismline jobs keys create\n" in page
    assert "## prismline deploy\n" in page


def test_every_column_and_metadata_key_is_there(written: dict[str, str]) -> None:
    for name in [*(column.name for column in COLUMNS), *(key.value for key in MetadataKey)]:
        assert f"| `{name}` |" in written["columns"]


def test_every_queue_parameter_and_service_is_there(written: dict[str, str]) -> None:
    for queue in LIMITS:
        assert f"| `{queue.value}` |" in written["limits"]
    for stack, template in read_stacks().items():
        assert all(f"| `{name}` |" in written["template-parameters"] for name in template["Parameters"])
        assert stack == "platform" or f"## {stack}\n" in written["settings"]


def test_no_meaning_of_a_setting_or_parameter_is_missing(written: dict[str, str]) -> None:
    for name in ("settings", "template-parameters", "alarms", "commands"):
        assert [line for line in written[name].splitlines() if line.endswith("|  |")] == []


def test_no_page_has_a_number_of_the_checkout(written: dict[str, str]) -> None:
    """For example the folder of this checkout, or the path of a temporary folder."""
    assert [name for name, text in written.items() if str(REPOSITORY) in text or "/tmp" in text] == []
