"""The GPU instance that captions need, as it is at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from prismline_contracts import instance_id_parameter, normalize_instance_id
from prismline_runtime import ResourceUnavailableError, aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

#: Port of the model's server on the instance: vLLM's default.
PORT = 8000


class GpuUnavailableError(ResourceUnavailableError):
    """There is no GPU; `sentinel` is what its parameter said instead."""

    def __init__(self, resource: str, sentinel: str | None) -> None:
        said = "does not exist" if sentinel is None else f"says {sentinel!r}"
        super().__init__(f"No GPU is provisioned: the parameter of {resource} {said}.", resource=resource)
        self.sentinel = sentinel


class Gpu:
    """An EC2 instance whose id is in an SSM parameter.

    The parameter is read each time it is asked for: an instance is replaced while workers run.
    """

    def __init__(self, ssm: SSMClient, ec2: Any, environment: str, resource: str) -> None:
        self._ssm = ssm
        self._ec2 = ec2
        self._parameter = instance_id_parameter(environment, resource)
        self._resource = resource

    def instance_id(self) -> str:
        """The instance's id. Raises GpuUnavailableError if there is none."""
        value = self._value()
        instance_id = normalize_instance_id(value)
        if instance_id is None:
            raise GpuUnavailableError(self._resource, value)
        return instance_id

    def _value(self) -> str | None:
        with aws_errors(f"read the parameter {self._parameter}"):
            try:
                return self._ssm.get_parameter(Name=self._parameter)["Parameter"]["Value"]
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise

    def base_url(self, instance_id: str) -> str:
        """Where the model on the instance answers. Raises ResourceUnavailableError while the instance has no address,
        or when there is no such instance any more.
        """
        with aws_errors(f"look at the instance {instance_id}"):
            try:
                answer = self._ec2.describe_instances(InstanceIds=[instance_id])
            except ClientError as error:
                if error_code(error).startswith("InvalidInstanceID"):
                    raise self._without_address(instance_id) from error
                raise
        for reservation in answer["Reservations"]:
            for instance in reservation["Instances"]:
                if address := instance.get("PrivateIpAddress"):
                    return f"http://{address}:{PORT}/v1"
        raise self._without_address(instance_id)

    def _without_address(self, instance_id: str) -> ResourceUnavailableError:
        return ResourceUnavailableError(f"The instance {instance_id} has no address.", resource=self._resource)
