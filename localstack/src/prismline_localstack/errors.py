"""The errors of the harness. A message says what is wrong, where, and what the user can do."""


class HarnessError(Exception):
    """The system could not be started, stopped or queried."""


class NotRunningError(HarnessError):
    """Nothing runs in this home."""
