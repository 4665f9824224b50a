"""Functions that do what a function should not do. The tests run them in a runner."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from prismline import Context, Permanent, Retry, workload

LEAK: list[bytes] = []
FILES: list[int] = []


@workload(timeout=20, memory=300, processes=8, files=128)
def work(item: dict) -> object:
    """Do what the item says; `good` items answer with their number."""
    return globals()[item["do"]](item)


@workload(timeout=2, memory=300, processes=8, files=128)
def impatient(item: dict) -> object:
    """The same, for items that hang."""
    return work(item)


def good(item: dict) -> int:
    return item["n"]


def exit_code_3(item: dict) -> None:
    os._exit(3)


def sys_exit(item: dict) -> None:
    sys.exit("I am done")


def killed(item: dict) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segmentation_fault(item: dict) -> None:
    ctypes.string_at(0)


def leak_10_gb(item: dict) -> None:
    LEAK.extend(os.urandom(2**20) * 16 for _ in range(640))


def reserve_10_gb(item: dict) -> int:
    return len(bytearray(10**10))


def leak_a_third(item: dict) -> int:
    LEAK.append(b"x" * (100 * 2**20))
    return item["n"]


def need_180_mib(item: dict) -> int:
    needed = b"x" * (180 * 2**20)
    time.sleep(0.5)
    return item["n"] + 0 * len(needed)


def hang(item: dict) -> None:
    if "pid_file" in item:
        Path(item["pid_file"]).write_text(str(os.getpid()))
    time.sleep(1000)


def hang_against_signals(item: dict) -> None:
    for each in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(each, signal.SIG_IGN)
    while True:
        time.sleep(1)


def print_a_gigabyte(item: dict) -> int:
    line = "y" * 2**20
    for _ in range(item["mebibytes"]):
        print(line)  # noqa: T201
    print("the end")  # noqa: T201
    return item["n"]


def print_from_a_thread(item: dict) -> int:
    def forever() -> None:
        while True:
            os.write(1, b"again and again\n" * 1000)

    threading.Thread(target=forever, daemon=True).start()
    return item["n"]


def no_json(item: dict) -> set:
    return {1, 2}


def not_a_number(item: dict) -> dict:
    return {"flux": [1.0, float("nan")]}


def contains_itself(item: dict) -> list:
    found: list = []
    found.append(found)
    return found


def name_that_is_no_utf_8(item: dict) -> dict:
    return {"name": os.fsdecode(b"a\x80.fits")}


def error_that_is_no_utf_8(item: dict) -> None:
    raise ValueError(os.fsdecode(b"a\x80.fits"))


def hundred_megabytes(item: dict) -> str:
    return "z" * 100_000_000


def fork_and_both_return(item: dict) -> object:
    if os.fork() == 0:
        return "the copy"
    time.sleep(0.3)
    return item["n"]


def leave_a_process(item: dict) -> int:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=item["session"])
    Path(item["pid_file"]).write_text(str(process.pid))
    return item["n"]


def fork_many(item: dict) -> None:
    for _ in range(30):
        if os.fork() == 0:
            time.sleep(1000)
    time.sleep(1000)


def crash_with_a_child_that_lives(item: dict) -> None:
    if (pid := os.fork()) == 0:
        time.sleep(1000)
    Path(item.get("pid_file", os.devnull)).write_text(str(pid))
    os._exit(4)


def children_that_need_400_mib(item: dict) -> None:
    program = "import time; kept = b'x' * (200 * 2**20); time.sleep(1000)"
    for each in [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]:
        each.wait()


def use_up_files(item: dict) -> None:
    while True:
        FILES.append(os.open(os.devnull, os.O_RDONLY))


def keep_100_files(item: dict) -> int:
    FILES.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(100))
    return item["n"]


def keep_60_files(item: dict) -> int:
    FILES.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(60))
    return item["n"]


def need_80_files(item: dict) -> int:
    for each in [os.open(os.devnull, os.O_RDONLY) for _ in range(80)]:
        os.close(each)
    return item["n"]


def close_all_files(item: dict) -> int:
    os.closerange(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return item["n"]


def stop(item: dict) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def write_a_module(item: dict) -> int:
    Path("colorsys.py").write_text("raise RuntimeError('a module of another item')")
    return item["n"]


def import_a_module(item: dict) -> int:
    import colorsys  # noqa: PLC0415  the item does it

    return len(colorsys.rgb_to_hsv(0, 0, 0))


def read_input(item: dict) -> str:
    return sys.stdin.read()


def environment(item: dict) -> dict:
    return dict(os.environ)


def process(item: dict) -> int:
    return os.getpid()


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def broken_error(item: dict) -> None:
    raise BrokenError


@workload(
    attempts=4, permanent=(LookupError,), retry={ConnectionError: Retry(attempts=9, delay=30), KeyError: Retry(2)}
)
def rules(item: str) -> None:
    if item == "permanent":
        raise Permanent("This is no picture.")
    raise {"key": KeyError, "index": IndexError, "reset": ConnectionResetError, "value": ValueError}[item]("why")


@workload
def told(item: str, *, context: Context) -> dict:
    return {"id": context.item_id, "attempt": context.attempt, "soon": 0 < context.remaining <= 300}
