"""The dead letters of a tenant's runs, and their recovery."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import groupby, islice
from typing import Any, NamedTuple
from uuid import uuid4

from prismline_api.dependencies import Dependencies
from prismline_api.manifests import request_hash
from prismline_api.models import Accepted, DeadLetterRecordView, DeadLetterView, Page, RecoverRequest, RecoveryView
from prismline_api.reading import AnyRun, find_run
from prismline_api.workloads import latest_registration
from prismline_contracts.base import derived_id, timestamp
from prismline_contracts.deadletters import DeadlettersRecoverRequested, RecoveryCounts
from prismline_contracts.jobs import RunRequest
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX
from prismline_contracts.workloads import is_function
from prismline_http.auth import Caller
from prismline_http.problems import ProblemError, conflict, not_found
from prismline_runtime import PermanentError, UnavailableError, aws_errors

#: Most records of the archive that are read for one part of a list, and how many at a time.
MOST_RECORDS, READERS = 200, 8
#: Most records of a day that are put in order. Of more, the list shows these.
MOST_LISTED = 20_000
#: Most levels of objects and lists in a record that is shown. An answer with more than 255 cannot be written.
MOST_LEVELS = 100
#: Prefixes of the folders of days: records that no recovery has taken, and records that a recovery could not send.
ROOTS = (DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX)
#: Fields of a record that are text and have the same names in the answer.
TEXTS = ("run_id", "chunk_id", "source_queue", "error", "archived_at", "recovery")
#: The beginning of a recovery's id. The run's id and a suffix follow.
RECOVERY_PREFIX = "recovery-"
#: Fields of a recovery's item that have the same names in the answer.
_OF_A_RECOVERY = ("prefix", "retry", "chunk_ids", "cancelled_at", "started_at", "finished_at")
#: Length of the suffix.
SUFFIX_CHARS = 12


@dataclass(frozen=True)
class Wanted:
    """Which dead letters a list shows. `first` and `last` are included. They are days of the archive, in UTC."""

    first: str | None = None
    last: str | None = None
    run_id: str | None = None
    #: Short name of the queue that they come from.
    queue: str | None = None
    #: A part of the error, in upper or lower case.
    error: str | None = None

    def has_day(self, day: str) -> bool:
        """Whether the list shows this day."""
        return (self.first or "") <= day and (self.last is None or day <= self.last)

    def passes(self, view: DeadLetterView) -> bool:
        """Whether the list shows this dead letter. Its day and its owner are checked elsewhere."""
        return (
            self.run_id in (None, view.run_id)
            and self.queue in (None, view.source_queue)
            and (self.error or "").casefold() in (view.error or "").casefold()
        )


def list_dead_letters(
    caller: Caller, wanted: Wanted, limit: int, cursor: str | None, deps: Dependencies
) -> Page[DeadLetterView]:
    """Dead letters of the caller's runs, or with the scope `all` of all runs, the newest first.

    The archive holds the dead letters of all tenants. One part of the list reads at most `MOST_RECORDS` of them, so it
    may be empty although more follow.
    """
    if wanted.run_id is not None:
        find_run(caller, wanted.run_id, deps)
    subject = f"dead-letters-by-time/{caller.tenant}/{caller.sees_all}/{json.dumps(astuple(wanted))}"
    after = deps.unseal(subject, cursor)
    places, more = _next_places(wanted, after, deps)
    keys = [place.key for place in places]
    with ThreadPoolExecutor(READERS) as pool:
        records = list(pool.map(lambda key: _read_for_list(key, deps), keys))
    errors = _errors_of_chunks(records, deps)
    owned: dict[str | None, bool] = {}
    found: list[DeadLetterView] = []
    for position, (key, record) in enumerate(zip(keys, records, strict=True)):
        view = _view(key, record, errors)
        if view is None or not wanted.passes(view):
            continue
        if view.run_id not in owned:
            owned[view.run_id] = _may_see(caller, view.run_id, deps)
        if owned[view.run_id]:
            found.append(view)
            if len(found) == limit:
                more = more or position + 1 < len(places)
                places = places[: position + 1]
                break
    return Page(items=found, next_cursor=deps.seal(subject, places[-1]) if more and places else None)


def show_dead_letter(caller: Caller, day: str, message_id: str, deps: Dependencies) -> DeadLetterRecordView:
    """A record of the archive. Raises ProblemError (404)."""
    for root in ROOTS:
        key = f"{root}{day}/{message_id}.json"
        record = _read(key, deps)
        view = _view(key, record, _errors_of_chunks([record], deps))
        if view is not None and _may_see(caller, view.run_id, deps):
            return DeadLetterRecordView(**view.model_dump(), record=_shown(record))
    raise not_found(f"dead letter {day}/{message_id}")


def _may_see(caller: Caller, run_id: str | None, deps: Dependencies) -> bool:
    """Whether the caller may see the dead letters of a run. None: they belong to no run."""
    return caller.sees_all or (run_id is not None and deps.store.run(caller.tenant, run_id) is not None)


class _Place(NamedTuple):
    """The place of a record in the list. Later places are greater."""

    #: The negative number of its day, and the negative time of its last receipt, so that the newest come first.
    day: int
    received: float
    key: str


def _next_places(wanted: Wanted, after: list[Any] | None, deps: Dependencies) -> tuple[list[_Place], bool]:
    """The next `MOST_RECORDS` places in the order of the list, and whether more may follow."""
    places: list[_Place] = []
    begin = None if after is None else _Place(*after)
    folders = [(rank, list(group)) for rank, group in groupby(_folders(wanted, deps), key=_rank)]
    for rank, group in folders:
        if begin is not None and rank < begin.day:
            continue
        if len(places) >= MOST_RECORDS:
            return places, True
        day = [place for folder in group for place in _places(folder, deps) if begin is None or place > begin]
        room = MOST_RECORDS - len(places)
        places += sorted(day)[:room]
        if len(day) > room:
            return places, True
    return places, False


def _places(folder: str, deps: Dependencies) -> Iterator[_Place]:
    """The places of the records of a day, in no order: their keys are random. At most `MOST_LISTED` of them."""
    pages = deps.s3.get_paginator("list_objects_v2")
    with aws_errors("list the archive of dead letters"):
        listed = pages.paginate(Bucket=deps.bucket.name, Prefix=folder)
        entries = (entry for page in listed for entry in page.get("Contents", []))
        for entry in islice(entries, MOST_LISTED):
            yield _Place(_rank(folder), -entry["LastModified"].timestamp(), entry["Key"])


def _folders(wanted: Wanted, deps: Dependencies) -> list[str]:
    """The folders of the days that the list shows, the newest day first. A day may have one for each root."""
    pages = deps.s3.get_paginator("list_objects_v2")
    with aws_errors("list the days of the archive of dead letters"):
        folders = [
            entry["Prefix"]
            for root in ROOTS
            for page in pages.paginate(Bucket=deps.bucket.name, Prefix=root, Delimiter="/")
            for entry in page.get("CommonPrefixes", [])
        ]
    return sorted((folder for folder in folders if wanted.has_day(_day(folder))), key=_rank)


def _day(folder: str) -> str:
    return folder.rstrip("/").rpartition("/")[2]


def _rank(folder: str) -> int:
    """Sorts the newest day first."""
    digits = _day(folder).replace("-", "")
    return -int(digits) if digits.isdecimal() else 0


def _read(key: str, deps: Dependencies) -> dict[str, Any]:
    """A record of the archive. Empty if it is not a record, or does not exist: a recovery may remove it at any time.

    Unpaired surrogates, which the archive keeps and no answer can hold, are replaced by question marks.
    """
    try:
        text = json.dumps(json.loads(deps.bucket.read(key)), ensure_ascii=False)
        record = json.loads(text.encode(errors="replace"))
    except (PermanentError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) and not _is_deeper_than(MOST_LEVELS, record) else {}


def _is_deeper_than(levels: int, value: Any) -> bool:
    """Whether objects and lists are nested in more than `levels` levels."""
    level = [value]
    for _ in range(levels):
        level = [child for each in level for child in _children(each)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _read_for_list(key: str, deps: Dependencies) -> dict[str, Any]:
    """A record as `_read` gives it. A record that S3 does not give now has only an error, so the list goes on."""
    try:
        return _read(key, deps)
    except UnavailableError as error:
        deps.logger.warning("dead_letter_not_read", extra={"error": str(error)})
        return {"error": f"This record cannot be read now. {error}"}


def _errors_of_chunks(records: Iterable[dict[str, Any]], deps: Dependencies) -> Mapping[tuple[str, str], str | None]:
    """The errors of chunks, for records that have no error: the worker died, or a later attempt may succeed."""
    silent = {
        (run_id, chunk_id)
        for record in records
        if not record.get("error")
        and isinstance(run_id := record.get("run_id"), str)
        and isinstance(chunk_id := record.get("chunk_id"), str)
    }
    found = deps.ledger.find(sorted(silent)) if silent else {}
    return {name: chunk.error or chunk.last_error for name, chunk in found.items()}


def _view(key: str, record: dict[str, Any], errors: Mapping[tuple[str, str], str | None]) -> DeadLetterView | None:
    """The record as a list shows it. None if it does not exist or is not a record."""
    if not record:
        return None
    texts = {name: text if isinstance(text := record.get(name), str) else None for name in TEXTS}
    count = record.get("receive_count")
    survey = record.get("collection")
    error = texts.pop("error") or errors.get((texts["run_id"] or "", texts["chunk_id"] or ""))
    return DeadLetterView(
        key=key,
        day=_day(key.rpartition("/")[0]),
        message_id=key.rpartition("/")[2].removesuffix(".json"),
        name=survey if isinstance(survey, str) else None,
        error=error,
        receive_count=count if isinstance(count, int) else None,
        recovery_failed=key.startswith(FAILED_DEAD_LETTERS_PREFIX),
        **texts,
    )


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    """The record without the fields that allow somebody to act on the message in its queue."""
    return {name: value for name, value in record.items() if name != "receiptHandle"}


def recover(request: RecoverRequest, caller: Caller, key: str | None, deps: Dependencies) -> Accepted:
    """Request a recovery of dead letters of a run. Raises ProblemError (404, 409)."""
    run = find_run(caller, request.run_id, deps)
    code = None if request.code is None else _latest_code(run, deps)
    named = derived_id("recovery", caller.tenant, key, request_hash(request)) if key else str(uuid4())
    operation_id = f"{RECOVERY_PREFIX}{run.run_id}-{named.replace('-', '')[:SUFFIX_CHARS]}"
    keys = None if request.keys is None else sorted(set(request.keys))
    event = DeadlettersRecoverRequested(
        operation_id=operation_id,
        only_run=run.run_id,
        record_keys=keys,
        # For a consumer of an older release, which does not know record_keys.
        prefix=os.path.commonprefix(keys) if keys else DEAD_LETTERS_PREFIX,  # noqa: RUF071  not paths
        dry_run=request.dry_run,
        retry=request.retry,
        chunk_ids=request.chunk_ids,
        cancelled_at=request.cancelled_at,
        code=code,
        requested_at=timestamp(deps.clock()),
    )
    if not request.dry_run:
        noted = RunRequest(name="recover", at=event.requested_at, by=caller.key_id, operation_id=operation_id)
        deps.store.note_request(run.run_id, noted)
    deps.transport.publish_event(event, traceparent=None, key=(operation_id,))
    return Accepted(requested="recover", status_url=f"/v1/recoveries/{operation_id}")


def _latest_code(run: AnyRun, deps: Dependencies) -> str:
    """The code that the function of a run was registered with last. Raises ProblemError (409)."""
    if not is_function(run.workload):
        raise conflict("no-code", f"The workload {run.workload} is a part of the services: its runs have no code.")
    return latest_registration(run.workload, deps).code


def show_recovery(caller: Caller, operation_id: str, deps: Dependencies) -> RecoveryView:
    """A recovery of the caller's run, or with the scope `all` of any run. Raises ProblemError (404)."""
    run_id = operation_id.removeprefix(RECOVERY_PREFIX)[: -SUFFIX_CHARS - 1]
    if not operation_id.startswith(RECOVERY_PREFIX) or not run_id:
        raise not_found(f"recovery {operation_id}")
    try:
        find_run(caller, run_id, deps)
    except ProblemError as error:
        raise not_found(f"recovery {operation_id}") from error
    return recovery_view(operation_id, run_id, deps)


def recovery_view(operation_id: str, run_id: str, deps: Dependencies) -> RecoveryView:
    """A recovery as clients see it."""
    operation = deps.operations.get(operation_id)
    counts = RecoveryCounts() if operation is None else operation
    return RecoveryView(
        operation_id=operation_id,
        run_id=run_id,
        status="pending" if operation is None else operation.status,
        dry_run=operation is not None and operation.dry_run,
        **({} if operation is None else {name: getattr(operation, name) for name in _OF_A_RECOVERY}),
        **{name: getattr(counts, name) for name in RecoveryCounts.model_fields},
    )
