"""Resources that workloads need and that are not always there, such as a GPU instance.

A resource is one or several EC2 instances. Services find them by their tags.
"""

from __future__ import annotations

#: The resource that the captions workload needs.
GPU = "gpu"
#: Tags of an instance: the resource that it is, and its environment.
RESOURCE_TAG, ENVIRONMENT_TAG = "prismline:resource", "prismline:environment"


def resource_tags(environment: str, resource: str) -> dict[str, str]:
    """The tags of the instances of a resource."""
    return {ENVIRONMENT_TAG: environment, RESOURCE_TAG: resource}
