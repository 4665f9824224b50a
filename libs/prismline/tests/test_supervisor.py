"""What a supervisor says about an attempt, and about a workload that it cannot start."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prismline.protocol import Usage
from prismline.results import Result, result_line
from prismline.supervisor import Supervisor, WorkloadUnavailableError, is_worn
from prismline.values import NotJsonError
from prismline.workload import Limits

HERE = str(Path(__file__).parent)
MIB = 2**20


@pytest.mark.parametrize(
    ("item", "permanent", "attempts", "delay"),
    [
        ("permanent", True, 1, 0),
        ("index", True, 1, 0),
        ("key", False, 2, 1),
        ("reset", False, 9, 30),
        ("value", False, 4, 1),
    ],
)
def test_the_class_of_an_error_decides_about_further_attempts(
    item: str, permanent: bool, attempts: int, delay: float
) -> None:
    """KeyError has a rule of its own, although LookupError, which it derives from, is permanent."""
    with Supervisor("hostile:rules", paths=[HERE]) as supervisor:
        outcome = supervisor.run(item, item_id="a")
    assert (outcome.permanent, outcome.attempts, outcome.delay) == (permanent, attempts, delay)


def test_an_error_has_its_class_its_sentence_and_the_lines_of_the_author() -> None:
    with Supervisor("hostile:rules", paths=[HERE]) as supervisor:
        outcome = supervisor.run("permanent", item_id="a")
        assert (outcome.error_type, outcome.error) == ("prismline.Permanent", "This is no picture.")
        outcome = supervisor.run("value", item_id="a")
        assert (outcome.error_type, outcome.error) == ("ValueError", "why")
        assert "hostile.py" in outcome.traceback
        assert outcome.traceback.endswith("ValueError: why\n")


def test_a_function_is_told_its_item_its_attempt_and_its_deadline() -> None:
    with Supervisor("hostile:told", paths=[HERE]) as supervisor:
        outcome = supervisor.run("x", item_id="run-1/7", attempt=2)
    assert outcome.value == {"id": "run-1/7", "attempt": 2, "soon": True}


def test_an_item_and_a_parameter_that_do_not_fit_are_permanent_and_named() -> None:
    with Supervisor("hostile:told", paths=[HERE]) as supervisor:
        outcome = supervisor.run(7, item_id="a")
    assert (outcome.error_type, outcome.permanent) == ("prismline.InvalidValue", True)
    assert outcome.error == "item: Input should be a valid string"
    with Supervisor("hostile:told", paths=[HERE], parameters={"colour": 1}) as supervisor:
        outcome = supervisor.run("x", item_id="a")
    assert outcome.error == "parameters.colour: Extra inputs are not permitted"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import a_package_that_is_not_installed", "No module named 'a_package_that_is_not_installed'"),
        ("raise SystemExit('not on this machine')", "SystemExit: not on this machine"),
        ("import os; os._exit(7)", "exit code 7"),
        ("x = 1", "work:measure does not exist: work has no measure."),
        ("measure = 1", "work:measure is no function, but a value of type int."),
        ("def measure(item: open): ...", "the item of measure cannot be described by a JSON Schema"),
    ],
)
def test_a_workload_that_does_not_start_blames_no_item(tmp_path: Path, source: str, text: str) -> None:
    (tmp_path / "work.py").write_text(source)
    with (
        Supervisor("work:measure", paths=[str(tmp_path)]) as supervisor,
        pytest.raises(WorkloadUnavailableError) as raised,
    ):
        supervisor.run({}, item_id="a")
    assert text in str(raised.value)


def test_a_workload_that_is_repaired_starts_without_a_new_supervisor(tmp_path: Path) -> None:
    module = tmp_path / "work.py"
    module.write_text("import a_package_that_is_not_installed")
    with Supervisor("work:measure", paths=[str(tmp_path)]) as supervisor:
        with pytest.raises(WorkloadUnavailableError):
            supervisor.run({}, item_id="a")
        module.write_text("def measure(item): return 'repaired'")
        assert supervisor.run({}, item_id="a").value == "repaired"


def test_a_runner_is_replaced_for_what_an_item_left_behind() -> None:
    start, limits = Usage(memory=100 * MIB, files=10, children=1), Limits(memory=300)
    assert not is_worn(start, start, limits)
    assert not is_worn(start, Usage(memory=200 * MIB, files=74, children=1), limits)
    assert is_worn(start, start.model_copy(update={"memory": 201 * MIB}), limits)
    assert is_worn(start, start.model_copy(update={"files": 75}), limits)
    assert is_worn(start, start.model_copy(update={"children": 2}), limits)


READY = {
    "kind": "ready",
    "version": 1,
    "description": {"name": "w", "item": {}, "parameters": {}, "limits": {"timeout": 3}, "code": "c", "new": 1},
    "usage": {"memory": 1, "files": 1, "children": 0},
}
USAGE = {"memory": 1, "files": 1, "children": 0}


ANSWER = json.dumps({"kind": "done", "item_id": "a", "value": 1, "duration_ms": 1, "usage": USAGE})


def runner(folder: Path, *lines: str) -> str:
    """An interpreter that is none: it writes the first line at once, and each further one after a request."""
    path = folder / "python"
    answers = "\n".join(f"read request\ncat <<'END'\n{line}\nEND" for line in lines[1:])
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{lines[0]}\nEND\n{answers}\nread request\n")
    path.chmod(0o755)
    return str(path)


def test_a_runner_of_a_newer_release_may_say_more(tmp_path: Path) -> None:
    done = {"kind": "done", "item_id": "a", "value": 7, "duration_ms": 1, "usage": USAGE | {"gpu": 1}, "colour": "red"}
    with Supervisor("w", python=runner(tmp_path, json.dumps(READY), json.dumps(done))) as supervisor:
        assert supervisor.run({}, item_id="a").value == 7


def test_a_runner_of_another_protocol_blames_no_item(tmp_path: Path) -> None:
    with (
        Supervisor("w", python=runner(tmp_path, json.dumps(READY | {"version": 2}))) as supervisor,
        pytest.raises(WorkloadUnavailableError, match=r"Install the same version in both"),
    ):
        supervisor.run({}, item_id="a")


def test_an_environment_without_the_package_blames_no_item(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\necho No module named prismline >&2\nexit 1\n")
    path.chmod(0o755)
    with Supervisor("w", python=str(path)) as supervisor, pytest.raises(WorkloadUnavailableError) as raised:
        supervisor.run({}, item_id="a")
    assert str(raised.value).endswith("exit code 1. No module named prismline")


def test_an_interpreter_that_does_not_exist_blames_no_item(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    with Supervisor("w", python=absent) as supervisor, pytest.raises(WorkloadUnavailableError, match=absent):
        supervisor.run({}, item_id="a")


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        json.dumps(READY),
        ANSWER.replace("1", "NaN"),
        ANSWER.replace("1", '"long"'),
        ANSWER.replace('"a"', '"of another item"'),
        "[" * 1000,
        "x" * 400_000,
    ],
    ids=["text", "another-reply", "nan", "wrong-type", "another-item", "nested", "long"],
)
def test_a_line_that_is_no_answer_fails_its_item(tmp_path: Path, line: str) -> None:
    with Supervisor("w", python=runner(tmp_path, json.dumps(READY), line)) as supervisor:
        outcome = supervisor.run({}, item_id="a")
    assert (outcome.error_type, outcome.permanent) == ("prismline.BrokenProtocol", False)


def test_a_second_line_is_no_answer_to_the_next_item(tmp_path: Path) -> None:
    lines = f"{ANSWER}\n{ANSWER.replace('1', '2')}"
    with Supervisor("w", python=runner(tmp_path, json.dumps(READY), lines)) as supervisor:
        assert [supervisor.run({}, item_id="a").value for _ in range(2)] == [1, 1]


def test_an_item_that_is_no_json_is_refused_and_the_runner_stays() -> None:
    with Supervisor("hostile:told", paths=[HERE]) as supervisor:
        pid = supervisor.description and supervisor.pid
        with pytest.raises(NotJsonError):
            supervisor.run({1, 2}, item_id="a")
        assert supervisor.run("x", item_id="a").status == "completed"
        assert supervisor.pid == pid


def test_a_supervisor_in_another_thread_does_not_notice_a_hostile_item() -> None:
    """The good items of one runner go on while those of another one hang, crash and leave processes behind."""
    values: list[object] = []

    def good() -> None:
        with Supervisor("hostile:work", paths=[HERE]) as supervisor:
            values.extend(supervisor.run({"do": "good", "n": n}, item_id=str(n)).value for n in range(200))

    with ThreadPoolExecutor(2) as pool, Supervisor("hostile:impatient", paths=[HERE]) as supervisor:
        others = pool.submit(good)
        for do in ("exit_code_3", "hang", "crash_with_a_child_that_lives", "use_up_files"):
            assert supervisor.run({"do": do}, item_id=do).status == "failed"
        others.result()
    assert values == list(range(200))


def test_the_function_of_finalize_has_the_limits_of_its_workload_and_reads_the_results(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_bytes(result_line(Result(0, 4, "completed", 5)) + result_line(Result(1, -1, "failed", error="no")))
    with Supervisor("authors:adds", paths=[HERE], parameters={"plus": 1}) as supervisor:
        assert supervisor.description.finalize
        assert supervisor.finalize(path, item_id="run.final", attempt=2).value == [5, 1, ["no"], "run.final"]
        assert supervisor.run(1, item_id="a").value == 2, "items can follow, in another process"
    with Supervisor("authors:hurries", paths=[HERE]) as supervisor:
        killed = supervisor.finalize(path, item_id="run.final", timeout=0.2)
        assert (killed.error_type, killed.permanent) == ("prismline.TimedOut", False)
    with Supervisor("authors:square", paths=[HERE]) as supervisor:
        assert not supervisor.description.finalize
        refused = supervisor.finalize(path, item_id="run.final")
        assert (refused.error, refused.permanent) == ("This code of square has no finalize.", True)
