"""The emulator offers the services that Prismline calls, and no other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import botocore.session

from prismline_emulator.emulated import FUNCTION_SERVICES, SERVICES
from prismline_localstack.settings import REPOSITORY

#: Functions whose first argument is the name of a service.
MAKERS = {"client", "make_client"}
#: The stacks declare roles, and people and tests look at them. The services never do.
ONLY_LOOKED_AT = {"iam"}


def called(path: Path) -> Iterator[str]:
    """The names of the services for which a module makes clients."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            maker = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            if maker in MAKERS and isinstance(node.args[0].value, str):
                yield node.args[0].value


def test_the_offered_services_are_those_that_the_code_calls() -> None:
    session = botocore.session.get_session()
    names = {name for path in REPOSITORY.glob("[!.]*/**/src/prismline_*/**/*.py") for name in called(path)}
    signed = {session.get_service_model(name).signing_name for name in names}
    assert len(signed) > 8
    assert signed | ONLY_LOOKED_AT == {*SERVICES, *FUNCTION_SERVICES}
