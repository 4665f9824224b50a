"""Resolve ids on the command line. Every command takes a whole id or its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prismline_cli.output import fail
from prismline_cli.runs import RunView, load_run
from prismline_client import Client

if TYPE_CHECKING:
    from prismline_cli.connection import Connection
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


def find_run(client: Client, given: str) -> RunView:
    """The run that `given` names."""
    view = load_run(client, given) if given else None
    if view is None:
        ids = (run.run_id for run in client.runs(name=given)) if given else ()
        view = load_run(client, run_id := match(given, ids, what="run"))
        if view is None:
            fail(f"There is no run {run_id} any more.")
    return view


def find_chunk(client: Client, run_id: str, given: str) -> str:
    """The id of the chunk of the run that `given` names, with or without `chunk-` and leading zeros."""
    if given.isdecimal():
        given = f"chunk-{int(given):07d}"
    return match(given, (chunk.chunk_id for chunk in client.chunks(run_id)), what=f"chunk of run {run_id}")


def find_session(client: Client, given: str) -> str:
    """The id of the session that `given` names: the survey of its runs."""
    return match(given, (run.name for run in client.runs(name=given)), what="session")


def consists_of(unit: str, view: RunView) -> None:
    """End the command if the run consists of something else, or of nothing yet, with the reason."""
    if not view.opened:
        fail(f"Run {view.run_id} has no chunks: {view.run.error or view.retried or 'it is being submitted'}")
    if view.run.unit != unit:
        fail(
            f"Run {view.run_id} consists of {view.run.unit}s, not of {unit}s: `prismline {view.run.unit}s"
            f" {view.run_id}` lists them."
        )


def item_of(connection: Connection, view: RunView) -> RunItem:
    """The run's item in the ledger, for commands that read objects. Ends the command with the reason if none."""
    consists_of(view.run.unit, view)
    return connection.ledger.run(view.run_id)
