"""The dead letters of a tenant's runs, and their recovery."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import groupby, islice
from typing import Annotated, Any, NamedTuple
from uuid import uuid4

from fastapi import Query

from prismline_api.archive import ROOTS, day_of
from prismline_api.dependencies import Dependencies
from prismline_api.manifests import request_hash
from prismline_api.models import Accepted, DeadLetterRecordView, DeadLetterView, Page, RecoverRequest, RecoveryView
from prismline_api.parameters import DAY, WithRecords
from prismline_api.reading import AnyRun, find_run
from prismline_api.workloads import latest_registration
from prismline_contracts.base import derived_id, timestamp
from prismline_contracts.deadletters import (
    DeadLetterRecord,
    DeadlettersRecoverRequested,
    RecoveryCounts,
    RecoveryOperationItem,
)
from prismline_contracts.jobs import RunRequest
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX, RECOVERING_PREFIX
from prismline_contracts.workloads import is_function
from prismline_http.auth import Caller
from prismline_http.problems import ProblemError, conflict, not_found
from prismline_runtime import UnavailableError

#: Most records of the archive that are read for one part of a list, and how many at a time.
MOST_RECORDS, READERS = 200, 8
#: Most records of a day that are put in order. Of more, the list shows these.
MOST_LISTED = 20_000
#: Fields of a record that have the same names in the answer.
SAME = ("run_id", "chunk_id", "source_queue", "receive_count", "archived_at", "recovery")
#: Fields of a record that allow somebody to act on the message in its queue, and those that a list leaves out.
SECRET = {"receiptHandle"}
LONG = SECRET | {"body", "attributes", "messageAttributes"}
#: The beginning of a recovery's id. The run's id, or this word for all runs, and a suffix follow.
RECOVERY_PREFIX, ALL_RUNS = "recovery-", "all"
#: Fields of a recovery's item that have the same names in the answer.
_OF_A_RECOVERY = ("prefix", "retry", "chunk_ids", "cancelled_at", "started_at", "finished_at")
#: Length of the suffix.
SUFFIX_CHARS = 12


@dataclass(frozen=True)
class Wanted:
    """Which dead letters a list shows. `first` and `last` are included."""

    run_id: Annotated[str | None, Query(max_length=80, description="Only of this run.")] = None
    first: Annotated[str | None, Query(pattern=DAY, description="The first day, in UTC, e.g. 2026-03-01.")] = None
    last: Annotated[str | None, Query(pattern=DAY, description="The last day, in UTC.")] = None
    queue: Annotated[str | None, Query(max_length=80, description="Only from this queue, e.g. `chunks`.")] = None
    error: Annotated[str | None, Query(max_length=200, description="Only with this text in the error.")] = None
    name: Annotated[str | None, Query(max_length=200, description="Only of jobs with this name.")] = None
    message_id: Annotated[str | None, Query(max_length=100, description="Only of messages whose id begins so.")] = None
    recovering: Annotated[
        bool, Query(description="Also those that a recovery has sent, and whose work has not ended. They come last.")
    ] = False
    details: WithRecords = False

    def has_day(self, day: str) -> bool:
        """Whether the list shows this day."""
        return (self.first or "") <= day and (self.last is None or day <= self.last)

    def passes(self, view: DeadLetterView) -> bool:
        """Whether the list shows this dead letter. Its owner is checked elsewhere."""
        return (
            self.has_day(view.day)
            and view.message_id.startswith(self.message_id or "")
            and self.run_id in (None, view.run_id)
            and self.name in (None, view.name)
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
    with ThreadPoolExecutor(READERS) as pool:
        records = list(pool.map(lambda place: _read_for_list(place.key, deps), places))
    errors = _errors_of_chunks(records, deps)
    owned: dict[str | None, bool] = {}
    found: list[DeadLetterView] = []
    for position, (place, record) in enumerate(zip(places, records, strict=True), 1):
        if record is None or not wanted.passes(view := _view(place.key, record, errors)):
            continue
        if view.run_id not in owned:
            owned[view.run_id] = deps.may_see(caller, view.run_id)
        if owned[view.run_id]:
            found.append(view.model_copy(update={"record": _listed(record)}) if wanted.details else view)
            if len(found) == limit:
                more = more or position < len(places)
                places = places[:position]
                break
    return Page(items=found, next_cursor=deps.seal(subject, places[-1]) if more and places else None)


def _listed(record: DeadLetterRecord) -> dict[str, Any]:
    """The record as a list with details shows it: the message only with its size."""
    return record.model_dump(exclude=LONG) | {"body_bytes": len(record.body.encode())}


def show_dead_letter(
    caller: Caller, day: str, message_id: str, key: str | None, deps: Dependencies
) -> DeadLetterRecordView:
    """A record of the archive: the one at `key`, or the first of the message. Raises ProblemError (404)."""
    for place in (key,) if key is not None else (f"{root}{day}/{message_id}.json" for root in ROOTS):
        record = deps.archive.read(place)
        if record is None:
            continue
        view = _view(place, record, _errors_of_chunks([record], deps))
        if (view.day, view.message_id) == (day, message_id) and deps.may_see(caller, view.run_id):
            shown = record.model_dump(exclude=SECRET, exclude_none=True)
            return DeadLetterRecordView(**view.model_dump(exclude={"record"}), record=shown)
    raise not_found(f"dead letter {day}/{message_id}")


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
    for rank, group in groupby(_prefixes(wanted, deps), key=_rank):
        if begin is not None and rank < begin.day:
            continue
        if len(places) >= MOST_RECORDS:
            return places, True
        day = [place for prefix in group for place in _places(prefix, deps) if begin is None or place > begin]
        room = MOST_RECORDS - len(places)
        places += sorted(day)[:room]
        if len(day) > room:
            return places, True
    return places, False


def _places(prefix: str, deps: Dependencies) -> Iterator[_Place]:
    """The places of the records of a day, in no order. At most `MOST_LISTED` of them."""
    for key, received in islice(deps.archive.entries(prefix), MOST_LISTED):
        yield _Place(_rank(prefix), -received.timestamp(), key)


def _prefixes(wanted: Wanted, deps: Dependencies) -> Iterator[str]:
    """Prefixes of the records that the list may show, the newest day first. Neither the day nor the message is in the
    key of a record that a recovery has taken. These records come last.
    """
    for folder in deps.archive.folders():
        if wanted.has_day(day_of(folder)):
            yield folder + (wanted.message_id or "")
    if wanted.recovering:
        yield RECOVERING_PREFIX


def _rank(prefix: str) -> int:
    """Sorts the newest day first."""
    digits = day_of(prefix).replace("-", "")
    return -int(digits) if digits.isdecimal() else 0


def _read_for_list(key: str, deps: Dependencies) -> DeadLetterRecord | None:
    """A record. One that S3 does not give now has only an error, so the list goes on."""
    try:
        return deps.archive.read(key)
    except UnavailableError as error:
        deps.logger.warning("dead_letter_not_read", extra={"error": str(error)})
        return DeadLetterRecord(body="", error=f"This record cannot be read now. {error}")


def _errors_of_chunks(records: Iterable[DeadLetterRecord | None], deps: Dependencies) -> Mapping[Any, str | None]:
    """The errors of chunks, for records that have no error: the worker died, or a later attempt may succeed."""
    silent = {
        (record.run_id, record.chunk_id)
        for record in records
        if record is not None and not record.error and record.run_id and record.chunk_id
    }
    found = deps.ledger.find(sorted(silent)) if silent else {}
    return {name: chunk.error or chunk.last_error for name, chunk in found.items()}


def _view(key: str, record: DeadLetterRecord, errors: Mapping[Any, str | None]) -> DeadLetterView:
    """The record as a list shows it."""
    taken = key.startswith(RECOVERING_PREFIX)
    stem = key.rpartition("/")[2].removesuffix(".json")
    return DeadLetterView(
        key=key,
        day=(record.archived_at or "")[:10] if taken else day_of(key),
        message_id=record.messageId or stem if taken else stem,
        name=record.collection,
        recovering=taken,
        recovery_failed=key.startswith(FAILED_DEAD_LETTERS_PREFIX),
        error=record.error or errors.get((record.run_id, record.chunk_id)),
        **{name: getattr(record, name) for name in SAME},
    )


def recover(request: RecoverRequest, caller: Caller, key: str | None, deps: Dependencies) -> Accepted:
    """Request a recovery of dead letters of a run, or of all runs. Raises ProblemError (403, 404, 409)."""
    if request.run_id is None:
        caller.require("all")
    run = None if request.run_id is None else find_run(caller, request.run_id, deps)
    code = None if request.code is None or run is None else _latest_code(run, deps)
    named = derived_id("recovery", caller.tenant, key, request_hash(request)) if key else str(uuid4())
    operation_id = f"{RECOVERY_PREFIX}{request.run_id or ALL_RUNS}-{named.replace('-', '')[:SUFFIX_CHARS]}"
    keys = None if request.keys is None else sorted(set(request.keys))
    event = DeadlettersRecoverRequested(
        operation_id=operation_id,
        only_run=request.run_id,
        record_keys=keys,
        # For a consumer of an older release, which does not know record_keys.
        prefix=os.path.commonprefix(keys) if keys else request.prefix or DEAD_LETTERS_PREFIX,  # noqa: RUF071  not paths
        dry_run=request.dry_run,
        retry=request.retry,
        chunk_ids=request.chunk_ids,
        cancelled_at=request.cancelled_at,
        code=code,
        requested_at=timestamp(deps.clock()),
    )
    if run is not None and not request.dry_run:
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
    """A recovery of the caller's run, or with the scope `all` any recovery. Raises ProblemError (404)."""
    run_id = operation_id.removeprefix(RECOVERY_PREFIX)[: -SUFFIX_CHARS - 1]
    operation = deps.operations.get(operation_id)
    if caller.sees_all and (operation is not None or run_id == ALL_RUNS):
        return recovery_view(operation_id, operation, None if operation is None else operation.only_run)
    if not operation_id.startswith(RECOVERY_PREFIX) or not run_id:
        raise not_found(f"recovery {operation_id}")
    try:
        find_run(caller, run_id, deps)
    except ProblemError as error:
        raise not_found(f"recovery {operation_id}") from error
    return recovery_view(operation_id, operation, run_id)


def recovery_view(operation_id: str, operation: RecoveryOperationItem | None, run_id: str | None) -> RecoveryView:
    """A recovery as clients see it. None: no consumer has begun it."""
    counts = RecoveryCounts() if operation is None else operation
    return RecoveryView(
        operation_id=operation_id,
        run_id=run_id,
        status="pending" if operation is None else operation.status,
        dry_run=operation is not None and operation.dry_run,
        **({} if operation is None else {name: getattr(operation, name) for name in _OF_A_RECOVERY}),
        **{name: getattr(counts, name) for name in RecoveryCounts.model_fields},
    )
