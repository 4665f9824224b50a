"""Run all of Prismline on one machine: the emulator, the stacks and the service processes."""

from prismline_localstack.errors import HarnessError, NotRunningError
from prismline_localstack.harness import down, is_up, load_state, logs, status, up
from prismline_localstack.state import State, Status

__all__ = ["HarnessError", "NotRunningError", "State", "Status", "down", "is_up", "load_state", "logs", "status", "up"]
