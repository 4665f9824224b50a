"""Functions of authors, good and bad ones, for the tests of the check."""

import random
import time
from pathlib import Path
from typing import Any

from prismline import Permanent, workload

SEEN: list[int] = []


@workload(timeout=30)
def square(item: int, *, plus: int = 0) -> int:
    if item < 0:
        raise Permanent("There is no length below 0.")
    return item * item + plus


def plain(item: Any) -> Any:
    return item


def ends_with(item: str) -> str:
    return item[-2:]


def counts_its_calls(item: int) -> int:
    SEEN.append(item)
    return len(SEEN)


def depends_on_the_process(item: int) -> bool:
    """True for the items of a process until the number 7 was there."""
    SEEN.append(item)
    return 7 in SEEN


def draws_lots(item: int) -> float:
    return random.random()


def needs_an_empty_folder(item: str) -> str:
    """Fails if an earlier attempt was killed after it had made its file."""
    path = Path(item)
    path.touch(exist_ok=False)
    time.sleep(0.5)
    path.unlink()
    return "done"


def breaks(item: dict) -> int:
    return item["n"] + 1


def gives_a_set(item: int) -> set:
    return {item}


@workload(timeout=3)
def sleeps(item: float) -> float:
    time.sleep(item)
    return item
