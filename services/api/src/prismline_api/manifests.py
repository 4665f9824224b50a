"""Decisions about a submission: whether it is valid, how it is carried out, and its manifest. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from prismline_api.models import AnyJob, CaptionsJob, FunctionJob, SpectraJob, UrlsJob
from prismline_api.ownership import Sources
from prismline_contracts.captions import CaptionsManifest
from prismline_contracts.item_sources import ItemSource
from prismline_contracts.jobs import JobItem
from prismline_contracts.manifest import Manifest, SpectraManifest
from prismline_contracts.tasks import TaskList, UrlsManifest
from prismline_contracts.workloads import FunctionManifest
from prismline_http.problems import ProblemError, invalid

#: Content types of uploads by format.
CONTENT_TYPES = {
    "jsonl": "application/jsonl",
    "text": "text/plain",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "fits": "application/fits",
}
#: Formats of lists of URLs.
LIST_FORMATS = ("jsonl", "text", "csv")
#: Metadata of an upload with its format and compression.
FORMAT_METADATA, GZIP_METADATA = "prismline-format", "prismline-gzip"


class Path(StrEnum):
    """How a submission is carried out."""

    #: The tasks are written and enqueued in the request.
    INLINE = "inline"
    #: A command tells the splitter to write and enqueue them.
    INGEST = "ingest"
    #: Nothing happens until batches arrive.
    OPEN = "open"


def path_of(request: AnyJob, inline_tasks: int) -> Path:
    """How the submission is carried out. `inline_tasks`: the longest list that is written in the request."""
    if isinstance(request, UrlsJob) and request.open:
        return Path.OPEN
    short = isinstance(request, UrlsJob) and request.urls is not None and len(request.urls) <= inline_tasks
    return Path.INLINE if short and not request.run_async else Path.INGEST


def request_hash(request: BaseModel) -> str:
    """SHA-256 of a request's content, independent of the order of its fields and of white space."""
    document = request.model_dump(mode="json", exclude_unset=True, by_alias=True)
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def check_urls(urls: Iterable[str]) -> None:
    """Check the URLs of tasks. Raises ProblemError (422), which names the first one that cannot be requested."""
    for position, url in enumerate(urls):
        check_url(url, f"urls.{position}")


def check_url(url: str, field: str) -> None:
    """Check the URL in a field. Raises ProblemError (422) if it cannot be requested."""
    from prismline_web import unusable  # noqa: PLC0415 - httpx

    reason = unusable(url)
    if reason is not None:
        shown = url if len(url) <= 100 else f"{url[:100]}..."
        raise invalid(f"{field} is not a URL that can be requested: {reason}, in {shown!r}. Correct or remove it.")


def check_keys(keys: Iterable[str], sources: Sources) -> None:
    """Check that a job may name these keys. Raises ProblemError (422), which says why it may not."""
    for key in keys:
        refusal = sources.refusal(key)
        if refusal is not None:
            raise invalid(
                f"{refusal} Put the object below {' or '.join(sources.prefixes)}, or upload it with POST /v1/uploads."
            )


def named_keys(job: SpectraJob | CaptionsJob | SpectraManifest | CaptionsManifest) -> list[str]:
    """The keys of objects in the bucket that a job names. The manifest of a job may also name its upload."""
    if isinstance(job, CaptionsJob | CaptionsManifest):
        return [key for window in job.windows for key in window.frames]
    return [key for key in (job.cube_key, job.params.noise) if isinstance(key, str)]


def upload_metadata(format_: str, *, gzip: bool) -> dict[str, str]:
    """The metadata that an upload is signed with."""
    return {FORMAT_METADATA: format_, GZIP_METADATA: "true" if gzip else "false"}


def uploaded_list(key: str, head: Any) -> TaskList:
    """The list in an upload. Raises ProblemError (422) if the upload is something else."""
    format_ = head.get("Metadata", {}).get(FORMAT_METADATA)
    if format_ not in LIST_FORMATS:
        raise invalid("The upload is not a list of URLs. Upload one with the format jsonl, text or csv.")
    return TaskList(key=key, etag=head["ETag"], format=format_, gzip=head["Metadata"].get(GZIP_METADATA) == "true")


def manifest_of(
    job: JobItem,
    request: AnyJob,
    *,
    upload_key: str | None,
    task_list: TaskList | None,
    items: ItemSource | None = None,
    code: str | None = None,
) -> Manifest:
    """The manifest of a job's first run. `upload_key` and `task_list`: the upload that the request names.

    items and code: the source of a function's job, and the digest of the code that its run keeps.

    Raises ProblemError (422) if the manifest would be invalid.
    """
    fields = common_fields(job) | {"params": params_given(request)}
    try:
        match request:
            case FunctionJob():
                return FunctionManifest.model_validate(fields | {"source": items, "code": code, "pool": request.pool})
            case UrlsJob():
                source = {"list": task_list} if task_list is not None else {"urls": request.urls}
                return UrlsManifest.model_validate(fields | source)
            case SpectraJob():
                cube = {"cube_key": request.cube_key or upload_key, "chunk_size": request.chunk_size}
                return SpectraManifest.model_validate(fields | cube)
            case CaptionsJob():
                session = {"session_id": job.survey, "user_id": request.user_id, "windows": request.windows}
                return CaptionsManifest.model_validate(fields | session)
    except ValueError as error:
        raise invalid(f"The job is invalid: {error}. Correct it and send it again.") from error


def params_given(request: AnyJob) -> dict[str, Any]:
    """The parameters that a request gives."""
    if isinstance(request, FunctionJob):
        return dict(request.params)
    return request.params.model_dump(exclude_unset=True)


def common_fields(job: JobItem) -> dict[str, Any]:
    """The fields of every manifest."""
    return {
        "workload": job.workload,
        "survey": job.survey,
        "job_id": job.job_id,
        "tenant": job.tenant,
        "tolerated_failure_percent": float(job.tolerated_failure_percent),
        "tolerated_failures": job.tolerated_failures,
        "max_concurrency": job.max_concurrency,
        "priority": job.priority,
        "deadline_at": job.deadline_at,
        "traceparent": job.traceparent,
    }


def key_reused(what: str) -> ProblemError:
    """The idempotency key was used for another request."""
    return ProblemError(
        409, "idempotency-conflict", f"This Idempotency-Key was used for {what}. Use a new key for a new request."
    )
