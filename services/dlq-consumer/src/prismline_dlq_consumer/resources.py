"""The resources that workloads need, such as a GPU instance, and whether they are up.

A resource's instance id is read fresh every time, because it changes when the resource is provisioned again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from prismline_contracts import instance_id_parameter, normalize_instance_id
from prismline_dlq_consumer.decisions import Resource
from prismline_runtime import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

#: The state of an EC2 instance that can be used.
RUNNING = "running"


class Resources(Protocol):
    """Says whether a resource is up."""

    def look_up(self, name: str) -> Resource:
        """The resource as it is now. Raises TransientError when that cannot be found out."""
        ...


class Ec2Resources:
    """Resources that are EC2 instances whose ids are in SSM parameters."""

    def __init__(self, ssm: SSMClient, ec2: Any, environment: str) -> None:
        self._ssm = ssm
        self._ec2 = ec2
        self._environment = environment

    def look_up(self, name: str) -> Resource:
        """Ask SSM for the instance and EC2 for its state. A parameter or an instance that does not exist is down."""
        instance_id = self._instance_id(name)
        return Resource(name, up=instance_id is not None and self._is_running(instance_id))

    def _instance_id(self, name: str) -> str | None:
        parameter = instance_id_parameter(self._environment, name)
        with aws_errors(f"read the parameter {parameter}"):
            try:
                value = self._ssm.get_parameter(Name=parameter)["Parameter"]["Value"]
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise
        return normalize_instance_id(value)

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
