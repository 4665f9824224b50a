"""Checks whether the resources that workloads need, such as a GPU instance, are up."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

from prismline_dlq_consumer.decisions import Resource
from prismline_runtime import Instances


class Resources(Protocol):
    """Checks whether a resource is up."""

    def look_up(self, name: str) -> Resource:
        """The current state of the resource. Raises TransientError if it cannot be read."""
        ...


class Ec2Resources:
    """Resources that are EC2 instances with the tags of the resource."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def look_up(self, name: str) -> Resource:
        """Whether an instance of the resource runs."""
        return Resource(name, up=bool(self._instances.running(name)))


def asked_once(resources: Resources) -> Callable[[str], Resource]:
    """`look_up` with a cache for one batch, whose messages often need the same resource."""
    return cache(resources.look_up)
