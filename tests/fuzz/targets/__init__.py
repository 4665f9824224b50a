"""The targets: each module of this package lists its own in `TARGETS`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from tests.fuzz.target import Target


@cache
def all_targets() -> dict[str, Target]:
    """Every target by its name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    targets = [target for module in modules for target in module.TARGETS]
    return {target.name: target for target in sorted(targets, key=lambda each: each.name)}
