"""The interface of a workload in the splitter. Each module of `prismline_splitter.workloads` is one workload."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import JsonValue

from prismline_contracts.manifest import Manifest
from prismline_ledger import Ledger, NewChunk
from prismline_runtime import Bucket
from prismline_splitter import workloads as package
from prismline_splitter.rows import Reject

#: The types of values that can be pinned.
T = TypeVar("T", str, int)


class Pinned(Protocol):
    """Returns a value of the run's plan. If the plan has none, it records the result of `find`."""

    def __call__(self, name: str, find: Callable[[], T]) -> T:
        """The value of `name`: the same for every delivery of the run, even if `find` would return another one now."""
        ...


@dataclass(frozen=True)
class Source:
    """The context of a split: the run, the bucket of its source and chunks, and a directory for temporary files."""

    run_id: str
    bucket: Bucket
    workdir: Path
    #: Values that the first delivery recorded. Chunks may depend only on these and on the manifest.
    pinned: Pinned
    #: Opens another bucket by its name, for a source that lies there.
    open_bucket: Callable[[str], Bucket]
    #: Seconds per ranged request while others are under way.
    request_seconds: float


@dataclass(frozen=True)
class Split:
    """The result of a split: the chunks, whose inputs can be read, and the number of their items."""

    chunks: Sequence[NewChunk]
    n_items: int
    #: Number of items without any data. None: the workers count them.
    n_blank: int | None = 0


class Workload(Protocol):
    """A kind of work that is divided into chunks."""

    #: The workload's name in manifests.
    name: str
    #: The model of the workload's manifests.
    manifest: type[Manifest]

    def split(self, manifest: Any, source: Source) -> Split:
        """Write the input of every chunk, and return the chunks.

        A redelivery calls this again, perhaps in a newer release, and must get the same chunks with the same ids and
        inputs. Everything that they depend on besides the manifest must go through `source.pinned`, for example the
        version of an object that is read, or a number that is computed. Raises PermanentError, with one sentence for
        the submitter, if the source cannot be split.
        """
        ...


# ---- workloads that consist of tasks

#: The position at which a source of tasks continues, as JSON.
Cursor = dict[str, JsonValue]


@dataclass(frozen=True)
class TaskContext:
    """The context in which tasks are read: the run and its job, the bucket, and the ledger of earlier runs."""

    run_id: str
    job_id: str
    bucket: Bucket
    ledger: Ledger
    #: As in `Source`.
    pinned: Pinned
    open_bucket: Callable[[str], Bucket]


@dataclass(frozen=True)
class TaskBlock:
    """Consecutive tasks: the index of the first one, the source of each, and where the next block begins."""

    first_index: int
    sources: list[str]
    cursor: Cursor
    #: Lines that are not tasks.
    rejects: list[Reject] = field(default_factory=list)


class TaskSource(Protocol):
    """The tasks of a run, in blocks. Raises PermanentError, with one sentence, if they cannot be read.

    A task's id depends on its index alone. So reading again from a cursor must give the same blocks, whatever has
    happened in the meantime.
    """

    def estimate(self) -> int:
        """About how many tasks there are."""
        ...

    def blocks(self, cursor: Cursor | None, index: int, size: int) -> Iterator[TaskBlock]:
        """The blocks after `cursor` (None: from the beginning), whose first task has `index`, of about `size` tasks."""
        ...


@runtime_checkable
class TaskWorkload(Protocol):
    """A kind of work that is divided into tasks: each has a ledger item, and many share a message."""

    #: The workload's name in manifests.
    name: str
    #: The model of the workload's manifests.
    manifest: type[Manifest]

    def tasks(self, manifest: Any, context: TaskContext) -> TaskSource:
        """The tasks that the manifest names."""
        ...


@cache
def workload_names() -> frozenset[str]:
    """The names of all workloads: each module of the package `workloads` is named after its own."""
    return frozenset(module.name for module in pkgutil.iter_modules(package.__path__))


@cache
def workload_named(name: str) -> Workload | TaskWorkload:
    """The workload with this name: the `WORKLOAD` of its module.

    Imports only this module, so that a run of URLs does not wait seconds for the library that reads cubes.
    """
    workload: Workload | TaskWorkload = import_module(f"{package.__name__}.{name}").WORKLOAD
    return workload
