"""The groups of commands: one module each, all with the same structure.

A command parses its arguments, calls a function of the package that does the work, and prints what it returns. Options
that several commands share are in `options`. A group's `register` adds its commands to the application.

Other distributions add groups through entry points of the group `prismline.commands`, which name a function
`register(app)`. The commands that run the system on one machine (`up`, `down`, `status`, `logs`, `gpu` and the
demonstrations) come from `prismline-localstack`, and `deploy` and `rollback` from `prismline-deploy`.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

import typer

#: The modules of this package, in the order of the help, and the commands that each adds. A command line imports only
#: the module of its command, because the import of all takes several times as long as a command.
COMMANDS = {
    "submit": ("submit",),
    "map": ("map",),
    "runs": ("runs", "run", "watch"),
    "cancel": ("cancel",),
    "opening": ("open",),
    "chunks": ("chunks", "tasks", "stuck", "failures"),
    "retry": ("retry",),
    "results": ("results", "plot"),
    "compare": ("compare",),
    "deadletters": ("deadletters",),
    "alerts": ("alerts",),
    "captions": ("caption", "segments"),
    "prune": ("prune",),
    "jobs": ("jobs",),
}
#: Entry points of this group add commands.
ENTRY_POINTS = "prismline.commands"


def register(app: typer.Typer, command: str | None = None) -> None:
    """Add the group of `command` to `app`. All groups, also of other distributions, if no group here has `command`."""
    found = [module for module, commands in COMMANDS.items() if command in commands]
    for module in found or COMMANDS:
        importlib.import_module(f"{__name__}.{module}").register(app)
    if not found:
        for entry_point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
            entry_point.load()(app)
