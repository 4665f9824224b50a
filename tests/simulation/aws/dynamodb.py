"""DynamoDB."""

from __future__ import annotations

from tests.simulation.aws.base import Client


class Table:
    """To be filled."""


class Change:
    """To be filled."""


class DynamoDB(Client):
    """The client."""

    service = "dynamodb"
