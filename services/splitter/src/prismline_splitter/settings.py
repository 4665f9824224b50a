"""Settings of the splitter, from the environment."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

from pydantic import Field

from prismline_runtime import CONCURRENT_CALLS, ServiceSettings


class SplitterSettings(ServiceSettings):
    """Settings of the splitter."""

    runs_table: str = Field(description="The ledger's table.")
    bucket: str = Field(default="", description="The bucket of the deployment, which deleted jobs are removed from.")
    jobs_table: str | None = Field(default=None, description="The table of jobs. Absent: the one of the environment.")
    slice_seconds: float = Field(
        default=2.0,
        ge=0,
        description="After this many seconds an ingestion lets other commands in the queue go first. The"
        " template sets 600 in Lambda, where other commands have functions of their own.",
    )
    own_queue_tasks: int = Field(
        default=10_000,
        ge=0,
        description="A run of more tasks has a queue of its own, so that small runs do not wait behind it; 0: no run"
        " has. Lambda polls no such queue, so the template sets 0 where the worker runs in Lambda: there SQS serves the"
        " runs of the shared queue in turn.",
    )
    prismline_valkey_url: str | None = Field(
        default=None,
        description="URL of the workers' Valkey server. Without it, or with `none`, a run with `max_concurrency` is"
        " refused, because nothing counts its slots.",
    )
    write_calls: int = Field(
        default=2,
        ge=1,
        le=CONCURRENT_CALLS,
        description="Concurrent calls to DynamoDB that write the tasks of a list. The emulator handles one"
        " call at a time, so with more calls all other services wait longer. The template sets 8 in Lambda.",
    )
    workdir: Path = Field(
        default=Path(gettempdir()),
        description="Where up to four cubes are downloaded to. Each needs its size, twice for a compressed or a Zarr"
        " cube, and that of three chunks of at most 1 GiB. References need no disk space.",
    )
    request_milliseconds: float = Field(
        default=2.0,
        gt=0,
        description="Time per ranged request to the object storage while 16 are under way. Decides whether chunks"
        " refer to the cube. S3: some 30 for the first byte, divided by 16; the emulator of the harness: as measured.",
    )
