"""Every fault point is there for a test, which names it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]


def fault_points() -> set[str]:
    """The names of the fault points in the sources of all packages."""
    calls = (
        node
        for pattern in ("*/src/**/*.py", "*/*/src/**/*.py")
        for path in ROOT.glob(pattern)
        if "fault_point(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fault_point"
    )
    return {ast.literal_eval(call.args[0]) for call in calls}


def test_each_fault_point_is_named_by_a_test() -> None:
    folders = ("tests/**/*.py", "*/tests/**/*.py", "*/*/tests/**/*.py")
    tests = "".join(path.read_text() for folder in folders for path in ROOT.glob(folder))
    points = fault_points()
    assert len(points) > 50
    assert sorted(point for point in points if f'"{point}"' not in tests) == [], "use it in a test, or remove it"
