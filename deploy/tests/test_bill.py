"""The bill of materials of an image lists the packages that are installed in it."""

from __future__ import annotations

import json
import re

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from prismline_deploy.bill import bill_of
from prismline_deploy.containers import PLATFORM, version_of
from prismline_deploy.order import parse
from prismline_localstack.settings import REPOSITORY

SERVICES = sorted(path.parent.name for path in REPOSITORY.glob("services/*/pyproject.toml"))


@pytest.mark.parametrize("service", SERVICES)
def test_the_bill_is_valid_and_names_every_locked_package(service: str) -> None:
    text = bill_of(REPOSITORY, service)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["name"] == f"prismline-{service}"
    assert bill["metadata"]["component"]["version"] == version_of(REPOSITORY, service)
    listed = {part["name"]: part for part in bill["components"]}
    locked = (REPOSITORY / "services" / service / "requirements.txt").read_text()
    for name in re.findall(r"^([a-z0-9-]+)==\S+ \\$", locked, re.MULTILINE):
        assert listed[name]["hashes"], name
    assert {"prismline-contracts", "prismline-runtime"} <= listed.keys()


def test_the_kernel_that_an_image_compiles_is_in_its_bill() -> None:
    names = {part["name"] for part in json.loads(bill_of(REPOSITORY, "worker"))["components"]}
    assert "prismline-gaussline" in names
    assert "async-timeout" not in names, "its marker excludes the Python of the images"


def test_the_same_image_has_the_same_bill() -> None:
    assert bill_of(REPOSITORY, "status") == bill_of(REPOSITORY, "status")


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_has_labels_and_runs_without_privileges(service: str) -> None:
    dockerfile = (REPOSITORY / "services" / service / "Dockerfile").read_text()
    for label in ("title", "description", "licenses"):
        assert re.search(rf'org\.opencontainers\.image\.{label}="[^"]+"', dockerfile), label
    assert "USER 10001:10001" in dockerfile


@pytest.mark.parametrize("service", SERVICES)
def test_functions_have_the_architecture_of_the_images(service: str) -> None:
    architecture = {"linux/amd64": "x86_64", "linux/arm64": "arm64"}[PLATFORM]
    resources = parse((REPOSITORY / "services" / service / "template.yaml").read_text())["Resources"]
    for resource in resources.values():
        if resource["Type"] == "AWS::Lambda::Function":
            assert resource["Properties"].get("Architectures", ["x86_64"]) == [architecture]
        if resource["Type"] == "AWS::ECS::TaskDefinition":
            family = resource["Properties"].get("RuntimePlatform", {"CpuArchitecture": "X86_64"})
            assert family["CpuArchitecture"].lower() == architecture
