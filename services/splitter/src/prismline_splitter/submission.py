"""Announces the run of a new manifest. The manifest is validated later, when the run is split."""

from __future__ import annotations

import json
import re
import reprlib
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from prismline_contracts.base import derived_id, is_survey, now
from prismline_contracts.commands import JobIngest, Queue
from prismline_contracts.envelope import traceparent_of
from prismline_contracts.events import RunSubmitted
from prismline_contracts.jobs import job_run_key
from prismline_contracts.manifest import DEFAULT_WORKLOAD, Manifest, run_id_of
from prismline_contracts.pools import in_pool, pool_named
from prismline_contracts.prefixes import MANIFEST_PREFIX
from prismline_contracts.workloads import FUNCTION_NAME_PATTERN
from prismline_ledger import seconds_since
from prismline_runtime import Delivery, Message, PermanentError, TooLargeError, describe_invalid
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.functions import workload_of
from prismline_splitter.pinning import pin_manifest, pinned_manifest, read_manifest
from prismline_splitter.workload import workload_names

#: Seconds after which a request to the api is over, however slow the services are that it calls.
LONGEST_REQUEST_SECONDS = 900.0
#: Seconds until the splitter looks again for the job of such a request.
LOOK_AGAIN_SECONDS = 300


class _Bucket(BaseModel):
    name: str


class _Object(BaseModel):
    key: str
    #: Different for each upload to the key.
    version: str = Field(validation_alias=AliasChoices("sequencer", "etag"))


class _Created(BaseModel):
    bucket: _Bucket
    object: _Object


class ObjectCreated(BaseModel):
    """The fields that are used of S3's event about a new object."""

    detail: _Created


def on_object_created(event: dict[str, Any], _delivery: Delivery, deps: Dependencies) -> None:
    """Publish `run.submitted` for a new object `manifests/*.json`. Other objects are ignored."""
    try:
        created = ObjectCreated.model_validate(event).detail
    except ValidationError as error:
        raise PermanentError(f"The Object Created event is invalid: {describe_invalid(error)}.") from error
    bucket_name, key, version = created.bucket.name, created.object.key, created.object.version
    if not (key.startswith(MANIFEST_PREFIX) and key.endswith(".json")):
        return
    bucket = deps.open_bucket(bucket_name)
    try:
        body = read_manifest(bucket, key)
        run_id = run_of_submission(bucket_name, key, version, body)
        body = pin_manifest(bucket, run_id, body)
    except TooLargeError:  # the run fails with the reason when it is split
        body = b""
        run_id = run_of_submission(bucket_name, key, version, body)
    submitted, traceparent = describe_submission(run_id, bucket_name, key, body)
    _publish(submitted, traceparent, deps)


def on_job_ingest(command: JobIngest, message: Message, deps: Dependencies) -> None:
    """Publish `run.submitted` for a job whose manifest lies under `jobs/`. A redelivery publishes the same event.

    The run of an open job was opened before the job had a manifest. It gets to know it here, so that the sweeper can
    have the run split.

    The api sends a command `in_advance`, before it writes the job. If it never wrote the job, or if the job has been
    deleted, such a command starts nothing. The request may still be under way, so the command comes again until it is
    too old for that.
    """
    bucket = deps.open_bucket(command.bucket)
    if command.in_advance and deps.jobs.get(job_run_key(command.run_id)) is None:
        if seconds_since(message.envelope.time, now()) < LONGEST_REQUEST_SECONDS:
            deps.transport.send(Queue.SPLIT, [message.envelope], delay_seconds=LOOK_AGAIN_SECONDS)
            return
        bucket.delete([command.manifest_key])
        deps.logger.info("job_not_submitted", extra={"run_id": command.run_id, "job_id": command.job_id})
        return
    body = pinned_manifest(bucket, command.run_id, command.manifest_key)
    submitted, traceparent = describe_submission(
        command.run_id, command.bucket, command.manifest_key, body, job_id=command.job_id
    )
    deps.ledger.note_manifest(command.run_id, command.manifest_key)
    _publish(submitted, message.envelope.traceparent or traceparent, deps)


def _publish(submitted: RunSubmitted, traceparent: str, deps: Dependencies) -> None:
    deps.transport.publish_event(submitted, traceparent=traceparent)
    deps.logger.info("run_submitted", extra={"run_id": submitted.run_id, "manifest_key": submitted.manifest_key})


def run_of_submission(bucket_name: str, key: str, version: str, body: bytes) -> str:
    """The id of the run that a manifest starts: its pool, with its idempotency key or else this upload."""
    document = _lenient(body)
    pool = pool_named(document)
    idempotency_key = document.get("idempotency_key")
    if isinstance(idempotency_key, str) and idempotency_key:
        with suppress(UnicodeEncodeError):  # an unpaired surrogate cannot be encoded; the manifest is refused later
            return run_id_of(bucket_name, idempotency_key, pool)
    return in_pool(derived_id("run", bucket_name, key, version), pool)


def describe_submission(
    run_id: str, bucket_name: str, key: str, body: bytes, *, job_id: str | None = None
) -> tuple[RunSubmitted, str]:
    """The `run.submitted` event of a manifest, and the run's trace context.

    job_id: the run's job. If absent, the job is named by the manifest, or else by the object's name.

    An invalid manifest starts a run too. That run fails, and the submitter sees the reason.
    """
    survey = _lenient(body).get("survey")
    try:
        manifest = parse_manifest(body, key)
    except PermanentError:
        return RunSubmitted(
            run_id=run_id,
            job_id=job_id or PurePosixPath(key).stem,
            bucket=bucket_name,
            manifest_key=key,
            survey=survey if isinstance(survey, str) and is_survey(survey) else None,
        ), traceparent_of(run_id)
    return RunSubmitted(
        run_id=run_id,
        job_id=job_id or manifest.job_id or PurePosixPath(key).stem,
        bucket=bucket_name,
        manifest_key=key,
        survey=manifest.survey,
        workload=manifest.workload,
        tolerated_failure_percent=manifest.tolerated_failure_percent,
        tolerated_failures=manifest.tolerated_failures,
    ), manifest.traceparent or traceparent_of(run_id)


def parse_manifest(body: bytes, key: str) -> Manifest:
    """Read a manifest with the model of its workload. Raises PermanentError, which names the first invalid field."""
    document = _lenient(body)
    workload = document.get("workload", DEFAULT_WORKLOAD)
    if not isinstance(workload, str) or (workload not in workload_names() and not _is_of_function(workload, document)):
        known = ", ".join(sorted(workload_names()))
        raise PermanentError(
            f"The manifest {key} is invalid: there is no workload {reprlib.repr(workload)}; choose one of {known}, or a"
            " registered function with its source."
        )
    try:
        return workload_of(workload).manifest.model_validate_json(body)
    except ValidationError as error:
        raise PermanentError(f"The manifest {key} is invalid: {describe_invalid(error)}.") from error


def _is_of_function(workload: str, document: dict[str, Any]) -> bool:
    """Whether a manifest of a workload that is no part of the services may be that of a function."""
    return re.fullmatch(FUNCTION_NAME_PATTERN, workload) is not None and not {"source", "rerun"}.isdisjoint(document)


def _lenient(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
