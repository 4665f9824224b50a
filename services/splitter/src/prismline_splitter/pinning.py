"""Pins the source of a run and its division into chunks, so that every delivery of `run.split` makes the same ones."""

from __future__ import annotations

import json
from collections.abc import Callable

from prismline_contracts.items import RunItem
from prismline_contracts.objects import manifest_copy_key
from prismline_ledger import Ledger
from prismline_runtime import Bucket, PermanentError
from prismline_splitter.workload import T

#: Largest manifest, in bytes. A longer list of tasks is an object of its own, which the manifest names.
MAX_MANIFEST_BYTES = 32 * 2**20


def read_manifest(bucket: Bucket, key: str) -> bytes:
    """The manifest as it was submitted. Raises TooLargeError."""
    return bucket.read(key, most=MAX_MANIFEST_BYTES)


def pin_manifest(bucket: Bucket, run_id: str, body: bytes) -> bytes:
    """Make `body` the run's copy of the manifest, unless there is a copy. Return the copy."""
    key = manifest_copy_key(run_id)
    return body if bucket.create(key, body) else bucket.read(key)


def pinned_manifest(bucket: Bucket, run_id: str, key: str) -> bytes:
    """The run's copy of the manifest. If there is none, copy the object under `key`."""
    try:
        return bucket.read(manifest_copy_key(run_id))
    except PermanentError:  # a service other than the splitter announced the run
        return pin_manifest(bucket, run_id, read_manifest(bucket, key))


class Plan:
    """The plan of a run: facts about its source that the first delivery recorded in the run's item."""

    def __init__(self, ledger: Ledger, run: RunItem) -> None:
        self._ledger = ledger
        self._run = run

    def pinned(self, name: str, find: Callable[[], T]) -> T:
        """The value of `name` in the plan. If there is none, record the result of `find`.

        If two deliveries record different values at the same time, both use the first one.
        """
        while name not in (plan := json.loads(self._run.plan or "{}")):
            self._run = self._ledger.set_plan(self._run, json.dumps({**plan, name: find()}))
        found: T = plan[name]
        return found
