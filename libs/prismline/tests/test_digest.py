"""The digest changes with the code that a workload runs, and with nothing else."""

from pathlib import Path

import pytest

from prismline.digest import code_digest


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module that stands alone, with a helper that it imports in a function."""
    (tmp_path / "helper.py").write_text("import deeper\n")
    (tmp_path / "deeper.py").write_text("x = 1\n")
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    path = tmp_path / "work.py"
    path.write_text("import os\ndef measure(item):\n    from helper import x\n    return x\n")
    return path


@pytest.mark.parametrize(
    ("name", "changes"), [("work", True), ("helper", True), ("deeper", True), ("unrelated", False)]
)
def test_a_module_alone_counts_with_what_it_imports_from_its_folder(module: Path, name: str, changes: bool) -> None:
    before = code_digest("work", module)
    with (module.parent / f"{name}.py").open("a") as file:
        file.write("y = 2\n")
    assert (code_digest("work", module) != before) is changes


@pytest.mark.parametrize(("name", "file"), [("seeing", "__init__.py"), ("seeing.parts.work", "parts/work.py")])
def test_a_package_counts_as_a_whole(tmp_path: Path, name: str, file: str) -> None:
    package = tmp_path / "seeing"
    (package / "parts").mkdir(parents=True)
    for each in ("__init__.py", "other.py", "parts/__init__.py", "parts/work.py"):
        (package / each).write_text("x = 1\n")
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    before = code_digest(name, package / file)
    (tmp_path / "unrelated.py").write_text("x = 2\n")
    assert code_digest(name, package / file) == before
    (package / "other.py").write_text("x = 2\n")
    changed = code_digest(name, package / file)
    assert changed != before
    (package / "other.py").rename(package / "another.py")
    assert code_digest(name, package / file) not in {before, changed}


def test_the_folder_of_a_package_does_not_count(tmp_path: Path) -> None:
    digests = set()
    for place in ("here", "there"):
        package = tmp_path / place / "seeing"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("x = 1\n")
        digests.add(code_digest("seeing", package / "__init__.py"))
    assert len(digests) == 1
