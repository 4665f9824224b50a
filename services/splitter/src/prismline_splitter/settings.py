"""Settings of the splitter, from the environment."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

from pydantic import Field

from prismline_runtime import CALLS_SIDE_BY_SIDE, ServiceSettings


class SplitterSettings(ServiceSettings):
    """Settings of the splitter."""

    runs_table: str = Field(description="The ledger's table.")
    bucket: str = Field(default="", description="The bucket of the deployment, which deleted jobs are removed from.")
    jobs_table: str | None = Field(default=None, description="The table of jobs. Absent: the one of the environment.")
    slice_seconds: float = Field(
        default=2.0, ge=0, description="After this many seconds an ingestion lets other commands in the queue go first."
    )
    own_queue_tasks: int = Field(
        default=10_000,
        ge=1,
        description="A run of more tasks has a queue of its own, so that small runs do not wait behind it.",
    )
    write_calls: int = Field(
        default=2,
        ge=1,
        le=CALLS_SIDE_BY_SIDE,
        description="Concurrent calls to DynamoDB that write the tasks of a list. The embedded emulator handles one"
        " call at a time, so with more calls all other services wait longer.",
    )
    workdir: Path = Field(
        default=Path(gettempdir()), description="Where a cube is downloaded to; needs its size twice."
    )
    request_milliseconds: float = Field(
        default=2.0,
        gt=0,
        description="Time per ranged request to the object storage while 16 are under way. Decides whether chunks"
        " refer to the cube. S3: some 30 for the first byte, divided by 16; the embedded emulator: as measured.",
    )
