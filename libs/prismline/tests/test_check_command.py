"""`python -m prismline.check` as an author calls it, in the folder of the module."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MODULE = """
from prismline import Permanent

def measure(item: dict, *, threshold: float = 5.0) -> dict:
    if item["flux"] < 0:
        raise Permanent("The flux is negative.")
    return {"bright": item["flux"] > threshold}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "seeing.py").write_text(MODULE)
    return tmp_path


def run(folder: Path, lines: str, *options: str) -> tuple[int, list[str]]:
    (folder / "items.jsonl").write_text(lines)
    command = [sys.executable, "-m", "prismline.check", "seeing:measure", "items.jsonl", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_a_good_function_over_a_good_list_is_0(folder: Path) -> None:
    code, lines = run(folder, '{"flux": 1}\n{"flux": -1}\n{"flux": 9}\n', "--param", "threshold=4")
    assert code == 0
    assert lines[0].startswith("seeing:measure (code ")
    assert "3 items, 1 failed, 0 rows rejected" in lines[0]
    assert lines[1:] == ["Nothing was found."]


def test_findings_name_the_row_of_the_file_and_are_1(folder: Path) -> None:
    code, lines = run(folder, '{"flux": 1}\nno json\n[]\n{"flux": "bright"}\n')
    assert code == 1
    assert lines[0].startswith("row 1: It is no JSON: ")
    assert lines[1] == "row 2: prismline.InvalidValue: item: Input should be a valid dictionary"
    assert lines[2].startswith("row 3: It fails with TypeError: ")
    assert lines[-1] == "3 findings."


def test_a_parameter_that_does_not_exist_is_a_finding(folder: Path) -> None:
    code, lines = run(folder, '{"flux": 1}\n', "--param", "treshold=4")
    assert code == 1
    assert lines[0] == "row 0: prismline.InvalidValue: parameters.treshold: Extra inputs are not permitted"


def test_a_list_without_an_item_is_1(folder: Path) -> None:
    assert run(folder, "\n") == (1, ["There is no item to check."])


def test_a_file_that_does_not_exist_is_2(folder: Path) -> None:
    command = [sys.executable, "-m", "prismline.check", "seeing:measure", "absent.jsonl"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "absent.jsonl is not a file.\n")
