"""Checks whether the resources that workloads need, such as a GPU instance, are up.

The id of a resource's instance is read every time, because it changes when the resource is provisioned again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

from prismline_contracts.resources import normalize_instance_id
from prismline_dlq_consumer.decisions import Resource
from prismline_runtime import Instances

#: The state of an EC2 instance that can be used.
RUNNING = "running"


class Resources(Protocol):
    """Checks whether a resource is up."""

    def look_up(self, name: str) -> Resource:
        """The current state of the resource. Raises TransientError if it cannot be read."""
        ...


class Ec2Resources:
    """Resources that are EC2 instances whose ids are in SSM parameters."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def look_up(self, name: str) -> Resource:
        """Read the resource's parameter and its instance's state. It is down if one of them does not exist."""
        instance_id = normalize_instance_id(self._instances.parameter(name))
        return Resource(name, up=instance_id is not None and self._is_running(instance_id))

    def _is_running(self, instance_id: str) -> bool:
        return any(instance["State"]["Name"] == RUNNING for instance in self._instances.describe(instance_id))


def asked_once(resources: Resources) -> Callable[[str], Resource]:
    """`look_up` with a cache for one batch, whose messages often need the same resource."""
    return cache(resources.look_up)
