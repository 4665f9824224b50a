"""The files and names in the table of six changes in CONTRIBUTING.md exist."""

from __future__ import annotations

import re

import pytest

from prismline_localstack.settings import REPOSITORY

TABLE = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("| change | files |")[2].partition("\n\n")[0]
ROWS = {row.split("|")[1].strip(): row for row in TABLE.splitlines()[2:]}
#: Folders of files that a row names without the folder, because it has named the folder before.
FOLDERS = (
    "",
    "cli/src/prismline_cli",
    "services/worker/src/prismline_worker",
    "services/dlq-consumer/src/prismline_dlq_consumer",
    "contracts/src/prismline_contracts",
    "libs/ledger/src/prismline_ledger",
)
#: Names in the code that the table mentions, and their files.
NAMES = {
    "COUNTERS": "libs/ledger/src/prismline_ledger/base.py",
    "ChunkTotals": "services/dlq-consumer/src/prismline_dlq_consumer/sweep_decisions.py",
    "OUTPUTS": "cli/src/prismline_cli/printed.py",
    "COLUMNS": "contracts/src/prismline_contracts/decomposition.py",
    "OUTPUT_VERSION": "contracts/src/prismline_contracts/decomposition.py",
    "_publish_metrics": "services/dlq-consumer/src/prismline_dlq_consumer/sweeper.py",
}


def test_the_table_has_six_changes() -> None:
    assert len(ROWS) == 6


@pytest.mark.parametrize("change", ROWS)
def test_the_files_of_a_change_are_there(change: str) -> None:
    names = re.findall(r"`([\w./-]+(?:/|\.py))`", ROWS[change]) + re.findall(r"\]\(([\w./-]+)\)", ROWS[change])
    assert names, "a change has files"
    assert [name for name in names if not any((REPOSITORY / folder / name).exists() for folder in FOLDERS)] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_the_table_names_in_a_file_is_there(name: str) -> None:
    assert f"`{name}`" in TABLE
    assert re.search(rf"^(class|    def|def)? ?{name}\b", (REPOSITORY / NAMES[name]).read_text(), re.MULTILINE)
