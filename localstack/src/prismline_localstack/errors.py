"""The errors of the harness. A message says what is wrong, where, and what the user can do."""

from prismline_deploy.errors import DeployError


class HarnessError(DeployError):
    """The system could not be started, stopped or queried. To start it, the harness deploys the stacks."""


class NotRunningError(HarnessError):
    """Nothing runs in this home."""
