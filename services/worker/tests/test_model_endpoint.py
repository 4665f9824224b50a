"""The endpoint of a caption model: one of those that answer, on the instances that run."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_runtime import Instances, ResourceUnavailableError
from prismline_worker.gpu import Gpu, GpuUnavailableError
from prismline_worker.model_endpoint import ModelEndpoint


class Ec2:
    def __init__(self, *addresses: str | None) -> None:
        self.addresses = addresses

    def describe_instances(self, **_: Any) -> dict[str, Any]:
        return {"Reservations": [{"Instances": [{"PrivateIpAddress": each} for each in self.addresses]}]}


class Client:
    """A client to which only some models answer."""

    def __init__(self, *answering: str) -> None:
        self.answering = answering

    def require(self, url: str) -> None:
        if url not in self.answering:
            raise ResourceUnavailableError(f"{url} does not answer.", resource="gpu")


def endpoint(ec2: Ec2, client: Client, base_url: str | None = None) -> ModelEndpoint:
    gpu = Gpu(Instances(ec2, "test"), "gpu")
    return ModelEndpoint(gpu, client, base_url=base_url, seconds=0)  # type: ignore[arg-type]  # as little as it needs


def test_all_instances_that_answer_get_work() -> None:
    urls = [f"http://10.0.0.{n}:8000/v1" for n in range(3)]
    found = endpoint(Ec2("10.0.0.0", "10.0.0.1", "10.0.0.2"), Client(*urls[:2]))
    assert {found.find() for _ in range(50)} == set(urls[:2])


def test_without_an_instance_no_model_is_asked_for() -> None:
    with pytest.raises(GpuUnavailableError, match="No GPU is provisioned"):
        endpoint(Ec2(), Client("http://mine/v1"), "http://mine/v1").find()


def test_an_instance_without_an_address_and_one_that_does_not_answer_are_resources_that_are_down() -> None:
    with pytest.raises(ResourceUnavailableError, match="has no address yet"):
        endpoint(Ec2(None), Client()).find()
    with pytest.raises(ResourceUnavailableError, match=r"http://10\.0\.0\.7:8000/v1 does not answer"):
        endpoint(Ec2("10.0.0.7"), Client()).find()


def test_an_endpoint_that_is_given_replaces_those_of_the_instances() -> None:
    assert endpoint(Ec2("10.0.0.7"), Client("http://mine/v1"), "http://mine/v1").find() == "http://mine/v1"
