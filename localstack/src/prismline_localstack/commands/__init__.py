"""The commands that the harness adds to `prismline`, with the structure of `prismline_cli.commands`."""

from __future__ import annotations

import typer

from prismline_localstack.commands import demos, gpu, logs, system


def register(app: typer.Typer) -> None:
    """Add all groups to `app`: the entry point of this distribution in the group `prismline.commands`."""
    for group in (system, logs, demos, gpu):
        group.register(app)
