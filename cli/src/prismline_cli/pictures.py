"""Find the function that draws a run of a workload that is not a part of the services: its entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_cli.runs import RunView
from prismline_contracts.items import RunItem

#: Group of the entry points that draw runs. The name is a workload, the object a `Draw`.
ENTRY_POINTS = "prismline.pictures"


class Draw(Protocol):
    """Draws a run of a workload."""

    def __call__(self, connection: Connection, view: RunView, run: RunItem, to: Path) -> Path:
        """Write the picture to the file `to`, and return its path."""
        ...


def picture_of(workload: str) -> Draw:
    """The function that draws a run of the workload. If there is none, end the command and say how to add one."""
    found = tuple(entry_points(group=ENTRY_POINTS, name=workload))
    if not found:
        fail(
            f"The workload {workload} has no picture. `prismline results` downloads its outputs. To give it a picture,"
            f" add an entry point {workload} to the group {ENTRY_POINTS}: docs/how-to/add-a-workload.md says how."
        )
    return cast("Draw", found[0].load())
