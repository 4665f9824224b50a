"""SQS."""

from __future__ import annotations

from tests.simulation.aws.base import Client


class Queue:
    """To be filled."""


class Message:
    """To be filled."""


class SQS(Client):
    """The client."""

    service = "sqs"
