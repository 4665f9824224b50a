"""Checks whether a resource is up, in the emulator's SSM and EC2."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from prismline_dlq_consumer.decisions import Resource
from prismline_dlq_consumer.resources import Ec2Resources, asked_once
from prismline_runtime import Instances

pytestmark = pytest.mark.emulator


@pytest.fixture
def environment(aws_env: dict[str, str]) -> str:
    return aws_env["ENVIRONMENT"]


def resources(environment: str) -> Ec2Resources:
    return Ec2Resources(Instances(boto3.client("ssm"), boto3.client("ec2"), environment))


def set_instance(environment: str, value: str) -> None:
    name = f"/prismline/{environment}/resources/gpu/instance_id"
    boto3.client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)


def test_a_resource_that_nobody_set_up_is_down(environment: str) -> None:
    assert resources(environment).look_up("gpu") == Resource("gpu", up=False)


def test_the_sentinel_means_down(environment: str) -> None:
    set_instance(environment, "none")
    assert not resources(environment).look_up("gpu").up


def test_an_instance_is_up_while_it_runs_and_its_id_is_read_fresh(environment: str) -> None:
    ec2: Any = boto3.client("ec2")
    found = resources(environment)
    instance = ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    set_instance(environment, instance)
    assert found.look_up("gpu").up
    ec2.stop_instances(InstanceIds=[instance])
    assert not found.look_up("gpu").up
    ec2.start_instances(InstanceIds=[instance])
    assert found.look_up("gpu").up
    set_instance(environment, "i-00000000000000000")
    assert not found.look_up("gpu").up


def test_a_batch_asks_for_a_resource_once() -> None:
    asked = []

    class Counting:
        def look_up(self, name: str) -> Resource:
            asked.append(name)
            return Resource(name, up=True)

    look_up = asked_once(Counting())
    assert [look_up(name).up for name in ("gpu", "gpu", "disk", "gpu")] == [True] * 4
    assert asked == ["gpu", "disk"]
