"""The bill of materials of a built image, in CycloneDX: `python -m prismline_deploy.bill worker --image IMAGE`.

It lists what the image holds, each part with its licences and with what it needs: the Python packages and Debian's,
as the image itself reports them; our packages, which its Dockerfile copies; and the scripts of others that are among
the sources of ours (folders `vendor/NAME-VERSION`).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from prismline_deploy import inventory
from prismline_deploy.dockerfiles import copies, dockerfile_of
from prismline_deploy.errors import DeployError

#: Namespace of the serial numbers, which are derived from the content: the same image has the same bill.
SERIAL_NUMBERS = UUID("2f7c1f0e-6f0b-4d0e-9a39-0a6f3f0f4b57")
#: What an image reports: lists of Python's and Debian's packages, by the names `packages` and `debian`.
Inventory = Mapping[str, Any]


def inventory_of(image: str) -> Inventory:
    """What is installed in an image, which docker runs. Raises DeployError if docker cannot."""
    command = ["docker", "run", "--rm", "--interactive", "--network=none", "--entrypoint=python", image, "-"]
    try:
        done = subprocess.run(
            command, input=Path(inventory.__file__).read_text(), text=True, check=True, capture_output=True
        )
    except FileNotFoundError as error:
        raise DeployError("An image reports its content with docker, which is not installed here.") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        raise DeployError(f"{image} does not report its content: {lines[-1] if lines else 'it gave no reason'}") from (
            error
        )
    found: Inventory = json.loads(done.stdout)
    return found


def bill_of(root: Path, service: str, found: Inventory) -> str:
    """The bill of materials, as JSON, of the image of a service of the checkout `root` that holds `found`."""
    bom = Bom()
    bom.metadata.tools.components.add(this_component())
    bom.metadata.component = whole = _ours(root / "services" / service, ComponentType.CONTAINER)
    ours = list(_libraries(root, service))
    own = {part.name for part in (whole, *ours)}
    python = {
        package["name"]: _part(package, PackageURL("pypi", None, package["name"], package["version"]))
        for package in found["packages"]
        if package["name"] not in own  # installed from this repository: an index has no such package of ours
    }
    debian = {package["name"]: _part(package, _debian_address(package)) for package in found["debian"]}
    vendored = list(_vendored(root, service))
    for part in (*ours, *python.values(), *debian.values(), *vendored):
        bom.components.add(part)
    for parts, packages in ((python, found["packages"]), (debian, found["debian"])):
        for package in packages:
            if package["name"] in parts:
                needed = [parts[name] for name in package["needs"] if name in parts]
                bom.register_dependency(parts[package["name"]], needed)
    bom.register_dependency(whole, [*ours, *python.values(), *debian.values(), *vendored])
    bom.serial_number = uuid5(SERIAL_NUMBERS, " ".join(sorted(str(part.bom_ref) for part in bom.components)))
    # The timestamp is removed: it does not describe the image, and bills of one image would differ.
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return re.sub(r'\s*"timestamp": "[^"]*",', "", text) + "\n"


def _part(package: Mapping[str, Any], address: PackageURL) -> Component:
    return Component(
        name=package["name"],
        version=package["version"],
        purl=address,
        bom_ref=str(address),
        licenses=[DisjunctiveLicense(name=name) for name in package["licences"]],
    )


def _debian_address(package: Mapping[str, Any]) -> PackageURL:
    architecture = {"arch": package["architecture"]}
    return PackageURL("deb", "debian", package["name"], package["version"], qualifiers=architecture)


def _sources(root: Path, service: str) -> set[Path]:
    """The files and folders of the checkout that the image is built from."""
    return {root / source for copy in copies(dockerfile_of(root, service)) for source in copy.sources}


def _libraries(root: Path, service: str) -> Iterator[Component]:
    """Our packages in an image, without the service itself."""
    sources = _sources(root, service)
    folders = {folder for path in sources for folder in (path, path.parent) if (folder / "pyproject.toml").exists()}
    for folder in sorted(folders - {root / "services" / service}):
        yield _ours(folder, ComponentType.LIBRARY)


def _vendored(root: Path, service: str) -> Iterator[Component]:
    """Packages of npm whose files are among the sources of the service."""
    for licence in sorted((root / "services" / service / "src").rglob("vendor/*/LICENSE")):
        name, _, version = licence.parent.name.rpartition("-")
        address = PackageURL("npm", None, name, version)
        kind = re.search(r"\b(MIT|BSD|Apache)\b", licence.read_text())
        yield _part({"name": name, "version": version, "licences": [kind[1]] if kind else []}, address)


def _ours(folder: Path, kind: ComponentType) -> Component:
    """A package of this repository. It has no address in an index, because it is in none."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return Component(
        name=project["name"],
        version=project["version"],
        type=kind,
        description=project["description"],
        licenses=[LicenseExpression(project["license"])],
        bom_ref=f"{project['name']}=={project['version']}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Prints the bill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service")
    parser.add_argument("--image", required=True, help="the built image")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout")
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(bill_of(options.root, options.service, inventory_of(options.image)))
    except DeployError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
