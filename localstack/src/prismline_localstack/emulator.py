"""The embedded AWS emulator: ministack as a child process on a free loopback port. Its state survives a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

from prismline_localstack.endpoints import (
    AGES_PATH,
    HEALTH_PATH,
    LOOPBACK,
    ORIGINS_VARIABLE,
    SAVE_PATH,
    answers,
    free_port,
    origins_of,
)
from prismline_localstack.errors import HarnessError
from prismline_localstack.processes import spawn, stop
from prismline_localstack.settings import inherited_environment
from prismline_localstack.waiting import wait_until

#: Time limit for the first answer of a new emulator, in seconds. On an idle machine it takes about one.
START_SECONDS = 60.0
#: Time limit in seconds for storing its state when it stops. Then it is killed.
STOP_SECONDS = 20.0
#: Time limit in seconds for storing its state while it runs.
KEEP_SECONDS = 60.0
#: Number of ports that are tried, because another process may take a free port before the emulator binds it.
PORT_ATTEMPTS = 3
#: Time limit in seconds for the answer about the ages of its messages.
AGES_SECONDS = 5.0


class Emulator:
    """A running embedded emulator.

    After a call of `keep`, the next emulator in the same folder has its state, even if this one is killed.
    """

    def __init__(self, child: subprocess.Popen[bytes], endpoint: str) -> None:
        self.child = child
        self.endpoint = endpoint

    @classmethod
    def start(cls, folder: Path, log: Path, *, port: int | None = None, console: str | None = None) -> Emulator:
        """Start an emulator with its files in `folder`. Wait until it answers. Raises HarnessError if it does not.

        port: the port to try first. Default: any free port. console: the URL of the pages that may call the emulator.
        """
        for attempt in range(PORT_ATTEMPTS):
            emulator = cls._launch(folder, log, free_port(None if attempt else port), console)
            if emulator.wait_until_ready():
                return emulator
            emulator.stop()
        raise HarnessError(f"The embedded emulator did not start. The reason is in its log, {log}.")

    @classmethod
    def _launch(cls, folder: Path, log: Path, port: int, console: str | None) -> Emulator:
        folder.mkdir(parents=True, exist_ok=True)
        environment = inherited_environment() | {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": LOOPBACK,
            ORIGINS_VARIABLE: origins_of(console) if console is not None else "",
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "PERSIST_STATE": "1",
            "STATE_DIR": str(folder / "state"),
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(folder / "s3"),
            "TMPDIR": str(folder),
        }
        child = spawn(
            [sys.executable, "-m", "prismline_localstack.embedded"], environment=environment, log=log, folder=folder
        )
        return cls(child, f"http://{LOOPBACK}:{port}")

    def wait_until_ready(self) -> bool:
        """Wait until it answers. False if it ends or takes too long."""
        wait_until(lambda: self.child.poll() is not None or answers(self.endpoint, HEALTH_PATH), START_SECONDS)
        return self.child.poll() is None and answers(self.endpoint, HEALTH_PATH)

    def keep(self) -> None:
        """Make the emulator store its state, now and after each change. Raises HarnessError if it cannot."""
        try:
            with urlopen(Request(f"{self.endpoint}{SAVE_PATH}", method="POST"), timeout=KEEP_SECONDS):
                pass
        except OSError as error:
            raise HarnessError(f"The emulator cannot store its state: {error}") from error

    def ages(self) -> dict[str, float]:
        """Age in seconds of the oldest message of each queue that has one, by full name. Raises OSError."""
        with urlopen(f"{self.endpoint}{AGES_PATH}", timeout=AGES_SECONDS) as answer:
            ages: dict[str, float] = json.load(answer)
        return ages

    def stop(self) -> None:
        """Stop the emulator. It stores its state if `keep` was called."""
        stop([self.child], STOP_SECONDS)
