"""Split a run: chunk inputs, ledger items, total, messages, latch, in this order.

Nothing can be counted before it can be found: items are written before the total, the total before the messages, and
the latch closes last. Every step may be repeated, so a redelivery after a crash anywhere goes on where it must.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from prismline_contracts import (
    ChunkItem,
    ChunkProcess,
    CubeGeometry,
    Envelope,
    FitParams,
    Manifest,
    Queue,
    RunDrained,
    RunItem,
    RunSplit,
    RunSplitCompleted,
    chunk_id,
    chunk_key,
    geometry_key,
)
from prismline_ledger import NewChunk
from prismline_runtime import Bucket, Message, PermanentError, batches, fault_point
from prismline_splitter.cube import Cube, CubeError, SpectraBlock, is_blank, open_cube
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.submission import parse_manifest

#: Largest chunk input in bytes: what a worker holds several times over.
MAX_CHUNK_BYTES = 64 * 2**20
#: Chunk inputs that are uploaded at the same time; each is held in memory twice.
UPLOADS = 2
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
        params=FitParams.model_validate(manifest.params),
    )


def _write_chunks(run_id: str, manifest: Manifest, bucket: Bucket, deps: Dependencies) -> None:
    """Write chunk inputs and items, then the total."""
    with _cube(bucket, manifest.cube_key, deps.workdir) as cube:
        bytes_per_spectrum = cube.n_channels * cube.dtype.itemsize
        if manifest.chunk_size * bytes_per_spectrum > MAX_CHUNK_BYTES and cube.n_spectra > 1:
            raise PermanentError(
                f"A chunk of {manifest.chunk_size} spectra with {cube.n_channels} channels is larger than"
                f" {MAX_CHUNK_BYTES >> 20} MiB; choose a chunk size of at most"
                f" {max(1, MAX_CHUNK_BYTES // bytes_per_spectrum)}."
            )
        bucket.write(geometry_key(run_id), _geometry(cube, manifest.cube_key).model_dump_json().encode())
        written = list(_upload(run_id, cube.blocks(manifest.chunk_size), bucket))
        fault_point("split.inputs_written", run_id=run_id)
        deps.ledger.add_chunks(run_id, [chunk.new for chunk in written])
        fault_point("split.items_written", run_id=run_id)
        deps.ledger.set_total(
            run_id,
            jobs_total=len(written),
            n_spectra=cube.n_spectra,
            n_blank=sum(chunk.n_blank for chunk in written),
        )


@contextmanager
def _cube(bucket: Bucket, key: str, workdir: Path) -> Iterator[Cube]:
    """The cube under `key`, in a file of its own. A file that cannot be a cube is a PermanentError."""
    with TemporaryDirectory(prefix="prismline-cube-", dir=workdir) as directory:
        path = Path(directory) / "cube"
        bucket.download(key, path)
        try:
            yield open_cube(path, Path(directory))
        except CubeError as error:
            raise PermanentError(f"The cube {key} cannot be split: {error}.") from error


@dataclass(frozen=True)
class _Written:
    new: NewChunk
    n_blank: int


def _upload(run_id: str, blocks: Iterable[SpectraBlock], bucket: Bucket) -> Iterator[_Written]:
    def upload(block: SpectraBlock) -> _Written:
        identifier = chunk_id(block.start)
        key = chunk_key(run_id, identifier)
        bucket.write(key, npz(block))
        return _Written(NewChunk(identifier, key, len(block.spectra)), int(is_blank(block.spectra).sum()))

    with ThreadPoolExecutor(UPLOADS) as pool:
        for group in batches(blocks, UPLOADS):
            yield from pool.map(upload, group)


def npz(block: SpectraBlock) -> bytes:
    """A chunk input: `spectra` (n, n_channels), `x` and `y` (n,). Not compressed, because noise does not shrink."""
    buffer = io.BytesIO()
    np.savez(buffer, spectra=block.spectra, x=block.x, y=block.y)
    return buffer.getvalue()


def _geometry(cube: Cube, cube_key: str) -> CubeGeometry:
    return CubeGeometry(
        n_channels=cube.n_channels,
        ny=cube.ny,
        nx=cube.nx,
        ctype=cube.axis.ctype,
        crval=cube.axis.crval,
        crpix=cube.axis.crpix,
        cdelt=cube.axis.cdelt,
        cunit=cube.axis.cunit,
        bunit=cube.bunit,
        object_name=cube.object_name,
        cube_key=cube_key,
    )
