"""Submit a manifest of any workload. The splitter checks the workload's own fields. A wrong one fails the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts.manifest import DEFAULT_WORKLOAD, Manifest, run_id_of
from prismline_contracts.prefixes import MANIFEST_PREFIX, SOURCES_PREFIX
from prismline_runtime import Bucket, describe_invalid


def submit_manifest(connection: Connection, path: Path, files: list[str], idempotency_key: str | None = None) -> str:
    """Submit the manifest in the JSON file `path`, and return the id of its run.

    files: `FIELD=FILE` each. The file is uploaded under a key that contains the run's id, and FIELD gets the key.
    """
    document = read_manifest(path)
    key = idempotency_key or document.get("idempotency_key") or str(uuid4())
    run_id = run_id_of(connection.bucket, key)
    uploads: dict[str, Path] = {}
    for field, file in (_field_and_file(given) for given in files):
        document[field] = f"{SOURCES_PREFIX}{run_id}/{file.name}"
        if uploads.setdefault(document[field], file) != file:
            fail(f"Two files are called {file.name}; rename one.")
    for object_key, file in uploads.items():
        Bucket(connection.s3, connection.bucket).upload(file, object_key)
    connection.s3.put_object(
        Bucket=connection.bucket,
        Key=f"{MANIFEST_PREFIX}{key}.json",
        Body=json.dumps({**document, "idempotency_key": key}).encode(),
        ContentType="application/json",
    )
    return run_id


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest from a JSON file. Ends the command with the reason if a field that all manifests have is wrong.

    The fields that a workload adds, those of `params` included, are not checked here.
    """
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        fail(f"Cannot read {path}: {error.strerror}.")
    except ValueError as error:
        fail(f"{path} is not JSON: {error}.")
    if not isinstance(document, dict):
        fail(f"{path} is not a manifest: it has to be a JSON object.")
    common = {name: document[name] for name in Manifest.model_fields if name in document and name != "params"}
    try:  # a workload may have another name for the survey
        Manifest.model_validate({"survey": "unnamed", "workload": DEFAULT_WORKLOAD, **common})
    except ValidationError as error:
        fail(f"{path} is invalid: {describe_invalid(error)}.")
    if not isinstance(document.get("params", {}), dict):
        fail(f"{path} is invalid: params is not a JSON object.")
    return document


def _field_and_file(given: str) -> tuple[str, Path]:
    field, _, file = given.partition("=")
    if not field or not file:
        fail(f"{given} is not FIELD=FILE.")
    if not Path(file).is_file():
        fail(f"There is no file {file}.")
    return field, Path(file)
