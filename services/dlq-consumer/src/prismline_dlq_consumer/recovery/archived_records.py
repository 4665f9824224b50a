"""The recovery of archived dead letters."""

from __future__ import annotations

from collections import Counter

from prismline_contracts.prefixes import RECOVERING_PREFIX
from prismline_dlq_consumer.archive import ArchivedRecord
from prismline_dlq_consumer.decisions import Action, judge_record
from prismline_dlq_consumer.facts import LookUp
from prismline_dlq_consumer.recovery.operation import Operation
from prismline_runtime import fault_point


class ArchivedRecords:
    """The records below a prefix of the archive, or those that the request names. The cursor is the last key."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        #: Keys of the chunks and messages that a dry run has counted as sent.
        self._rehearsed: set[str] = set()

    def take_window(self, after: str) -> bool:
        """Decide about one window of records, and move and count them. False if no record is left."""
        operation = self._operation
        keys = self._next(after)
        if not keys:
            return False
        records = operation.read([key for key in keys if not self._is_anothers(key)])
        mine = [record for record in records if self._is_meant(record)]
        counts: Counter[str] = Counter(n_records=len(records), n_left=len(records) - len(mine))
        look_up = LookUp([record.letter for record in mine], operation.deps.ledger)
        taken, gone = [], []
        for record in mine:
            decision = judge_record(record.letter, look_up.facts(record.letter))
            match decision.action:
                case Action.RESEND:
                    taken.append(record)
                    gone.append(record.key)
                case Action.SETTLE:
                    counts["n_settled"] += 1
                    gone.append(record.key)
                case Action.LEAVE:
                    counts["n_left"] += 1
                case _:
                    counts["n_failed"] += 1
                    if operation.keep_failed(record, decision.reason):
                        gone.append(record.key)
        if operation.item.dry_run:
            counts += self._rehearse(taken)
            gone = []
        else:
            counts["n_settled"] += operation.take(taken)
        fault_point("recovery.taken", operation_id=operation.id)
        operation.commit(counts, cursor=keys[-1], gone=gone)
        return True

    def _next(self, after: str) -> list[str]:
        """The next keys in order: from the operation's list of records if it has one, else from its prefix."""
        item = self._operation.item
        if item.record_keys is None:
            return self._operation.keys_below(item.prefix, after=after)
        return sorted({key for key in item.record_keys if key > after})[: self._operation.window]

    def _rehearse(self, taken: list[ArchivedRecord]) -> Counter[str]:
        """What a dry run counts for records that would be sent: each chunk and message once."""
        first = {key for record in taken if (key := record.recovering_key(self._operation.id)) not in self._rehearsed}
        self._rehearsed |= first
        return Counter(n_sent=len(first), n_settled=len(taken) - len(first))

    def _is_anothers(self, key: str) -> bool:
        """Whether an operation has taken this record, and this request does not ask for records of operations."""
        if key.startswith(self._operation.own_prefix):
            return True
        return key.startswith(RECOVERING_PREFIX) and not self._operation.item.prefix.startswith(RECOVERING_PREFIX)

    def _is_meant(self, record: ArchivedRecord) -> bool:
        """Whether the operation handles this record: it is of the right run, and was not handled before."""
        only_run = self._operation.item.only_run
        if only_run is not None and record.document.get("run_id") != only_run:
            return False
        return record.document.get("recovery") != self._operation.id
