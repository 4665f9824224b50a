"""Checks whether a resource is up, in the emulator's EC2."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from prismline_contracts.resources import resource_tags
from prismline_dlq_consumer.decisions import Resource
from prismline_dlq_consumer.resources import Ec2Resources, asked_once
from prismline_runtime import Instances

pytestmark = pytest.mark.emulator


@pytest.fixture
def environment(aws_env: dict[str, str]) -> str:
    return aws_env["ENVIRONMENT"]


def resources(environment: str) -> Ec2Resources:
    return Ec2Resources(Instances(boto3.client("ec2"), environment))


def start(environment: str, resource: str) -> str:
    """Start an instance of a resource, and return its id."""
    ec2: Any = boto3.client("ec2")
    tags = [{"Key": key, "Value": value} for key, value in resource_tags(environment, resource).items()]
    of_instance = [{"ResourceType": "instance", "Tags": tags}]
    made = ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=of_instance)
    instance: str = made["Instances"][0]["InstanceId"]
    return instance


def test_a_resource_that_nobody_set_up_is_down(environment: str) -> None:
    assert resources(environment).look_up("gpu") == Resource("gpu", up=False)


def test_instances_of_other_resources_and_environments_do_not_count(environment: str) -> None:
    start(environment, "disk")
    start(f"{environment}-2", "gpu")
    assert not resources(environment).look_up("gpu").up


def test_a_resource_is_up_while_one_of_its_instances_runs(environment: str) -> None:
    ec2: Any = boto3.client("ec2")
    found = resources(environment)
    first, second = start(environment, "gpu"), start(environment, "gpu")
    assert found.look_up("gpu") == Resource("gpu", up=True)
    ec2.stop_instances(InstanceIds=[first])
    assert found.look_up("gpu").up
    ec2.terminate_instances(InstanceIds=[second])
    assert not found.look_up("gpu").up
    ec2.start_instances(InstanceIds=[first])
    assert found.look_up("gpu").up


def test_a_batch_asks_for_a_resource_once() -> None:
    asked = []

    class Counting:
        def look_up(self, name: str) -> Resource:
            asked.append(name)
            return Resource(name, up=True)

    look_up = asked_once(Counting())
    assert [look_up(name).up for name in ("gpu", "gpu", "disk", "gpu")] == [True] * 4
    assert asked == ["gpu", "disk"]
