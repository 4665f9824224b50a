"""SSM."""

from __future__ import annotations

from tests.simulation.aws.base import Client


class SSM(Client):
    """The client."""

    service = "ssm"
