"""Split a run: chunk inputs, ledger items, total, messages, latch, in this order.

Nothing can be counted before it can be found: items are written before the total, the total before the messages, and
the latch closes last. Every step may be repeated, so a redelivery after a crash anywhere goes on where it must.
"""

from __future__ import annotations

import json

from prismline_contracts import (
    ChunkItem,
    ChunkProcess,
    Envelope,
    Manifest,
    Queue,
    RunDrained,
    RunItem,
    RunSplit,
    RunSplitCompleted,
)
from prismline_runtime import Bucket, Message, PermanentError, fault_point
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.submission import parse_manifest
from prismline_splitter.workload import Source, workloads

#: The error name that the state machine catches for a submission that can never work.
VALIDATION_FAILED = "ValidationFailed"


def on_run_split(command: RunSplit, message: Message, deps: Dependencies) -> None:
    """Split the run, then tell the state machine that waits. A submission that can never work fails its run."""
    token = message.envelope.tasktoken
    try:
        run = split_run(command, message, deps)
    except PermanentError as error:
        if token is None:
            raise
        deps.logger.warning("run_refused", extra={"reason": str(error)})
        deps.transport.refuse(token, VALIDATION_FAILED, str(error))
        return
    if token is not None:
        deps.transport.answer(token, {"jobs_total": run.jobs_total, "n_spectra": run.n_spectra})


def split_run(command: RunSplit, message: Message, deps: Dependencies) -> RunItem:
    """Bring the run to the state "split, latched, all messages sent", from whatever state it is in."""
    ledger, transport, run_id = deps.ledger, deps.transport, command.run_id
    bucket = deps.bucket(command.bucket)
    manifest = parse_manifest(bucket.read(command.manifest_key), command.manifest_key)
    run = ledger.open_run(
        run_id=run_id,
        survey=manifest.survey,
        job_id=command.job_id,
        workload=manifest.workload,
        params=json.dumps(given) if (given := manifest.params.model_dump(exclude_unset=True)) else None,
        traceparent=message.envelope.traceparent,
        manifest_key=command.manifest_key,
        split_token=message.envelope.tasktoken,
    )
    fault_point("split.run_opened", run_id=run_id)
    if run.jobs_total is None:
        _write_chunks(run_id, manifest, bucket, deps)
    fault_point("split.total_set", run_id=run_id)
    traceparent = run.traceparent
    todo = (chunk for chunk in ledger.chunks(run_id) if not chunk.state.terminal)
    transport.send(
        Queue.CHUNKS,
        (
            Envelope.wrap(
                _process_command(command, chunk, manifest),
                source=transport.source,
                traceparent=traceparent,
                key=(chunk.chunk_id,),
            )
            for chunk in todo
        ),
    )
    fault_point("split.messages_sent", run_id=run_id)
    drained = ledger.latch(run_id).drained
    fault_point("split.latched", run_id=run_id)
    run = ledger.run(run_id)
    split_completed = RunSplitCompleted(
        run_id=run_id,
        survey=run.survey,
        jobs_total=run.jobs_total or 0,
        n_spectra=run.n_spectra or 0,
        n_blank=run.n_blank or 0,
    )
    transport.publish(Envelope.wrap(split_completed, source=transport.source, traceparent=traceparent))
    if drained is not None:
        transport.publish(Envelope.wrap(RunDrained.of(drained), source=transport.source, traceparent=traceparent))
    fault_point("split.announced", run_id=run_id)
    deps.logger.info("run_split", extra={"chunks": run.jobs_total, "spectra": run.n_spectra, "blank": run.n_blank})
    return run


def _process_command(command: RunSplit, chunk: ChunkItem, manifest: Manifest) -> ChunkProcess:
    return ChunkProcess(
        run_id=command.run_id,
        job_id=command.job_id,
        survey=manifest.survey,
        workload=manifest.workload,
        chunk_id=chunk.chunk_id,
        n_items=chunk.n_items,
        bucket=command.bucket,
        chunk_key=chunk.chunk_key,
        params=manifest.params.model_dump(mode="json"),
    )


def _write_chunks(run_id: str, manifest: Manifest, bucket: Bucket, deps: Dependencies) -> None:
    """Write chunk inputs and items, then the total."""
    workload = workloads()[manifest.workload]
    split = workload.split(manifest, Source(run_id, bucket, deps.workdir))
    deps.ledger.add_chunks(run_id, split.chunks)
    fault_point("split.items_written", run_id=run_id)
    deps.ledger.set_total(run_id, jobs_total=len(split.chunks), n_spectra=split.n_items, n_blank=split.n_blank)
