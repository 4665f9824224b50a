"""The ledger: the one place that writes run and chunk items.

Every write is conditional, so that any message may be delivered twice, late or out of order. The order in which the
splitter calls is `open_run`, `add_chunks`, `set_total`, (messages), `latch`; each of them may be repeated at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from prismline_contracts import (
    CHUNK_SK_PREFIX,
    MAX_SUMMARY_BYTES,
    OPEN_RUNS,
    RUN_SK,
    ChunkItem,
    ChunkStatus,
    RunItem,
    timestamp,
)
from prismline_ledger.transitions import (
    ALLOWED_FROM,
    Finished,
    Skipped,
    Started,
    counter_changes,
    truncate,
)
from prismline_runtime import PermanentError, TransientError, aws_errors, batches, error_code

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

#: Chunk items written in one transaction. DynamoDB takes 100, but the DynamoDB Local of 2020 that some builds of
#: LocalStack hold takes 10; larger ones would write half as many chunks again in a second.
CHUNKS_PER_TRANSACTION = 10
#: Items read in one call (DynamoDB gives 100).
ITEMS_PER_READ = 100
#: How long, in seconds, a write goes on that collides with other transactions on the same items.
CONFLICT_SECONDS = 20.0
#: A chunk that is IN_PROGRESS for longer than this has lost its worker: Lambda's longest timeout.
STUCK_AFTER = timedelta(minutes=15)
#: What drains a run without chunks left when its latch closes.
DRAINED_BY_SPLIT = "split"
#: What drains a run that nobody else has drained.
DRAINED_BY_SWEEPER = "sweeper"

#: The run's counters of its chunks.
COUNTERS = ("jobs_completed", "jobs_failed", "n_timed_out")

_CONFLICT_CODES = frozenset({"TransactionConflictException", "TransactionInProgressException"})
_CONFLICT_REASONS = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})


@dataclass(frozen=True)
class NewChunk:
    """A chunk that the splitter made."""

    chunk_id: str
    chunk_key: str
    n_items: int


class _RefusedError(Exception):
    """A condition did not hold; `reasons` has the code of each write of a transaction."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(", ".join(reasons))
        self.reasons = reasons


