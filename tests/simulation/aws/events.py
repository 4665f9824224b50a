"""EventBridge."""

from __future__ import annotations

from tests.simulation.aws.base import Client


class Rule:
    """To be filled."""


class Events(Client):
    """The client."""

    service = "events"
