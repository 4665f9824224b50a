"""The GPU instance that captions need."""

from __future__ import annotations

from prismline_contracts.resources import normalize_instance_id
from prismline_runtime import Instances, ResourceUnavailableError

#: Port of the model's server on the instance: vLLM's default.
PORT = 8000


class GpuUnavailableError(ResourceUnavailableError):
    """There is no GPU. `sentinel` is the value of its parameter, or None if there is no parameter."""

    def __init__(self, resource: str, sentinel: str | None) -> None:
        state = "does not exist" if sentinel is None else f"is {sentinel!r}"
        super().__init__(f"No GPU is provisioned: the parameter of {resource} {state}.", resource=resource)
        self.sentinel = sentinel


class Gpu:
    """The current instance of the resource `resource`, and the address of the model on it."""

    def __init__(self, instances: Instances, resource: str) -> None:
        self._instances = instances
        self._resource = resource

    def instance_id(self) -> str:
        """The instance's id, read from its parameter. Raises GpuUnavailableError if there is none."""
        value = self._instances.parameter(self._resource)
        instance_id = normalize_instance_id(value)
        if instance_id is None:
            raise GpuUnavailableError(self._resource, value)
        return instance_id

    def base_url(self, instance_id: str) -> str:
        """The URL of the model on the instance.

        Raises ResourceUnavailableError if the instance has no address yet or does not exist any more.
        """
        for instance in self._instances.describe(instance_id):
            if address := instance.get("PrivateIpAddress"):
                return f"http://{address}:{PORT}/v1"
        raise ResourceUnavailableError(f"The instance {instance_id} has no address.", resource=self._resource)
