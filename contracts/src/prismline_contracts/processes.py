"""The report about the processes of a system on a laptop, where no AWS service reports them.

Their supervisor writes a `ProcessesReport` as JSON into an SSM parameter every few seconds. The console reads it.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

#: Name of the parameter of an environment.
PROCESSES_PARAMETER = "/prismline/{environment}/processes"


class ProcessReport(BaseModel):
    """All processes that run the same program."""

    model_config = ConfigDict(frozen=True)

    name: str
    service: str
    #: Version of the service. None: its folder does not name one.
    version: str | None = None
    #: How many run now, and when the latest one was started.
    running: int
    since: str
    #: How often the supervisor restarted one that had ended by itself.
    restarts: int = 0


class ProcessesReport(BaseModel):
    """All processes of a system, as its supervisor saw them at a moment."""

    model_config = ConfigDict(frozen=True)

    at: str
    processes: list[ProcessReport]
