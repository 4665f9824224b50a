"""A function over a list, from the command and from Python, whose author repairs it after the run has failed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

import prismline
from prismline_client import ApiError, Client
from tests.system import System, wait_for

pytestmark = pytest.mark.e2e

AUTHOR = """
from prismline import workload

@workload(attempts=1)
def work(item: int) -> int:
    if item == 2:
        raise ValueError("a bug")
    return item
"""


def test_the_failed_items_of_a_run_are_repeated_with_code_that_its_author_has_repaired(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "repaired.py"
    module.write_text(AUTHOR)
    (tmp_path / "items.jsonl").write_text("1\n2\n3\n")
    run_id = json.loads(system.cli("map", "repaired:work", "items.jsonl", "--json"))["run_id"]
    view = system.wait(run_id)
    assert (view.status, view.completed, view.failed) == ("failed", 2, 1)
    module.write_text(AUTHOR.replace("item == 2", "False"))
    system.cli("retry", run_id, "--code", "latest")

    def completed() -> bool:
        now = system.view(run_id)
        return now is not None and (now.status, now.completed, now.failed) == ("completed", 3, 0)

    wait_for(completed, "the end of the retry")
    ledger = system.connection.ledger
    run = ledger.run(run_id)
    codes = [task.code for task in sorted(ledger.tasks(run), key=lambda task: task.index)]
    assert codes[0] == codes[2] != codes[1] == run.code


def test_a_function_is_mapped_repaired_and_retried_from_python(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "mapped.py"
    module.write_text(AUTHOR)
    work = importlib.import_module("mapped").work
    run = prismline.map(work, range(1, 4), name="three")
    state = run.wait(timeout=60)
    assert (state.status, state.name, state.ended) == ("failed", "three", True)
    assert [(row.item, row.status, row.value) for row in run.rows()] == [
        (1, "completed", 1),
        (2, "failed", None),
        (3, "completed", 3),
    ]
    (failure,) = run.failures()
    assert (failure.item, failure.error_type) == (2, "ValueError")
    assert "a bug" in str(failure.error)

    assert run.retry().n_sent == 1
    assert run.wait(timeout=60).status == "failed", "it failed again"

    module.write_text(AUTHOR.replace("item == 2", "False"))
    again = prismline.map("mapped:work", range(1500), name="many")
    assert again.wait(timeout=60).status == "completed"
    assert [row.value for row in again.rows()] == list(range(1500)), "a list of more than 1,000 items is uploaded"
    assert run.retry(code="latest").n_sent == 1
    assert run.wait(timeout=60).status == "completed"
    assert [row.value for row in run.rows()] == [1, 2, 3]

    (tmp_path / "items.csv").write_text("n\n4\n5\n")
    named = prismline.map("mapped:work", "items.csv")
    named.wait(timeout=60)
    assert [row.item for row in named.rows()] == [{"n": "4"}, {"n": "5"}], "a text names a file"
    with pytest.raises(ApiError, match="no workload 'unheard'"):
        prismline.map("unheard", [1])
    with pytest.raises(ApiError, match="The list has no items"):
        prismline.map("mapped:work", [])


FINAL = """
from prismline import workload

@workload(attempts=1)
def work(item: int) -> int:
    return item

@work.finalize
def total(results) -> int:
    BUG
    return sum(each.value for each in results)
"""


def test_a_run_is_finalized_and_a_failed_finalization_is_repeated_with_repaired_code(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "summed.py"
    module.write_text(FINAL.replace("    BUG\n", ""))
    (tmp_path / "items.jsonl").write_text("1\n2\n3\n")
    shown = system.cli("map", "summed:work", "items.jsonl", "--wait", "--to", "results")
    assert "completed: 6" in shown

    module.write_text(FINAL.replace("BUG", "raise ValueError('a bug')"))
    document = json.loads(system.cli("map", "summed:work", "items.jsonl", "--wait", "--json", expect=1))
    assert (document["status"], document["chunks_failed"]) == ("completed", 0)
    assert (document["finalization"]["status"], document["finalization"]["error"]) == ("failed", "a bug")
    assert document["warnings"] == ["`finalize` has failed: a bug"]

    module.write_text(FINAL.replace("    BUG\n", ""))
    run_id = document["run_id"]
    system.cli("retry", run_id, "--code", "latest")

    def finalized() -> bool:
        found = Client.open().run(run_id)
        return found.ended and found.finalization is not None and found.finalization.value == 6

    wait_for(finalized, "the finalization with the repaired code")
