"""The bill of materials of a service's image, in CycloneDX: `python -m prismline_deploy.bill worker`.

It lists what the Dockerfile installs: the locked packages of `requirements.txt` with their hashes, and the packages of
this repository that it copies. It does not list the content of the base image.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid5

from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement

from prismline_deploy.dockerfiles import copied

#: A requirement and its hashes, as uv and pip write them.
LOCKED = re.compile(
    r"^(?P<requirement>[A-Za-z0-9][^\\\n]*?)\s*(?P<hashes>(?:\\\n\s+--hash=sha256:\w+\s*)+)$", re.MULTILINE
)
#: The Python of the images, for which the markers of the locked packages are evaluated.
PYTHON = {"python_version": "3.11", "python_full_version": "3.11.13", "sys_platform": "linux"}
#: Namespace of the serial numbers, which are derived from the content: the same image has the same bill.
SERIAL_NUMBERS = UUID("2f7c1f0e-6f0b-4d0e-9a39-0a6f3f0f4b57")


def bill_of(root: Path, service: str) -> str:
    """The bill of materials of the image of a service of the checkout `root`, as JSON."""
    folder = root / "services" / service
    locked = (folder / "requirements.txt").read_text()
    bom = Bom()
    bom.metadata.tools.components.add(this_component())
    bom.metadata.component = whole = _ours(folder, ComponentType.CONTAINER)
    parts = [*_third_party(locked), *_own(root, service)]
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(whole, parts)
    named = " ".join(sorted(str(part.purl) for part in (whole, *parts)))
    bom.serial_number = uuid5(SERIAL_NUMBERS, named)
    # The timestamp is removed: it does not describe the image, and bills of one image would differ.
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return re.sub(r'\s*"timestamp": "[^"]*",', "", text) + "\n"


def _third_party(locked: str) -> Iterator[Component]:
    for found in LOCKED.finditer(locked):
        requirement = Requirement(found["requirement"])
        if requirement.marker and not requirement.marker.evaluate(PYTHON):
            continue
        ((_, version),) = [(each.operator, each.version) for each in requirement.specifier]
        name = requirement.name.lower()
        yield Component(
            name=name,
            version=version,
            purl=PackageURL("pypi", None, name, version),
            bom_ref=f"{name}=={version}",
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=digest)
                for digest in re.findall(r"--hash=sha256:(\w+)", found["hashes"])
            ],
        )


def _own(root: Path, service: str) -> Iterator[Component]:
    dockerfile = root / "services" / service / "Dockerfile"
    folders = {Path(source).parent for source in copied(dockerfile)}
    # A library that the image compiles, gaussline, is copied into a build stage instead of /app/.
    folders |= {Path(found) for found in re.findall(r"^COPY (libs/\w+) /\w+/$", dockerfile.read_text(), re.MULTILINE)}
    for folder in sorted(folders - {Path("services") / service}):
        yield _ours(root / folder, ComponentType.LIBRARY)


def _ours(folder: Path, kind: ComponentType) -> Component:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    return Component(
        name=name,
        version=version,
        type=kind,
        description=project["description"],
        purl=PackageURL("pypi", None, name, version),
        bom_ref=f"{name}=={version}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Prints the bill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout")
    options = parser.parse_args(arguments)
    sys.stdout.write(bill_of(options.root, options.service))
    return 0


if __name__ == "__main__":
    sys.exit(main())
