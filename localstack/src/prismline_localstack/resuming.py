"""Resume runs after a restart of the emulator.

A run with chunks continues by itself: the messages of its chunks still exist, or the sweeper sends them again, and the
status service ends the run. But its Step Functions execution is gone, and messages of the last second before a kill may
be lost. Therefore this module announces again a run that was announced but not split, and a manifest without a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from prismline_contracts.base import derived_id
from prismline_contracts.commands import Queue, RunStatus, queue_name
from prismline_contracts.events import RunSubmitted
from prismline_contracts.items import WorkflowStateItem
from prismline_contracts.manifest import DEFAULT_WORKLOAD, run_id_of
from prismline_contracts.pools import pool_named
from prismline_contracts.prefixes import MANIFEST_PREFIX
from prismline_localstack.state import State
from prismline_runtime import Transport
from prismline_runtime.dynamodb import decode

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

#: The outputs of the stacks that resuming needs. Without one of them there are no runs to resume.
NEEDED = ("BUCKET", "WORKFLOW_STATE_TABLE", "SPLIT_QUEUE_URL")


#: Statuses of runs that have not ended.
PENDING, RUNNING = RunStatus.PENDING.lower(), RunStatus.RUNNING.lower()
GOING = frozenset({PENDING, RUNNING})


class ManifestObject(NamedTuple):
    """A manifest in the bucket, and the run that it starts."""

    run_id: str
    key: str
    etag: str
    put_at: datetime


class RunState(WorkflowStateItem):
    """The workflow-state item of a run, with the private attributes of the status service."""

    tolerated_failure_percent: str | None = None
    tolerated_failures: int | None = None


def resume(state: State) -> list[str]:
    """Resume every run that has not ended. Return their ids, oldest first."""
    if any(name not in state.outputs for name in NEEDED):
        return []
    bucket, sqs = state.outputs["BUCKET"], state.client("sqs")
    runs = {run.run_id: run for run in _runs(state.client("dynamodb"), state.outputs["WORKFLOW_STATE_TABLE"])}
    manifests = list(_manifests(state.client("s3"), bucket, runs))
    keys = {manifest.run_id: manifest.key for manifest in manifests}
    transport = Transport(
        environment=state.environment,
        service="localstack",
        sqs=sqs,
        events=state.client("events"),
        stepfunctions=state.client("stepfunctions"),
    )
    going = sorted((run for run in runs.values() if run.status in GOING), key=lambda run: run.created_at or "")
    for run in going:
        if run.status == PENDING:
            submitted = RunSubmitted(
                run_id=run.run_id,
                job_id=run.job_id or run.run_id,
                bucket=bucket,
                manifest_key=keys.get(run.run_id, f"{MANIFEST_PREFIX}{run.job_id}.json"),
                survey=run.survey,
                workload=run.workload or DEFAULT_WORKLOAD,
                tolerated_failure_percent=float(run.tolerated_failure_percent or 0),
                tolerated_failures=run.tolerated_failures,
            )
            transport.publish(transport.wrap(submitted, traceparent=run.traceparent))
    unknown = sorted((manifest for manifest in manifests if manifest.run_id not in runs), key=lambda each: each.put_at)
    url = sqs.get_queue_url(QueueName=queue_name(state.environment, Queue.SPLIT))["QueueUrl"]
    for manifest in unknown:
        detail = {"bucket": {"name": bucket}, "object": {"key": manifest.key, "etag": manifest.etag}}
        event = {"version": "0", "source": "aws.s3", "detail-type": "Object Created", "detail": detail}
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event))
    return [*(run.run_id for run in going), *(manifest.run_id for manifest in unknown)]


def _runs(dynamodb: DynamoDBClient, table: str) -> Iterator[RunState]:
    for page in dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        yield from (RunState.model_validate(decode(item)) for item in page["Items"])


def _manifests(s3: S3Client, bucket: str, runs: Mapping[str, RunState]) -> Iterator[ManifestObject]:
    """Every manifest with the id of its run. A manifest without an idempotency key is left out if its job has a run: it
    is unknown whether the manifest started that run, whose id was derived from the upload.

    Manifests of the command line whose run exists are not read: the run's id follows from their key.
    """
    jobs = {run.job_id for run in runs.values()}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=MANIFEST_PREFIX):
        for entry in page.get("Contents", []):
            key, etag, stem = entry["Key"], entry["ETag"].strip('"'), PurePosixPath(entry["Key"]).stem
            if not key.endswith(".json"):
                continue
            run_id = run_id_of(bucket, stem)
            if run_id not in runs:
                document = _document(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
                idempotency_key = document.get("idempotency_key")
                if isinstance(idempotency_key, str) and idempotency_key:
                    run_id = run_id_of(bucket, idempotency_key, pool_named(document))
                elif document.get("job_id", stem) in jobs:
                    continue
                else:
                    run_id = derived_id("run", bucket, key, etag)
            yield ManifestObject(run_id, key, etag, entry["LastModified"])


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
