"""Submit the frames of a recording in windows, and report the caption of each window."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_cli.submission import checked, put_manifest
from prismline_client import Chunk, Client
from prismline_contracts.captions import CaptionsManifest
from prismline_contracts.manifest import run_id_of
from prismline_contracts.prefixes import FRAMES_PREFIX
from prismline_runtime import Bucket

#: Suffixes of the files that are frames.
FRAME_SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})
#: Frames that are uploaded at the same time.
UPLOADS = 8
#: How many runs of a session are searched for windows. The latest ones come first.
RUNS_OF_A_SESSION = 100

#: The status of a window, in the words of the captions pipeline.
SegmentStatus = Literal["pending", "complete", "failed"]


@dataclass(frozen=True)
class Segment:
    """A window of a session, in the words of the captions pipeline."""

    window_index: int
    status: SegmentStatus
    caption: str | None
    #: The error of a failed window, or of the last attempt of one that still waits.
    reason: str | None
    attempts: int
    deferrals: int
    run_id: str

    @classmethod
    def of(cls, chunk: Chunk, run_id: str) -> Segment:
        """The segment that describes `chunk`."""
        ended: dict[str, SegmentStatus] = {"completed": "complete", "failed": "failed"}
        complete = chunk.status == "completed"
        return cls(
            window_index=int(chunk.chunk_id.removeprefix("chunk-")),
            status=ended.get(chunk.status, "pending"),
            caption=chunk.details.get("summary") if complete else None,
            reason=None if complete else chunk.error or chunk.last_error,
            attempts=chunk.attempts,
            deferrals=chunk.deferrals,
            run_id=run_id,
        )

    def as_json(self) -> dict[str, Any]:
        """The segment as a JSON document."""
        return asdict(self)


def submit_frames(connection: Connection, folder: Path, window_size: int, fields: dict[str, Any]) -> str:
    """Upload the frames in `folder`, in the order of their names, and submit windows of `window_size` of them.

    `fields` are the other fields of the manifest. Returns the id of the run. The keys of the frames contain the run's
    id, so that another submission of the session does not replace them.
    """
    if not folder.is_dir():
        fail(f"There is no folder {folder}.")
    frames = sorted(path for path in folder.iterdir() if path.suffix.lower() in FRAME_SUFFIXES)
    if not frames:
        fail(f"There is no PNG or JPEG file in {folder}.")
    idempotency_key = fields.get("idempotency_key") or str(uuid4())
    run_id = run_id_of(connection.bucket, idempotency_key)
    keys = [f"{FRAMES_PREFIX}{fields['session_id']}/{run_id}/{path.name}" for path in frames]
    windows = [keys[start : start + window_size] for start in range(0, len(keys), window_size)]
    manifest = checked(
        CaptionsManifest,
        {
            **fields,
            "workload": "captions",
            "idempotency_key": idempotency_key,
            "windows": [
                {"window_index": index, "frame_count": len(window), "frames": window}
                for index, window in enumerate(windows)
            ],
        },
    )
    bucket = Bucket(connection.s3, connection.bucket)
    with ThreadPoolExecutor(UPLOADS) as pool:
        list(pool.map(bucket.upload, frames, keys))
    return put_manifest(connection, manifest, idempotency_key)


def segments_of(client: Client, session_id: str) -> list[Segment]:
    """The windows of the session in order. If several runs have the same window, the latest run counts."""
    found: dict[int, Segment] = {}
    runs = (run for run in client.runs(name=session_id, workload="captions") if run.name == session_id)
    for run in islice(runs, RUNS_OF_A_SESSION):
        for chunk in client.chunks(run.run_id, details=True):
            segment = Segment.of(chunk, run.run_id)
            found.setdefault(segment.window_index, segment)
    return [found[index] for index in sorted(found)]
