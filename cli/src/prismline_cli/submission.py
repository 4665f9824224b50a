"""Submit a cube: put it and its manifest into the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts import MANIFEST_PREFIX, Manifest, SpectraManifest, run_id_of
from prismline_runtime import Bucket, describe_invalid

M = TypeVar("M", bound=Manifest)


def submit(connection: Connection, cube: str, fields: dict[str, Any]) -> str:
    """Submit `cube`, a local file or `s3://<bucket>/<key>` of our bucket, and return the id of its run.

    `fields` are the manifest's; a wrong one is refused here, before anything is uploaded. A local file gets a key of
    its run's own, so that no other submission can replace it.
    """
    idempotency_key = fields.get("idempotency_key") or str(uuid4())
    remote = cube.removeprefix(f"s3://{connection.bucket}/") if cube.startswith("s3://") else None
    if remote is None and not Path(cube).is_file():
        fail(f"There is no file {cube}.")
    if remote is not None and remote == cube:
        fail(f"{cube} is not in s3://{connection.bucket}; upload it there or give a local file.")
    run_id = run_id_of(connection.bucket, idempotency_key)
    cube_key = remote or f"cubes/{fields['survey']}/{run_id}/{Path(cube).name}"
    document = {**fields, "cube_key": cube_key, "idempotency_key": idempotency_key}
    manifest = checked(SpectraManifest, document)
    if remote is None:
        Bucket(connection.s3, connection.bucket).upload(Path(cube), cube_key)
    return put_manifest(connection, manifest, idempotency_key)


def checked(model: type[M], document: dict[str, Any]) -> M:
    """The manifest in `document`; a wrong one ends the command with the reason."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        fail(f"The submission is invalid: {describe_invalid(error)}.")


def put_manifest(connection: Connection, manifest: Manifest, idempotency_key: str) -> str:
    """Put the manifest where the splitter waits for it, and return the id of its run."""
    connection.s3.put_object(
        Bucket=connection.bucket,
        Key=f"{MANIFEST_PREFIX}{idempotency_key}.json",
        Body=manifest.model_dump_json(exclude_unset=True, by_alias=True).encode(),
        ContentType="application/json",
    )
    return run_id_of(connection.bucket, idempotency_key)
