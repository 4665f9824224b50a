"""Run all of Prismline on one machine: the emulator, the stacks and the service processes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prismline_localstack.errors import HarnessError, NotRunningError
    from prismline_localstack.harness import down, is_up, load_state, logs, status, up
    from prismline_localstack.state import State, Status

__all__ = ["HarnessError", "NotRunningError", "State", "Status", "down", "is_up", "load_state", "logs", "status", "up"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the emulator and the stand-ins do not need the harness."""
    if name in __all__:
        for module in ("errors", "state", "harness"):
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
