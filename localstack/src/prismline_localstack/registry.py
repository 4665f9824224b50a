"""The processes to run: the tables `[[tool.prismline.processes]]` in the `pyproject.toml` of services and stand-ins.

A process that consumes queues:

    [[tool.prismline.processes]]
    name = "worker"
    handler = "prismline_worker.handler:handler"
    queues = ["chunks"]
    batch_size = 1
    count = "cores"

A process that serves HTTP:

    [[tool.prismline.processes]]
    name = "interactions"
    app = "prismline_alerting.interactions:create_app"
    port = 8010                               # default: any free port
    settings = { INTERACTIONS_URL = "{url}" } # environment variables of all processes

A server that opens its own socket, a module with the option `--port`:

    [[tool.prismline.processes]]
    name = "valkey"
    module = "prismline_localstack.standins.valkey"
    scheme = "valkey"                         # scheme of its {url}
    settings = { PRISMLINE_VALKEY_URL = "{url}" }
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from prismline_contracts.commands import EVERY_DEAD_LETTER_QUEUE, Queue, dead_letter_queue_name
from prismline_contracts.pools import pool_queue
from prismline_localstack.errors import HarnessError

#: The name under which the stand-ins for outside systems count as a service.
STANDINS = "standins"
#: The handler of the workers of a pool.
POOL_HANDLER = "prismline_worker.pool:handler"
#: Name of the process that runs the services' functions.
FUNCTIONS = "functions"

ProcessName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
EntryPoint = Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: ProcessName


class ConsumerTable(_Table):
    """A process that feeds a handler from queues, as a `pyproject.toml` declares it."""

    handler: EntryPoint
    queues: Annotated[list[str], Field(min_length=1)]
    batch_size: Annotated[int, Field(ge=1, le=10)] = 10
    count: Literal["cores"] | Annotated[int, Field(ge=1)] = 1
    #: Batches that one process takes from a queue at a time.
    parallel: Annotated[int, Field(ge=1)] = 1
    #: A function that returns the names of queues that are created and deleted at run time, with their priorities.
    more_queues: EntryPoint | None = None


class _ListeningTable(_Table):
    #: The port at which it listens. 0: any free port.
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    #: Environment variables of all processes. `{url}` in them is replaced by the URL of this process.
    settings: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], str] = {}


class AppTable(_ListeningTable):
    """A process that serves an ASGI application, as a `pyproject.toml` declares it."""

    #: A function without arguments that returns the application.
    app: EntryPoint


class ServerTable(_ListeningTable):
    """A process that listens at the port that it is given, as a `pyproject.toml` declares it."""

    #: The module that `python -m` runs.
    module: Annotated[str, Field(pattern=r"^[\w.]+$")]
    #: Scheme of its URL.
    scheme: Annotated[str, Field(pattern=r"^[a-z]+$")]


def _kind(table: Any) -> str:
    for kind, name in (("app", "app"), ("server", "module")):
        if isinstance(table, dict) and name in table:
            return kind
    return "consumer"


class _Prismline(BaseModel):
    model_config = ConfigDict(extra="forbid")

    processes: list[
        Annotated[
            Annotated[ConsumerTable, Tag("consumer")]
            | Annotated[AppTable, Tag("app")]
            | Annotated[ServerTable, Tag("server")],
            Discriminator(_kind),
        ]
    ] = []


class ServiceProcess(BaseModel, frozen=True):
    """A process to run."""

    name: str
    service: str
    command: list[str]
    #: The service's folder. Its `src` is put on the import path, so that a checkout runs its own code.
    folder: Path
    #: Environment variables of this process alone.
    settings: Mapping[str, str] = {}
    #: The table of a process that serves HTTP. It inherits its socket when it is started.
    app: AppTable | None = None
    #: The table of a process that opens its own socket. It gets its port when it is started.
    server: ServerTable | None = None

    @property
    def listening(self) -> AppTable | ServerTable | None:
        """Its table, if it listens at a port."""
        return self.app or self.server


def function_driver(root: Path, images: Path, logs: Path, urls: Mapping[str, int], workers: int) -> ServiceProcess:
    """The process that runs the functions of all services. `urls`: the ports of the functions' URLs, by short name."""
    places = [argument for name, port in urls.items() for argument in ("--url", f"{name}={port}")]
    module = "prismline_localstack.functions.driver"
    command = [sys.executable, "-m", module, "--images", str(images), "--logs", str(logs)]
    return ServiceProcess(
        name=FUNCTIONS,
        service=FUNCTIONS,
        command=[*command, "--concurrency", str(workers), *places],
        folder=root / "localstack",
    )


