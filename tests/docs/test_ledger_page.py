"""The table of the ledger's README says which service makes which transition: no more and no less."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from prismline_ledger import Ledger

ROOT = Path(__file__).parents[2]
#: The methods of a table that write.
WRITES = {"create", "update", "transact", "delete_each", "create_each", "change_each"}
#: The service of a caller in the table.
SERVICES = {
    "splitter": "splitter",
    "api": "api",
    "worker": "worker",
    "slow lane": "worker",
    "status service": "status",
    "dead-letter consumer": "dlq-consumer",
    "recovery": "dlq-consumer",
    "sweeper": "dlq-consumer",
}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def transitions() -> set[str]:
    """The public methods of the ledger that write, themselves or by a method that they call."""
    used: dict[str, set[str]] = defaultdict(set)
    for file in (ROOT / "libs/ledger/src/prismline_ledger").glob("*.py"):
        for function in functions(ast.parse(file.read_text())):
            used[function.name] |= {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    writing = set(WRITES)
    while more := {name for name, attributes in used.items() if attributes & writing} - writing:
        writing |= more
    return {name for name, _ in inspect.getmembers(Ledger, inspect.isfunction) if name in writing and name[0] != "_"}


def made() -> set[tuple[str, str]]:
    """The service and the name of each transition that a service makes."""
    names = transitions()
    return {
        (file.relative_to(ROOT / "services").parts[0], node.attr)
        for file in (ROOT / "services").glob("*/src/**/*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in names
        and isinstance(node.value, ast.Attribute | ast.Name)
        and (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id).endswith("ledger")
    }


def in_the_table() -> set[tuple[str, str]]:
    page = (ROOT / "libs/ledger/README.md").read_text()
    rows = re.findall(r"^\| *(?:`\w+` )?\| ([^|]+) \| (.*) \|$", page, re.MULTILINE)
    callers = {(caller.partition(",")[0], text) for caller, text in rows}
    return {
        (SERVICES[caller], name)
        for caller, text in callers
        if caller in SERVICES
        for name in re.findall(r"`(\w+)`", text)
    }


def test_a_service_makes_the_transitions_of_the_table_and_no_others() -> None:
    assert made() == in_the_table()


def test_every_transition_is_made_by_a_service() -> None:
    assert transitions() - {name for _, name in made()} == set()
