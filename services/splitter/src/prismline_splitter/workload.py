"""What the splitter asks of a workload, and which there are: one for each module of `prismline_splitter.workloads`."""

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

#: What can be pinned.
T = TypeVar("T", str, int)


class Pinned(Protocol):
    """Gives what the run's plan says under a name, and has `find` find it out if the plan says nothing yet."""

    def __call__(self, name: str, find: Callable[[], T]) -> T:
        """The same value for every delivery of the run, whatever `find` would return by now."""
        ...


@dataclass(frozen=True)
class Source:
    """Where a run's source is and its chunks go: the run, its bucket, and a directory for temporary files."""

    run_id: str
    bucket: Bucket
    workdir: Path
    #: What the first delivery found out; a chunk may depend on nothing else but the manifest.
    pinned: Pinned


@dataclass(frozen=True)
class Split:
    """A source that was split: its chunks, whose inputs are in the bucket, and how many items they hold."""

    chunks: Sequence[NewChunk]
    n_items: int
    #: Items that hold nothing to work on.
    n_blank: int = 0


class Workload(Protocol):
    """A kind of work, as the splitter sees it."""

    #: What manifests call it.
    name: str
    #: The model of its manifests.
    manifest: type[Manifest]

    def split(self, manifest: Any, source: Source) -> Split:
        """Write the input of every chunk and say what there is.

        A redelivery does it again, perhaps with a newer release: it must give the same chunks with the same ids and
        inputs. So whatever they depend on beside the manifest goes through `source.pinned`: the version of an object
        that is read, a number that is computed. Raises PermanentError, one sentence for whoever submitted it, for a
        source that can never be split.
        """
        ...


@cache
def workloads() -> Mapping[str, Workload]:
    """Every workload by name: the `WORKLOAD` of each module of the package `workloads`."""
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    return {module.WORKLOAD.name: module.WORKLOAD for module in modules}
