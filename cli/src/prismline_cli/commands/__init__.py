"""The command line's groups of commands: one module each, all of one shape.

A command parses its arguments, calls a function of the package that does the work, and prints what it returns. Options
that several commands take are in `options`. A group's `register` adds its commands to the application.

Other distributions add groups by entry point: each `register(app)` in the group `prismline.commands`. What runs the
system on one machine (`up`, `down`, `status`, `logs`, `gpu`, the demonstrations) comes from `prismline-localstack`.
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
    prune,
    results,
    retry,
    runs,
    submit,
)

#: Entry points of this group add commands.
ENTRY_POINTS = "prismline.commands"


def register_all(app: typer.Typer) -> None:
    """Add our own groups and those of installed distributions to `app`."""
    for group in (submit, runs, chunks, retry, results, compare, deadletters, alerts, captions, prune, jobs):
        group.register(app)
    for entry_point in sorted(entry_points(group=ENTRY_POINTS), key=lambda found: found.name):
        entry_point.load()(app)
