"""Reads the chunks or tasks of a run that are tried again after an error."""

from __future__ import annotations

from boto3.dynamodb.conditions import Attr, Key

from prismline_contracts.items import CHUNK_SK_PREFIX, ChunkItem, ChunkStatus, RunItem
from prismline_contracts.tasks import TASK_SK_PREFIX, TaskItem, partition
from prismline_ledger.base import LedgerBase
from prismline_ledger.conditions import Retries, retry_of

#: Most chunks, or tasks of each of the first shards, that are looked at.
LOOKED_AT, SHARDS = 1000, 4


class Retrying(LedgerBase):
    """The read of what is being retried."""

    def retries(self, run: RunItem) -> Retries | None:
        """The retries among the first chunks or tasks of the run, in at most `SHARDS` requests. None: there are none.

        A filter on `status`, `attempts` and `last_error`: DynamoDB reads all items that are looked at.
        """
        where = Attr("status").eq(ChunkStatus.PENDING.value) & Attr("attempts").gt(0) & Attr("last_error").exists()
        chunks = run.unit == "chunk"
        prefix = CHUNK_SK_PREFIX if chunks else TASK_SK_PREFIX
        places = [run.run_id] if chunks else [partition(run.run_id, n, run.shard_count) for n in range(run.shard_count)]
        found, more = [], len(places) > SHARDS
        for place in places[:SHARDS]:
            page = self._table.page(Key("PK").eq(place) & Key("SK").begins_with(prefix), limit=LOOKED_AT, where=where)
            more = more or page.last_key is not None
            for item in page.items:
                retried = ChunkItem.model_validate(item) if chunks else TaskItem.model_validate(item)
                retry = retry_of(retried, run)
                if retry is not None:
                    found.append(retry)
        return Retries(len(found), max(found, key=lambda each: each.next_at), more) if found else None
