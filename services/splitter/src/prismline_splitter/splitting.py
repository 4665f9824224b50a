"""Splits a run: read the source, write chunk inputs, ledger items and the total, send messages, latch, in this order.

The items come before the total, the total before the messages, and the latch last. So a run cannot seem to be done
before all its chunks are known. Every step is idempotent, so a redelivery after a crash continues the work. Once the
run is latched, a redelivery only answers and publishes again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from prismline_contracts.commands import ChunkProcess, Queue, RunSplit
from prismline_contracts.envelope import Wrappable
from prismline_contracts.events import RunDrained, RunSplitCompleted
from prismline_contracts.items import RunItem
from prismline_contracts.manifest import Manifest
from prismline_ledger import NewRun, Tolerance
from prismline_runtime import Message, PermanentError, fault_point
from prismline_splitter.chunking import shards_of
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.functions import check_pool, function_fields, workload_of
from prismline_splitter.ingestion import SliceOverError, ingest, shard_count_of
from prismline_splitter.pinning import Plan, pinned_manifest
from prismline_splitter.submission import parse_manifest
from prismline_splitter.workload import Source, TaskContext, TaskWorkload

#: Error name, for the state machine, of an invalid submission.
VALIDATION_FAILED = "ValidationFailed"
#: Error name, for the state machine, of a task whose run was stopped.
RUN_ENDED = "RunEnded"


def on_run_split(command: RunSplit, message: Message, deps: Dependencies) -> None:
    """Split the run, answer the state machine's task, and publish the result. An invalid submission fails its run."""
    token = message.envelope.tasktoken
    run = deps.ledger.get_run(command.run_id)
    if run is None or run.latched_at is None:
        try:
            run = split_run(command, message, deps)
        except SliceOverError:
            deps.transport.send(Queue.SPLIT, [message.envelope])
            fault_point("split.handed_on", run_id=command.run_id)
            return
        except PermanentError as error:
            run = deps.ledger.get_run(command.run_id)
            if run is None or not _closed(run):  # no other delivery has latched it, and it was not stopped
                if run is not None and run.resumed_at is not None:  # its state machine has ended and cannot stop it
                    deps.ledger.stop_run(run.run_id, "failed", resumed_at=run.resumed_at)
                if token is None:
                    raise
                deps.logger.warning("run_refused", extra={"reason": str(error)})
                deps.transport.refuse(token, VALIDATION_FAILED, str(error))
                return
    if run.latched_at is None:
        deps.logger.info("run_stopped", extra={"stop_reason": run.stop_reason})
        if token is not None:
            deps.transport.refuse(token, RUN_ENDED, "The run was stopped before it was split.")
        return
    if token is not None:  # before the events: in an outage of Step Functions, every redelivery would repeat them
        deps.transport.answer(token, {"jobs_total": run.chunks_total, "n_spectra": run.n_items})
    fault_point("split.answered", run_id=run.run_id)
    announce(run, deps)
    fault_point("split.announced", run_id=run.run_id)


def split_run(command: RunSplit, message: Message, deps: Dependencies) -> RunItem:
    """Send all messages of the run and latch it, from whatever step an earlier delivery reached. Return the run.

    Return early if the run was stopped, or if another delivery has latched it.
    """
    ledger, transport, run_id = deps.ledger, deps.transport, command.run_id
    bucket = deps.open_bucket(command.bucket)
    manifest = parse_manifest(pinned_manifest(bucket, run_id, command.manifest_key), command.manifest_key)
    if manifest.max_concurrency is not None and not deps.with_slots:
        raise PermanentError(
            "This deployment cannot keep max_concurrency: it has no Valkey server, which counts the slots of a run."
            " Submit the run without max_concurrency, or deploy with a Valkey server."
        )
    workload = workload_of(manifest.workload)
    if isinstance(workload, TaskWorkload):
        return _ingest(workload, manifest, command, message, deps)
    run = _open_run(manifest, command, message, deps)
    if _closed(run):
        return run
    if run.chunks_total is None:
        source = Source(run_id, bucket, deps.workdir, Plan(ledger, run).pinned, deps.open_bucket, deps.request_seconds)
        split = workload.split(manifest, source)
        if _closed(run := ledger.run(run_id)):
            return run
        shards = source.pinned("shards", lambda: shards_of(len(split.chunks)))
        shards = ledger.set_shard_count(run, shards).shard_count
        fault_point("split.divided", run_id=run_id)
        ledger.add_chunks(run_id, split.chunks, shard_count=shards)
        fault_point("split.items_written", run_id=run_id)
        ledger.set_total(
            run_id, n_chunks=len(split.chunks), n_items=split.n_items, n_blank=split.n_blank, shard_count=shards
        )
    fault_point("split.total_set", run_id=run_id)
    if _closed(run := ledger.run(run_id)):
        return run
    todo = (chunk for chunk in ledger.chunks(run_id) if not chunk.state.terminal)
    transport.send(
        Queue.CHUNKS,
        (
            transport.wrap(
                ChunkProcess.of(chunk, run, command.bucket), traceparent=run.traceparent, key=(chunk.chunk_id,)
            )
            for chunk in todo
        ),
    )
    fault_point("split.messages_sent", run_id=run_id)
    run = ledger.latch(run_id)
    fault_point("split.latched", run_id=run_id)
    deps.logger.info("run_split", extra={"chunks": run.chunks_total, "items": run.n_items, "blank": run.n_blank})
    return run


