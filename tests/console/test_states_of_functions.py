"""States that only runs of functions have, as the API, the command and the console show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Console
from tests.console.states import api_view, condition_names, shown
from tests.system import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

#: A function that waits for a file before it returns an item, or before it sums the items up.
AUTHOR = """
import time
from pathlib import Path

from prismline import workload

VERSION = 1

def wait_for(name):
    while not Path(FOLDER, name).exists():
        time.sleep(0.05)

@workload(attempts=2)
def work(item: int) -> int:
    wait_for("items")
    return item

@work.finalize
def total(results) -> int:
    wait_for("total")
    return sum(each.value for each in results)
"""


def write_author(folder: Path, module: str, version: int = 1) -> str:
    """Write the module of the function and a list of items. Returns how `prismline map` names the function."""
    text = AUTHOR.replace("FOLDER", repr(str(folder))).replace("VERSION = 1", f"VERSION = {version}")
    (folder / f"{module}.py").write_text(text)
    (folder / "items.jsonl").write_text("1\n2\n")
    return f"{module}:work"


def mapped(console: Console, function: str) -> str:
    return str(json.loads(console.system.cli("map", function, "items.jsonl", "--json"))["run_id"])


def test_a_run_whose_finalize_is_being_called_says_so_until_it_has_returned(
    page: Page, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function = write_author(tmp_path, "finalizing")
    (tmp_path / "items").touch()
    run_id = mapped(console, function)
    shown(page, console, run_id, "finalizing", "Its items have ended, and `finalize` is called (attempt 1).")
    (tmp_path / "total").touch()
    wait_for(lambda: api_view(console, f"/runs/{run_id}")["ended"], "finalize to return")
    assert api_view(console, f"/runs/{run_id}")["conditions"] == []
    expect(page.locator("#condition-finalizing")).to_have_count(0)
    assert "completed: 3" in console.system.cli("run", run_id)


def test_a_run_says_that_it_keeps_an_earlier_code_of_its_function_until_it_is_moved(
    page: Page, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = mapped(console, write_author(tmp_path, "kept"))
    assert "keeps_code" not in condition_names(console, first)
    second = mapped(console, write_author(tmp_path, "kept", version=2))
    move = f"prismline retry {first} --code latest"
    shown(page, console, first, "keeps_code", f"or move the run: `{move}`.")
    assert "keeps_code" not in condition_names(console, second)
    for name in ("items", "total"):
        (tmp_path / name).touch()
    console.system.cli(*move.split()[1:])
    for run_id in (first, second):
        assert console.system.wait(run_id).status == "completed"
    assert "keeps_code" not in condition_names(console, first)
    expect(page.locator("#condition-keeps-code")).to_have_count(0)
