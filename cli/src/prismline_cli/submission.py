"""Submit a cube: put it and its manifest into the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, get_args
from uuid import uuid4

from pydantic import ValidationError

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts.base import SURVEY_RULE, Submitted, is_survey
from prismline_contracts.manifest import GivenFitParams, KnownLine, Manifest, SpectraManifest, run_id_of
from prismline_contracts.prefixes import CUBES_PREFIX, MANIFEST_PREFIX, NOISE_PREFIX
from prismline_runtime import Bucket, describe_invalid, reader_errors

M = TypeVar("M", bound=Submitted)


def submit(connection: Connection, cube: str, fields: dict[str, Any], *, noise: str | None = None) -> str:
    """Submit `cube`, a local file or `s3://<bucket>/<key>`, and return the id of its run.

    `fields` are the fields of the manifest. A wrong field is refused before anything is uploaded. The key of a local
    file contains the run's id, so that no other submission replaces the file. A cube in S3 stays in its bucket, which
    the services must be allowed to read. `noise` is a number in the cube's unit, a FITS map, or a text file with one
    value for each channel. A file of noise is local or in the environment's bucket.
    """
    idempotency_key = fields.get("idempotency_key") or str(uuid4())
    check_survey(fields["survey"])
    run_id = run_id_of(connection.bucket, idempotency_key)
    folder = f"{fields['survey']}/{run_id}"
    bucket, cube_key, uploads = _placed(connection, cube, f"{CUBES_PREFIX}{folder}")
    document = {**fields, "cube_key": cube_key, "idempotency_key": idempotency_key}
    if bucket != connection.bucket:
        document["cube_bucket"] = bucket
    if noise is not None:
        number = _number(noise)
        bucket, noise_key, more = (
            _placed(connection, noise, f"{NOISE_PREFIX}{folder}") if number is None else ("", "", {})
        )
        if bucket not in ("", connection.bucket):
            fail(f"{noise} is not in s3://{connection.bucket}; upload it there or give a local file.")
        document["params"] = {**fields.get("params", {}), "noise": noise_key if number is None else number}
        uploads |= more
    manifest = checked(SpectraManifest, document)
    for key, path in uploads.items():
        Bucket(connection.s3, connection.bucket).upload(path, key)
    return put_manifest(connection, manifest, idempotency_key)


def check_file(cube: str, params: dict[str, Any], chunk_input: str | None = None) -> None:
    """End the command with the reason if the splitter would refuse `cube`, a local file, or these settings of it."""
    given = checked(GivenFitParams, params)
    path = Path(cube)
    if cube.startswith("s3://") or not path.is_file():  # `submit` says what is wrong with its name
        return
    from prismline_cube.axis import velocity_axis  # noqa: PLC0415 - imports astropy, which takes a second
    from prismline_cube.errors import CubeError  # noqa: PLC0415
    from prismline_cube.inspection import check_cube, is_compressed  # noqa: PLC0415

    with reader_errors(f"{cube} cannot be read as a cube"):
        try:
            header = check_cube(path)
            if given.line is not None:
                geometry = header.geometry(path.name)
                known = given.rest_frequency or geometry.rest_frequency
                velocity_axis(geometry.model_copy(update={"rest_frequency": known}))
            refused = _cannot_be_referred_to(given, chunk_input) if is_compressed(path) else None
        except CubeError as error:
            refused = str(error)
    if refused is None:
        return
    fail(f"{cube} was not submitted: {refused}.")


def _cannot_be_referred_to(params: GivenFitParams, chunk_input: str | None) -> str | None:
    """The reason why a compressed cube does not suit these settings, or None."""
    if params.second_pass:
        return (
            "it is compressed, and a second pass reads the spectra around a chunk in the cube itself; decompress it"
            " first, or leave out --second-pass"
        )
    if chunk_input == "reference":
        return (
            "it is compressed, so chunks cannot refer to its values; decompress it first, or give --chunk-input copy"
            " or auto"
        )
    return None


def check_survey(survey: str) -> None:
    """End the command with the rule if `survey` cannot be the name of a survey."""
    if not is_survey(survey):
        fail(f"{survey!r} cannot be the name of a survey: {SURVEY_RULE}.")


def _placed(connection: Connection, file: str, folder: str) -> tuple[str, str, dict[str, Path]]:
    """The bucket and the key of `file`, and the local files to upload, by key."""
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


def correlation_given(text: str) -> str | list[float]:
    """The correlation in an option: a word, or values at lags 0, 1, ... Ends the command if it is neither."""
    if text in ("spectrum", "white"):
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        fail(f"The correlation {text!r} is neither spectrum, white, nor values such as 1,0.5,0.1.")


def line_given(text: str) -> str | dict[str, list[float]]:
    """The line in an option: a name, or the table in a text file. Ends the command if it is neither."""
    if text in get_args(KnownLine):
        return text
    path, known = Path(text), ", ".join(get_args(KnownLine))
    if not path.is_file():
        fail(f"There is no line {text!r} and no such file: choose one of {known}, or give a table.")
    try:
        rows = [line.partition("#")[0].split() for line in path.read_text().splitlines()]
        pairs = [(float(offset), float(weight)) for offset, weight in filter(None, rows)]
    except ValueError as error:  # also of text that is not UTF-8
        fail(f"{text} is not a table with an offset in km/s and a weight on each row: {error}.")
    return {"offsets": [offset for offset, _ in pairs], "weights": [weight for _, weight in pairs]}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def checked(model: type[M], document: dict[str, Any]) -> M:
    """The model of `document`. Ends the command with the reason if it is invalid."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        fail(f"The submission is invalid: {describe_invalid(error)}.")


def put_manifest(connection: Connection, manifest: Manifest, idempotency_key: str) -> str:
    """Put the manifest into the bucket, where it starts the splitter. Return the id of its run."""
    connection.s3.put_object(
        Bucket=connection.bucket,
        Key=f"{MANIFEST_PREFIX}{idempotency_key}.json",
        Body=manifest.model_dump_json(exclude_unset=True).encode(),
        ContentType="application/json",
    )
    return run_id_of(connection.bucket, idempotency_key)
