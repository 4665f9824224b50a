"""Submit a function over a list: describe it, register it, and send the list."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prismline.protocol import Description
from prismline.supervisor import Supervisor, WorkloadUnavailableError
from prismline_cli.output import fail
from prismline_client import ApiError, Client, Workload
from prismline_contracts.pools import POOL_SEPARATOR
from prismline_contracts.workloads import FUNCTION_NAME_PATTERN, LocalEnvironment, is_function


def here(python: str | None) -> LocalEnvironment:
    """The environment of an interpreter, by default that of this command, with the present folder first."""
    return LocalEnvironment(
        python=os.path.abspath(python) if python else sys.executable,  # noqa: PTH100
        paths=[str(Path.cwd())],
    )


def describe(name: str, local: LocalEnvironment) -> Description:
    """What a service has to know of a function. Ends the command with the reason. It is loaded as a worker would."""
    if not re.fullmatch(FUNCTION_NAME_PATTERN, name) or not is_function(name):
        fail(f"{name} cannot be the name of a function: write module:function, or a registered name.")
    try:
        with Supervisor(name, python=local.python, paths=local.paths) as supervisor:
            return supervisor.description
    except WorkloadUnavailableError as error:
        fail(str(error))


def _registered(client: Client, name: str) -> Workload | None:
    return next((each for each in client.workloads() if each.name == name), None)


def _register_here(client: Client, workload: Description, local: LocalEnvironment) -> bool:
    """Register a function of this machine, if the API takes any: on a laptop. Return whether it does."""
    try:
        client.register(workload.model_dump(mode="json") | {"local": local.model_dump()})
    except ApiError as error:
        if error.status == 403:
            return False
        raise
    return True


def register(client: Client, workload: Description, local: LocalEnvironment) -> None:
    """Register a function of this machine. An API elsewhere gets it as one that is installed where its workers run."""
    if not _register_here(client, workload, local):
        latest = _registered(client, workload.name)
        if latest is None or latest.code != workload.code:
            client.register(workload.model_dump(mode="json"))


def latest_code(client: Client, name: str) -> str:
    """Digest of the newest code of a function. Ends the command with the reason if there is none.

    If the function was registered from this machine, its code as it is now is registered first, where the API allows
    it: on a laptop.
    """
    registered = _registered(client, name)
    if registered is None or registered.code is None:
        fail(f"{name} is not registered in this environment: it has no newer code.")
    local = None if registered.local is None else LocalEnvironment.model_validate(registered.local)
    if local is None or not Path(local.python).exists():
        return registered.code
    workload = describe(name, local)
    return workload.code if _register_here(client, workload, local) else registered.code


def params_of(given: Iterable[str], workload: Description) -> dict[str, Any]:
    """The parameters in `NAME=VALUE` arguments. A value is JSON, or text if it is none."""
    params: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            fail(f"{each} is not NAME=VALUE.")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    known = workload.parameters.get("properties", {})
    if unknown := sorted(set(params) - set(known)):
        fail(f"{workload.name} has no parameter {unknown[0]}. It has {', '.join(known) or 'none'}.")
    if missing := [name for name in workload.parameters.get("required", []) if name not in params]:
        fail(f"{workload.name} needs the parameter {missing[0]}: give --param {missing[0]}=VALUE.")
    return params


def default_folder(survey: str, run_id: str) -> Path:
    """The folder that `map --wait` writes results to."""
    return Path(f"{survey}-{run_id.rpartition(POOL_SEPARATOR)[2][:8]}")
