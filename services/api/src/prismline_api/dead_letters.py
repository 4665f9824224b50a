"""The dead letters of a tenant's runs, and their recovery."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

from prismline_api.auth import Caller
from prismline_api.dependencies import Dependencies
from prismline_api.manifests import request_hash
from prismline_api.models import Accepted, DeadLetterView, Page, RecoverRequest, RecoveryView
from prismline_api.problems import not_found
from prismline_api.reading import find_run
from prismline_contracts import (
    DEAD_LETTERS_PREFIX,
    DeadlettersRecoverRequested,
    RecoveryCounts,
    derived_id,
    timestamp,
)
from prismline_runtime import PermanentError, aws_errors

#: Most records of the archive that are read for one part of a list, and how many at a time.
MOST_RECORDS, READERS = 200, 8
#: What the id of a recovery begins with. The run's id and a suffix follow.
RECOVERY_PREFIX = "recovery-"
#: Length of the suffix.
SUFFIX_CHARS = 12


def list_dead_letters(
    caller: Caller, run_id: str | None, limit: int, cursor: str | None, deps: Dependencies
) -> Page[DeadLetterView]:
    """Dead letters of the caller's runs, or of one of them, in the order in which they were archived, by day.

    The archive holds the dead letters of everybody. One part of the list looks at `MOST_RECORDS` of them at most, so it
    may be empty although more follow.
    """
    if run_id is not None:
        find_run(caller, run_id, deps)
    subject = f"dead-letters/{caller.tenant}/{run_id or ''}"
    after = deps.unseal(subject, cursor) or ""
    with aws_errors("list the archive of dead letters"):
        listing = deps.s3.list_objects_v2(
            Bucket=deps.bucket.name, Prefix=DEAD_LETTERS_PREFIX, StartAfter=after, MaxKeys=MOST_RECORDS
        )
    keys = [entry["Key"] for entry in listing.get("Contents", [])]
    more = listing.get("IsTruncated", False)
    with ThreadPoolExecutor(READERS) as pool:
        records = list(pool.map(lambda key: _read(key, deps), keys))
    owned: dict[str, bool] = {}
    found: list[DeadLetterView] = []
    for position, (key, record) in enumerate(zip(keys, records, strict=True)):
        view = _view(key, record)
        if view is None or (run_id is not None and view.run_id != run_id):
            continue
        if view.run_id not in owned:
            owned[view.run_id] = caller.sees_all or deps.store.run(caller.tenant, view.run_id) is not None
        if owned[view.run_id]:
            found.append(view)
            if len(found) == limit:
                more = more or position + 1 < len(keys)
                keys = keys[: position + 1]
                break
    return Page(items=found, next_cursor=deps.seal(subject, keys[-1]) if more and keys else None)


def _read(key: str, deps: Dependencies) -> dict[str, Any]:
    """A record of the archive. Empty if it is gone or is not a record: a recovery may remove it at any time."""
    try:
        record = json.loads(deps.bucket.read(key))
    except (PermanentError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _view(key: str, record: dict[str, Any]) -> DeadLetterView | None:
    run_id = record.get("run_id")
    if not isinstance(run_id, str):
        return None
    texts = {name: record.get(name) for name in ("chunk_id", "source_queue", "error", "archived_at")}
    count = record.get("receive_count")
    return DeadLetterView(
        key=key,
        run_id=run_id,
        receive_count=count if isinstance(count, int) else None,
        **{name: text if isinstance(text, str) else None for name, text in texts.items()},
    )


def recover(request: RecoverRequest, caller: Caller, key: str | None, deps: Dependencies) -> Accepted:
    """Ask for dead letters of a run to be sent back. Raises ProblemError (404)."""
    run = find_run(caller, request.run_id, deps)
    named = derived_id("recovery", caller.tenant, key, request_hash(request)) if key else str(uuid4())
    operation_id = f"{RECOVERY_PREFIX}{run.run_id}-{named.replace('-', '')[:SUFFIX_CHARS]}"
    event = DeadlettersRecoverRequested(
        operation_id=operation_id,
        only_run=run.run_id,
        dry_run=request.dry_run,
        retry=request.retry,
        requested_at=timestamp(deps.clock()),
    )
    deps.transport.publish_event(event, traceparent=None, key=(operation_id,))
    return Accepted(requested="recover", status_url=f"/v1/recoveries/{operation_id}")


def show_recovery(caller: Caller, operation_id: str, deps: Dependencies) -> RecoveryView:
    """A recovery of the caller's run. Raises ProblemError (404)."""
    run_id = operation_id.removeprefix(RECOVERY_PREFIX)[: -SUFFIX_CHARS - 1]
    if not operation_id.startswith(RECOVERY_PREFIX) or deps.store.run(caller.tenant, run_id) is None:
        raise not_found(f"recovery {operation_id}")
    operation = deps.operations.get(operation_id)
    counts = RecoveryCounts() if operation is None else operation
    return RecoveryView(
        operation_id=operation_id,
        run_id=run_id,
        status="PENDING" if operation is None else operation.status,
        dry_run=operation is not None and operation.dry_run,
        **{name: getattr(counts, name) for name in RecoveryCounts.model_fields},
    )
