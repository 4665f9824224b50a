"""Watch a run until it has ended: a progress bar on a terminal, a line for each change in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from prismline_cli.output import CommandError, ExitCode, stderr
from prismline_cli.runs import RunView, load_run
from prismline_client import ApiError, Client

#: Seconds between two polls of a run.
POLL_SECONDS = 0.5
#: Seconds between two polls of the chunks that are in progress. Their workers report at the same interval.
LOOK_INTO_CHUNKS_SECONDS = 5.0
#: The chunks of a run are polled if it has at most this many. With more, one ends often enough to show progress.
MOST_CHUNKS_LOOKED_INTO = 1000
#: Seconds after which the command stops waiting for a service to begin the run.
PICKED_UP_SECONDS = 60.0
#: Conditions that every run has for a while, and the wait that the numbers begin with.
ORDINARY = frozenset({"accepted", "splitting", "ingesting", "open", "waiting"})


def follow(client: Client, run_id: str, *, appear_within: float) -> Iterator[RunView]:
    """Yield the run at intervals until it has ended."""
    deadline = time.monotonic() + appear_within
    underway, look_at = 0, time.monotonic() + LOOK_INTO_CHUNKS_SECONDS
    while True:
        view = load_run(client, run_id)
        if view is not None:
            if time.monotonic() >= look_at:
                underway = _items_done(client, run_id) if _worth_looking_into(view) else 0
                look_at = time.monotonic() + LOOK_INTO_CHUNKS_SECONDS
            yield replace(view, underway=underway)
            if view.run.ended:
                return
        elif time.monotonic() > deadline:
            raise CommandError(
                f"Run {run_id} was submitted, but no service has begun it after {appear_within:.0f} s. It begins when"
                f" the services run. Follow it with `prismline watch {run_id}`.",
                ExitCode.UNREACHABLE,
                run_id=run_id,
            )
        time.sleep(POLL_SECONDS)


def _worth_looking_into(view: RunView) -> bool:
    return view.run.unit == "chunk" and 0 < view.total <= MOST_CHUNKS_LOOKED_INTO and not view.run.ended


def _items_done(client: Client, run_id: str) -> int:
    """How many items of the chunks in progress are processed, as far as their workers have reported."""
    return sum(chunk.n_done for chunk in client.chunks(run_id, status="in_progress"))


def watch(client: Client, run_id: str, *, appear_within: float = 0.0) -> RunView:
    """Show the run's progress on standard error until it has ended, and return the ended run."""
    show = _show_live if stderr.is_terminal else _show_lines
    with goes_on_without_us(run_id):
        return show(follow(client, run_id, appear_within=appear_within))


@contextmanager
def goes_on_without_us(run_id: str) -> Iterator[None]:
    """If the command stops watching before the run ends, say that the run continues and how to follow it."""
    again = f"Follow it with `prismline watch {run_id}`."
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError(
            f"Stopped watching. Run {run_id} continues. {again} `prismline cancel {run_id}` cancels it.",
            ExitCode.INTERRUPTED,
            run_id=run_id,
        ) from None
    except ApiError as error:
        raise CommandError(
            f"Lost the connection to Prismline while watching run {run_id}: {error} The run continues if the services"
            f" run. {again}",
            ExitCode.UNREACHABLE,
            run_id=run_id,
        ) from error


def _show_live(views: Iterator[RunView]) -> RunView:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}s  {task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr) as progress:
        task = progress.add_task("submitted", total=None, detail="", unit="chunk")
        clock, news = Clock(), _News()
        for view in views:
            news.show(view)
            progress.update(
                task,
                description=view.run.status,
                total=view.total or None,
                completed=view.completed + view.failed + view.parts_done,
                detail=clock.detail(view),
                unit=view.run.unit,
            )
    return view


def _show_lines(views: Iterator[RunView]) -> RunView:
    clock, news, last = Clock(), _News(), ""
    for view in views:
        news.show(view)
        head = f"{view.run.status}: {view.completed + view.failed}/{view.total or '?'} {view.run.unit}s"
        slow = (view.run.n_timed_out, view.run.n_refit_failed)
        if (mark := f"{head} {slow} {view.underway}") != last:
            stderr.print(", ".join(filter(None, (head, clock.detail(view)))), markup=False, soft_wrap=True)
            last = mark
    return view


class _News:
    """Prints what hinders the run when it begins, and when a repeated error is another one. A repetition is no news."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, str]] = set()

    def show(self, view: RunView) -> None:
        """Print the conditions that the run before did not have."""
        error = view.run.repeated_error.error if view.run.repeated_error else ""
        found = {
            (each.name, error if each.name == "repeated_error" else ""): each.sentence
            for each in view.run.conditions
            if each.name not in ORDINARY
        }
        for key in found.keys() - self._shown:
            stderr.print(found[key], style="yellow", markup=False, soft_wrap=True)
        self._shown = set(found)


def rate_text(per_second: float, what: str) -> str:
    """A rate in the smallest unit of time that makes it at least 1, such as `12 chunks/min`."""
    factor, unit = (1, "s") if per_second >= 1 else (60, "min") if per_second * 60 >= 1 else (3600, "h")
    number = per_second * factor
    return f"{number:.0f} {what}/{unit}" if number >= 10 else f"{number:.1f} {what}/{unit}"


class Clock:
    """Rate and remaining time: the pace of the run as the API has it, and where it has none, measured while watching.

    It has none before the first chunk or task has ended, after the end, and while something is tried again.
    """

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._from: int | None = None

    def detail(self, view: RunView) -> str:
        """All numbers of the run that the line does not begin with."""
        if view.run.unit == "task":
            done, of_all, what = view.completed + view.failed, view.total, "tasks"
        else:
            done, of_all, what = view.spectra_done, view.run.n_items or 0, view.items_word
        if self._from is None:
            self._since, self._from = time.monotonic(), done
        rate = (done - self._from) / max(time.monotonic() - self._since, 1e-3)
        left = (of_all - done) / rate if rate > 0 and done < of_all else None
        if (pace := view.run.pace) is not None:
            rate, left = pace.per_second * (of_all / view.total if view.total else 1.0), pace.remaining_seconds
        parts = [view.run.waiting_for] if view.run.waiting_for else []
        parts += [f"{done:,} of {of_all:,} {what}"] if view.underway else []
        if rate > 0:
            parts.append(rate_text(rate, what))
        if view.failed:
            parts.append(f"{view.failed} failed")
        if left is not None:
            parts.append(f"{left:.0f} s left")
        if view.run.n_timed_out:
            parts.append(f"{view.run.n_timed_out} in the slow lane")
        if view.run.n_refit_failed:
            parts.append(f"{view.run.n_refit_failed} spectra could not be fitted in time")
        return ", ".join(parts)
