"""What an item does costs itself an attempt, and no other item anything."""

import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismline.supervisor import Outcome, Supervisor

HERE = str(Path(__file__).parent)

pytestmark = pytest.mark.slow


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with Supervisor("hostile:work", paths=[HERE]) as made:
        yield made


@pytest.fixture
def impatient() -> Iterator[Supervisor]:
    """Kills an item after two seconds."""
    with Supervisor("hostile:impatient", paths=[HERE]) as made:
        yield made


def between_two_others(supervisor: Supervisor, do: str, **fields: object) -> Outcome:
    """The outcome of an item that runs after a good one and before two good ones."""
    assert value_of_good(supervisor, 1) == 1
    outcome = supervisor.run({"do": do, "n": 2, **fields}, item_id="hostile")
    assert [value_of_good(supervisor, n) for n in (3, 4)] == [3, 4]
    return outcome


def value_of_good(supervisor: Supervisor, n: int) -> object:
    outcome = supervisor.run({"do": "good", "n": n}, item_id=f"good-{n}")
    assert outcome.status == "completed", outcome
    return outcome.value


def wait_until_gone(pid: int, seconds: float) -> None:
    """Wait for the end of a process that is no child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], seconds)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("exit_code_3", "The item ended its process with exit code 3."),
        ("killed", "The process of the item was ended by the signal SIGKILL."),
        ("segmentation_fault", "The process of the item was ended by the signal SIGSEGV."),
    ],
)
def test_an_item_that_ends_its_process_fails_alone(supervisor: Supervisor, do: str, text: str) -> None:
    outcome = between_two_others(supervisor, do)
    assert (outcome.status, outcome.error_type, outcome.error) == ("failed", "prismline.Crashed", text)
    assert (outcome.permanent, outcome.attempts) == (False, 3)


def test_a_crash_is_noticed_at_once_and_a_child_of_the_item_is_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    outcome = between_two_others(supervisor, "crash_with_a_child_that_lives", pid_file=str(pid_file))
    assert outcome.error == "The item ended its process with exit code 4."
    wait_until_gone(int(pid_file.read_text()), 5)


def test_sys_exit_is_an_error_like_others(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "sys_exit")
    assert (outcome.error_type, outcome.error) == ("SystemExit", "I am done")


def test_an_item_that_leaks_ten_gigabytes_fails_alone(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "leak_10_gb")
    assert outcome.error_type in {"MemoryError", "prismline.OutOfMemory"}


def test_an_item_that_reserves_ten_gigabytes_fails_alone(supervisor: Supervisor) -> None:
    assert between_two_others(supervisor, "reserve_10_gb").error_type == "MemoryError"


def test_what_earlier_items_leak_is_not_an_error_of_a_later_one(supervisor: Supervisor) -> None:
    values = [supervisor.run({"do": "leak_a_third", "n": n}, item_id=str(n)).value for n in range(6)]
    assert values == list(range(6))


def test_the_memory_of_child_processes_counts(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "children_that_need_400_mib")
    assert (outcome.error_type, outcome.error) == (
        "prismline.OutOfMemory",
        "The item uses more memory than its limit of 300 MiB.",
    )


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("leak_a_third", "need_180_mib"), ("keep_60_files", "need_80_files")],
    ids=["memory", "files"],
)
def test_an_item_that_finds_too_little_left_is_repeated_in_a_new_process(
    supervisor: Supervisor, earlier: str, later: str
) -> None:
    """The first item leaves little enough behind that its process is kept."""
    assert supervisor.run({"do": earlier, "n": 1}, item_id="earlier").value == 1
    pid = supervisor.pid
    assert pid is not None
    assert supervisor.run({"do": later, "n": 2}, item_id="later").value == 2
    assert supervisor.pid != pid


@pytest.mark.parametrize("do", ["hang", "hang_against_signals", "stop"])
def test_an_item_that_hangs_is_killed_after_its_timeout(impatient: Supervisor, do: str) -> None:
    outcome = between_two_others(impatient, do)
    assert (outcome.error_type, outcome.error) == (
        "prismline.TimedOut",
        "The item took longer than its limit of 2 s.",
    )
    assert outcome.duration_ms >= 2000


def test_an_item_may_print_a_gigabyte_and_its_end_is_kept() -> None:
    with Supervisor("hostile:print_a_gigabyte", paths=[HERE]) as supervisor:
        outcome = supervisor.run({"mebibytes": 1024, "n": 5}, item_id="loud")
        assert outcome.value == 5
        assert outcome.output.endswith("yyy\nthe end\n")
        assert len(outcome.output) == 64 * 1024
        quiet = supervisor.run({"mebibytes": 0, "n": 6}, item_id="quiet")
        assert (quiet.value, quiet.output) == (6, "the end\n")


def test_a_thread_that_prints_for_ever_keeps_no_item_from_its_end(supervisor: Supervisor) -> None:
    assert between_two_others(supervisor, "print_from_a_thread").value == 2


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("no_json", "The value has the type set, which is no JSON."),
        ("not_a_number", "The value['flux'][1] is nan, which JSON cannot express. Return None instead."),
        ("contains_itself", "is nested too deeply or contains itself."),
    ],
)
def test_a_value_that_is_no_json_fails_with_the_place_of_the_fault(supervisor: Supervisor, do: str, text: str) -> None:
    outcome = between_two_others(supervisor, do)
    assert (outcome.error_type, outcome.permanent) == ("prismline.NotJson", True)
    assert text in outcome.error


@pytest.mark.parametrize("item", [deep(400), "\U0001f52d", 2**4000, 1e300], ids=["deep", "wide", "large", "float"])
def test_an_unusual_json_value_arrives_and_comes_back(item: object) -> None:
    with Supervisor("authors:plain", paths=[HERE]) as supervisor:
        assert supervisor.run(item, item_id="a").value == item


def test_a_name_of_a_file_that_is_no_utf_8_fails_with_its_place(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "name_that_is_no_utf_8")
    assert (outcome.error_type, outcome.permanent) == ("prismline.NotJson", True)
    assert outcome.error.startswith("The value['name'] has half of a surrogate pair")


def test_a_value_of_a_hundred_megabytes_fails_with_what_to_do() -> None:
    with Supervisor("hostile:hundred_megabytes", paths=[HERE]) as supervisor:
        outcome = supervisor.run({}, item_id="large")
    assert (outcome.error_type, outcome.permanent) == ("prismline.TooLarge", True)
    assert outcome.error.startswith("The value has 100,000,002 bytes of JSON, more than 262,144. Write it to a file")


def test_an_item_that_forks_answers_once(supervisor: Supervisor) -> None:
    assert between_two_others(supervisor, "fork_and_both_return").value == 2


@pytest.mark.parametrize("session", [False, True])
def test_a_process_that_an_item_leaves_behind_is_killed(supervisor: Supervisor, tmp_path: Path, session: bool) -> None:
    pid_file = tmp_path / "pid"
    outcome = between_two_others(supervisor, "leave_a_process", pid_file=str(pid_file), session=session)
    assert outcome.value == 2
    wait_until_gone(int(pid_file.read_text()), 5)


def test_an_item_that_starts_too_many_processes_is_killed_with_them(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "fork_many")
    assert (outcome.error_type, outcome.error) == (
        "prismline.TooManyProcesses",
        "The item has more than 8 processes at a time.",
    )


def test_an_item_that_uses_up_the_file_handles_fails_alone(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "use_up_files")
    assert (outcome.error_type, outcome.permanent) == ("OSError", False)
    assert "Too many open files" in outcome.error


def test_files_that_earlier_items_keep_open_are_not_an_error_of_a_later_one(supervisor: Supervisor) -> None:
    values = [supervisor.run({"do": "keep_100_files", "n": n}, item_id=str(n)).value for n in range(3)]
    assert values == [0, 1, 2]


def test_an_item_that_closes_the_streams_of_its_process_fails_alone(supervisor: Supervisor) -> None:
    assert between_two_others(supervisor, "close_all_files").error_type in {
        "prismline.Crashed",
        "prismline.BrokenProtocol",
    }


def test_a_module_that_an_item_writes_is_not_imported_by_another_one(supervisor: Supervisor) -> None:
    assert supervisor.run({"do": "write_a_module", "n": 1}, item_id="writer").value == 1
    assert supervisor.run({"do": "import_a_module"}, item_id="reader").value == 3


def test_an_item_that_is_larger_than_a_pipe_arrives() -> None:
    item = "x" * 5_000_000 + "y"
    with Supervisor("authors:ends_with", paths=[HERE]) as supervisor:
        assert [supervisor.run(item, item_id=str(n)).value for n in range(2)] == ["xy", "xy"]


def test_an_item_reads_an_empty_standard_input(supervisor: Supervisor) -> None:
    assert between_two_others(supervisor, "read_input").value == ""


def test_an_error_that_cannot_be_printed_has_its_class(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "broken_error")
    assert (outcome.error_type, outcome.error) == ("hostile.BrokenError", "no message")


def test_an_error_that_is_no_utf_8_can_be_read(supervisor: Supervisor) -> None:
    outcome = between_two_others(supervisor, "error_that_is_no_utf_8")
    assert (outcome.error_type, outcome.error) == ("ValueError", "a\\udc80.fits")


def test_the_runner_sees_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PRISMLINE_API_KEY", "secret")
    monkeypatch.setenv("MODEL_CACHE", "/models")
    with Supervisor("hostile:environment", paths=[HERE], variables=["MODEL_CACHE", "NOT_SET"]) as supervisor:
        found = supervisor.run({}, item_id="a").value
    assert "secret" not in found.values()
    assert found["MODEL_CACHE"] == "/models"
    assert found["HOME"] != os.environ["HOME"]
    assert not Path(found["HOME"]).exists()


def test_a_good_item_keeps_the_process_for_the_next(supervisor: Supervisor) -> None:
    first, second = (supervisor.run({"do": "process"}, item_id=str(n)).value for n in range(2))
    assert first == second == supervisor.pid


#: Items that do one harmful thing each, and whether they have a value all the same.
HARMFUL = {
    "exit_code_3": False,
    "killed": False,
    "leak_10_gb": False,
    "leak_a_third": True,
    "hang": False,
    "no_json": False,
    "fork_and_both_return": True,
    "fork_many": False,
    "crash_with_a_child_that_lives": False,
    "use_up_files": False,
    "keep_60_files": True,
    "close_all_files": False,
    "print_from_a_thread": True,
}


@pytest.mark.parametrize("seed", range(3))
def test_good_items_succeed_among_harmful_ones_in_any_order(impatient: Supervisor, seed: int) -> None:
    drawn = random.Random(seed)
    items = [*HARMFUL, *["good"] * 2 * len(HARMFUL)]
    drawn.shuffle(items)
    outcomes = [impatient.run({"do": do, "n": n}, item_id=str(n)) for n, do in enumerate(items)]
    expected = [n if HARMFUL.get(do, True) else None for n, do in enumerate(items)]
    assert [each.value for each in outcomes] == expected


MEMORY = """
import resource, sys
from prismline.supervisor import Supervisor
with Supervisor("hostile:print_a_gigabyte", paths=[sys.argv[1]]) as supervisor:
    for size in (10, 1024):
        supervisor.run({"mebibytes": size, "n": 1}, item_id="loud")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_gigabyte_of_output_needs_no_memory_of_the_supervisor() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY, HERE], capture_output=True, text=True, check=True)
    little, much = map(int, done.stdout.split())
    assert much - little < 10 * 1024  # KiB


PROGRAM = """
import sys
from prismline.supervisor import Supervisor
supervisor = Supervisor("hostile:impatient", paths=[sys.argv[1]])
print(supervisor.description.name, supervisor.pid, flush=True)
if sys.argv[2] != "idle":
    supervisor.run({"do": "hang", "pid_file": sys.argv[2]}, item_id="hanging")
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_runner_ends_when_its_supervisor_was_killed(tmp_path: Path, state: str) -> None:
    """A runner that waits ends at once, and one with an item at the latest five seconds after the item's timeout."""
    pid_file = tmp_path / "pid"
    argument = "idle" if state == "idle" else str(pid_file)
    command = [sys.executable, "-c", PROGRAM, HERE, argument]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline().split()[1])
        process.send_signal(signal.SIGKILL)
    wait_until_gone(pid, 20)
