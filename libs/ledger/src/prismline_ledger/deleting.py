"""Deletes the items of a run, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from boto3.dynamodb.conditions import Key

from prismline_contracts.items import RUN_SK, STOP_SK, RunItem
from prismline_contracts.tasks import MAX_SHARDS, partition
from prismline_ledger.base import LedgerBase, run_key
from prismline_runtime import batches

#: Items that are deleted together.
DELETE_BATCH = 500


class Deleting(LedgerBase):
    """Deletes runs that have ended."""

    def delete_run(self, run: RunItem) -> Iterator[int]:
        """Delete all items of a run, its own item last. Yields the number of items after each page of them.

        The run's item says how many partitions there are, so it goes last: an interrupted deletion can be repeated. A
        stop item, written before the run was opened, stays: a late message must not open the run again.
        """
        yield from self._delete_items(run.run_id, run.shard_count)
        yield self._table.delete_each([run_key(run.run_id)])

    def delete_leftovers(self, run_id: str) -> Iterator[int]:
        """Delete the items of a run whose own item is gone. Yields the number of items after each page of them.

        A process that was busy when the run was deleted may have written them since. Nothing says how many shards the
        run had, so all that it may have had are read.
        """
        yield from self._delete_items(run_id, MAX_SHARDS)

    def _delete_items(self, run_id: str, shard_count: int) -> Iterator[int]:
        shards = [partition(run_id, shard, shard_count) for shard in range(shard_count)]
        for pk in dict.fromkeys([*shards, run_id]):
            items = self._table.query(Key("PK").eq(pk))
            keys = ({"PK": item["PK"], "SK": item["SK"]} for item in items if item["SK"] not in {RUN_SK, STOP_SK})
            for page in batches(keys, DELETE_BATCH):
                yield self._table.delete_each(page)
