"""The folder that one running system keeps its state and logs in, `.prismline` by default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from prismline_localstack.settings import HarnessSettings

#: The supervisor's own log, among those of its processes.
SUPERVISOR = "supervisor"


@dataclass(frozen=True)
class Home:
    """Paths within the folder."""

    path: Path

    @classmethod
    def at(cls, path: Path | None) -> Home:
        """The home at `path`, else at `PRISMLINE_HOME`, else `.prismline` in the current folder."""
        return cls((path or HarnessSettings().prismline_home).absolute())

    @property
    def state(self) -> Path:
        """The state file; it exists while something runs, and after a failure."""
        return self.path / "state.json"

    @property
    def api_key(self) -> Path:
        """The API key of the user of this system."""
        return self.path / "api-key"

    @property
    def lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.path / "lock"

    @property
    def emulator(self) -> Path:
        """The embedded emulator's files."""
        return self.path / "emulator"

    @property
    def logs(self) -> Path:
        """What the processes wrote since the last start."""
        return self.path / "logs"

    def log(self, process: str) -> Path:
        """The log of a process."""
        return self.logs / f"{process}.log"

    def clear_logs(self) -> None:
        """Forget the logs of the last time. The supervisor's own is open already, so it is emptied."""
        for log in self.logs.glob("*.log"):
            if log == self.log(SUPERVISOR):
                os.truncate(log, 0)
            else:
                log.unlink()
