"""The resources that workloads need, such as a GPU instance, and whether they are up.

A resource's instance id is read fresh every time, because it changes when the resource is provisioned again; the
parameter holds `none` while there is no instance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from prismline_dlq_consumer.decisions import Resource
from prismline_runtime import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

#: What the parameter holds while there is no instance.
NO_INSTANCE = "none"
#: The state of an EC2 instance that can be used.
RUNNING = "running"


class Resources(Protocol):
    """Says whether a resource is up."""

    def look_up(self, name: str) -> Resource:
        """The resource as it is now. Raises TransientError when that cannot be found out."""
        ...


class Ec2Resources:
    """Resources that are EC2 instances, named in SSM `/prismline/<environment>/resources/<name>/instance_id`."""

    def __init__(self, ssm: SSMClient, ec2: Any, environment: str) -> None:
        self._ssm = ssm
        self._ec2 = ec2
        self._environment = environment

    def look_up(self, name: str) -> Resource:
        """Ask SSM for the instance and EC2 for its state. A parameter or an instance that does not exist is down."""
        instance_id = self._instance_id(name)
        return Resource(name, up=instance_id is not None and self._is_running(instance_id))

    def _instance_id(self, name: str) -> str | None:
        parameter = f"/prismline/{self._environment}/resources/{name}/instance_id"
        with aws_errors(f"read the parameter {parameter}"):
            try:
                value = self._ssm.get_parameter(Name=parameter)["Parameter"]["Value"].strip()
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise
        return None if value.lower() in {"", NO_INSTANCE} else value

    def _is_running(self, instance_id: str) -> bool:
        with aws_errors(f"look at the instance {instance_id}"):
            try:
                answer = self._ec2.describe_instances(InstanceIds=[instance_id])
            except ClientError as error:
                if error_code(error).startswith("InvalidInstanceID"):
                    return False
                raise
        instances = (instance for reservation in answer["Reservations"] for instance in reservation["Instances"])
        return any(instance["State"]["Name"] == RUNNING for instance in instances)


def asked_once(resources: Resources) -> Callable[[str], Resource]:
    """`look_up` for one batch: a resource that many of its messages need is asked for once."""
    return cache(resources.look_up)
