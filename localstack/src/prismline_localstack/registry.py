"""What to run: the `[[tool.prismline.processes]]` tables in the services' `pyproject.toml`.

[[tool.prismline.processes]]
name = "worker"
handler = "prismline_worker.handler:handler"
queues = ["chunks"]
batch_size = 1
count = "cores"
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prismline_localstack.errors import HarnessError

ProcessName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


class ProcessTable(BaseModel):
    """One kind of process of a service, as its `pyproject.toml` declares it."""

    model_config = ConfigDict(extra="forbid")

    name: ProcessName
    handler: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    queues: Annotated[list[str], Field(min_length=1)]
    batch_size: Annotated[int, Field(ge=1, le=10)] = 10
    count: Literal["cores"] | Annotated[int, Field(ge=1)] = 1


class _Prismline(BaseModel):
    model_config = ConfigDict(extra="forbid")

    processes: list[ProcessTable] = []


class ServiceProcess(BaseModel, frozen=True):
    """A process to run."""

    name: str
    service: str
    command: list[str]
    #: The service's folder; its `src` is put on the import path, so that a checkout runs its own code.
    folder: Path


def service_processes(
    root: Path, *, workers: int | None = None, services: Collection[str] | None = None
) -> list[ServiceProcess]:
    """All processes that the services under `root` declare; only of `services` (folder names) if given.

    `workers` replaces the number of cores where a table says `count = "cores"`. Raises HarnessError for a table that
    is wrong, for a service that does not exist and for two processes of one name.
    """
    projects = {path.parent.name: path for path in sorted(root.glob("services/*/pyproject.toml"))}
    if unknown := sorted(set(services or ()) - set(projects)):
        raise HarnessError(f"There is no service {', '.join(unknown)}; there are {', '.join(projects) or 'none'}.")
    found: dict[str, ServiceProcess] = {}
    for service, path in projects.items():
        if services is not None and service not in services:
            continue
        for table in _tables(path):
            count = (workers or os.cpu_count() or 1) if table.count == "cores" else table.count
            for name in [table.name] if count == 1 else [f"{table.name}-{n}" for n in range(1, count + 1)]:
                if name in found:
                    raise HarnessError(f"{path}: there is another process named {name}, of {found[name].service}.")
                found[name] = ServiceProcess(name=name, service=service, command=_command(table), folder=path.parent)
    return list(found.values())


def _tables(path: Path) -> list[ProcessTable]:
    try:
        document = tomllib.loads(path.read_text())
        return _Prismline.model_validate(document.get("tool", {}).get("prismline", {})).processes
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise HarnessError(f"{path}: {error}") from error


def _command(table: ProcessTable) -> list[str]:
    queues = [argument for queue in table.queues for argument in ("--queue", queue)]
    return [
        sys.executable,
        "-m",
        "prismline_runtime",
        *queues,
        "--batch-size",
        str(table.batch_size),
        table.handler,
    ]
