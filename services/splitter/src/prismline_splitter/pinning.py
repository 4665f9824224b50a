"""What a run is split from, and how: found out once, so that every delivery splits the same source in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable

from prismline_contracts import RunItem, manifest_copy_key
from prismline_ledger import Ledger
from prismline_runtime import Bucket, PermanentError
from prismline_splitter.workload import T


def pin_manifest(bucket: Bucket, run_id: str, body: bytes) -> bytes:
    """Make `body` the run's own manifest unless it has one, and return the one that it has."""
    key = manifest_copy_key(run_id)
    return body if bucket.create(key, body) else bucket.read(key)


def pinned_manifest(bucket: Bucket, run_id: str, key: str) -> bytes:
    """The run's own manifest; if it has none yet, what is under `key` becomes it."""
    try:
        return bucket.read(manifest_copy_key(run_id))
    except PermanentError:  # somebody else than the splitter announced the run
        return pin_manifest(bucket, run_id, bucket.read(key))


class Plan:
    """What was found out about a run's source, kept in the run's item."""

    def __init__(self, ledger: Ledger, run: RunItem) -> None:
        self._ledger = ledger
        self._run = run

    def pinned(self, name: str, find: Callable[[], T]) -> T:
        """What the plan says under `name`; if it says nothing yet, what `find` returns becomes that.

        Of two deliveries that find different things at the same time, both go by the one that was noted first.
        """
        while name not in (plan := json.loads(self._run.plan or "{}")):
            self._run = self._ledger.set_plan(self._run, json.dumps({**plan, name: find()}))
        found: T = plan[name]
        return found