class Ledger:
    """Reads and guarded writes of the ledger's table.

    Raises TransientError when DynamoDB cannot be reached or a collision outlasts the retries, PermanentError when
    an item that a message speaks of does not exist.
    """

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], str] = timestamp) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._clock = clock

    # ---- the splitter's writes

    def open_run(
        self,
        *,
        run_id: str,
        survey: str,
        job_id: str,
        workload: str,
        params: str | None,
        traceparent: str | None,
        manifest_key: str | None = None,
        split_token: str | None = None,
    ) -> RunItem:
        """Create the run's item unless it is there, and return what is there.

        `manifest_key` and `split_token` (of the task that waits for the split) let the sweeper ask for the split again.
        """
        created_at = self._clock()
        item = RunItem(
            PK=run_id,
            GSI1_PK=survey,
            GSI1_SK=created_at,
            GSI2_PK=OPEN_RUNS,
            GSI2_SK=created_at,
            survey=survey,
            workload=workload,
            job_id=job_id,
            created_at=created_at,
            params=params,
            traceparent=traceparent,
            trace_id=traceparent.split("-")[1] if traceparent else None,
            manifest_key=manifest_key,
            split_token=split_token,
        )
        try:
            self._put_new(item)
        except _RefusedError:
            return self.run(run_id)
        return item

    def add_chunks(self, run_id: str, chunks: Iterable[NewChunk]) -> None:
        """Create the chunks' items, PENDING; those that are there stay as they are, whatever state they are in."""
        for batch in batches(chunks, CHUNKS_PER_TRANSACTION):
            created_at = self._clock()
            items = [
                ChunkItem(
                    PK=run_id,
                    SK=CHUNK_SK_PREFIX + chunk.chunk_id,
                    status=ChunkStatus.PENDING.value,
                    chunk_key=chunk.chunk_key,
                    n_spectra=chunk.n_items,
                    n_items=chunk.n_items,
                    created_at=created_at,
                )
                for chunk in batch
            ]
            while items:
                try:
                    self._transact([{"Put": self._put_if_absent(item)} for item in items])
                    break
                except _RefusedError as refused:
                    items = [
                        item
                        for item, reason in zip(items, refused.reasons, strict=True)
                        if reason != "ConditionalCheckFailed"
                    ]

    def set_total(self, run_id: str, *, jobs_total: int, n_spectra: int, n_blank: int) -> None:
        """Say how many chunks there are: absolutely, and only once all of their items are written."""
        try:
            self._update(
                run_id,
                RUN_SK,
                sets={"jobs_total": jobs_total, "n_chunks": jobs_total, "n_spectra": n_spectra, "n_blank": n_blank},
                condition="attribute_exists(PK) AND (attribute_not_exists(latched_at) OR jobs_total = :jobs_total)",
            )
        except _RefusedError:
            raise PermanentError(f"Run {run_id} is closed with another number of chunks than {jobs_total}.") from None

    def latch(self, run_id: str) -> Finished:
        """Declare the total final; drains the run if its chunks have all ended already."""
        try:
            self._update(
                run_id,
                RUN_SK,
                sets={"latched_at": self._clock()},
                condition="attribute_exists(jobs_total) AND attribute_not_exists(latched_at)",
            )
            changed = True
        except _RefusedError:
            changed = False
        return Finished(changed, self._drain_if_due(run_id, DRAINED_BY_SPLIT))

    # ---- the worker's writes

    def start_chunk(self, run_id: str, chunk_id: str, *, recovery: str | None = None) -> Started | Skipped:
        """Begin an attempt at a chunk, unless it has ended or its run was cancelled.

        A chunk that is IN_PROGRESS may be started again: its worker may have died, and of two that finish, one counts.
        A FAILED one may be tried by the `recovery` that it was given to; it stays FAILED until it is completed, so
        that the run's counters stay true.
        """
        run = self.run(run_id)
        if run.cancelled_at:
            return Skipped("its run was cancelled", run)
        try:
            chunk = self._update_chunk(
                run_id,
                chunk_id,
                sets={"status": ChunkStatus.IN_PROGRESS.value, "started_at": self._clock()},
                adds={"attempts": 1},
                allowed=ALLOWED_FROM[ChunkStatus.IN_PROGRESS],
            )
        except _RefusedError:
            recovered = self._start_recovery(run_id, chunk_id, recovery) if recovery else None
            if recovered is None:
                chunk = self.chunk(run_id, chunk_id)
                return Skipped(f"it is {chunk.status} already", run, chunk)
            chunk = recovered
        return Started(run, chunk)

    def _start_recovery(self, run_id: str, chunk_id: str, recovery: str) -> ChunkItem | None:
        try:
            return ChunkItem.model_validate(
                self._update(
                    run_id,
                    CHUNK_SK_PREFIX + chunk_id,
                    sets={"started_at": self._clock()},
                    adds={"attempts": 1},
                    condition="#status = :failed AND recovery = :recovery",
                    values={":failed": ChunkStatus.FAILED.value, ":recovery": recovery},
                )
            )
        except _RefusedError:
            return None

    def complete_chunk(
        self,
        run_id: str,
        chunk_id: str,
        *,
        output_key: str,
        duration_ms: int,
        n_timed_out: int = 0,
        summary: str | None = None,
    ) -> Finished:
        """Record that the chunk's output is there, whole; `n_timed_out` of its items wait for the slow lane."""
        fields: dict[str, Any] = {"output_key": output_key, "duration_ms": duration_ms, "n_timed_out": n_timed_out}
        if summary is not None:
            fields["summary"] = truncate(summary, MAX_SUMMARY_BYTES)
        adds = {"n_timed_out": n_timed_out} if n_timed_out else {}
        return self._finish(run_id, chunk_id, ChunkStatus.COMPLETED, fields, run_adds=adds)

    def fail_chunk(
        self, run_id: str, chunk_id: str, error: str, *, duration_ms: int | None = None, by: str | None = None
    ) -> Finished:
        """Record that the chunk will not be done, and why. `by` drains the run if this does; default: the chunk."""
        fields: dict[str, Any] = {"error": truncate(error)}
        if duration_ms is not None:
            fields["duration_ms"] = duration_ms
        return self._finish(run_id, chunk_id, ChunkStatus.FAILED, fields, by=by)

    def record_error(self, run_id: str, chunk_id: str, error: str) -> None:
        """Note why an attempt did not end the chunk; it will be tried again."""
        with suppress(_RefusedError):
            self._update_chunk(
                run_id,
                chunk_id,
                sets={"last_error": truncate(error)},
                allowed=ALLOWED_FROM[ChunkStatus.IN_PROGRESS],
            )

    def record_refit(self, run_id: str, chunk_id: str, *, remaining: int) -> bool:
        """Set how many of a completed chunk's items still wait for the slow lane; False if that is known already.

        Raises TransientError if the chunk is not COMPLETED yet.
        """
        while True:
            chunk = self.chunk(run_id, chunk_id)
            if chunk.state is not ChunkStatus.COMPLETED:
                raise TransientError(f"{chunk_id} is {chunk.status}; its refit has to wait until it is COMPLETED.")
            if chunk.n_timed_out == remaining:
                return False
            try:
                self._transact(
                    [
                        {
                            "Update": self._update_request(
                                run_id,
                                CHUNK_SK_PREFIX + chunk_id,
                                sets={"n_timed_out": remaining},
                                condition="n_timed_out = :before",
                                values={":before": chunk.n_timed_out},
                            )
                        },
                        {
                            "Update": self._update_request(
                                run_id, RUN_SK, adds={"n_timed_out": remaining - chunk.n_timed_out}
                            )
                        },
                    ]
                )
            except _RefusedError:
                continue
            return True

    def drained_by(self, run_id: str, chunk_id: str) -> RunItem | None:
        """The run, if it drained with this chunk: for a redelivery after a worker died before saying so."""
        return self._drain_if_due(run_id, chunk_id)

    # ---- the status service's write

    def stop_run(self, run_id: str) -> None:
        """Have the rest of a run skipped: workers acknowledge its chunks without processing them."""
        with suppress(_RefusedError):
            self._update(
                run_id,
                RUN_SK,
                sets={"cancelled_at": self._clock()},
                condition="attribute_exists(PK) AND attribute_not_exists(cancelled_at)",
            )

    # ---- the dead-letter consumer's writes

    def record_deferral(self, run_id: str, chunk_id: str) -> ChunkItem | None:
        """Note that the chunk's message was put off. The chunk, or None if it has ended or does not exist."""
        try:
            return self._update_chunk(
                run_id,
                chunk_id,
                sets={"deferred_at": self._clock()},
                adds={"deferrals": 1},
                allowed=ALLOWED_FROM[ChunkStatus.FAILED],
            )
        except _RefusedError:
            return None

    def allow_recovery(self, tokens: Mapping[tuple[str, str], str], operation: str) -> set[tuple[str, str]]:
        """Give each chunk, by run and chunk id, to the recovery `token`, which begins with `operation` and a slash.

        A chunk is given to one token of an operation, and to that one again on a repeat; never when it is COMPLETED.
        Returns the chunks that were given.
        """
        given: set[tuple[str, str]] = set()
        for batch in batches(tokens.items(), CHUNKS_PER_TRANSACTION):
            writes = {
                name: {
                    "Update": self._update_request(
                        name[0],
                        CHUNK_SK_PREFIX + name[1],
                        sets={"recovery": token},
                        condition="attribute_exists(PK) AND #status <> :completed AND (attribute_not_exists(recovery)"
                        " OR recovery = :recovery OR NOT begins_with(recovery, :operation))",
                        values={":completed": ChunkStatus.COMPLETED.value, ":operation": f"{operation}/"},
                    )
                }
                for name, token in batch
            }
            while writes:
                try:
                    self._transact(list(writes.values()))
                    given |= set(writes)
                    break
                except _RefusedError as refused:
                    writes = {
                        name: write
                        for (name, write), reason in zip(writes.items(), refused.reasons, strict=True)
                        if reason != "ConditionalCheckFailed"
                    }
        return given

    def end_recovery(self, run_id: str, chunk_id: str, recovery: str, error: str) -> None:
        """Note that the `recovery` of a FAILED chunk failed too, and why: it may not be tried by it again."""
        with suppress(_RefusedError):
            self._update(
                run_id,
                CHUNK_SK_PREFIX + chunk_id,
                sets={"recovery": f"{recovery}/failed", "error": truncate(error)},
                condition="#status = :failed AND recovery = :held",
                values={":failed": ChunkStatus.FAILED.value, ":held": recovery},
            )

    # ---- the sweeper's writes

    def open_runs(self) -> Iterator[RunItem]:
        """Runs whose end the sweeper has not seen yet, the one that was swept longest ago first: a query of GSI2."""
        query = {
            "IndexName": "GSI2",
            "KeyConditionExpression": "GSI2_PK = :open",
            "ExpressionAttributeValues": _values({":open": OPEN_RUNS}),
        }
        for item in self._query(query):
            yield RunItem.model_validate(item)

    def claim_sweep(self, run: RunItem) -> RunItem | None:
        """Take an open run for this sweep; it goes to the end of the queue. None: another sweep has taken it.

        Returns the run as it is now, read consistently.
        """
        condition, values = _as_read(run, "GSI2_SK")
        try:
            return RunItem.model_validate(
                self._update(
                    run.run_id,
                    RUN_SK,
                    sets={"GSI2_SK": self._clock()},
                    condition=f"attribute_exists(GSI2_PK) AND {condition}",
                    values=values,
                )
            )
        except _RefusedError:
            return None

    def close_run(self, run_id: str) -> bool:
        """Have the run swept no more. False: it has neither drained nor been cancelled."""
        try:
            self._update(
                run_id,
                RUN_SK,
                removes=("GSI2_PK", "GSI2_SK"),
                condition="attribute_exists(drained_at) OR attribute_exists(cancelled_at)",
            )
        except _RefusedError:
            return False
        return True

    def drain(self, run_id: str) -> RunItem | None:
        """Drain the run if that is due and nobody has. The run, if it was the sweeper who drained it, now or before."""
        return self._drain_if_due(run_id, DRAINED_BY_SWEEPER)

    def record_resend(self, chunk: ChunkItem, reason: str) -> bool:
        """Note that the message of `chunk` was sent again and that it waits for a worker.

        False: the chunk is no longer as it was read, so it went on by itself meanwhile.
        """
        if chunk.state not in ALLOWED_FROM[ChunkStatus.PENDING]:
            return False
        condition, values = _as_read(chunk, "status", "started_at", "sent_at")
        try:
            self._update(
                chunk.run_id,
                chunk.SK,
                sets={
                    "status": ChunkStatus.PENDING.value,
                    "sent_at": self._clock(),
                    "last_error": truncate(reason),
                },
                adds={"resends": 1},
                condition=condition,
                values=values,
            )
        except _RefusedError:
            return False
        return True

    def record_split_resend(self, run: RunItem) -> bool:
        """Note that the run was asked to be split again. False: it has been latched, or asked for, meanwhile."""
        condition, values = _as_read(run, "latched_at", "split_sent_at")
        try:
            self._update(
                run.run_id,
                RUN_SK,
                sets={"split_sent_at": self._clock()},
                adds={"split_resends": 1},
                condition=condition,
                values=values,
            )
        except _RefusedError:
            return False
        return True

    def correct_counters(self, run: RunItem, counted: Mapping[str, int]) -> bool:
        """Set counters to what was `counted` in the items. False: one of them has changed since `run` was read.

        Counters and items change in one transaction, so what was counted between two reads of equal counters is exact.
        """
        condition, values = _as_read(run, *COUNTERS)
        try:
            self._update(run.run_id, RUN_SK, sets=counted, condition=condition, values=values)
        except _RefusedError:
            return False
        return True

    # ---- reads

    def get_run(self, run_id: str) -> RunItem | None:
        """The run's item, or None. `GetItem(PK=run_id, SK="RUN")`"""
        item = self._get(run_id, RUN_SK)
        return None if item is None else RunItem.model_validate(item)

    def run(self, run_id: str) -> RunItem:
        """The run's item. Raises PermanentError if there is none."""
        run = self.get_run(run_id)
        if run is None:
            raise PermanentError(f"There is no run {run_id} in the ledger.")
        return run

    def chunk(self, run_id: str, chunk_id: str) -> ChunkItem:
        """The chunk's item. Raises PermanentError if there is none."""
        item = self._get(run_id, CHUNK_SK_PREFIX + chunk_id)
        if item is None:
            raise PermanentError(f"There is no {chunk_id} of run {run_id} in the ledger.")
        return ChunkItem.model_validate(item)

    def find(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], ChunkItem]:
        """The chunks of these run and chunk ids, as far as they exist, a hundred at a time."""
        found: dict[tuple[str, str], ChunkItem] = {}
        keys = [_values({"PK": run_id, "SK": CHUNK_SK_PREFIX + chunk_id}) for run_id, chunk_id in set(names)]
        for item in self._batch_get(keys):
            chunk = ChunkItem.model_validate(item)
            found[chunk.run_id, chunk.chunk_id] = chunk
        return found

    def find_runs(self, run_ids: Iterable[str]) -> dict[str, RunItem]:
        """The runs of these ids, as far as they exist."""
        keys = [_values({"PK": run_id, "SK": RUN_SK}) for run_id in set(run_ids)]
        return {item["PK"]: RunItem.model_validate(item) for item in self._batch_get(keys)}

    def chunks(self, run_id: str, *, status: ChunkStatus | None = None) -> Iterator[ChunkItem]:
        """The run's chunks in the order of their items. `Query(PK=run_id, SK begins_with "CHUNK#")`"""
        query: dict[str, Any] = {
            "KeyConditionExpression": "PK = :pk AND begins_with(SK, :prefix)",
            "ExpressionAttributeValues": _values({":pk": run_id, ":prefix": CHUNK_SK_PREFIX}),
            "ConsistentRead": True,
        }
        if status is not None:
            query |= {"FilterExpression": "#s = :status", "ExpressionAttributeNames": {"#s": "status"}}
            query["ExpressionAttributeValues"] |= _values({":status": status.value})
        for item in self._query(query):
            yield ChunkItem.model_validate(item)

    def stuck_chunks(self, run_id: str, *, now: datetime, after: timedelta = STUCK_AFTER) -> Iterator[ChunkItem]:
        """Chunks whose worker began longer than `after` ago and never ended."""
        limit = timestamp(now - after)
        for chunk in self.chunks(run_id, status=ChunkStatus.IN_PROGRESS):
            if chunk.started_at is not None and chunk.started_at < limit:
                yield chunk

    def runs_of(self, survey: str, *, not_before: str | None = None, limit: int = 20) -> list[RunItem]:
        """The survey's latest runs, newest first: a query of GSI1."""
        condition = "GSI1_PK = :survey"
        values = {":survey": survey}
        if not_before is not None:
            condition += " AND GSI1_SK >= :not_before"
            values[":not_before"] = not_before
        query = {
            "IndexName": "GSI1",
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": _values(values),
            "ScanIndexForward": False,
        }
        found: list[RunItem] = []
        for item in self._query(query):
            found.append(RunItem.model_validate(item))
            if len(found) == limit:
                break
        return found

    # ---- one transaction for a chunk's end and the run's counter

    def _finish(
        self,
        run_id: str,
        chunk_id: str,
        to: ChunkStatus,
        fields: Mapping[str, Any],
        *,
        run_adds: Mapping[str, int] | None = None,
        by: str | None = None,
    ) -> Finished:
        while True:
            chunk = self.chunk(run_id, chunk_id)
            if chunk.state not in ALLOWED_FROM[to]:
                return Finished(changed=False, drained=self._drain_if_due(run_id, by or chunk_id))
            try:
                self._transact(
                    [
                        {
                            "Update": self._update_request(
                                run_id,
                                CHUNK_SK_PREFIX + chunk_id,
                                sets={"status": to.value, "completed_at": self._clock(), **fields},
                                removes=("error",) if to is ChunkStatus.COMPLETED else (),
                                condition="#status = :before",
                                values={":before": chunk.status},
                            )
                        },
                        {
                            "Update": self._update_request(
                                run_id,
                                RUN_SK,
                                adds={**counter_changes(chunk.state, to), **(run_adds or {})},
                                condition="attribute_exists(PK)",
                            )
                        },
                    ]
                )
            except _RefusedError:
                continue
            return Finished(changed=True, drained=self._drain_if_due(run_id, by or chunk_id))

    def _drain_if_due(self, run_id: str, by: str) -> RunItem | None:
        """Mark the run drained if it is latched and its chunks have all ended.

        One caller wins the conditional write; it is also told again on a repeat.
        """
        run = self.run(run_id)
        if run.drained_at is None and run.all_terminal:
            with suppress(_RefusedError):
                self._update(
                    run_id,
                    RUN_SK,
                    sets={"drained_at": self._clock(), "drained_by": by},
                    condition="attribute_not_exists(drained_at)",
                )
            run = self.run(run_id)
        return run if run.drained_by == by else None

    # ---- DynamoDB

    def _get(self, run_id: str, sk: str) -> dict[str, Any] | None:
        with aws_errors(f"read {sk} of run {run_id} in the ledger"):
            answer = self._dynamodb.get_item(
                TableName=self._table, Key=_values({"PK": run_id, "SK": sk}), ConsistentRead=True
            )
        return _plain(answer["Item"]) if "Item" in answer else None

    def _batch_get(self, keys: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for batch in batches(keys, ITEMS_PER_READ):
            left: list[Any] = batch
            while left:
                with aws_errors("read the ledger"):
                    answer = self._dynamodb.batch_get_item(
                        RequestItems={self._table: {"Keys": left, "ConsistentRead": True}}
                    )
                for item in answer["Responses"].get(self._table, []):
                    yield _plain(item)
                unprocessed = answer.get("UnprocessedKeys") or {}
                left = list(unprocessed[self._table]["Keys"]) if self._table in unprocessed else []

    def _query(self, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        start: dict[str, Any] = {}
        while True:
            with aws_errors("query the ledger"):
                answer = self._dynamodb.query(TableName=self._table, **query, **start)
            for item in answer["Items"]:
                yield _plain(item)
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _put_if_absent(self, item: RunItem | ChunkItem) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Item": _values(item.model_dump(exclude_none=True)),
            "ConditionExpression": "attribute_not_exists(PK)",
        }

    def _put_new(self, item: RunItem) -> None:
        self._write("create the run", lambda: self._dynamodb.put_item(**self._put_if_absent(item)))

    def _update_chunk(
        self,
        run_id: str,
        chunk_id: str,
        *,
        sets: Mapping[str, Any],
        allowed: frozenset[ChunkStatus],
        adds: Mapping[str, int] | None = None,
    ) -> ChunkItem:
        names = {f":from{n}": status.value for n, status in enumerate(sorted(allowed))}
        return ChunkItem.model_validate(
            self._update(
                run_id,
                CHUNK_SK_PREFIX + chunk_id,
                sets=sets,
                adds=adds,
                condition=f"#status IN ({', '.join(names)})",
                values=names,
            )
        )

    def _update(self, run_id: str, sk: str, **parts: Any) -> dict[str, Any]:
        request = self._update_request(run_id, sk, **parts)
        answer = self._write(
            f"update {sk} of run {run_id} in the ledger",
            lambda: self._dynamodb.update_item(**request, ReturnValues="ALL_NEW"),
        )
        return _plain(answer["Attributes"])

    def _update_request(
        self,
        run_id: str,
        sk: str,
        *,
        sets: Mapping[str, Any] | None = None,
        adds: Mapping[str, int] | None = None,
        removes: Iterable[str] = (),
        condition: str | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """An update in which an attribute `a` is called `#a` and its new value `:a` wherever they are needed."""
        sets, adds, removes = sets or {}, adds or {}, tuple(removes)
        clauses = []
        if sets:
            clauses.append("SET " + ", ".join(f"#{name} = :{name}" for name in sets))
        if adds:
            clauses.append("ADD " + ", ".join(f"#{name} :{name}" for name in adds))
        if removes:
            clauses.append("REMOVE " + ", ".join(f"#{name}" for name in removes))
        names = {f"#{name}": name for name in (*sets, *adds, *removes)}
        if condition and "#status" in condition:
            names["#status"] = "status"
        request: dict[str, Any] = {
            "TableName": self._table,
            "Key": _values({"PK": run_id, "SK": sk}),
            "UpdateExpression": " ".join(clauses),
            "ExpressionAttributeNames": names,
        }
        used = {f":{name}": value for name, value in {**sets, **adds}.items()} | dict(values or {})
        if used:
            request["ExpressionAttributeValues"] = _values(used)
        if condition:
            request["ConditionExpression"] = condition
        return request

    def _transact(self, writes: list[Any]) -> None:
        self._write("write to the ledger", lambda: self._dynamodb.transact_write_items(TransactItems=writes))

    @staticmethod
    def _write(doing: str, call: Callable[[], Any]) -> Any:
        """Make a conditional write, again while it only collides with others. _RefusedError: a condition failed."""
        for attempt in Retrying(
            retry=retry_if_exception_type(TransientError),
            wait=wait_random_exponential(0.02, 2.0),
            stop=stop_after_delay(CONFLICT_SECONDS),
            sleep=time.sleep,
            reraise=True,
        ):
            with attempt, aws_errors(doing):
                try:
                    return call()
                except ClientError as error:
                    reasons = _cancellation_reasons(error)
                    if "ConditionalCheckFailed" in reasons:
                        raise _RefusedError(reasons) from error
                    if error_code(error) in _CONFLICT_CODES or _CONFLICT_REASONS & set(reasons):
                        raise TransientError(f"Could not {doing}: it collided with another write.") from error
                    raise
        raise AssertionError("unreachable: Retrying returns or raises")


def _as_read(item: RunItem | ChunkItem, *names: str) -> tuple[str, dict[str, Any]]:
    """The condition, and its values, that these attributes are still what was read; a default is as good as absent."""
    conditions, values = [], {}
    for name in names:
        read, default = getattr(item, name), type(item).model_fields[name].default
        called = "#status" if name == "status" else name
        if read is not None:
            values[f":read_{name}"] = read
        same = [f"{called} = :read_{name}"] if read is not None else []
        absent = [f"attribute_not_exists({called})"] if read == default else []
        conditions.append(f"({' OR '.join(same + absent)})")
    return " AND ".join(conditions), values


def _cancellation_reasons(error: ClientError) -> list[str]:
    """The code of each write of a cancelled transaction; of a single write, its own."""
    code = error_code(error)
    if code == "ConditionalCheckFailedException":
        return ["ConditionalCheckFailed"]
    if code == "TransactionCanceledException":
        reasons: list[dict[str, Any]] = error.response.get("CancellationReasons", [])  # type: ignore[assignment]
        return [reason.get("Code", "None") for reason in reasons]
    return []


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    serialize = TypeSerializer().serialize
    return {name: serialize(value) for name, value in values.items()}


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item with ints instead of Decimals: the ledger holds no fractions."""
    deserialize = TypeDeserializer().deserialize
    plain = {name: deserialize(value) for name, value in item.items()}
    return {name: int(value) if hasattr(value, "as_tuple") else value for name, value in plain.items()}
