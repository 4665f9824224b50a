"""The errors of the harness. A message tells a person what is wrong, where, and what to do."""


class HarnessError(Exception):
    """The system could not be started, stopped or asked."""


class NotRunningError(HarnessError):
    """Nothing runs in this home."""
