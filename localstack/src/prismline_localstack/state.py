"""The state file of the supervisor, and the report that `status` derives from it."""

from __future__ import annotations

import os
import shlex
import signal
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from pydantic import BaseModel, ValidationError

from prismline_localstack.errors import HarnessError
from prismline_localstack.processes import ProcessId
from prismline_localstack.settings import inherited_environment

#: Clients of the harness fail fast, because the endpoint is on this machine.
CLIENT_CONFIG = Config(
    connect_timeout=5,
    read_timeout=30,
    retries={"mode": "standard", "total_max_attempts": 2},
    s3={"addressing_style": "path"},
)


#: Name of the process that serves the API and the console.
API = "api"
#: Held while a session creates a client, because sessions are not thread-safe.
_MAKING_CLIENT = Lock()


class Phase(StrEnum):
    """The phase of the supervisor."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


class ProcessState(BaseModel):
    """A supervised process."""

    name: str
    #: The service's folder name; `emulator` for the emulator.
    service: str
    process: ProcessId | None
    #: The URL at which it listens, if it serves HTTP.
    url: str | None = None
    restarts: int = 0
    log: Path


class State(BaseModel):
    """`state.json`."""

    phase: Phase
    error: str | None = None
    supervisor: ProcessId
    environment: str
    endpoint: str = ""
    #: Whether the endpoint is an emulator that the harness started.
    embedded: bool = False
    #: The stacks' outputs, as environment variables.
    outputs: dict[str, str] = {}
    #: All environment variables of a client or a service: endpoint, credentials, region, ENVIRONMENT, the outputs, and
    #: the `settings` of processes that serve HTTP.
    env: dict[str, str] = {}
    processes: dict[str, ProcessState] = {}
    #: The runs that had not ended when the emulator last ended, and that were resumed.
    resumed: list[str] = []
    #: A sentence for each process that could not have its port of the last time.
    moved: list[str] = []

    def client(self, service: str) -> Any:
        """A boto3 client for the endpoint."""
        return make_client(service, self.env)

    def url(self, process: str) -> str:
        """The URL of a process. Raises HarnessError if no process with this name serves HTTP."""
        entry = self.processes.get(process)
        if entry is None or entry.url is None:
            raise HarnessError(f"No process {process} that serves HTTP runs. `prismline status` lists the processes.")
        return entry.url

    @property
    def ports(self) -> dict[str, int]:
        """The ports at which processes listen, by name."""
        urls = {name: urlsplit(entry.url) for name, entry in self.processes.items() if entry.url is not None}
        return {name: url.port for name, url in urls.items() if url.port is not None}

    def activate(self) -> None:
        """Point this process at the endpoint: `env` replaces the AWS variables in `os.environ`."""
        environment = inherited_environment(self.endpoint) | self.env
        os.environ.clear()
        os.environ.update(environment)
        boto3.DEFAULT_SESSION = new_session()  # the one before may hold the credentials of another system

    @property
    def exports(self) -> str:
        """Shell commands that export `env`."""
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.env.items())

    def kill_leftovers(self) -> None:
        """End processes that outlived the supervisor. On Linux the kernel has ended them already."""
        for entry in self.processes.values():
            if entry.process is not None:
                entry.process.signal(signal.SIGKILL)

    def save(self, path: Path) -> None:
        """Write the state to `path` atomically: a reader sees the old or the new state."""
        draft = path.with_suffix(".tmp")
        draft.write_text(self.model_dump_json(indent=2))
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> State | None:
        """Read the state from `path`. None if there is none. Raises HarnessError if the file is invalid."""
        try:
            return cls.model_validate_json(path.read_text())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise HarnessError(f"{path} is not a state file of this version. Remove it if nothing runs.") from error


def make_client(service: str, env: dict[str, str]) -> Any:
    """A boto3 client with the environment variables in `env`, not those of this process."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    checksums: Any = {
        "request_checksum_calculation": env.get("AWS_REQUEST_CHECKSUM_CALCULATION"),
        "response_checksum_validation": env.get("AWS_RESPONSE_CHECKSUM_VALIDATION"),
    }
    with _MAKING_CLIENT:
        return _session(*map(env.get, names)).client(
            service, endpoint_url=env["AWS_ENDPOINT_URL"], config=CLIENT_CONFIG.merge(Config(**checksums))
        )


def new_session(**credentials: str | None) -> boto3.Session:
    """A session with the descriptions of services that other sessions have read: to read one takes 50 to 200 ms."""
    core = botocore.session.Session()
    session = boto3.Session(botocore_session=core, **credentials)
    core.register_component("data_loader", _descriptions())
    return session


@cache
def _descriptions() -> Loader:
    return create_loader()


@cache
def _session(key_id: str | None, secret: str | None, region: str | None) -> Any:
    return new_session(aws_access_key_id=key_id, aws_secret_access_key=secret, region_name=region)


class ProcessStatus(BaseModel):
    """The current state of a process."""

    name: str
    service: str
    pid: int | None
    alive: bool
    url: str | None
    restarts: int

    @classmethod
    def of(cls, entry: ProcessState) -> ProcessStatus:
        """The current state of the process in a table entry."""
        process = entry.process
        return cls(
            name=entry.name,
            service=entry.service,
            pid=process.pid if process else None,
            alive=process is not None and process.alive,
            url=entry.url,
            restarts=entry.restarts,
        )


class QueueStatus(BaseModel):
    """The current depth of a queue: messages that wait, are in flight, and are in its dead-letter queue."""

    name: str
    visible: int
    in_flight: int
    dead_letters: int


class Status(BaseModel):
    """The current state of the system."""

    environment: str
    endpoint: str
    embedded: bool
    phase: Phase
    processes: list[ProcessStatus]
    queues: list[QueueStatus]

    @property
    def api_url(self) -> str | None:
        """The URL of the API, which serves the console. None if it does not run."""
        return next((process.url for process in self.processes if process.name == API), None)
