"""Resources that workloads need and that are not always there, such as a GPU instance.

An SSM parameter holds the id of the current instance of each resource.
"""

from __future__ import annotations

#: The resource that the captions workload needs.
GPU = "gpu"
#: Value of the parameter while there is no instance.
NO_INSTANCE = "none"


def instance_id_parameter(environment: str, resource: str) -> str:
    """Name of the SSM parameter that holds the id of the EC2 instance of `resource`."""
    return f"/prismline/{environment}/resources/{resource}/instance_id"


def normalize_instance_id(value: str | None) -> str | None:
    """The instance id in the parameter's value. None if the value is absent, empty or `none`."""
    stripped = (value or "").strip()
    return None if stripped.lower() in {"", NO_INSTANCE} else stripped
