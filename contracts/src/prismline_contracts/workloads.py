"""The names of workloads, the unit of their runs (chunk or task), and the registration of an author's function.

`spectra`, `captions` and `urls` are parts of the services. Every other workload is a function that its author has
registered: an object in the bucket says what it takes and which code it is. No service needs the code itself for that.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from prismline_contracts.base import Contract, Timestamp
from prismline_contracts.item_sources import ItemSource
from prismline_contracts.manifest import Manifest, Params
from prismline_contracts.pools import PoolName
from prismline_contracts.prefixes import WORKLOADS_PREFIX
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE, RerunOf

#: The workload that fetches URLs.
URLS = "urls"
#: The workloads whose runs consist of chunks.
CHUNK_WORKLOADS = frozenset({"spectra", "captions"})
#: The workloads that are parts of the services. No function can have one of these names.
SERVICE_WORKLOADS = CHUNK_WORKLOADS | {URLS}

#: A registered name, or on a laptop `module:function`. It is part of S3 keys.
FUNCTION_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$"
FunctionName = Annotated[str, StringConstraints(pattern=FUNCTION_NAME_PATTERN)]
#: SHA-256 over the source files of a function, in hexadecimal digits.
CodeDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def unit_of(workload: str) -> Literal["chunk", "task"]:
    """What the runs of a workload consist of."""
    return "chunk" if workload in CHUNK_WORKLOADS else "task"


def is_function(workload: str) -> bool:
    """Whether the workload is an author's function, and not a part of the services."""
    return workload not in SERVICE_WORKLOADS


def is_entry_point(workload: str) -> bool:
    """Whether the workload is a function that a worker finds by its name alone, because its package is installed."""
    return is_function(workload) and ":" not in workload


def workload_key(name: str, code: str) -> str:
    """S3 key of the `RegisteredWorkload` with this code.

    A later registration of the same code replaces it. Only `registered_at` and `local` can differ.
    """
    return f"{WORKLOADS_PREFIX}{name}/{code}.json"


def latest_workload_key(name: str) -> str:
    """S3 key of a copy of the `RegisteredWorkload` that was registered last."""
    return f"{WORKLOADS_PREFIX}{name}/{LATEST}"


#: Name of that copy below the workload's own prefix.
LATEST = "latest.json"


class WorkloadLimits(Contract):
    """What one item of a function may use."""

    #: Longest time of an attempt, in seconds.
    timeout: Annotated[float, Field(gt=0)]
    #: Attempts of an item, unless the class of its error has its own number.
    attempts: Annotated[int, Field(ge=1)]
    #: Items that one message names.
    batch: Annotated[int, Field(ge=1)]
    #: Resident memory of the runner and its child processes, in MiB.
    memory: Annotated[int, Field(ge=1)]
    #: Processes at a time.
    processes: Annotated[int, Field(ge=1)]
    #: Open files of a process.
    files: Annotated[int, Field(ge=1)]


class LocalEnvironment(Contract):
    """Where a function was registered from. A worker uses it only if it runs on the same machine, for one user."""

    #: The interpreter of the author's environment.
    python: str
    #: Folders that modules are imported from, before those of the environment.
    paths: list[str]


class RegisteredWorkload(Contract):
    """What a service has to know of a function: the output of `python -m prismline.describe`, and when it was taken."""

    name: FunctionName
    #: Digest of the source files.
    code: CodeDigest
    #: JSON Schema of an item.
    item: dict[str, JsonValue]
    #: JSON Schema of the parameters, an object.
    parameters: dict[str, JsonValue]
    limits: WorkloadLimits
    #: The function takes a list of items. A worker that does not know this calls it with lists of one.
    vectorized: bool = False
    #: The function has a `finalize`, which is called after all items of a run have ended.
    finalize: bool = False
    registered_at: Timestamp
    #: Absent: the function is installed in the environment of the workers.
    local: LocalEnvironment | None = None

    @property
    def tasks_per_message(self) -> int:
        """Most tasks of one message."""
        return min(self.limits.batch, MAX_TASKS_PER_MESSAGE)


def registration_of(function: RegisteredWorkload) -> dict[str, bytes]:
    """The objects that register a function, by their keys: with its code, and as the latest one."""
    body = function.model_dump_json(exclude_none=True).encode()
    return dict.fromkeys([workload_key(function.name, function.code), latest_workload_key(function.name)], body)


class FunctionParams(Params, extra="allow"):
    """Parameters of a function. Its schema says which there are."""

    @property
    def values(self) -> dict[str, Any]:
        """The parameters by name."""
        return dict(self.model_extra or {})

    def given(self) -> dict[str, Any]:
        """Those that were given. None is a value like any other."""
        return self.values

    def in_force(self) -> dict[str, Any]:
        """The same: only the function itself knows its defaults."""
        return self.values


class FunctionManifest(Manifest):
    """The manifest of a function: the items that it is called for. Either a source or a rerun is given."""

    workload: FunctionName
    #: The code that the run keeps to its end. Absent: that which was registered last when the run is split.
    code: CodeDigest | None = None
    #: The pool whose workers process the items. Absent: the common workers.
    pool: PoolName | None = None
    source: ItemSource | None = None
    rerun: RerunOf | None = None
    params: FunctionParams = FunctionParams()

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.source is None) == (self.rerun is None):
            raise ValueError("give exactly one of source and rerun")
        return self
