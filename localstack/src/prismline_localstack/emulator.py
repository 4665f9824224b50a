"""The AWS emulator: ministack as a child process on a free loopback port. Its state survives a kill."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from prismline_emulator.emulated import OWN_SERVICE
from prismline_emulator.endpoints import (
    AGES_PATH,
    FUNCTIONS_VARIABLE,
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
from prismline_localstack.settings import (
    EMULATOR_KEY_ID,
    EMULATOR_REGION,
    client_environment,
    inherited_environment,
)
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
#: Random bytes of a secret access key.
SECRET_BYTES = 30
#: Where an environment has the emulator's own environment, because ministack names one version of botocore.
OWN_ENVIRONMENT = "emulator"


class Emulator:
    """A running emulator.

    After a call of `keep`, the next emulator in the same folder has its state, even if this one is killed.
    """

    def __init__(self, child: subprocess.Popen[bytes], endpoint: str, secret: str) -> None:
        self.child = child
        self.endpoint = endpoint
        #: The secret access key of its clients.
        self.secret = secret

    @classmethod
    def start(
        cls, folder: Path, log: Path, *, port: int | None = None, console: str | None = None, functions: bool = False
    ) -> Emulator:
        """Start an emulator with its files in `folder`. Wait until it answers. Raises HarnessError if it does not.

        port: the port to try first. Default: any free port. console: the URL of the pages that may call the emulator.
        functions: whether functions can be deployed to it.
        """
        python = emulator_python()
        folder.mkdir(parents=True, exist_ok=True)
        secret = ensure_secret(folder / "secret")
        settings = {
            "AWS_ACCESS_KEY_ID": EMULATOR_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": secret,
            ORIGINS_VARIABLE: origins_of(console) if console is not None else "",
            FUNCTIONS_VARIABLE: "1" if functions else "",
        }
        for attempt in range(PORT_ATTEMPTS):
            free = free_port(None if attempt else port)
            emulator = cls(_launch(python, folder, log, free, settings), f"http://{LOOPBACK}:{free}", secret)
            if emulator.wait_until_ready():
                return emulator
            emulator.stop()
        raise HarnessError(f"The emulator did not start. The reason is in its log, {log}.")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that point AWS clients at it."""
        return client_environment(self.endpoint, self.secret)

    def wait_until_ready(self) -> bool:
        """Wait until it answers. False if it ends or takes too long."""
        wait_until(lambda: self.child.poll() is not None or answers(self.endpoint, HEALTH_PATH), START_SECONDS)
        return self.child.poll() is None and answers(self.endpoint, HEALTH_PATH)

    def keep(self) -> None:
        """Make the emulator store its state, now and after each change. Raises HarnessError if it cannot."""
        try:
            self._request("POST", SAVE_PATH, KEEP_SECONDS)
        except OSError as error:
            raise HarnessError(f"The emulator cannot store its state: {error}") from error

    def ages(self) -> dict[str, float]:
        """Age in seconds of the oldest message of each queue that has one, by full name. Raises OSError."""
        ages: dict[str, float] = json.loads(self._request("GET", AGES_PATH, AGES_SECONDS))
        return ages

    def _request(self, method: str, path: str, seconds: float) -> bytes:
        """The body of the answer to a signed request. Raises OSError."""
        url = f"{self.endpoint}{path}"
        request = AWSRequest(method, url)
        SigV4Auth(Credentials(EMULATOR_KEY_ID, self.secret), OWN_SERVICE, EMULATOR_REGION).add_auth(request)
        with urlopen(Request(url, method=method, headers=dict(request.headers)), timeout=seconds) as answer:
            body: bytes = answer.read()
        return body

    def stop(self) -> None:
        """Stop the emulator. It stores its state if `keep` was called."""
        stop([self.child], STOP_SECONDS)


def ensure_secret(file: Path) -> str:
    """The secret access key in `file`. If there is none yet, it gets a new one, which only its owner can read."""
    if not file.exists() or not file.stat().st_size:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as writer:
            writer.write(secrets.token_urlsafe(SECRET_BYTES))
    return file.read_text()


def emulator_python() -> str:
    """The interpreter whose environment has ministack: the emulator's own, or this one. Raises HarnessError."""
    own = Path(sys.prefix) / OWN_ENVIRONMENT / "bin" / "python"
    if own.exists():
        return str(own)
    if find_spec("ministack") is None:
        raise HarnessError(
            "The emulator is not installed: pip install 'prismline-localstack[emulator]', or in a checkout "
            "make install."
        )
    return sys.executable


def _launch(python: str, folder: Path, log: Path, port: int, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    environment = inherited_environment() | {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": LOOPBACK,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "PERSIST_STATE": "1",
        "STATE_DIR": str(folder / "state"),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(folder / "s3"),
        "TMPDIR": str(folder),
    }
    command = [python, "-m", "prismline_emulator.server"]
    return spawn(command, environment=environment | settings, log=log, folder=folder)
