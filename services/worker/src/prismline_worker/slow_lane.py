"""The slow lane: fits timed-out rows again, without a time budget, and patches the chunk's output.

The output file itself says which rows wait. A message therefore need not list them, and a repeated message does no
harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from prismline_contracts.commands import Queue, SpectraRefit, with_reference
from prismline_contracts.items import ChunkItem, ChunkStatus
from prismline_runtime import Bucket, Message, PermanentError, TransientError, Transport
from prismline_worker.decompose import decompose
from prismline_worker.dependencies import Dependencies
from prismline_worker.gaussline import with_correlation, with_noise_shape
from prismline_worker.inputs import open_input
from prismline_worker.output import from_parquet, patch, timed_out_rows, to_parquet
from prismline_worker.physical_columns import with_physical_columns

#: Tries to patch an output that other workers keep replacing, before the message goes back to the queue.
MERGES = 5


@dataclass(frozen=True)
class _Progress:
    """The progress of a refit."""

    #: Rows of the output that are still timed out.
    waiting: int
    #: Rows of this message that were not fitted in this invocation.
    left: int


def request_refit(refit: SpectraRefit, message: Message, transport: Transport) -> None:
    """Send `refit`, in the trace of `message`."""
    envelope = transport.wrap(refit, traceparent=message.envelope.traceparent, key=(refit.chunk_id,))
    transport.send(Queue.REFITS, [envelope])


def on_spectra_refit(command: SpectraRefit, message: Message, deps: Dependencies) -> None:
    """Refit the rows that are still timed out. Rows left at the end of the invocation get another message.

    A permanent error gives the rows up: they stay timed out, and the ledger records why. The message is copied to the
    dead-letter queue first, because a recovery needs it.
    """
    if deps.ledger.run(command.run_id).cancelled_at:
        deps.logger.info("refit_skipped", extra={"reason": "its run was stopped"})
        return
    chunk = deps.ledger.chunk(command.run_id, command.chunk_id)
    if chunk.state is ChunkStatus.FAILED:  # if it is completed late, the sweeper sends `spectra.refit` again
        deps.logger.info("refit_skipped", extra={"reason": "its chunk failed"})
        return
    if chunk.state is not ChunkStatus.COMPLETED:
        raise TransientError(f"{command.chunk_id} is {chunk.status}; its refit has to wait until it is COMPLETED.")
    try:
        progress = _refit(with_reference(command, chunk), chunk, message, deps)
    except PermanentError as error:
        deps.logger.warning("refit_given_up", extra={"reason": str(error)})
        deps.transport.dead_letter(message.delivery, {"error": str(error)})
        deps.ledger.give_up_refit(command.run_id, command.chunk_id, str(error))
        return
    deps.ledger.record_refit(command.run_id, command.chunk_id, remaining=progress.waiting)
    if progress.left and progress.waiting:
        request_refit(command.model_copy(update={"rows": []}), message, deps.transport)


def _refit(command: SpectraRefit, chunk: ChunkItem, message: Message, deps: Dependencies) -> _Progress:
    """Fit as many rows as the time allows, and patch the output."""
    bucket = deps.open_bucket(command.bucket)
    table = from_parquet(bucket.read(command.output_key))
    waiting = timed_out_rows(table)
    if len(waiting) < chunk.n_timed_out + chunk.n_refit_failed:
        # The worker that patched the output died before it recorded that. The ledger must have the right number first,
        # because giving up takes the number of waiting rows from the ledger.
        deps.ledger.record_refit(command.run_id, command.chunk_id, remaining=len(waiting))
    rows = sorted(set(command.rows) & set(waiting)) if command.rows else waiting
    if not rows:
        return _Progress(waiting=len(waiting), left=0)
    with open_input(command, bucket, deps, n_items=len(table)) as chunk_input:
        spectra = chunk_input.take(rows)
    refit = decompose(
        with_noise_shape(spectra, command.params, chunk_input.geometry),
        with_correlation(command.params, chunk_input.geometry),
        fitter=deps.fitter,
        deadline=message.delivery.deadline(deps.settings.deadline_margin_seconds),
    )
    refit = with_physical_columns(refit, spectra, chunk_input.geometry)
    left = set(timed_out_rows(refit))
    if len(left) == len(rows):
        raise TransientError(f"None of {len(rows)} spectra of {command.chunk_id} could be fitted in time.")
    deps.logger.info("chunk_refitted", extra={"rows": len(rows) - len(left)})
    fitted = {row: index for index, row in enumerate(rows) if index not in left}
    return _Progress(waiting=_patch_output(bucket, command.output_key, refit, fitted), left=len(left))


def _patch_output(bucket: Bucket, key: str, refit: pa.Table, fitted: dict[int, int]) -> int:
    """Patch the current output with the rows of `refit`, except rows that another worker has fitted.

    fitted: the index in `refit` by the index in the output. Returns how many rows of the output are still timed out.
    The output is replaced only if it has not changed since it was read, so two concurrent patches both survive.
    """
    for _ in range(MERGES):
        body, etag = bucket.read_versioned(key)
        table = from_parquet(body)
        rows = [row for row in timed_out_rows(table) if row in fitted]
        if rows:
            table = patch(table, rows, refit.take(pa.array([fitted[row] for row in rows], pa.int64())))
        if not rows or bucket.replace(key, to_parquet(table), etag):
            return len(timed_out_rows(table))
    raise TransientError("Other workers kept replacing the chunk's output meanwhile.", retry_after=1)
