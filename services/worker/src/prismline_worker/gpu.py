"""The GPU instances that captions need."""

from __future__ import annotations

from prismline_runtime import Instances, ResourceUnavailableError

#: Port of the model's server on an instance: vLLM's default.
PORT = 8000


class GpuUnavailableError(ResourceUnavailableError):
    """No GPU instance runs."""


class Gpu:
    """The running instances of the resource `resource`, and the addresses of the models on them."""

    def __init__(self, instances: Instances, resource: str) -> None:
        self._instances = instances
        self.resource = resource

    def base_urls(self) -> list[str]:
        """The URLs of the models on the running instances. Raises GpuUnavailableError if no instance runs."""
        running = self._instances.running(self.resource)
        if not running:
            raise GpuUnavailableError(
                f"No GPU is provisioned: no instance of {self.resource} is running.", resource=self.resource
            )
        return [f"http://{each['PrivateIpAddress']}:{PORT}/v1" for each in running if each.get("PrivateIpAddress")]
