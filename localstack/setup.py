"""Copy into the wheel the files of the checkout that the harness needs. All other settings are in pyproject.toml.

The wheel contains one release of the whole system, in the folders of a checkout: the templates, the tables of
processes, and the sources of the services' images.
"""

from __future__ import annotations

import shutil
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
    "services/*/src/**/*",
    "services/*/statemachine/*",
    "services/*/Dockerfile",
    "services/*/pyproject.toml",
    "services/*/requirements.txt",
    "services/*/template.yaml",
)
IGNORED = {"__pycache__", "build"}


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


setup(cmdclass={"build_py": BuildWithCheckout})
