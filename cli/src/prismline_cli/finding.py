"""Resolve ids on the command line. Every command takes a whole id or its beginning."""

from __future__ import annotations

from collections.abc import Iterable

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_cli.recovering import load_operation, operation_ids
from prismline_cli.runs import RunView, load_run, run_ids, surveys
from prismline_contracts.items import RunItem

#: Candidates that are shown for an ambiguous id.
MAX_CANDIDATES = 20


def match(given: str, ids: Iterable[str], *, what: str) -> str:
    """The only one of `ids` that is `given` or begins with it.

    what: the noun for error messages, such as `run`. If no id matches, or several do, the command ends with a sentence
    and the candidates.
    """
    if not given:
        fail(f"The id of a {what} is empty.")
    found = sorted({name for name in ids if name.startswith(given)})
    if given in found:
        return given
    if not found:
        fail(f"There is no {what} {given}.")
    if len(found) > 1:
        more = f", the first {MAX_CANDIDATES} of them:" if len(found) > MAX_CANDIDATES else ":"
        fail(f"{len(found)} {what}s begin with {given}{more}", candidates=found[:MAX_CANDIDATES])
    return found[0]


def find_run(connection: Connection, given: str) -> RunView:
    """The run that `given` names."""
    view = load_run(connection, given) if given else None
    if view is None:
        view = load_run(connection, run_id := match(given, run_ids(connection), what="run"))
        if view is None:
            fail(f"There is no run {run_id} any more.")
    return view


def find_chunk(connection: Connection, run_id: str, given: str) -> str:
    """The id of the chunk of the run that `given` names, with or without `chunk-` and leading zeros."""
    ids = [chunk.chunk_id for chunk in connection.ledger.chunks(run_id)]
    if given.isdecimal():
        given = f"chunk-{int(given):07d}"
    return match(given, ids, what=f"chunk of run {run_id}")


def find_operation(connection: Connection, given: str) -> str:
    """The id of the recovery that `given` names."""
    if given and load_operation(connection, given) is not None:
        return given
    return match(given, operation_ids(connection), what="recovery operation")


def find_session(connection: Connection, given: str) -> str:
    """The id of the session that `given` names: the survey of its runs."""
    return match(given, surveys(connection), what="session")


def chunked(view: RunView) -> RunItem:
    """The item of a run of chunks. If the run consists of tasks, ends the command and names the command to use."""
    item = item_of(view)
    if item.unit == "task":
        fail(f"Run {view.run_id} consists of tasks, not of chunks: `prismline tasks {view.run_id}` lists them.")
    return item


def item_of(view: RunView) -> RunItem:
    """The run's item in the ledger. Ends the command with the reason if there is none."""
    if view.item is None:
        fail(f"Run {view.run_id} has no chunks: {view.error or view.retried or 'it is being submitted'}")
    return view.item
