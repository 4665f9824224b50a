"""What a supervisor of processes says of them, where nothing else does: on a laptop.

It writes a `ProcessesReport` as JSON into an SSM parameter every few seconds, and whoever shows the system reads it.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

#: Name of the parameter of an environment.
PROCESSES_PARAMETER = "/prismline/{environment}/processes"


class ProcessReport(BaseModel):
    """Processes that do the same."""

    model_config = ConfigDict(frozen=True)

    name: str
    service: str
    #: Version of the service. None: its folder does not say.
    version: str | None = None
    #: How many run now, and when the one began that was started last.
    running: int
    since: str
    #: How often one of them ended by itself and was started again.
    restarts: int = 0


class ProcessesReport(BaseModel):
    """All processes of a system, as its supervisor saw them at a moment."""

    model_config = ConfigDict(frozen=True)

    at: str
    processes: list[ProcessReport]
