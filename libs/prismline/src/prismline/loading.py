"""Finds a workload by its name: a registered name, or `module:function`."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from prismline.digest import code_digest
from prismline.errors import WorkloadError
from prismline.protocol import Description
from prismline.workload import Workload

#: Group of the entry points that register workloads.
GROUP = "prismline.workloads"


def load(name: str) -> Workload[..., Any]:
    """The workload of this name. Importing it runs the code of its module.

    Raises WorkloadError if no function or two functions have this name. An error of the import is raised as it is.
    """
    return _imported(name if ":" in name else _registered(name))


def describe(name: str) -> Description:
    """What a service has to know of a workload, without its code."""
    work = load(name)
    module = work.function.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise WorkloadError(f"{name} is in no file: its code has no digest.")
    work.check_finalizer()
    return Description(
        name=name,
        item=work.arguments.item.json_schema(),
        parameters=work.arguments.parameters.json_schema(),
        limits=work.limits,
        vectorized=work.vectorized,
        finalize=work.finalizer is not None,
        code=code_digest(module, Path(file)),
    )


def registered() -> list[str]:
    """The names of all workloads that installed packages register."""
    return sorted({point.name for point in metadata.entry_points(group=GROUP)})


def _registered(name: str) -> str:
    found = {point.value for point in metadata.entry_points(group=GROUP) if point.name == name}
    if len(found) > 1:
        raise WorkloadError(f"Two workloads are named {name}: {' and '.join(sorted(found))}. Rename one of them.")
    if not found:
        known = ", ".join(registered()) or "none"
        raise WorkloadError(f"No installed package registers the workload {name}. Registered are: {known}.")
    return found.pop()


def _imported(path: str) -> Workload[..., Any]:
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise WorkloadError(f"{path} does not exist: {module} has no {attribute}.")
        found = getattr(found, part)
    if isinstance(found, Workload):
        return found
    if not callable(found):
        raise WorkloadError(f"{path} is no function, but a value of type {type(found).__name__}.")
    return Workload(found)
