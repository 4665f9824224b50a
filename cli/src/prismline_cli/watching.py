"""Watch a run until it has ended: a progress bar on a terminal, a line for each change in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from botocore.exceptions import BotoCoreError, ClientError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from urllib3.exceptions import HTTPError

from prismline_cli.connection import Connection
from prismline_cli.output import CommandError, ExitCode, stderr
from prismline_cli.runs import RunView, load_run
from prismline_runtime import TransientError

#: Seconds between two polls of a run.
POLL_SECONDS = 0.5
#: Seconds between two polls of the chunks that are in progress. Their workers report at the same interval.
LOOK_INTO_CHUNKS_SECONDS = 5.0
#: The chunks of a run are polled if it has at most this many. With more, one ends often enough to show progress.
MOST_CHUNKS_LOOKED_INTO = 1000
#: Seconds after which the command stops waiting for a service to begin the run.
PICKED_UP_SECONDS = 60.0


def follow(connection: Connection, run_id: str, *, appear_within: float) -> Iterator[RunView]:
    """Yield the run at intervals until it has ended."""
    deadline = time.monotonic() + appear_within
    underway, look_at = 0, time.monotonic() + LOOK_INTO_CHUNKS_SECONDS
    while True:
        view = load_run(connection, run_id)
        if view is not None:
            if time.monotonic() >= look_at:
                underway = connection.ledger.items_done(run_id) if _worth_looking_into(view) else 0
                look_at = time.monotonic() + LOOK_INTO_CHUNKS_SECONDS
            yield replace(view, underway=underway)
            if view.ended:
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
    return view.unit == "chunk" and 0 < view.total <= MOST_CHUNKS_LOOKED_INTO and not view.ended


def watch(connection: Connection, run_id: str, *, appear_within: float = 0.0) -> RunView:
    """Show the run's progress on standard error until it has ended, and return the ended run."""
    show = _show_live if stderr.is_terminal else _show_lines
    with goes_on_without_us(run_id):
        return show(follow(connection, run_id, appear_within=appear_within))


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
    except (TransientError, ClientError, BotoCoreError, HTTPError) as error:
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
        clock, retried = _Clock(), _Retried()
        for view in views:
            retried.show(view)
            progress.update(
                task,
                description=view.status,
                total=view.total or None,
                completed=view.completed + view.failed + view.parts_done,
                detail=clock.detail(view),
                unit=view.unit,
            )
    return view


def _show_lines(views: Iterator[RunView]) -> RunView:
    clock, retried, last = _Clock(), _Retried(), ""
    for view in views:
        retried.show(view)
        head = f"{view.status}: {view.completed + view.failed}/{view.total or '?'} {view.unit}s"
        slow = (view.item.n_timed_out, view.item.n_refit_failed) if view.item else ()
        if (mark := f"{head} {slow} {view.underway}") != last:
            stderr.print(f"{head}, {clock.detail(view)}", markup=False, soft_wrap=True)
            last = mark
    return view


class _Retried:
    """Prints the error that the run repeats when there is one, and when it is another one. A repetition is no news."""

    def __init__(self) -> None:
        self._shown: str | None = None

    def show(self, view: RunView) -> None:
        error = view.repeated_error.item.error if view.repeated_error else None
        if error is not None and error != self._shown:
            stderr.print(view.retried, style="yellow", markup=False, soft_wrap=True)
        self._shown = error


class _Clock:
    """Rate and remaining time, measured from the first chunk that ended while watching."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._from: int | None = None

    def detail(self, view: RunView) -> str:
        if view.unit == "task":
            done, of_all, what = view.completed + view.failed, view.total, "tasks"
        else:
            done, of_all, what = view.spectra_done, (view.item and view.item.n_items) or 0, view.items_word
        if self._from is None:
            self._since, self._from = time.monotonic(), done
        rate = (done - self._from) / max(time.monotonic() - self._since, 1e-3)
        parts = [f"{done:,} of {of_all:,} {what}"] if view.underway else []
        parts.append(f"{rate:.0f} {what}/s" if rate >= 10 else f"{rate:.1f} {what}/s")
        if view.failed:
            parts.append(f"{view.failed} failed")
        if rate > 0 and done < of_all:
            parts.append(f"{(of_all - done) / rate:.0f} s left")
        if view.item and view.item.n_timed_out:
            parts.append(f"{view.item.n_timed_out} in the slow lane")
        if view.item and view.item.n_refit_failed:
            parts.append(f"{view.item.n_refit_failed} spectra could not be fitted in time")
        return ", ".join(parts)
