"""What the worker asks of a workload, and which there are: one for each module of `prismline_worker.workloads`.

What the frame around it does, a workload need not: guard the chunk against a second processing that counts, count its
attempts, record its end and what drained the run, announce it, retry, and fail it with the reason.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, Self

from prismline_contracts import ChunkProcess
from prismline_runtime import Message
from prismline_worker import workloads as package
from prismline_worker.dependencies import Dependencies


@dataclass(frozen=True)
class Outcome:
    """A chunk that was worked off: its output is under `output_key`, whole."""

    output_key: str
    #: Items that ran out of time and that the workload sees to by itself.
    n_timed_out: int = 0
    #: What the output says, in short, for the chunk's item in the ledger.
    summary: str | None = None


class Workload(Protocol):
    """A kind of work, as the worker sees it."""

    #: What manifests call it.
    name: str

    @classmethod
    def connect(cls, deps: Dependencies) -> Self:
        """The workload with whatever it needs, made once."""
        ...

    def require(self, command: ChunkProcess) -> None:
        """Raise ResourceUnavailableError if what the work needs is down: the chunk then waits, and no attempt is used.

        Called before an attempt begins.
        """
        ...

    def process(self, command: ChunkProcess, message: Message) -> Outcome:
        """Do the chunk's work and write its output, whole, under a key that the chunk alone has.

        The same chunk may be processed twice, by two workers at once even: the first whole output has to win, or both
        be the same. Raises PermanentError, which fails the chunk with its sentence; UnavailableError if something that
        the work depends on did not answer, which uses up no attempt; ResourceUnavailableError if that was a resource,
        for which the chunk then waits; or anything else to be tried again.
        """
        ...


def connect_workloads(deps: Dependencies) -> Mapping[str, Workload]:
    """Every workload by name: the `WORKLOAD` of each module of the package `workloads`."""
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    return {module.WORKLOAD.name: module.WORKLOAD.connect(deps) for module in modules}
