"""EC2 instances of resources such as a GPU, which have the resource's tags."""

from __future__ import annotations

from typing import Any

from prismline_contracts.resources import resource_tags
from prismline_runtime.errors import aws_errors


class Instances:
    """Finds the instances of a resource. Nothing is cached, because instances are replaced."""

    def __init__(self, ec2: Any, environment: str) -> None:
        self._ec2 = ec2
        self._environment = environment

    def running(self, resource: str) -> list[dict[str, Any]]:
        """The running instances of the resource, as EC2's `DescribeInstances` shows them.

        Raises UnavailableError if AWS does not answer.
        """
        tags = resource_tags(self._environment, resource)
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
        with aws_errors(f"describe the instances of {resource}"):
            answer = self._ec2.describe_instances(
                Filters=[*filters, {"Name": "instance-state-name", "Values": ["running"]}]
            )
        return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
