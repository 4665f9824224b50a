"""Functions of authors, good and bad ones, for the tests of the check."""

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prismline import Context, Permanent, Result, workload

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


@workload(vectorized=True, batch=4, timeout=20)
def squares(items: list[int], contexts: list[Context], *, plus: int = 0) -> list[Any]:
    """Each value has the size of its call and the id of its item. 13 ends the process; a negative number is refused."""
    if 13 in items:
        os._exit(3)
    if any(item < 0 for item in items):
        raise Permanent("There is no length below 0.")
    return [[item * item + plus, len(items), context.item_id] for item, context in zip(items, contexts, strict=True)]


@workload(vectorized=True, batch=4)
def doubles(items: list[int]) -> list[int]:
    return [2 * item for item in items]


@workload(vectorized=True, batch=4)
def share_of_the_sum(items: list[float]) -> list[float]:
    return [item / sum(items) for item in items]


@workload(vectorized=True, batch=4)
def fails_together(items: list[int]) -> list[int]:
    if len(items) > 1:
        raise ValueError("too many")
    return items


@workload(vectorized=True)
def forgets_one(items: list[int]) -> list[int]:
    return items[1:]


@workload(vectorized=True)
def long_values(items: list[int]) -> list[str]:
    return ["x" * item for item in items]


@workload(timeout=30)
def adds(item: int, *, plus: int = 0) -> int:
    if item < 0:
        raise Permanent("There is nothing below 0.")
    return item + plus


@adds.finalize
def total(results: Iterable[Result], context: Context, *, plus: int) -> list[object]:
    """Reads the results twice."""
    failed = [each.error for each in results if each.status == "failed"]
    return [sum(each.value for each in results if each.status == "completed"), plus, failed, context.item_id]


@workload(timeout=30)
def keeps(item: str) -> str:
    return item


@keeps.finalize
def appends(results: Iterable[Result]) -> int:
    """Gives another value when it is repeated."""
    (result,) = results
    with Path(result.value).open("a") as file:
        file.write("x")
    return Path(result.value).stat().st_size


@workload(timeout=30)
def passes(item: int) -> int:
    return item


@passes.finalize
def breaks_at_the_end(results: Iterable[Result]) -> int:
    raise ValueError("a bug")


@workload(timeout=30)
def hurries(item: int) -> int:
    return item


@hurries.finalize
def dawdles(results: Iterable[Result]) -> None:
    time.sleep(60)
