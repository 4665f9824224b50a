"""Spectra: fits a block of a chunk while it reads the next block and writes the previous one.

The first output of a chunk wins. A worker that finds an output uses that one, so that two workers with the same chunk,
or a worker after a crash, agree on the result.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

import numpy as np

from prismline_contracts.commands import ChunkProcess, SpectraRefit
from prismline_contracts.manifest import HYPERFINE, FitParams, RefitParams
from prismline_contracts.objects import output_key
from prismline_gaussline import kernel_available
from prismline_runtime import Bucket, Message, fault_point
from prismline_worker.decompose import decompose, decompose_image, decompose_lines
from prismline_worker.dependencies import Dependencies
from prismline_worker.gaussline import with_correlation, with_noise_shape
from prismline_worker.inputs import open_input
from prismline_worker.output import OutputFile, from_parquet, metadata_of, timed_out_rows
from prismline_worker.params import read_params
from prismline_worker.physical_columns import with_physical_columns
from prismline_worker.prefetch import prefetched
from prismline_worker.progress import Progress
from prismline_worker.slow_lane import request_refit
from prismline_worker.surroundings import read_surrounded
from prismline_worker.workload import Outcome


class SpectraWorkload:
    """The `spectra` workload: a chunk file or a part of the cube is its input, a Parquet file its output.

    The slow lane refits late rows.
    """

    name = "spectra"

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    @classmethod
    def connect(cls, deps: Dependencies) -> Self:
        """Make the workload. Logs a warning if gaussline's compiled kernel is missing."""
        if not kernel_available():
            deps.logger.warning(
                "gaussline_unavailable",
                extra={"reason": "gaussline was installed without a C compiler: phspectra does its work, slowly."},
            )
        return cls(deps)

    def require(self, command: ChunkProcess) -> None:
        """Do nothing: spectra need no resource."""

    def process(self, command: ChunkProcess, message: Message, progress: Progress) -> Outcome:
        """Decompose the chunk's spectra and write the table of components."""
        params = read_params(FitParams, command.params)
        bucket = self._deps.open_bucket(command.bucket)
        key = output_key(command.survey, command.run_id, command.chunk_id)
        body, rows, n_blank = self._decompose(command, params, bucket, message, progress)
        fault_point("chunk.decomposed", run_id=command.run_id, chunk_id=command.chunk_id)
        began = time.monotonic()
        if not bucket.create(key, body):
            body = bucket.read(key)
            rows = timed_out_rows(from_parquet(body))
        if rows:
            refit_params = RefitParams.model_validate(params.model_dump())
            request_refit(SpectraRefit.of(command, refit_params, key), message, self._deps.transport)
        self._deps.logger.info("output_written", extra={"bytes": len(body), "write_ms": _milliseconds(began)})
        n_blank_here = None if command.reference is None else n_blank
        return Outcome(key, n_bytes=len(body), n_timed_out=len(rows), n_blank=n_blank_here)

    def _decompose(
        self, command: ChunkProcess, params: FitParams, bucket: Bucket, message: Message, progress: Progress
    ) -> tuple[bytes, list[int], int]:
        """Make the output file. Return it with the indices of its timed-out rows and the number of blank spectra."""
        began, fitting, n_blank = time.monotonic(), 0.0, 0
        deadline = message.delivery.deadline(self._deps.settings.deadline_margin_seconds)
        with ExitStack() as stack:
            chunk = stack.enter_context(open_input(command, bucket, self._deps, n_items=command.n_items))
            metadata = metadata_of(command, params, chunk.geometry)
            assumed = with_correlation(params, chunk.geometry)
            output = stack.enter_context(OutputFile(chunk.geometry, metadata))
            around = None
            if params.second_pass:
                around = read_surrounded(command, chunk.geometry, bucket, self._deps)
                around = replace(around, image=with_noise_shape(around.image, params, chunk.geometry))
            for block in prefetched(chunk.blocks()) if around is None else [around.image.rows(around.own)]:
                begun = time.monotonic()
                shaped = with_noise_shape(block, params, chunk.geometry)
                n_blank += int(np.isnan(block.spectra).all(axis=1).sum())
                if around is not None:
                    table = decompose_image(around, assumed, budget_s=self._deps.settings.spectrum_budget_seconds)
                    progress.add(len(table))
                elif assumed.decomposer == HYPERFINE:
                    line = None if chunk.geometry is None else chunk.geometry.line
                    table = decompose_lines(shaped, assumed, line, deadline=deadline, done=progress.add)
                else:
                    table = decompose(
                        shaped,
                        assumed,
                        fitter=self._deps.fitter,
                        budget_s=self._deps.settings.spectrum_budget_seconds,
                        deadline=deadline,
                        done=progress.add,
                    )
                fitting += time.monotonic() - begun
                output.add(with_physical_columns(table, block, chunk.geometry))
                fault_point("chunk.block_fitted", run_id=command.run_id, chunk_id=command.chunk_id)
            body = output.finish()
        self._deps.logger.info(
            "chunk_decomposed",
            extra={
                "spectra": len(output),
                "input": "copy" if command.reference is None else "reference",
                "fit_ms": round(fitting * 1000),
                "wait_ms": _milliseconds(began + fitting),
            },
        )
        return body, output.timed_out, n_blank


WORKLOAD = SpectraWorkload


def _milliseconds(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
