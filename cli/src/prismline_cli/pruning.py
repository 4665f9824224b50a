"""Delete runs that have ended: items, inputs, outputs, the manifest, and sources that no other run uses.

The run's item is deleted first, on condition that the run has not been continued since. Without its item, the run
cannot be continued. Its status is deleted last, so that an interrupted prune can be repeated. Dead letters stay in the
archive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from botocore.exceptions import ClientError

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts.base import now
from prismline_contracts.items import RunItem, WorkflowStateItem
from prismline_contracts.manifest import run_id_of
from prismline_contracts.objects import manifest_copy_key, output_prefix
from prismline_contracts.pools import pool_named
from prismline_contracts.prefixes import CHUNKS_PREFIX, MANIFEST_PREFIX
from prismline_ledger import has_ended
from prismline_runtime import Table, error_code

#: For this long after its end, a run without an item in the ledger may still get one, so it is not pruned.
UNOPENED = timedelta(hours=1)
#: Keys that S3, and items that DynamoDB, deletes in one request.
OBJECTS_PER_DELETION, ITEMS_PER_DELETION = 1000, 25


@dataclass(frozen=True)
class StoredRun:
    """A run in both tables."""

    run_id: str
    state: WorkflowStateItem
    item: RunItem | None


def stored_runs(connection: Connection) -> Iterator[StoredRun]:
    """All runs, by a scan of the workflow-state table, which has one small item for each run."""
    for found in Table(connection.dynamodb, connection.workflow_state_table).scan():
        state = WorkflowStateItem.model_validate(found)
        yield StoredRun(state.run_id, state, connection.ledger.get_run(state.run_id))


@dataclass(frozen=True)
class Belongings:
    """The objects of a run in the bucket, the manifest included: sizes in bytes, by key."""

    view: StoredRun
    objects: dict[str, int]

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(self.objects.values())


def ended_at(view: StoredRun) -> datetime | None:
    """When the run ended. None unless its status is final and announced, and no row waits for a refit."""
    state, item = view.state, view.item
    if not has_ended(item, state.status):
        return None
    moment = datetime.fromisoformat(state.completed_at or state.updated_at)
    if item is None:
        return moment if now() - moment >= UNOPENED else None
    return moment if item.ended_at is not None and item.ended_status == state.status else None


class Pruning:
    """Finds and deletes what belongs to runs. Manifests are read once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._manifests = {key: self._document(key) for key, _ in self._list(MANIFEST_PREFIX)}

    def belongings(self, views: list[StoredRun]) -> list[Belongings]:
        """The objects that belong only to each of the runs. A source that a remaining run uses is not included."""
        pruned = {key for view in views for key in self._manifest_keys(view)}
        needed = {text for key, document in self._manifests.items() if key not in pruned for text in _texts(document)}
        return [Belongings(view, dict(self._objects(view, needed))) for view in views]

    def delete(self, found: Belongings) -> None:
        """Delete a run. Ends the command if the run has been resumed since."""
        connection, run_id = self._connection, found.view.run_id
        if found.view.item is not None:
            self._delete_run_item(found.view)
        keys = iter(sorted(found.objects, key=lambda key: not key.startswith(MANIFEST_PREFIX)))
        while batch := list(islice(keys, OBJECTS_PER_DELETION)):
            answer = connection.s3.delete_objects(
                Bucket=connection.bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
            )
            if errors := answer.get("Errors"):
                fail(f"{errors[0].get('Key')} cannot be deleted: {errors[0].get('Message')}. Prune {run_id} again.")
        self._delete_items(run_id)
        connection.dynamodb.delete_item(TableName=connection.workflow_state_table, Key={"run_id": {"S": run_id}})

    def _delete_run_item(self, view: StoredRun) -> None:
        assert view.item is not None
        assert view.item.ended_at is not None
        try:
            self._connection.dynamodb.delete_item(
                TableName=self._connection.runs_table,
                Key={"PK": {"S": view.run_id}, "SK": {"S": view.item.SK}},
                ConditionExpression="ended_at = :ended_at",
                ExpressionAttributeValues={":ended_at": {"S": view.item.ended_at}},
            )
        except ClientError as error:
            if error_code(error) == "ConditionalCheckFailedException":
                fail(f"Run {view.run_id} has been continued: it was not pruned.")
            raise

    def _delete_items(self, run_id: str) -> None:
        connection = self._connection
        pages = connection.dynamodb.get_paginator("query").paginate(
            TableName=connection.runs_table,
            KeyConditionExpression="PK = :run",
            ExpressionAttributeValues={":run": {"S": run_id}},
            ProjectionExpression="PK, SK",
        )
        keys = (item for page in pages for item in page["Items"])
        while batch := list(islice(keys, ITEMS_PER_DELETION)):
            left: Any = {connection.runs_table: [{"DeleteRequest": {"Key": key}} for key in batch]}
            while left:
                left = connection.dynamodb.batch_write_item(RequestItems=left).get("UnprocessedItems")

    def _objects(self, view: StoredRun, needed: set[str]) -> Iterator[tuple[str, int]]:
        run_id, survey = view.run_id, view.state.survey or (view.item and view.item.survey)
        outputs = [chunk.output_key for chunk in self._connection.ledger.chunks(run_id) if chunk.output_key]
        texts = [*outputs, *_texts(self._document(manifest_copy_key(run_id)))]
        folders = {f"{text.partition(f'/{run_id}/')[0]}/{run_id}/" for text in texts if f"/{run_id}/" in text}
        folders |= {f"{CHUNKS_PREFIX}{run_id}/", *([output_prefix(survey, run_id)] if survey else [])}
        for folder in sorted(folders):
            yield from ((key, size) for key, size in self._list(folder) if key not in needed)
        for key in [*outputs, *self._manifest_keys(view)]:
            if not any(key.startswith(folder) for folder in folders):
                yield from ((found, size) for found, size in self._list(key) if found == key)

    def _manifest_keys(self, view: StoredRun) -> list[str]:
        """The keys of the manifests that start this run."""
        given = view.item.manifest_key if view.item else None
        return [
            key
            for key, document in self._manifests.items()
            if (
                (name := document.get("idempotency_key"))
                and run_id_of(self._connection.bucket, str(name), pool_named(document)) == view.run_id
            )
            or (not name and (key == given or PurePosixPath(key).stem == view.run_id))
        ]

    def _list(self, prefix: str) -> Iterator[tuple[str, int]]:
        pages = self._connection.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._connection.bucket, Prefix=prefix
        )
        for page in pages:
            yield from ((entry["Key"], entry["Size"]) for entry in page.get("Contents", []))

    def _document(self, key: str) -> dict[str, Any]:
        """The JSON object under a key. Empty if there is none."""
        try:
            body = self._connection.s3.get_object(Bucket=self._connection.bucket, Key=key)["Body"].read()
            document = json.loads(body)
        except ValueError:
            return {}
        except ClientError as error:
            if error_code(error) in {"NoSuchKey", "404"}:
                return {}
            raise
        return document if isinstance(document, dict) else {}


def _texts(document: Any) -> Iterator[str]:
    """All strings in a JSON document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)
