"""Checks which package may import which: `python -m tests.imports`, part of `make check`.

The packages are read from the folders: a new service or library is held to the rules of the others.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[1]
#: Libraries with a place of their own: below the others, and outside of the layers. The latter are installed where
#: nothing else of the repository is.
BELOW = "prismline_runtime"
ALONE = (
    "prismline",
    "prismline_client",
    "prismline_emulator",
    "prismline_gaussline",
)

RULES = """\
[importlinter]
root_packages = {packages}

[importlinter:contract:services]
name = A service never imports another service, the harness or the command line
type = independence
modules = {services}

[importlinter:contract:layers]
name = Each package imports only those below: harness, deploy tool, tools, command, services, libraries, runtime
type = layers
layers =
    prismline_localstack
    prismline_deploy
    {tools}
    prismline_cli
    {service_layer}
    {library_layer}
    {below}
    prismline_contracts

[importlinter:contract:alone]
name = The libraries that are used without the rest import no other package of the repository
type = forbidden
source_modules = {alone}
forbidden_modules = {others}
"""


def packages(root: Path, folders: str) -> list[str]:
    """The import names of the packages in folders of this pattern."""
    return sorted(path.parent.name for path in root.glob(f"{folders}/src/prismline*/__init__.py"))


def rules(root: Path) -> str:
    """The configuration of import-linter for the packages of a checkout."""
    services = packages(root, "services/*")
    libraries = [name for name in packages(root, "libs/*") if name not in {BELOW, *ALONE}]
    everything = [*packages(root, "*"), *packages(root, "*/*")]
    return RULES.format(
        packages=_lines(everything),
        services=_lines(services),
        service_layer=" | ".join(services),
        tools=" | ".join(packages(root, "tools/*")),
        library_layer=" | ".join(libraries),
        below=BELOW,
        alone=_lines(name for name in ALONE if name in everything),
        others=_lines(name for name in everything if name not in ALONE),
    )


def _lines(names: Iterable[str]) -> str:
    return "".join(f"\n    {name}" for name in names)


def main() -> int:
    """Entry point. Returns 0 if every import is allowed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".importlinter"
        path.write_text(rules(ROOT))
        return lint_imports(config_filename=str(path), no_logo=True)


if __name__ == "__main__":
    sys.exit(main())
