"""EC2 instances of resources such as a GPU. An SSM parameter holds the id of each resource's instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from prismline_contracts.resources import instance_id_parameter
from prismline_runtime.errors import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


class Instances:
    """Reads the parameter and the instance of a resource. Nothing is cached, because instances are replaced.

    Raises UnavailableError if AWS does not answer.
    """

    def __init__(self, ssm: SSMClient, ec2: Any, environment: str) -> None:
        self._ssm = ssm
        self._ec2 = ec2
        self._environment = environment

    def parameter(self, resource: str) -> str | None:
        """The value of the resource's parameter, or None if it does not exist.

        `prismline_contracts.normalize_instance_id` turns it into an id.
        """
        name = instance_id_parameter(self._environment, resource)
        with aws_errors(f"read the parameter {name}"):
            try:
                return self._ssm.get_parameter(Name=name)["Parameter"]["Value"]
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise

    def describe(self, instance_id: str) -> list[dict[str, Any]]:
        """The instances with this id, as EC2's `DescribeInstances` shows them. Empty if there is none."""
        with aws_errors(f"describe the instance {instance_id}"):
            try:
                answer = self._ec2.describe_instances(InstanceIds=[instance_id])
            except ClientError as error:
                if error_code(error).startswith("InvalidInstanceID"):
                    return []
                raise
        return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
