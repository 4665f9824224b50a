"""Submit a function over a list: describe it, register it, and put the list and the manifest into the bucket."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

from prismline.protocol import Description
from prismline.supervisor import Supervisor, WorkloadUnavailableError
from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_cli.submission import check_survey, checked, put_manifest
from prismline_client import ApiError, Client, job_name, row_format
from prismline_contracts.base import timestamp
from prismline_contracts.manifest import run_id_of
from prismline_contracts.pools import POOL_SEPARATOR, is_pool_name, no_pool, not_a_pool_name
from prismline_contracts.prefixes import SOURCES_PREFIX
from prismline_contracts.workloads import (
    FUNCTION_NAME_PATTERN,
    FunctionManifest,
    LocalEnvironment,
    RegisteredWorkload,
    is_function,
    latest_workload_key,
    workload_key,
)
from prismline_runtime import Bucket, RunQueues, clients


def describe(name: str, python: str) -> RegisteredWorkload:
    """What a service has to know of a function in the environment of `python`. Ends the command with the reason.

    It is loaded as a worker would load it, with the present folder first.
    """
    if not re.fullmatch(FUNCTION_NAME_PATTERN, name) or not is_function(name):
        fail(f"{name} cannot be the name of a function: write module:function, or a registered name.")
    paths = [str(Path.cwd())]
    try:
        with Supervisor(name, python=python, paths=paths) as supervisor:
            return registered_of(supervisor.description, LocalEnvironment(python=python, paths=paths))
    except WorkloadUnavailableError as error:
        fail(str(error))


def registered_of(description: Description, local: LocalEnvironment | None) -> RegisteredWorkload:
    """The description in the form that is registered."""
    document = json.loads(description.model_dump_json())
    document["limits"]["timeout"] = float(document["limits"]["timeout"])
    return RegisteredWorkload.model_validate({**document, "registered_at": timestamp(), "local": local})


def register(connection: Connection, workload: RegisteredWorkload) -> None:
    """Register a function in the bucket, by its code and as the latest one."""
    bucket = Bucket(connection.s3, connection.bucket)
    body = workload.model_dump_json(exclude_none=True).encode()
    bucket.write(workload_key(workload.name, workload.code), body)
    bucket.write(latest_workload_key(workload.name), body)


def latest_code(client: Client, name: str) -> str:
    """Digest of the newest code of a function. Ends the command with the reason if there is none.

    If the function was registered from this machine, its code as it is now is registered first, where the API allows
    it: on a laptop.
    """
    registered = next((each for each in client.workloads() if each.name == name), None)
    if registered is None or registered.code is None:
        fail(f"{name} is not registered in this environment: it has no newer code.")
    local = None if registered.local is None else LocalEnvironment.model_validate(registered.local)
    if local is None or not Path(local.python).exists():
        return registered.code
    try:
        with Supervisor(name, python=local.python, paths=local.paths) as supervisor:
            description = supervisor.description.model_dump(mode="json")
    except WorkloadUnavailableError as error:
        fail(str(error))
    try:
        client.register(description | {"local": local.model_dump()})
    except ApiError as error:
        if error.status == 403:
            return registered.code
        raise
    return str(description["code"])


def params_of(given: Iterable[str], workload: RegisteredWorkload) -> dict[str, Any]:
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
    assert isinstance(known, dict), "the schema of the parameters is that of an object"
    if unknown := sorted(set(params) - set(known)):
        fail(f"{workload.name} has no parameter {unknown[0]}. It has {', '.join(known) or 'none'}.")
    required = workload.parameters.get("required", [])
    assert isinstance(required, list), "the schema of the parameters is that of an object"
    if missing := [name for name in required if name not in params]:
        fail(f"{workload.name} needs the parameter {missing[0]}: give --param {missing[0]}=VALUE.")
    return params


def check_pool(connection: Connection, pool: str) -> None:
    """End the command with a sentence if a pool does not exist in the environment."""
    if not is_pool_name(pool):
        fail(not_a_pool_name(pool))
    if not RunQueues(clients.sqs(), connection.environment).has_pool(pool):
        fail(no_pool(pool))


def submit(connection: Connection, items: Path, workload: RegisteredWorkload, fields: dict[str, Any]) -> str:
    """Upload the list, register the function, and submit the manifest. Return the id of the run."""
    if not items.is_file():
        fail(f"There is no file {items}.")
    if items.stat().st_size == 0:
        fail(f"{items} is empty.")
    key = fields.get("idempotency_key") or str(uuid4())
    pool = fields.get("pool")
    if pool is not None:
        check_pool(connection, pool)
    run_id = run_id_of(connection.bucket, key, pool)
    survey = fields.get("survey") or job_name(workload.name)
    check_survey(survey)
    source: dict[str, Any] = {
        "kind": "object",
        "key": f"{SOURCES_PREFIX}{run_id}/{items.name}",
        "format": row_format(items),
        "max_items": fields.pop("max_items", None),
    }
    document = fields | {
        "workload": workload.name,
        "code": workload.code,
        "survey": survey,
        "source": {name: value for name, value in source.items() if value is not None},
        "idempotency_key": key,
    }
    manifest = checked(FunctionManifest, {name: value for name, value in document.items() if value is not None})
    register(connection, workload)
    Bucket(connection.s3, connection.bucket).upload(items, source["key"])
    return put_manifest(connection, manifest, key, pool)


def default_folder(survey: str, run_id: str) -> Path:
    """The folder that `map --wait` writes results to."""
    return Path(f"{survey}-{run_id.rpartition(POOL_SEPARATOR)[2][:8]}")


def interpreter(given: str | None) -> str:
    """The interpreter of the author's environment: the given one, or that of this command."""
    return os.path.abspath(given) if given else sys.executable  # noqa: PTH100