def _open_run(manifest: Manifest, command: RunSplit, message: Message, deps: Dependencies, **fields: Any) -> RunItem:
    """Create the run's item if it does not exist. `fields` are further arguments of `Ledger.open_run`."""
    run = deps.ledger.open_run(
        NewRun(
            run_id=command.run_id,
            survey=manifest.survey,
            job_id=command.job_id,
            workload=manifest.workload,
            params=_json(manifest.params.in_force()),
            params_given=_json(manifest.params.given()),
            traceparent=message.envelope.traceparent,
            manifest_key=command.manifest_key,
            split_token=message.envelope.tasktoken,
            tenant=manifest.tenant,
            max_concurrency=manifest.max_concurrency,
            priority=manifest.priority,
            deadline_at=manifest.deadline_at,
            tolerance=Tolerance(manifest.tolerated_failure_percent, manifest.tolerated_failures),
            **function_fields(manifest, deps.open_bucket(command.bucket)),
            **fields,
        )
    )
    if run.manifest_key is None:  # a slow request opened the run after `job.ingest` had looked for it
        deps.ledger.note_manifest(command.run_id, command.manifest_key)
    fault_point("split.run_opened", run_id=command.run_id)
    return run


def _ingest(
    workload: TaskWorkload, manifest: Manifest, command: RunSplit, message: Message, deps: Dependencies
) -> RunItem:
    """Open the run, with as many shards as its tasks need, and ingest them."""
    context = TaskContext(
        command.run_id,
        command.job_id,
        deps.open_bucket(command.bucket),
        deps.ledger,
        pinned=lambda _, find: find(),
        open_bucket=deps.open_bucket,
    )
    run = deps.ledger.get_run(command.run_id)
    if run is not None:
        n_shards = run.shard_count
    else:
        try:
            n_shards = shard_count_of(workload.tasks(manifest, context).estimate())
        except PermanentError:  # raised again below, when the run has an item
            n_shards = 1
    run = _open_run(manifest, command, message, deps, unit="task", shard_count=n_shards)
    if _closed(run):
        return run
    check_pool(manifest, run.run_id, deps.run_queues)
    source = workload.tasks(manifest, replace(context, pinned=Plan(deps.ledger, run).pinned))
    return ingest(command, run, source, deps)


def announce(run: RunItem, deps: Dependencies) -> None:
    """Publish that the run is split and, if all its chunks have ended but its end is not recorded, that it drained."""

    def publish(data: Wrappable, *key: str) -> None:
        deps.transport.publish_event(data, traceparent=run.traceparent, key=key)

    publish(
        RunSplitCompleted(
            run_id=run.run_id,
            survey=run.survey,
            chunks_total=run.chunks_total or 0,
            n_items=run.n_items or 0,
            n_blank=run.n_blank or 0,
        )
    )
    if run.drained_at is not None and run.ended_at is None:
        drained = RunDrained.of(run)
        publish(drained, *drained.key)


def _closed(run: RunItem) -> bool:
    """Whether there is nothing left to split: the run is latched or stopped."""
    return run.latched_at is not None or run.cancelled_at is not None


def _json(params: dict[str, JsonValue]) -> str | None:
    return json.dumps(params) if params else None
