"""The interface of a workload in the splitter. Each module of `prismline_splitter.workloads` is one workload."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from prismline_contracts import Manifest
from prismline_ledger import NewChunk
from prismline_runtime import Bucket
from prismline_splitter import workloads as package

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


@dataclass(frozen=True)
class Split:
    """The result of a split: the chunks, whose inputs are in the bucket, and the number of their items."""

    chunks: Sequence[NewChunk]
    n_items: int
    #: Items without any data.
    n_blank: int = 0


class Workload(Protocol):
    """A kind of work."""

    #: The workload's name in manifests.
    name: str
    #: The model of the workload's manifests.
    manifest: type[Manifest]

    def split(self, manifest: Any, source: Source) -> Split:
        """Write the input of every chunk, and return the chunks.

        A redelivery calls this again, perhaps in a newer release, and must get the same chunks with the same ids and
        inputs. Everything else that they depend on must go through `source.pinned`, for example the version of an
        object that is read, or a number that is computed. Raises PermanentError, with one sentence for the submitter,
        if the source cannot be split.
        """
        ...


@cache
def workloads() -> Mapping[str, Workload]:
    """All workloads by name: the `WORKLOAD` of each module in the package `workloads`."""
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    return {module.WORKLOAD.name: module.WORKLOAD for module in modules}
