"""Executes an export: claim it, write and upload part by part, make the object, announce it.

Each part is uploaded before the item records it, together with the state of the writer after the part. If the process
dies, the next one continues after the last recorded part. An export that takes longer than an invocation continues in
the same way with a new message. Only the owner of the lease writes, so one of two processes stops.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Literal, Protocol

from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.events import ExportCompleted, ExportRequested
from prismline_contracts.items import RunItem
from prismline_contracts.jobs import ExportItem, export_object_key
from prismline_contracts.prefixes import EXPORTS_PREFIX
from prismline_contracts.tasks import TaskItem
from prismline_exporter.dependencies import Dependencies
from prismline_exporter.entries import chunk_entries, task_entries
from prismline_exporter.exports import ENDED, LeaseLostError, export_id_of
from prismline_exporter.objects import MAX_PARTS, MIN_PART_BYTES, StoredBodies, StoredSegments, Upload
from prismline_exporter.parquet_file import ParquetFile, StartOverError
from prismline_exporter.zip_archive import ZipArchive
from prismline_runtime import Message, PermanentError, PrismlineError, fault_point

#: Tasks that are read from the ledger at a time.
TASKS_PER_PAGE = 500


class Writer(Protocol):
    """Writes the content of an export. See `ZipArchive` and `ParquetFile`."""

    CONTENT_TYPE: str

    @property
    def buffered(self) -> int:
        """Bytes that are written and not yet taken."""

    @property
    def size(self) -> int:
        """Bytes so far."""

    @property
    def entries_written(self) -> int:
        """Results so far."""

    def steps(self) -> Iterator[None]:
        """Write the content to its end. The caller may cut whenever this yields."""

    def cut(self) -> tuple[bytearray, str]:
        """Take what has been written since the last cut, with the state after it, as JSON."""


def on_export_requested(request: ExportRequested, message: Message, deps: Dependencies) -> None:
    """Continue the export that `request` names, and send another message unless it is over."""
    # If the run's job was deleted, so was its export: a new item would stay for ever.
    there = deps.ledger.get_run(request.run_id) is not None
    item = deps.exports.claim(request, uuid.uuid4().hex, create=there)
    with deps.logger.append_context_keys(export_id=request.export_id):
        if item is None:
            _say_completed(request, None, message, deps)
            return
        if item.status not in ENDED:
            export = _Export(item, request, deps)
            deadline = message.delivery.deadline(deps.settings.export_margin_seconds)
            try:
                if request.given_up is None:
                    export.work(deadline)
                else:
                    export.give_up(request.given_up)
            except PermanentError as error:
                export.fail(str(error))
            except LeaseLostError:
                raise
            except Exception:
                with suppress(PrismlineError):
                    deps.exports.release(export.item)
                raise
            item = export.item
        if item.status in ENDED:
            _say_completed(request, item, message, deps)
            return
        deps.exports.release(item)
        # with a new time, because a long export may last longer than the age at which a message is given up
        again = message.envelope.model_copy(update={"time": timestamp()})
        deps.transport.send(Queue.EXPORTS, [again])


def _say_completed(request: ExportRequested, item: ExportItem | None, message: Message, deps: Dependencies) -> None:
    """Publish the end of an export. Without `item`, its run does not exist, or has been deleted with it."""
    done = item if item is not None and item.status == "COMPLETED" else None
    completed = ExportCompleted(
        run_id=request.run_id,
        export_id=request.export_id,
        key=item.key if item is not None else None,
        bytes=done.bytes if done is not None else None,
        entries=done.entries if done is not None else None,
        error=item.error if item is not None else f"There is no run {request.run_id} in the ledger.",
    )
    deps.transport.publish_event(completed, traceparent=message.envelope.traceparent, key=(request.export_id,))
    result = completed.model_dump(include={"entries", "bytes", "error"})
    deps.logger.info("export_completed", extra=result)


class _Export:
    """The work of one invocation on an export."""

    def __init__(self, item: ExportItem, request: ExportRequested, deps: Dependencies) -> None:
        #: The export's item as it was last written.
        self.item = item
        self._request = request
        self._deps = deps
        self._run: RunItem | None = None

    def work(self, deadline: float) -> None:
        """Write the export until it is complete, or until `deadline` (`time.monotonic` seconds)."""
        run = self._ended_run()
        with ThreadPoolExecutor(self._deps.settings.export_readers) as pool:
            while True:
                try:
                    self._write(run, pool, deadline)
                except StartOverError:
                    self._deps.logger.warning("export_starts_over")
                    self._begin(run, anew=True)
                else:
                    return

    def give_up(self, error: str) -> None:
        """Fail the export, because its request has been given up."""
        self._run = self._deps.ledger.get_run(self._request.run_id)
        self.fail(error)

    def fail(self, error: str) -> None:
        """Record that there will be no object, and remove its parts."""
        upload_id = self.item.upload_id
        self.item = self._deps.exports.fail(self.item, error)
        if upload_id is not None and self._run is not None:
            self._upload(self._run).abort(upload_id)
            self._segments().delete()

    def _ended_run(self) -> RunItem:
        run = self._deps.ledger.run(self._request.run_id)
        if run.drained_at is None and run.cancelled_at is None:
            raise PermanentError(f"Run {run.run_id} has not ended. Request the export after its end.")
        self._run = run
        return run

    def _begin(self, run: RunItem, *, anew: bool = False) -> str:
        """The id of the multipart upload. Begins one if there is none yet. anew: aborts it and begins another."""
        before = self.item.upload_id
        if before is not None and not anew:
            return before
        upload = self._upload(run)
        if before is not None:
            upload.abort(before)
        content_type = ParquetFile.CONTENT_TYPE if _suffix(run) == "parquet" else ZipArchive.CONTENT_TYPE
        upload_id = upload.begin(content_type)
        self.item = self._deps.exports.begin(self.item, upload_id=upload_id, entries_total=self._total(run))
        return upload_id

    def _total(self, run: RunItem) -> int:
        return run.chunks_total or 0

    def _write(self, run: RunItem, pool: ThreadPoolExecutor, deadline: float) -> None:
        deps, settings = self._deps, self._deps.settings
        upload, upload_id = self._upload(run), self._begin(run)
        writer = self._writer(run, pool)
        renew_at = self._renewal_time()
        begun = len(self.item.etags)
        for _ in writer.steps():
            now = deps.monotonic()
            late = now >= deadline
            if writer.buffered >= (MIN_PART_BYTES if late else settings.export_part_bytes):
                self._put_part(upload, upload_id, writer)
                renew_at = self._renewal_time()
            # at least one part in each invocation: otherwise it would be repeated for ever
            if late and len(self.item.etags) > begun:
                return
            if now >= renew_at:
                self.item = deps.exports.renew(self.item)
                renew_at = self._renewal_time()
        if writer.buffered:
            self._put_part(upload, upload_id, writer)
        upload.complete(upload_id, self.item.etags)
        fault_point("export.assembled", run_id=run.run_id)
        self._segments().delete()
        self.item = deps.exports.complete(self.item, upload.key)
        fault_point("export.recorded", run_id=run.run_id)

    def _put_part(self, upload: Upload, upload_id: str, writer: Writer) -> None:
        number = len(self.item.etags) + 1
        if number > MAX_PARTS:
            raise PermanentError(
                f"The export is longer than {MAX_PARTS} parts of {self._deps.settings.export_part_bytes} bytes."
                " Increase EXPORT_PART_BYTES of the exporter."
            )
        entries, size = writer.entries_written, writer.size
        content, state = writer.cut()
        etag = upload.put(upload_id, number, content)
        fault_point("export.part_uploaded", run_id=self._request.run_id, part=str(number))
        self.item = self._deps.exports.commit(self.item, etag=etag, writer=state, entries=entries, size=size)
        fault_point("export.part_recorded", run_id=self._request.run_id, part=str(number))

    def _renewal_time(self) -> float:
        return self._deps.monotonic() + self._deps.settings.export_lease_seconds / 3

    # ---- the content

    def _writer(self, run: RunItem, pool: ThreadPoolExecutor) -> Writer:
        bodies = StoredBodies(self._deps.s3, self._deps.settings.bucket)
        if _suffix(run) == "parquet":
            chunks = self._deps.ledger.chunks(run.run_id)
            return ParquetFile(chunks=chunks, read=bodies.read_all, pool=pool, state=self.item.writer)
        return ZipArchive(
            entries=lambda cursor: (
                task_entries(run, lambda shard, after: self._tasks(run, shard, after), cursor)
                if run.unit == "task"
                else chunk_entries(self._deps.ledger.chunks(run.run_id), cursor)
            ),
            bodies=bodies,
            segments=self._segments(),
            pool=pool,
            made_at=datetime.fromisoformat(self.item.requested_at),
            state=self.item.writer,
        )

    def _tasks(self, run: RunItem, shard: int, after: str | None) -> Iterator[TaskItem]:
        while True:
            page = self._deps.ledger.page_of_tasks(run, shard, after=after, limit=TASKS_PER_PAGE)
            yield from page.tasks
            if page.after is None:
                return
            after = page.after

    def _upload(self, run: RunItem) -> Upload:
        key = export_object_key(run.run_id, self._request.export_id, _suffix(run))
        return Upload(self._deps.s3, self._deps.settings.bucket, key)

    def _segments(self) -> StoredSegments:
        prefix = f"{EXPORTS_PREFIX}{self._request.run_id}/{export_id_of(self.item)}.segments/"
        return StoredSegments(self._deps.s3, self._deps.settings.bucket, prefix)


def _suffix(run: RunItem) -> Literal["zip", "parquet"]:
    return "parquet" if run.workload == "spectra" else "zip"
