"""Checks that a function can be run over a list: for an author's tests, without AWS.

from prismline.testing import check

def test_measure_can_be_repeated():
    check(measure, [{"path": "tests/a.fits"}, {"path": "tests/b.fits"}])
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prismline.errors import WorkloadError
from prismline.process import PYTHON
from prismline.protocol import Description, Entry
from prismline.results import Result, result_line
from prismline.supervisor import Outcome, Supervisor, WorkloadUnavailableError
from prismline.values import NotJsonError, to_json
from prismline.workload import Limits, Workload

#: Items that also run alone in a new process, and those that are killed on the way: each costs a start.
ALONE, KILLED = 20, 3
#: Share of the time limit from which an item is called slow. On a busy machine it would be killed.
SLOW = 0.5


class CheckError(AssertionError):
    """A function cannot be run over a list as it is. The text has one line for each reason."""


@dataclass(frozen=True)
class Finding:
    """One reason why a function cannot be run over a list."""

    #: Index of the item; None if the reason concerns all.
    item: int | None
    text: str

    def __str__(self) -> str:
        return self.text if self.item is None else f"item {self.item}: {self.text}"


@dataclass(frozen=True)
class Report:
    """What a check did and found."""

    #: None if the workload cannot be imported.
    description: Description | None
    #: Of each item, in the process that ran all of them in order.
    outcomes: list[Outcome] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    #: Of the function of `finalize`, if there is one.
    final: Outcome | None = None


def check(work: str | Callable[..., Any], items: Sequence[Any], **options: Any) -> Report:
    """Raise CheckError if `examine` finds anything; the arguments are the same."""
    report = examine(work, items, **options)
    if report.findings:
        raise CheckError("\n".join(map(str, report.findings)))
    return report


def examine(
    work: str | Callable[..., Any],
    items: Sequence[Any],
    *,
    params: Mapping[str, Any] | None = None,
    python: str = PYTHON,
    paths: Sequence[str] = (),
    variables: Collection[str] = (),
) -> Report:
    """Run a function over items as a worker would, with all that can happen to it there.

    1. All items run in one process, then in another one in the opposite order. The values have to be the same.
    2. The first items also run alone, each in a new process. The values have to be the same.
       Those of a vectorized function also run together, as many as a message names.
    3. The items that take longest are killed on the way and repeated. The values have to be the same.
    4. No item may fail, except with a permanent error; come near its limits; or have a value that is no JSON.
    5. The function of `finalize` gets the results, twice and after it was killed on the way. It may not fail, and the
       values have to be the same.

    work: a function of a module, a registered name, or `module:function`.
    params: the parameters of the run.
    python, paths, variables: see `prismline.supervisor.Supervisor`.
    """
    name, own_paths = _place(work)
    for index, item in enumerate(items):
        try:
            to_json(item)
        except NotJsonError as error:
            return Report(None, findings=[Finding(index, f"The item cannot be sent. {error}")])

    def supervisor() -> Supervisor:
        return Supervisor(name, python=python, paths=[*paths, *own_paths], variables=variables, parameters=params)

    try:
        with supervisor() as first:
            description = first.description
            outcomes = [_run(first, items, index) for index in range(len(items))]
        findings = list(_findings(outcomes, description.limits))
        findings += _differences(supervisor, items, outcomes)
        if description.vectorized:
            findings += _together(supervisor, items, outcomes, description.limits.batch)
        final = None
        if description.finalize:
            final, found = _finalized(supervisor, items, outcomes, description.limits)
            findings += found
    except WorkloadUnavailableError as error:
        return Report(None, findings=[Finding(None, str(error))])
    return Report(description, outcomes, findings, final)


def _run(supervisor: Supervisor, items: Sequence[Any], index: int, timeout: float | None = None) -> Outcome:
    return supervisor.run(items[index], item_id=f"check-{index}", timeout=timeout)


def _findings(outcomes: Sequence[Outcome], limits: Limits) -> Iterator[Finding]:
    for index, outcome in enumerate(outcomes):
        if outcome.status == "failed" and not _is_the_authors(outcome):
            yield Finding(index, f"{outcome.error_type}: {outcome.error}")
        elif outcome.status == "failed" and not outcome.permanent:
            error = f"{outcome.error_type}: {outcome.error}".rstrip(".")
            yield Finding(index, f"It fails with {error}. Raise Permanent if the item can never succeed.")
        elif outcome.duration_ms > limits.timeout * 1000 * SLOW:
            seconds = f"{outcome.duration_ms / 1000:.1f} s of the {limits.timeout:g} s"
            yield Finding(index, f"It takes {seconds} after which it is killed. Raise its timeout.")


def _is_the_authors(outcome: Outcome) -> bool:
    """Did the function raise this error, or did the runner or its supervisor find it?"""
    return outcome.error_type == "prismline.Permanent" or not outcome.error_type.startswith("prismline.")


def _differences(
    supervisor: Callable[[], Supervisor], items: Sequence[Any], expected: Sequence[Outcome]
) -> Iterator[Finding]:
    comparable = [index for index, each in enumerate(expected) if each.status == "completed" or _is_the_authors(each)]
    different: set[int] = set()

    def compared(index: int, found: Outcome, circumstances: str) -> Iterator[Finding]:
        if index not in different and _result(found) != _result(expected[index]):
            different.add(index)
            yield Finding(index, f"{circumstances}, it gives {_shown(found)} instead of {_shown(expected[index])}.")

    with supervisor() as again:
        for index in reversed(comparable):
            yield from compared(index, _run(again, items, index), "Repeated in another order")
    for index in comparable[:ALONE]:
        with supervisor() as alone:
            yield from compared(index, _run(alone, items, index), "Alone in a new process")
    for index in sorted(comparable, key=lambda each: -expected[each].duration_ms)[:KILLED]:
        for share in (0.1, 0.5):
            with supervisor() as killed:
                killed.description  # noqa: B018  the time begins when the process has started
                _run(killed, items, index, timeout=max(expected[index].duration_ms, 1) / 1000 * share)
                yield from compared(index, _run(killed, items, index), "After it was killed on the way")


def _together(
    supervisor: Callable[[], Supervisor], items: Sequence[Any], alone: Sequence[Outcome], batch: int
) -> Iterator[Finding]:
    """What the calls of a vectorized function with several items give, compared with the items alone."""
    good = [index for index, each in enumerate(alone) if each.status == "completed"]
    with supervisor() as batches:
        for begin in range(0, len(good), batch):
            indices = good[begin : begin + batch]
            entries = [Entry(item=items[each], item_id=f"check-{each}", attempt=1) for each in indices]
            found = batches.run_batch(entries)
            if not found.outcomes:
                yield Finding(
                    indices[0],
                    f"Alone it succeeds, but the {len(indices)} items from it on fail together: {found.error}",
                )
            for index, outcome in zip(indices, found.outcomes, strict=False):
                if _result(outcome) != _result(alone[index]):
                    yield Finding(
                        index, f"Together with others, it gives {_shown(outcome)} instead of {_shown(alone[index])}."
                    )


def _finalized(
    supervisor: Callable[[], Supervisor], items: Sequence[Any], outcomes: Sequence[Outcome], limits: Limits
) -> tuple[Outcome, list[Finding]]:
    """The outcome of the function of `finalize`, and what its repetitions show."""
    with TemporaryDirectory() as folder, supervisor() as caller:
        path = Path(folder) / "results.jsonl"
        path.write_bytes(
            b"".join(result_line(_as_result(*each)) for each in enumerate(zip(items, outcomes, strict=True)))
        )

        def call(timeout: float | None = None) -> Outcome:
            return caller.finalize(path, item_id="check", timeout=timeout)

        first = call()
        found = [Finding(None, f"finalize: {each.text}") for each in _final_findings(first, limits)]
        for share, circumstances in ((None, "Repeated"), (0.5, "After it was killed on the way")):
            if share is not None:
                call(timeout=max(first.duration_ms, 1) / 1000 * share)
            if _result(again := call()) != _result(first):
                found.append(
                    Finding(None, f"finalize: {circumstances}, it gives {_shown(again)} instead of {_shown(first)}.")
                )
                break
    return first, found


def _final_findings(outcome: Outcome, limits: Limits) -> Iterator[Finding]:
    if outcome.status == "failed":
        yield Finding(None, f"It fails with {outcome.error_type}: {outcome.error}")
    else:
        yield from _findings([outcome], limits)


def _as_result(index: int, pair: tuple[Any, Outcome]) -> Result:
    item, outcome = pair
    failed = outcome.status == "failed"
    return Result(
        index,
        item,
        outcome.status,
        None if failed else outcome.value,
        outcome.error if failed else None,
        outcome.error_type if failed else None,
        duration_ms=outcome.duration_ms,
    )


def _result(outcome: Outcome) -> tuple[str, str]:
    return outcome.error_type, to_json(outcome.value)


def _shown(outcome: Outcome) -> str:
    text = to_json(outcome.value) if outcome.status == "completed" else f"{outcome.error_type}: {outcome.error}"
    return text if len(text) <= 100 else f"{text[:100]}..."


def _place(work: str | Callable[..., Any]) -> tuple[str, list[str]]:
    """The name by which a runner finds a function, and the folder that its module is imported from."""
    if isinstance(work, str):
        return work, []
    function = work.function if isinstance(work, Workload) else work
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "<" in name:
        raise WorkloadError(f"{name} is not a function of a module that another process can import. Move it into one.")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise WorkloadError(f"The module {module} of {name} is in no file.")
    package = Path(file).name == "__init__.py"
    return f"{module}:{name}", [str(Path(file).parents[module.count(".") + package])]
