"""Submit a cube: put it and its manifest into the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts import MANIFEST_PREFIX, SURVEY_RULE, Manifest, SpectraManifest, is_survey, run_id_of
from prismline_runtime import Bucket, describe_invalid

M = TypeVar("M", bound=Manifest)


def submit(connection: Connection, cube: str, fields: dict[str, Any], *, noise: str | None = None) -> str:
    """Submit `cube`, a local file or `s3://<bucket>/<key>`, and return the id of its run.

    `fields` are the manifest's; a wrong one is refused here, before anything is uploaded. A local file gets a key of
    its run's own, so that no other submission can replace it. A cube in S3 stays where it is, in whatever bucket: the
    services need to be allowed to read it. `noise` is a number in the cube's unit, or a FITS map or a text file of
    channels, local or in our bucket.
    """
    idempotency_key = fields.get("idempotency_key") or str(uuid4())
    check_survey(fields["survey"])
    run_id = run_id_of(connection.bucket, idempotency_key)
    folder = f"{fields['survey']}/{run_id}"
    bucket, cube_key, uploads = _placed(connection, cube, f"cubes/{folder}")
    document = {**fields, "cube_key": cube_key, "idempotency_key": idempotency_key}
    if bucket != connection.bucket:
        document["cube_bucket"] = bucket
    if noise is not None:
        number = _number(noise)
        bucket, noise_key, more = _placed(connection, noise, f"noise/{folder}") if number is None else ("", "", {})
        if bucket not in ("", connection.bucket):
            fail(f"{noise} is not in s3://{connection.bucket}; upload it there or give a local file.")
        document["params"] = {**fields.get("params", {}), "noise": noise_key if number is None else number}
        uploads |= more
    manifest = checked(SpectraManifest, document)
    for key, path in uploads.items():
        Bucket(connection.s3, connection.bucket).upload(path, key)
    return put_manifest(connection, manifest, idempotency_key)


def check_survey(survey: str) -> None:
    """End the command with the rule if `survey` cannot be the name of a survey."""
    if not is_survey(survey):
        fail(f"{survey!r} cannot be the name of a survey: {SURVEY_RULE}.")


def _placed(connection: Connection, file: str, folder: str) -> tuple[str, str, dict[str, Path]]:
    """The bucket and the key that `file` has or gets, and what has to be uploaded for that, by key."""
    if file.startswith("s3://"):
        bucket, _, key = file.removeprefix("s3://").partition("/")
        if not bucket or not key:
            fail(f"{file} does not name a file in a bucket; write s3://BUCKET/KEY.")
        return bucket, key, {}
    if not file:
        fail("The name of the file is empty.")
    if Path(file).is_dir():
        fail(f"{file} is a folder; give a file.")
    if not Path(file).is_file():
        fail(f"There is no file {file}.")
    key = f"{folder}/{Path(file).name}"
    return connection.bucket, key, {key: Path(file)}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


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
        Body=manifest.model_dump_json(exclude_unset=True).encode(),
        ContentType="application/json",
    )
    return run_id_of(connection.bucket, idempotency_key)