def service_processes(
    root: Path,
    *,
    workers: int | None = None,
    services: Collection[str] | None = None,
    standins: bool = True,
    pools: Mapping[str, str] | None = None,
) -> list[ServiceProcess]:
    """All processes that the services below `root` declare. With `services`, only those of these folders.

    `workers` replaces the number of cores for tables with `count = "cores"`. With `standins`, the stand-ins of the
    harness count as one more service, `standins`. `pools` has the interpreter of each pool.

    Raises HarnessError for an invalid table, for a service that does not exist, and for two processes with one name.
    """
    projects = {path.parent.name: path for path in sorted(root.glob("services/*/pyproject.toml"))}
    if standins and (path := root / "localstack" / "pyproject.toml").exists():
        projects[STANDINS] = path
    if unknown := sorted(set(services or ()) - set(projects)):
        raise HarnessError(
            f"There is no service {', '.join(unknown)}. The services are {', '.join(projects) or 'none'}."
        )
    found: dict[str, ServiceProcess] = {}
    for service, path in projects.items():
        if services is not None and service not in services:
            continue
        for process in _processes(service, path, workers or os.cpu_count() or 1, pools or {}):
            if process.name in found:
                other = found[process.name].service
                raise HarnessError(f"{path}: there is another process named {process.name}, of {other}.")
            found[process.name] = process
    return list(found.values())


def _processes(service: str, path: Path, cores: int, pools: Mapping[str, str]) -> Iterator[ServiceProcess]:
    for table in _tables(path):
        if isinstance(table, AppTable):
            command = [sys.executable, "-m", "prismline_runtime.server", table.app]
            yield ServiceProcess(name=table.name, service=service, command=command, folder=path.parent, app=table)
            continue
        if isinstance(table, ServerTable):
            command = [sys.executable, "-m", table.module]
            yield ServiceProcess(name=table.name, service=service, command=command, folder=path.parent, server=table)
            continue
        count = cores if table.count == "cores" else table.count
        if Queue.TASKS in table.queues:
            yield from (_pool_process(service, path, table, pool, python) for pool, python in pools.items())
        command = _consumer(table)
        if EVERY_DEAD_LETTER_QUEUE in table.queues:
            more = [dead_letter_queue_name(pool_queue(pool)) for pool in pools]
            command = _consumer(table.model_copy(update={"queues": [*table.queues, *more]}))
        for name in [table.name] if count == 1 else [f"{table.name}-{n}" for n in range(1, count + 1)]:
            yield ServiceProcess(name=name, service=service, command=command, folder=path.parent)


def _pool_process(service: str, path: Path, table: ConsumerTable, pool: str, python: str) -> ServiceProcess:
    """The process that works for a pool: that of the shared queue of tasks, with the pool's queue and interpreter."""
    update = {"queues": [pool_queue(pool)], "more_queues": None, "handler": POOL_HANDLER}
    own = table.model_copy(update=update)
    settings = {"FUNCTIONS_LOCAL": "false", "FUNCTIONS_PYTHON": python} if python else {}
    return ServiceProcess(
        name=pool_queue(pool), service=service, command=_consumer(own), folder=path.parent, settings=settings
    )


def _tables(path: Path) -> list[ConsumerTable | AppTable | ServerTable]:
    try:
        document = tomllib.loads(path.read_text())
        return _Prismline.model_validate(document.get("tool", {}).get("prismline", {})).processes
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise HarnessError(f"{path}: {error}") from error


def _consumer(table: ConsumerTable) -> list[str]:
    queues = [argument for queue in table.queues for argument in ("--queue", queue)]
    return [
        sys.executable,
        "-m",
        "prismline_runtime",
        *queues,
        "--batch-size",
        str(table.batch_size),
        *(("--parallel", str(table.parallel)) if table.parallel > 1 else ()),
        *(("--more-queues", table.more_queues) if table.more_queues else ()),
        table.handler,
    ]
