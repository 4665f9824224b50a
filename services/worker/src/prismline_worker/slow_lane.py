"""The slow lane: fit without a budget what ran out of it, and patch the chunk's output."""

from __future__ import annotations

from prismline_contracts import ChunkProcess, Envelope, FitParams, Queue, SpectraRefit
from prismline_runtime import Message, TransientError, Transport
from prismline_worker.chunk_file import ChunkFile
from prismline_worker.decompose import decompose
from prismline_worker.dependencies import Dependencies
from prismline_worker.output import from_parquet, patch, timed_out_rows, to_parquet


def request_refit(
    rows: list[int],
    command: ChunkProcess | SpectraRefit,
    params: FitParams,
    key: str,
    message: Message,
    transport: Transport,
) -> None:
    """Hand the rows of a chunk that ran out of time to the slow lane; its output is under `key`."""
    refit = SpectraRefit(
        run_id=command.run_id,
        survey=command.survey,
        chunk_id=command.chunk_id,
        bucket=command.bucket,
        chunk_key=command.chunk_key,
        output_key=key,
        params=params,
        rows=rows,
    )
    transport.send(
        Queue.REFITS,
        [
            Envelope.wrap(
                refit,
                source=transport.source,
                traceparent=message.envelope.traceparent,
                key=(command.chunk_id, str(len(rows))),
            )
        ],
    )


def on_spectra_refit(command: SpectraRefit, message: Message, deps: Dependencies) -> None:
    """Refit the rows that are still timed out; what does not fit into this invocation is handed on again.

    The output is replaced only if nobody else replaced it meanwhile, so that no patch is lost.
    """
    if deps.ledger.run(command.run_id).cancelled_at:
        deps.logger.info("refit_skipped", extra={"reason": "its run was cancelled"})
        return
    bucket = deps.bucket(command.bucket)
    body, etag = bucket.read_versioned(command.output_key)
    table = from_parquet(body)
    rows = sorted(set(command.rows) & set(timed_out_rows(table)))
    if rows:
        with bucket.open(command.chunk_key) as file:
            spectra = ChunkFile(file, n_items=len(table)).take(rows)
        refit = decompose(
            spectra.spectra,
            spectra.x,
            spectra.y,
            command.params,
            fitter=deps.fitter,
            deadline=message.delivery.deadline(deps.settings.deadline_margin_seconds),
        )
        left = [rows[index] for index in timed_out_rows(refit)]
        if left == rows:
            raise TransientError(f"Not one of {len(rows)} spectra of {command.chunk_id} could be fitted in time.")
        table = patch(table, rows, refit)
        if not bucket.replace(command.output_key, to_parquet(table), etag):
            raise TransientError(f"The output of {command.chunk_id} was replaced meanwhile.", retry_after=0)
        if left:
            request_refit(left, command, command.params, command.output_key, message, deps.transport)
    deps.ledger.record_refit(command.run_id, command.chunk_id, remaining=len(timed_out_rows(table)))
    deps.logger.info("chunk_refitted", extra={"rows": len(rows)})
