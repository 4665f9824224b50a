"""The interface of a workload in the worker. Each module of `prismline_worker.workloads` is one workload.

A workload only does a chunk's work. The worker does the rest: it skips a chunk that has ended, counts attempts, records
and publishes the end of the chunk and the drain of its run, retries, and fails the chunk with the reason.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, Self

from prismline_contracts.commands import ChunkProcess
from prismline_ledger import Outcome
from prismline_runtime import Message
from prismline_worker import workloads as package
from prismline_worker.dependencies import Dependencies
from prismline_worker.progress import Progress

__all__ = ["Outcome", "Workload", "connect_workloads"]


class Workload(Protocol):
    """A kind of work."""

    #: The workload's name in manifests.
    name: str

    @classmethod
    def connect(cls, deps: Dependencies) -> Self:
        """Make the workload with the clients that it needs. Called once per process."""
        ...

    def require(self, command: ChunkProcess) -> None:
        """Raise ResourceUnavailableError if a resource that the work needs is down.

        Called before an attempt begins. The chunk then waits for the resource and uses up no attempt.
        """
        ...

    def process(self, command: ChunkProcess, message: Message, progress: Progress) -> Outcome:
        """Do the chunk's work and write its output in one write, under a key that belongs to this chunk only.

        progress: its `add` counts items that are done. Call it if the work takes more than a few seconds.

        Two workers may process the same chunk, even at the same time. The first output must win, or both must be equal.

        PermanentError fails the chunk, with the message as the reason. UnavailableError, for a dependency that did not
        answer, uses up no attempt. ResourceUnavailableError makes the chunk wait for the resource. Any other exception
        leads to another attempt.
        """
        ...


def connect_workloads(deps: Dependencies) -> Mapping[str, Workload]:
    """All workloads by name: the `WORKLOAD` of each module in the package `workloads`."""
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    return {module.WORKLOAD.name: module.WORKLOAD.connect(deps) for module in modules}
