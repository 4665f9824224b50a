"""Step Functions."""

from __future__ import annotations

from tests.simulation.aws.base import Client


class Execution:
    """To be filled."""


class StateMachine:
    """To be filled."""


class StepFunctions(Client):
    """The client."""

    service = "stepfunctions"
