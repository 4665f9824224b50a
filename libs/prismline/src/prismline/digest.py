"""The digest of the code of a workload: two runs with the same digest ran the same source files."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path


def code_digest(module: str, file: Path) -> str:
    """SHA-256 over the Python files that belong to a module, as hexadecimal digits.

    Of a module in a package these are all files of the top package. Of a module that stands alone they are the module
    and what it imports from its own folder, directly or indirectly. Installed packages do not count, nor do data files.
    """
    depth = module.count(".")
    if depth or file.name == "__init__.py":
        root = file.parents[depth - 1] if file.name != "__init__.py" else file.parents[depth]
        files = set(root.rglob("*.py"))
    else:
        root, files = file.parent, _with_imports(file)
    whole = hashlib.sha256()
    for path in sorted(files):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return whole.hexdigest()


def _with_imports(file: Path) -> set[Path]:
    found, waiting = {file}, [file]
    while waiting:
        for name in _imported(waiting.pop()):
            module, package = file.parent / f"{name}.py", file.parent / name
            new = {module} if module.is_file() else set(package.rglob("*.py")) if package.is_dir() else set()
            waiting += new - found
            found |= new
    return found


def _imported(file: Path) -> Iterator[str]:
    """The top names of all imports of a file, including those within functions."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
