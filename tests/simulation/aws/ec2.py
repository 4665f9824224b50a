"""EC2: instances with their states and addresses."""
# ruff: noqa: N803  boto3's parameter names

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.aws.base import Client, client_error, operation

_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


@dataclass
class Instance:
    """An instance. The simulation sets it: `aws.instances["i-..."] = Instance("running", "10.0.0.7")`."""

    #: `pending`, `running`, `stopping`, `stopped`, `shutting-down` or `terminated`.
    state: str
    private_ip: str | None = None


class EC2(Client):
    """The part of boto3's EC2 client that Prismline uses."""

    service = "ec2"

    @operation
    def describe_instances(self, *, InstanceIds: Sequence[str] = ()) -> dict[str, Any]:
        known: dict[str, Instance] = self._aws.instances
        for instance_id in InstanceIds:
            if not re.fullmatch(r"i-[0-9a-f]{8}([0-9a-f]{9})?", instance_id):
                raise client_error("DescribeInstances", "InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
        missing = [instance_id for instance_id in InstanceIds if instance_id not in known]
        if missing:
            plural = "s" if len(missing) > 1 else ""
            raise client_error(
                "DescribeInstances",
                "InvalidInstanceID.NotFound",
                f"The instance ID{plural} '{', '.join(missing)}' do{'' if plural else 'es'} not exist",
            )
        return {
            "Reservations": [
                {"Instances": [_described(instance_id, known[instance_id])]} for instance_id in InstanceIds or known
            ]
        }


def _described(instance_id: str, instance: Instance) -> dict[str, Any]:
    described: dict[str, Any] = {
        "InstanceId": instance_id,
        "State": {"Name": instance.state, "Code": _CODES[instance.state]},
    }
    if instance.private_ip is not None and instance.state != "terminated":
        described["PrivateIpAddress"] = instance.private_ip
    return described
