"""Settings of the api service, from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from prismline_contracts.base import Tenant
from prismline_contracts.jobs import DEFAULT_TENANT
from prismline_contracts.prefixes import CUBES_PREFIX, FRAMES_PREFIX, NOISE_PREFIX
from prismline_runtime import ServiceSettings


class ApiSettings(ServiceSettings):
    """Settings of the HTTP interface."""

    runs_table: str = Field(description="The ledger's table.")
    jobs_table: str = Field(description="The table of jobs, API keys and idempotency keys.")
    workflow_state_table: str = Field(description="The status service's table, with the status of each run.")
    bucket: str = Field(description="The bucket of uploads, manifests and results.")
    links_endpoint: str | None = Field(
        default=None, description="Where callers reach S3, for presigned links. Default: this service's own endpoint."
    )
    inline_tasks: int = Field(
        default=1000, ge=0, le=1000, description="A closed list of at most this many tasks is enqueued in the request."
    )
    max_body_bytes: int = Field(
        default=5 * 2**20, ge=1024, le=6 * 2**20, description="Largest request body. Lambda accepts 6 MB."
    )
    max_upload_bytes: int = Field(
        default=2 * 2**30, ge=1, le=5 * 2**30, description="Largest upload. One PUT to S3 holds at most 5 GiB."
    )
    key_cache_seconds: float = Field(
        default=10.0, ge=0, description="How long a valid key is accepted without another read of the table."
    )
    requests_per_second: float = Field(
        default=50.0, gt=0, description="Requests of one tenant that are answered in a second, on average."
    )
    request_burst: int = Field(default=200, ge=1, description="Requests of one tenant that are answered at once.")
    counts_cache_seconds: float = Field(
        default=1.0, ge=0, description="How old the counts of a run with several shards may be, while it is running."
    )
    maps_memory_bytes: int = Field(
        default=256 * 2**20, ge=2**20, description="Memory for tiles, values, footers and spectra, in bytes."
    )
    source_prefixes: list[Annotated[str, Field(pattern=r"/$")]] = Field(
        default=[CUBES_PREFIX, NOISE_PREFIX, FRAMES_PREFIX],
        description="Prefixes below which a job may name objects that its tenant did not upload, as JSON. Each tenant"
        " owns the folder with its name below each of them.",
    )
    default_tenant: Tenant = Field(
        default=DEFAULT_TENANT,
        description="The tenant that owns the objects below these prefixes that are in no folder of another tenant.",
    )
    queue_age_namespace: str = Field(
        default="AWS/SQS",
        description="Namespace of the metric ApproximateAgeOfOldestMessage. The emulator uses another one.",
    )
    process_reports: bool = Field(
        default=False,
        description="Whether a supervisor tells which processes run, as on laptops. If not, CloudWatch's metrics show"
        " when functions were invoked.",
    )
    logs_folder: Path | None = Field(
        default=None,
        description="Folder with the log files of all processes, from which the lines of a chunk or task are shown. If"
        " not set, a link to CloudWatch is.",
    )
    functions_local: bool = Field(
        default=False,
        description="Whether `POST /v1/workloads` registers functions of this machine. Only where whoever may submit"
        " work may also run programs, as on a laptop.",
    )
    events: bool = Field(
        default=True, description="Whether GET /v1/events keeps streams open. A Lambda function cannot."
    )
    event_streams: int = Field(
        default=100, ge=1, description="Most streams of GET /v1/events that one tenant has open at a process."
    )
    console_sign_in: Literal["none", "key", "proxy"] = Field(
        default="key",
        description="How people sign in to the console: with an API key; through a proxy that signs them in; or not at"
        " all, and then only this machine is served.",
    )
    console_key_sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="Hash of the API key for everybody who does not sign in with a key.",
    )
    console_proxy_secret: str | None = Field(
        default=None, min_length=16, description="Secret that the proxy sends in X-Prismline-Proxy-Secret."
    )
