"""The folder with the state and the logs of one system, `.prismline` by default."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from prismline_localstack.errors import HarnessError
from prismline_localstack.settings import HarnessSettings

#: The supervisor's own log, among those of its processes.
SUPERVISOR = "supervisor"
#: Rights of folders and files in it, and the umask of its processes: the account that runs the system has all.
PRIVATE_FOLDER, PRIVATE_FILE, PRIVATE_UMASK = 0o700, 0o600, 0o077


@dataclass(frozen=True)
class Home:
    """The paths in the folder."""

    path: Path

    @classmethod
    def at(cls, path: Path | None) -> Home:
        """The home at `path`. Without it, at `PRISMLINE_HOME`, or `.prismline` in the current folder."""
        return cls((path or HarnessSettings().prismline_home).absolute())

    @property
    def state(self) -> Path:
        """The state file. It exists while the system runs, and after a failure."""
        return self.path / "state.json"

    @property
    def ports(self) -> Path:
        """The ports at which the processes listened when the system last ran, by name, in JSON."""
        return self.path / "ports.json"

    @property
    def environment(self) -> Path:
        """The environment variables for AWS tools, in the syntax of a shell. The file exists while the system runs."""
        return self.path / "environment"

    @property
    def api_key(self) -> Path:
        """The API key of the user of this system."""
        return self.path / "api-key"

    @property
    def lock(self) -> Path:
        """The lock file. The supervisor holds the lock while it lives."""
        return self.path / "lock"

    @property
    def emulator(self) -> Path:
        """The folder of the emulator."""
        return self.path / "emulator"

    @property
    def images(self) -> Path:
        """The folder of the images of functions."""
        return self.path / "images"

    @property
    def scratch(self) -> Path:
        """The folder for temporary files of the services. It exists while they run."""
        return self.path / "tmp"

    @property
    def logs(self) -> Path:
        """The folder of the logs since the last start."""
        return self.path / "logs"

    def log(self, process: str) -> Path:
        """The log file of a process."""
        return self.logs / f"{process}.log"

    def close(self) -> None:
        """Create the folder, or close an existing one, so that other accounts of the machine can read nothing in it.

        Raises HarnessError if it belongs to another account.
        """
        self.path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        try:
            self.path.chmod(PRIVATE_FOLDER)
        except PermissionError as error:
            raise HarnessError(f"{self.path} belongs to another account. Choose a folder of your own.") from error
        self.logs.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)

    def clear_scratch(self) -> None:
        """Delete the temporary files of the services. A process that is killed leaves its files behind."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def clear_logs(self) -> None:
        """Delete the logs of the last start. The supervisor's own log is open already, so it is emptied."""
        for log in self.logs.glob("*.log"):
            if log == self.log(SUPERVISOR):
                os.truncate(log, 0)
            else:
                log.unlink()
