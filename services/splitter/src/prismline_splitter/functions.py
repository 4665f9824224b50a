"""Functions that people bring: each item is a task. The registration of a function says what it takes.

The splitter never sees the code.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from prismline_contracts.finalization import Finalization
from prismline_contracts.items import RunItem
from prismline_contracts.manifest import Manifest
from prismline_contracts.pools import no_pool, pool_of
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE
from prismline_contracts.workloads import (
    FunctionManifest,
    RegisteredWorkload,
    latest_workload_key,
    workload_key,
)
from prismline_runtime import Bucket, PermanentError, RunQueues, describe_invalid
from prismline_splitter.item_sources import item_source_of
from prismline_splitter.task_sources import rerun_source_of
from prismline_splitter.workload import TaskContext, TaskSource, TaskWorkload, Workload, workload_named, workload_names


class Function:
    """A workload that is a function with this name."""

    manifest: type[Manifest] = FunctionManifest

    def __init__(self, name: str) -> None:
        self.name = name

    def tasks(self, manifest: FunctionManifest, context: TaskContext) -> TaskSource:
        """The items of the manifest's source, or those of an earlier run."""
        if manifest.rerun is not None:
            return rerun_source_of(manifest.rerun, context)
        assert manifest.source is not None, "the manifest has exactly one source"
        return item_source_of(manifest.source, context)


def workload_of(name: str) -> Workload | TaskWorkload:
    """The workload with this name: a part of this service, or a function."""
    return workload_named(name) if name in workload_names() else Function(name)


def registered(bucket: Bucket, name: str, code: str | None) -> RegisteredWorkload:
    """The registration of a function with this code, or the latest one.

    Raises PermanentError if there is none, or if it is invalid.
    """
    key = latest_workload_key(name) if code is None else workload_key(name, code)
    try:
        body = bucket.read(key)
    except PermanentError as error:
        what = name if code is None else f"{name} with the code {code[:12]}"
        raise PermanentError(
            f"No workload {what} is registered in this environment. Register it, for instance with `prismline map`."
        ) from error
    try:
        return RegisteredWorkload.model_validate_json(body)
    except ValidationError as error:
        raise PermanentError(f"{key} is not the registration of a function: {describe_invalid(error)}.") from error


def function_fields(manifest: Manifest, bucket: Bucket) -> dict[str, Any]:
    """What a run of this manifest keeps of its function. Empty: its workload is a part of the services."""
    if not isinstance(manifest, FunctionManifest):
        return {}
    function = registered(bucket, manifest.workload, manifest.code)
    return {"code": function.code} | ({"finalization": Finalization().as_json()} if function.finalize else {})


def check_pool(manifest: Manifest, run_id: str, run_queues: RunQueues) -> None:
    """Raise PermanentError if the pool of a manifest does not exist, or if the id of the run names another pool."""
    pool = manifest.pool if isinstance(manifest, FunctionManifest) else None
    if pool != pool_of(run_id):
        raise PermanentError(f"The run {run_id} does not belong to the pool of its manifest, {pool or 'none'}.")
    if pool is not None and not run_queues.has_pool(pool):
        raise PermanentError(no_pool(pool))


def tasks_per_message(run: RunItem, bucket: Bucket) -> int:
    """Most tasks of one message of the run."""
    if run.code is None:
        return MAX_TASKS_PER_MESSAGE
    return registered(bucket, run.workload, run.code).tasks_per_message
