"""A recovery under way: its item, and what all its kinds do with the archive."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from prismline_contracts.deadletters import RecoveryCounts, RecoveryOperationItem
from prismline_contracts.items import RunItem
from prismline_dlq_consumer.archive import ArchivedRecord, recovering_prefix
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_runtime import fault_point


class Operation:
    """The work of one invocation on an operation."""

    def __init__(self, item: RecoveryOperationItem, lease: timedelta, deps: Dependencies) -> None:
        #: The operation's item as it was last written.
        self.item = item
        self.deps = deps
        self.id = item.operation_id
        self.own_prefix = recovering_prefix(self.id)
        self.pool = ThreadPoolExecutor(deps.settings.recovery_concurrency)
        self._lease = lease
        #: The date in the keys of moved records. It is the same in every invocation.
        self._date = item.started_at[:10]

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    @property
    def window(self) -> int:
        """Most records or chunks that are taken at once."""
        return self.deps.settings.recovery_window

    def run(self) -> RunItem | None:
        """The run that the operation is limited to."""
        return self.deps.ledger.get_run(self.item.only_run or "")

    def keys_below(self, prefix: str, *, after: str) -> list[str]:
        """The next window of keys below a prefix, in order."""
        return self.deps.archive.list(prefix, after=after, limit=self.window)

    def read(self, keys: list[str]) -> list[ArchivedRecord]:
        """The records that still exist."""
        return [record for record in self.pool.map(self.deps.archive.read, keys) if record is not None]

    def take(self, records: list[ArchivedRecord]) -> int:
        """Copy records below the operation's prefix. Return how many of them were there already."""
        taken = list(self.pool.map(lambda record: self.deps.archive.take(record, self.id), records))
        return taken.count(False)

    def keep_failed(self, record: ArchivedRecord, reason: str) -> bool:
        """Store the record with the failed records, with the reason. False if it is already stored there."""
        key = record.failed_key(self._date)
        if not self.item.dry_run:
            self.deps.archive.put(key, record.noting(error=reason, recovery=self.id))
        return key != record.key

    def delete_counted(self) -> None:
        """Delete the records of the last window that was counted, if the process died before it deleted them."""
        self.deps.archive.delete(self.item.to_delete)

    def commit(self, counts: Counter[str], *, cursor: str, gone: list[str]) -> None:
        """Count a window and delete its records. Renews the lease of the operation."""
        self.item = self.deps.operations.commit(
            self.item, RecoveryCounts(**counts), cursor=cursor, to_delete=gone, lease=self._lease
        )
        fault_point("recovery.counted", operation_id=self.id)
        self.deps.archive.delete(gone)
        self.deps.logger.info("recovery_progress", extra={"cursor": cursor, **counts})

    def await_endings(self) -> None:
        """Record that everything is taken, and that a round begins."""
        self.item = self.deps.operations.await_endings(self.item)

    def finish(self) -> None:
        """Record that the operation is over."""
        self.item = self.deps.operations.finish(self.item)
