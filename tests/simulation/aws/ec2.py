"""EC2."""

from __future__ import annotations

from tests.simulation.aws.base import Client


class Instance:
    """To be filled."""


class EC2(Client):
    """The client."""

    service = "ec2"
