"""S3."""

from __future__ import annotations

from tests.simulation.aws.base import Client


class Object:
    """To be filled."""


class S3(Client):
    """The client."""

    service = "s3"


class Bucket(dict[str, Object]):
    """Current objects by key."""
