"""The client: requests that are repeated, lists that come in pages, uploads, downloads, and waiting for a run."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import quote
from uuid import uuid4

import httpx
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt

from prismline_client import address
from prismline_client.errors import RETRIED, ApiError, outdated
from prismline_client.function_runs import FunctionRun, job_name, row_format, source_of
from prismline_client.models import Causes, Chunk, DeadLetter, Estimate, Mute, Recovery, Run, RunSummary, Task, Workload

#: Timeout of a request in seconds.
ANSWER_SECONDS = 60.0
#: Maximum number of tries of a request, and the longest wait between two tries in seconds.
TRIES, LONGEST_WAIT_SECONDS = 5, 30.0
#: Bytes that are read at a time from a file that is uploaded or downloaded.
PIECE_BYTES = 2**20
#: Most items of a page, and most runs of a page with all their details.
PAGE_ITEMS, PAGE_RUNS = 1000, 100
#: Seconds between two looks at a run that is followed.
POLL_SECONDS = 0.5


class WantedChunks(TypedDict, total=False):
    """Which chunks to list."""

    status: str | None
    #: Only chunks without progress; those in progress, after so many minutes.
    stuck_after: float
    #: Whether chunks have their `record`, and a link to their output.
    details: bool
    links: bool


class WantedTasks(TypedDict, total=False):
    """Which tasks to list."""

    status: str | None
    #: Only tasks whose URL begins so.
    url: str | None
    #: Whether tasks have their `record`.
    details: bool


class WantedDeadLetters(TypedDict, total=False):
    """Which dead letters to list. Both days are included. They are like 2026-03-01, in UTC."""

    first: str
    last: str
    run_id: str | None
    #: Only of jobs with this name.
    name: str | None
    #: Only from this queue.
    queue: str | None
    #: Only with this text in the error.
    error: str | None
    #: Only of messages whose id begins so.
    message_id: str
    #: Also those that a recovery has sent and whose work has not ended.
    recovering: bool
    #: Whether dead letters have their `record`, without the message.
    details: bool


class Client:
    """The API at an address, with a key. Every failure is an ApiError with a sentence for a person."""

    def __init__(self, url: str, key: str, *, timeout: float = ANSWER_SECONDS) -> None:
        self._timeout = timeout
        try:
            headers = {"Authorization": f"Bearer {key}"}
            self._http = httpx.Client(base_url=f"{url.rstrip('/')}/v1", headers=headers, timeout=timeout)
        except (httpx.InvalidURL, UnicodeEncodeError):
            raise ApiError(f"{address.URL_VARIABLE} is not a URL, or {address.KEY_VARIABLE} is not a key.") from None

    @classmethod
    def open(cls) -> Self:
        """The API of the system that runs on this machine, or else the one that the environment variables name."""
        return cls(*address.find())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ---- any path

    def get(self, path: str, **parameters: Any) -> Any:
        """The document at `path`. Parameters that are None are left out."""
        return self._ask("GET", path, params={name: value for name, value in parameters.items() if value is not None})

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> Any:
        """The document that answers a POST. Repetitions send the same `Idempotency-Key`."""
        if key is not None and not key.isascii():
            raise ApiError(f"The idempotency key {key!r} has characters that are not ASCII. Choose another one.", 422)
        return self._ask("POST", path, json=body, headers={"Idempotency-Key": key or str(uuid4())})

    def delete(self, path: str) -> Any:
        """The document that answers a DELETE."""
        return self._ask("DELETE", path)

    def listed(
        self, path: str, limit: int | None = None, *, page: int = PAGE_ITEMS, **parameters: Any
    ) -> Iterator[Any]:
        """The first `limit` items of a list, or all. page: most items of one request."""
        left, cursor = limit, None
        while left is None or left > 0:
            size = page if left is None else min(page, left)
            answer = self.get(path, limit=size, cursor=cursor, **parameters)
            yield from answer["items"]
            left = None if left is None else left - len(answer["items"])
            cursor = answer.get("next_cursor")
            if cursor is None:
                break

    # ---- runs

    def run(self, run_id: str) -> Run:
        """A run with its progress, and what may be done to it now."""
        return Run.model_validate(self.get(f"/runs/{part(run_id)}"))

    def detailed_runs(self, limit: int | None = None, *, name: str | None = None) -> Iterator[Run]:
        """Runs with all details, the newest first. name: as in `runs`."""
        return map(Run.model_validate, self.listed("/runs", limit, page=PAGE_RUNS, name=name, details="true"))

    def runs(
        self,
        limit: int | None = None,
        *,
        status: str | None = None,
        workload: str | None = None,
        name: str | None = None,
    ) -> Iterator[RunSummary]:
        """Runs, the newest first. name: a part of the name, or the beginning of the id."""
        found = self.listed("/runs", limit, status=status, workload=workload, name=name)
        return map(RunSummary.model_validate, found)

    def chunks(self, run_id: str, limit: int | None = None, **wanted: Unpack[WantedChunks]) -> Iterator[Chunk]:
        """The chunks of a run, in order of id."""
        return map(Chunk.model_validate, self.listed(f"/runs/{part(run_id)}/chunks", limit, **wanted))

    def tasks(self, run_id: str, limit: int | None = None, **wanted: Unpack[WantedTasks]) -> Iterator[Task]:
        """The tasks of a run, in no particular order."""
        return map(Task.model_validate, self.listed(f"/runs/{part(run_id)}/tasks", limit, **wanted))

    def causes(self, run_id: str) -> Causes:
        """Why chunks or tasks of a run failed, grouped by error."""
        return Causes.model_validate(self.get(f"/runs/{part(run_id)}/causes"))

    def follow(self, run_id: str, *, every: float = POLL_SECONDS, timeout: float | None = None) -> Iterator[Run]:
        """The run at intervals, until it has ended. Raises TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            run = self.run(run_id)
            yield run
            if run.ended:
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"Run {run_id} is {run.status} after {timeout:.0f} s. It continues.")
            time.sleep(every)

    def wait(self, run_id: str, *, every: float = POLL_SECONDS, timeout: float | None = None) -> Run:
        """Wait until the run has ended, and return it. Raises TimeoutError after `timeout` seconds."""
        *_, run = self.follow(run_id, every=every, timeout=timeout)
        return run

    def estimate(self, workload: str, items: int, **known: Any) -> Estimate:
        """What a run would cost on AWS. known: `channels`, `fit`, `chunk_size`, `seconds` and `timeout` of the API."""
        return Estimate.model_validate(self.get("/estimate", workload=workload, items=items, **known))

    # ---- what changes something

    def submit(self, job: Mapping[str, Any], *, key: str | None = None) -> Any:
        """Submit a job. The answer has `job_id` and `run`. Of requests with the same `key`, one takes effect."""
        return self.post("/jobs", job, key=key)

    def workloads(self) -> Iterator[Workload]:
        """What may be submitted: the workloads of the services, and the registered functions."""
        return map(Workload.model_validate, self.get("/workloads")["items"])

    def register(self, function: Mapping[str, Any]) -> None:
        """Register a function, as `POST /v1/workloads` takes it. Only a laptop's system accepts one with `local`."""
        self.post("/workloads", function)

    def map(
        self,
        function: str,
        items: Iterable[Any] | Path | str,
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Any,
    ) -> FunctionRun:
        """Call a registered function for each item of a list, and return its run.

        items: values that JSON has; or the path of a file with one JSON value a line, or .csv or .parquet with rows.
        name: of the job; default: the function's name. key: of calls with the same one, one takes effect. options:
        further fields of the job, for instance `code`, `pool`, `max_concurrency`, `tolerated_failures` and `webhook`;
        and `max_items` of the source.
        """
        with source_of(items) as given:
            source = given if isinstance(given, dict) else self._uploaded(given, key)
        if "max_items" in options:
            source["max_items"] = options.pop("max_items")
        job = {"workload": function, "name": name or job_name(function), "source": source, "params": dict(params or {})}
        return FunctionRun(self, self.submit(job | options, key=key)["run"]["run_id"])

    def _uploaded(self, file: Path, key: str | None) -> dict[str, Any]:
        """The source that names a file, which is uploaded."""
        format_ = row_format(file)
        return {"kind": "upload", "upload": self.upload(file, format_, key=key), "format": format_}

    def cancel(self, run_id: str) -> None:
        """Cancel a run. What has not started is skipped."""
        self.post(f"/runs/{part(run_id)}/cancel")

    def retry(
        self,
        run_id: str,
        chunk_ids: Sequence[str] | None = None,
        *,
        cancelled_at: str | None = None,
        code: str | None = None,
        dry_run: bool = False,
    ) -> str:
        """Try again what failed in a run, or only these chunks. Return the id of the recovery.

        cancelled_at: instead, continue the run that was cancelled at this time. code: `latest` moves the run of a
        function to the code that was registered last. dry_run: only count.
        """
        given = {"chunk_ids": list(chunk_ids or ()) or None, "cancelled_at": cancelled_at, "code": code}
        return self._recover({"run_id": run_id, "retry": True, "dry_run": dry_run}, given)

    # ---- dead letters

    def dead_letters(self, limit: int | None = None, **wanted: Unpack[WantedDeadLetters]) -> Iterator[DeadLetter]:
        """Archived dead letters, the newest day first."""
        return map(DeadLetter.model_validate, self.listed("/dead-letters", limit, **wanted))

    def dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """The same dead letter with its whole record, the message included as `body`."""
        path = f"/dead-letters/{part(letter.day)}/{part(letter.message_id)}"
        return DeadLetter.model_validate(self.get(path, key=letter.key))

    def recover(self, run_id: str | None = None, *, prefix: str | None = None, dry_run: bool = False) -> str:
        """Send dead letters of a run, or of all runs, back to their queues. Return the id of the recovery.

        prefix: only those below this prefix of the archive. dry_run: only count.
        """
        try:
            return self._recover({"dry_run": dry_run}, {"run_id": run_id, "prefix": prefix})
        except ApiError as error:
            if error.status == 422 and ("run_id" in str(error) or "prefix" in str(error)):
                raise outdated("cannot do this", 422) from error
            raise

    def _recover(self, body: dict[str, Any], given: dict[str, Any]) -> str:
        body |= {name: value for name, value in given.items() if value is not None}
        return str(self.post("/dead-letters/recover", body)["status_url"].rpartition("/")[2])

    def recovery(self, operation_id: str) -> Recovery:
        """A recovery with its progress. It is `pending` until the system has begun it."""
        return Recovery.model_validate(self.get(f"/recoveries/{part(operation_id)}"))

    def wait_for_recovery(self, operation_id: str, *, every: float = POLL_SECONDS) -> Recovery:
        """Wait until the recovery is over, and return it."""
        while (recovery := self.recovery(operation_id)).finished_at is None:
            time.sleep(every)
        return recovery

    # ---- alerts

    def mute(self) -> Mute:
        """Whether alerts are muted. This and the next two need a key with the scope `all`."""
        return Mute.model_validate(self.get("/alerts/mute"))

    def mute_alerts(self, duration: str) -> Mute:
        """Mute alerts from now on for a time such as 30m, 4h or 2d."""
        return Mute.model_validate(self.post("/alerts/mute", {"duration": duration}))

    def unmute_alerts(self) -> Mute:
        """End the mute."""
        return Mute.model_validate(self.post("/alerts/unmute"))

    # ---- files

    def upload(self, file: Path, format_: str, *, key: str | None = None) -> str:
        """Upload a file, and return the upload's id. With the same `key`, the same content is the same upload."""
        body = {"format": format_, "gzip": file.suffix == ".gz", "size_bytes": file.stat().st_size}
        upload = self.post("/uploads", body, key=None if key is None else _key_of_content(key, file))
        try:
            with self._without_key() as plain:
                self._finish(lambda: plain.put(upload["url"], content=_pieces(file), headers=upload["headers"]))
        except ApiError as error:
            if error.status != 412:  # it was sent before
                raise
        return str(upload["upload_id"])

    def download(self, url: str, to: Path) -> None:
        """Download the content of a link into a file."""
        with self._content(url) as pieces, to.open("wb") as file:
            for piece in pieces:
                file.write(piece)

    def read(self, url: str) -> bytes:
        """The content of a link."""
        with self._content(url) as pieces:
            return b"".join(pieces)

    @contextmanager
    def _content(self, url: str) -> Iterator[Iterator[bytes]]:
        try:
            with self._without_key() as plain, plain.stream("GET", url) as answer:
                if not answer.is_success:
                    what = "its object is not in the bucket" if answer.status_code == 404 else str(answer.status_code)
                    raise ApiError(f"The download was refused: {what}.", answer.status_code)
                yield answer.iter_bytes(PIECE_BYTES)
        except httpx.HTTPError as error:
            raise ApiError(f"The download broke off: {error or type(error).__name__}.") from error

    def _without_key(self) -> httpx.Client:
        """A client for links to S3, which must not get the key."""
        return httpx.Client(timeout=self._timeout)

    # ---- requests

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        answer = self._finish(lambda: self._http.request(method, path, **options))
        try:
            return answer.json()
        except json.JSONDecodeError as error:
            raise ApiError(f"The answer of {self._http.base_url} is not JSON. Is it the address of the API?") from error

    def _finish(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            answer = Retrying(
                retry=retry_if_result(lambda answer: answer.status_code in RETRIED),
                stop=stop_after_attempt(TRIES),
                wait=_seconds_to_wait,
                retry_error_callback=lambda state: state.outcome and state.outcome.result(),
            )(send)
        except httpx.HTTPError as error:
            raise ApiError(self._unreachable(error)) from error
        if not answer.is_success:
            raise ApiError(_sentence(answer), answer.status_code)
        return answer

    def _unreachable(self, error: httpx.HTTPError) -> str:
        url = error.request.url
        why = str(error) or type(error).__name__
        if isinstance(error, httpx.TimeoutException):
            why = f"no answer within {self._timeout:g} s"
        return f"Cannot reach the API at {url.scheme}://{url.netloc.decode()}: {why}."


def part(value: str) -> str:
    """An id as a part of a path. Raises ApiError if it is empty or would name another path."""
    if not value.strip() or value in {".", ".."}:
        raise ApiError("The id is empty.", 404)
    return quote(value, safe="")


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as reader:
        while piece := reader.read(PIECE_BYTES):
            yield piece


def _key_of_content(key: str, file: Path) -> str:
    """A key for the content of a file, for a request that has the key `key`."""
    with file.open("rb") as reader:
        return hashlib.sha256(key.encode() + hashlib.file_digest(reader, "sha256").digest()).hexdigest()


def _seconds_to_wait(state: RetryCallState) -> float:
    """As long as the answer says, with a limit."""
    answer = state.outcome.result() if state.outcome else None
    try:
        return min(float(answer.headers["Retry-After"]), LONGEST_WAIT_SECONDS) if answer is not None else 1.0
    except (KeyError, ValueError):
        return 1.0


def _sentence(answer: httpx.Response) -> str:
    """The `detail` of a problem document."""
    try:
        document = answer.json()
    except json.JSONDecodeError:
        document = None
    detail = document.get("detail") if isinstance(document, dict) else None
    return str(detail) if detail else f"The API answered {answer.status_code}."
