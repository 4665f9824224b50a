"""The groups of commands: one module each, all with the same structure.

A command parses its arguments, calls a function of the package that does the work, and prints what it returns. Options
that several commands share are in `options`. A group's `register` adds its commands to the application.

Other distributions add groups through entry points of the group `prismline.commands`, which name a function
`register(app)`. The commands that run the system on one machine (`up`, `down`, `status`, `logs`, `gpu` and the
demonstrations) come from `prismline-localstack`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from prismline_cli.commands import (
    alerts,
    captions,
    chunks,
    compare,
    deadletters,
    jobs,
    opening,
    prune,
    results,
    retry,
    runs,
    submit,
)

#: Entry points of this group add commands.
ENTRY_POINTS = "prismline.commands"


def register_all(app: typer.Typer) -> None:
    """Add the groups of this package and of other installed distributions to `app`."""
    for group in (submit, runs, opening, chunks, retry, results, compare, deadletters, alerts, captions, prune, jobs):
        group.register(app)
    for entry_point in sorted(entry_points(group=ENTRY_POINTS), key=lambda found: found.name):
        entry_point.load()(app)
