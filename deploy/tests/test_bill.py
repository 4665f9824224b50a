"""The bill of materials of an image lists what is in it, with licences and with what each part needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from prismline_deploy import inventory
from prismline_deploy.bill import bill_of, main
from prismline_deploy.containers import PLATFORM
from prismline_deploy.labels import version_of
from prismline_deploy.order import parse
from prismline_localstack.settings import REPOSITORY

SERVICES = sorted(path.parent.name for path in REPOSITORY.glob("services/*/pyproject.toml"))
#: What an image might report.
FOUND = {
    "python": "3.11.14",
    "packages": [
        {"name": "boto3", "version": "1.43.9", "licences": ["Apache-2.0"], "needs": ["botocore", "absent"]},
        {"name": "botocore", "version": "1.43.9", "licences": ["Apache-2.0"], "needs": []},
        {"name": "prismline-gaussline", "version": "0.0.1", "licences": ["MIT"], "needs": []},
    ],
    "debian": [
        {"name": "libc6", "version": "2.41-12", "architecture": "amd64", "licences": ["LGPL-2.1"], "needs": ["libgcc"]},
    ],
}


def parts_of(text: str) -> dict[str, dict[str, Any]]:
    """The components of a bill, by their names."""
    return {part["name"]: part for part in json.loads(text)["components"]}


@pytest.mark.parametrize("service", SERVICES)
def test_the_bill_is_valid_and_has_what_the_image_reports(service: str) -> None:
    text = bill_of(REPOSITORY, service, FOUND)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    whole = json.loads(text)["metadata"]["component"]
    assert (whole["name"], whole["version"]) == (f"prismline-{service}", version_of(REPOSITORY, service))
    parts = parts_of(text)
    assert parts["boto3"]["purl"] == "pkg:pypi/boto3@1.43.9"
    assert parts["libc6"]["purl"] == "pkg:deb/debian/libc6@2.41-12?arch=amd64"
    assert parts["libc6"]["licenses"] == [{"license": {"name": "LGPL-2.1"}}]
    assert {"prismline-contracts", "prismline-runtime"} <= parts.keys()
    assert all("licenses" in part for part in parts.values())


def test_the_bill_has_the_graph_of_what_needs_what() -> None:
    graph = {
        node["ref"]: node.get("dependsOn", []) for node in json.loads(bill_of(REPOSITORY, "api", FOUND))["dependencies"]
    }
    assert graph["pkg:pypi/boto3@1.43.9"] == ["pkg:pypi/botocore@1.43.9"]
    assert len(graph[f"prismline-api=={version_of(REPOSITORY, 'api')}"]) == len(graph) - 1


def test_our_packages_claim_no_name_in_an_index() -> None:
    parts = parts_of(bill_of(REPOSITORY, "worker", FOUND))
    ours = [part for name, part in parts.items() if name.startswith("prismline")]
    assert "prismline-gaussline" in parts, "the image compiles it"
    assert ours
    assert all("purl" not in part for part in ours)


def test_scripts_of_others_among_our_sources_are_listed() -> None:
    (folder,) = (REPOSITORY / "services/api/src").rglob("vendor/*/")
    name, _, version = folder.name.rpartition("-")
    part = parts_of(bill_of(REPOSITORY, "api", FOUND))[name]
    assert part["purl"] == f"pkg:npm/{name}@{version}"
    assert part["licenses"] == [{"license": {"name": "MIT"}}]


def test_the_same_image_has_the_same_bill() -> None:
    assert bill_of(REPOSITORY, "status", FOUND) == bill_of(REPOSITORY, "status", FOUND)


def test_an_interpreter_reports_its_packages() -> None:
    """As the Python of an image does: it gets the program as its standard input."""
    program = Path(inventory.__file__).read_text()
    done = subprocess.run([sys.executable, "-"], input=program, text=True, capture_output=True, check=True)
    found = {package["name"]: package for package in json.loads(done.stdout)["packages"]}
    assert found["boto3"]["licences"] == ["Apache-2.0"]
    assert {"botocore", "s3transfer"} <= set(found["boto3"]["needs"])
    assert "typing-extensions" in found["pydantic"]["needs"], "a name as the index writes it"
    assert "awscrt" not in found["boto3"]["needs"], "only an extra needs it"


def test_debian_reports_its_installed_packages(tmp_path: Path) -> None:
    paragraphs = (
        (
            "Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:1.3\n"
            "Depends: libc6 (>= 2.14), tool | other:any\nDescription: x\n more"
        ),
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1",
    )
    (tmp_path / inventory.STATUS).parent.mkdir(parents=True)
    (tmp_path / inventory.STATUS).write_text("\n\n".join(paragraphs) + "\n")
    notes = tmp_path / inventory.COPYRIGHTS / "zlib1g"
    notes.mkdir(parents=True)
    (notes / "copyright").write_text("Files: *\nLicense: Zlib\n text\n\nFiles: debian/*\nLicense: GPL-2+\n")
    assert inventory.debian_packages(tmp_path) == [
        {
            "name": "zlib1g",
            "version": "1:1.3",
            "architecture": "amd64",
            "licences": ["GPL-2+", "Zlib"],
            "needs": ["libc6", "other", "tool"],
        }
    ]
    assert inventory.debian_packages(tmp_path / "elsewhere") == []


def test_without_docker_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="docker, which is not installed"):
        main(["worker", "--image", "prismline/worker", "--root", str(REPOSITORY)])


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
