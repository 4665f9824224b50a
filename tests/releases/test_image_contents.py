"""The image of a service holds the modules of this repository that the service imports."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from prismline_deploy.dockerfiles import copied
from prismline_localstack.settings import REPOSITORY

pytestmark = pytest.mark.slow

#: Imports all modules of a package, with the packages of the index. An image has no metadata of our packages.
IMPORT = """
import sys
from importlib import import_module, metadata
from pkgutil import walk_packages
packages, checkout, package = sys.argv[1:]
sys.path = [path for path in sys.path if not path.startswith(checkout)] + [packages]
found = metadata.MetadataPathFinder.find_distributions
metadata.MetadataPathFinder.find_distributions = classmethod(
    lambda cls, context=metadata.DistributionFinder.Context(): (
        each for each in found(context) if not each.metadata["Name"].startswith("prismline")
    )
)
for module in walk_packages(import_module(package).__path__, package + "."):
    import_module(module.name)
"""
#: The worker's image has gaussline compiled; the tests in containers build and run it.
DOCKERFILES = [path for path in sorted(REPOSITORY.glob("services/*/Dockerfile")) if path.parent.name != "worker"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_an_image_holds_what_its_service_imports(dockerfile: Path, tmp_path: Path) -> None:
    for folder in copied(dockerfile):
        shutil.copytree(REPOSITORY / folder, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so"))
    package = f"prismline_{dockerfile.parent.name.replace('-', '_')}"
    subprocess.run(
        [sys.executable, "-S", "-c", IMPORT, sysconfig.get_path("purelib"), str(REPOSITORY), package],
        env={"PYTHONPATH": str(tmp_path)},
        check=True,
    )


def test_pyarrow_reads_and_writes_parquet_without_what_an_image_leaves_out(tmp_path: Path) -> None:
    packages = Path(sysconfig.get_path("purelib"))
    for name in ("pyarrow", "numpy", "numpy.libs"):
        shutil.copytree(packages / name, tmp_path / name)
    subprocess.run([REPOSITORY / "services" / "prune.sh", tmp_path], check=True)
    removed = {path.name for path in (packages / "pyarrow").iterdir()} - {
        path.name for path in (tmp_path / "pyarrow").iterdir()
    }
    assert {"include", "tests", "_flight.pyx"} <= removed
    program = """
import io, os, pyarrow, pyarrow.compute, pyarrow.dataset, pyarrow.parquet as parquet
file = io.BytesIO()
parquet.write_table(pyarrow.table({"x": [1, 2]}), file, compression="zstd")
assert parquet.read_table(io.BytesIO(file.getvalue()))["x"].to_pylist() == [1, 2]
os._exit(0)  # at the end of a process, Arrow's threads sometimes abort it
"""
    subprocess.run([sys.executable, "-S", "-c", program], env={"PYTHONPATH": str(tmp_path)}, check=True)
