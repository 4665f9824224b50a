"""Resources that workloads need and that come and go, such as a GPU: where it is written which instance there is."""

from __future__ import annotations

#: The resource that captions need.
GPU = "gpu"
#: What the parameter holds while there is no instance.
NO_INSTANCE = "none"


def instance_id_parameter(environment: str, resource: str) -> str:
    """Name of the SSM parameter that holds the id of the resource's EC2 instance."""
    return f"/prismline/{environment}/resources/{resource}/instance_id"


def normalize_instance_id(value: str | None) -> str | None:
    """The instance id in the parameter's value; None for all that stands for no instance: absent, empty, `none`."""
    stripped = (value or "").strip()
    return None if stripped.lower() in {"", NO_INSTANCE} else stripped
