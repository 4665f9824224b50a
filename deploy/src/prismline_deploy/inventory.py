"""Lists the Python and Debian packages of the system that runs it, as JSON: versions, licences and dependencies.

`prismline_deploy.bill` gives the text of this module to the Python of an image. So it imports only the standard
library, and nothing of this repository.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

#: The file in which dpkg records the installed packages, and the folder with their copyright files.
STATUS, COPYRIGHTS = Path("var/lib/dpkg/status"), Path("usr/share/doc")


def python_packages() -> list[dict[str, object]]:
    """The packages that this Python finds, in order of their names."""
    found = {_normal(each.metadata["Name"]): each for each in distributions()}
    return [
        {
            "name": name,
            "version": each.version,
            "licences": _licences(each),
            "needs": _needs(each),
        }
        for name, each in sorted(found.items())
    ]


def debian_packages(root: Path) -> list[dict[str, object]]:
    """The packages of the Debian below `root`, in order of their names. Empty for another system."""
    status = root / STATUS
    if not status.exists():
        return []
    packages = []
    for paragraph in status.read_text(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            needed = re.split(r"[,|]", f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}")
            packages.append(
                {
                    "name": fields["Package"],
                    "version": fields["Version"],
                    "architecture": fields["Architecture"],
                    "licences": _of_copyright(root / COPYRIGHTS / fields["Package"] / "copyright"),
                    "needs": sorted({each.split()[0].partition(":")[0] for each in needed if each.strip()}),
                }
            )
    return sorted(packages, key=lambda package: str(package["name"]))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _needs(package: Distribution) -> list[str]:
    """The names of the packages that a package needs, without those of its extras."""
    always = [line for line in package.requires or () if "extra ==" not in line.partition(";")[2]]
    return sorted({_normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in always})


def _licences(package: Distribution) -> list[str]:
    """What a package says of its licence: an expression, else its classifiers, else the first line of the field."""
    stated = package.metadata
    if stated["License-Expression"]:
        return [str(stated["License-Expression"])]
    prefix = "License :: "
    named = [each.rpartition(" :: ")[2] for each in stated.get_all("Classifier") or () if each.startswith(prefix)]
    if named and named != ["OSI Approved"]:
        return sorted(set(named))
    return [line] if (line := (stated["License"] or "").strip().partition("\n")[0]) else []


def _of_copyright(path: Path) -> list[str]:
    """The short names of licences in a copyright file of Debian; empty if the file has another form."""
    if not path.exists():
        return []
    return sorted(set(re.findall(r"^License: *(\S.*?) *$", path.read_text(errors="replace"), re.MULTILINE)))


if __name__ == "__main__":
    found = {
        "python": sys.version.split()[0],
        "packages": python_packages(),
        "debian": debian_packages(Path("/")),
    }
    sys.stdout.write(json.dumps(found))
