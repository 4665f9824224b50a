"""EC2: instances with their states and addresses."""
# ruff: noqa: N803  boto3's parameter names

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.aws.base import Client, operation

_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


@dataclass
class Instance:
    """An instance. The simulation sets it: `aws.instances["i-..."] = Instance("running", "10.0.0.7", tags)`."""

    #: `pending`, `running`, `stopping`, `stopped`, `shutting-down` or `terminated`.
    state: str
    private_ip: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


class EC2(Client):
    """The part of boto3's EC2 client that Prismline uses."""

    service = "ec2"

    @operation
    def describe_instances(self, *, Filters: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        known: dict[str, Instance] = self._aws.instances
        passing = [name for name, each in known.items() if all(_passes(each, wanted) for wanted in Filters)]
        return {"Reservations": [{"Instances": [_described(name, known[name])]} for name in passing]}


def _passes(instance: Instance, wanted: Mapping[str, Any]) -> bool:
    name = wanted["Name"]
    if name == "instance-state-name":
        return instance.state in wanted["Values"]
    assert name.startswith("tag:"), f"there is no filter {name} here"
    return instance.tags.get(name.removeprefix("tag:")) in wanted["Values"]


def _described(instance_id: str, instance: Instance) -> dict[str, Any]:
    described: dict[str, Any] = {
        "InstanceId": instance_id,
        "State": {"Name": instance.state, "Code": _CODES[instance.state]},
    }
    if instance.private_ip is not None and instance.state != "terminated":
        described["PrivateIpAddress"] = instance.private_ip
    return described
