"""The same answers sooner: pure functions that are remembered, and libraries' usual paths without their detours.

Schedules repeat each other: the same cubes, chunk files, outputs and ids, thousands of times. What is a function of its
arguments alone is computed once by the project's own code and remembered. Nothing that a schedule can influence is.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any, Self, cast

import pyarrow as pa
import tenacity
import tenacity.nap
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from boto3.dynamodb.types import TypeSerializer
from pydantic import BaseModel

from prismline_contracts import base
from prismline_runtime import dynamodb, routing
from prismline_worker import decompose, output
from tests.simulation.aws.dynamodb import Shown

#: Results that are remembered of a function. Beyond, all of them are forgotten.
MOST_REMEMBERED = 10_000

_serializer = TypeSerializer()
_real_decode = dynamodb.decode


def typed(value: Any) -> Any:
    """A value as DynamoDB's client takes it."""
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is int:
        return {"N": str(value)}
    return _serializer.serialize(value)


def decode(item: Mapping[str, Any]) -> dict[str, Any]:
    """`prismline_runtime.dynamodb.decode`, once for each version of an item; sets, lists and dicts each time."""
    if not isinstance(item, Shown):
        return _decoded(item)
    version = item.version
    if version.remembered is None:
        found = _decoded(version.wire)
        version.remembered = found, [name for name, value in found.items() if isinstance(value, (set, list, dict))]
    known, others = version.remembered
    made: dict[str, Any] = known.copy()
    for name in others:
        made[name] = _real_decode({name: item[name]})[name]
    return made


def _decoded(item: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in item.items():
        for kind, content in value.items():
            if kind == "S":
                found[name] = content
            elif kind == "N" and content.isdecimal():
                found[name] = int(content)
            else:
                found |= _real_decode({name: value})
    return found


class Try:
    """One attempt of a `QuickRetrying`: tenacity's AttemptManager and the Future that it fills, in one."""

    __slots__ = ("attempt_number", "error")
    failed = True

    def __init__(self, number: int) -> None:
        self.attempt_number = number
        self.error: BaseException | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool | None:
        self.error = error
        return None if error is None else True

    def exception(self) -> BaseException | None:
        """How the attempt ended."""
        return self.error


class QuickRetrying:
    """tenacity's `Retrying` in a `for` loop, with its own rules and without what else it can do."""

    def __init__(self, *, retry: Any, wait: Any, stop: Any, reraise: bool, sleep: Any = None) -> None:
        assert reraise
        self._retry, self._wait, self._stop, self._sleep = retry, wait, stop, sleep or tenacity.nap.sleep

    def __iter__(self) -> Iterator[Any]:
        clock: Any = vars(tenacity)["time"]
        began = clock.monotonic()
        attempt = Try(1)
        yield attempt
        if attempt.error is None:
            return
        state: Any = tenacity.RetryCallState(cast("Any", self), fn=None, args=(), kwargs={})
        state.start_time = began
        while attempt.error is not None:
            state.outcome, state.outcome_timestamp = attempt, clock.monotonic()
            if not self._retry(state):
                raise attempt.error
            seconds = state.upcoming_sleep = self._wait(state)
            if self._stop(state):
                raise attempt.error
            state.idle_for += seconds
            self._sleep(seconds)
            state.attempt_number += 1
            attempt = Try(state.attempt_number)
            yield attempt


class Batch:
    """Powertools' BatchProcessor, and what it does with a batch of SQS: `process_partial_response`."""

    def __init__(self, **_: Any) -> None: ...

    @staticmethod
    def process(*, event: Mapping[str, Any], record_handler: Callable[..., Any], processor: Any) -> dict[str, Any]:
        """Hand each record over; the answer names those that raised."""
        failures = []
        for record in event["Records"]:
            try:
                record_handler(record=SQSRecord(record))
            except Exception:
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}


def remembering(function: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, computed once for each `key` of its arguments. Errors are raised anew.

    The arguments are kept with the result, so that a key may name them by `id`.
    """
    known: dict[Any, tuple[Any, Any]] = {}

    @wraps(function)
    def remembered(*arguments: Any) -> Any:
        place = key(*arguments)
        found = known.get(place)
        if found is None:
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            found = known[place] = (function(*arguments), arguments)
        return found[0]

    return remembered


_model_validate: Any = vars(BaseModel)["model_validate"].__func__
_validated: dict[tuple[type, bytes], Any] = {}


def model_validate(model: type[base.Contract], value: Any, **options: Any) -> Any:
    """`Contract.model_validate`, once for each model and value: contracts do not change."""
    try:
        place = (model, marshal.dumps(value, 2))
    except ValueError:  # a value that is no plain Python
        return _model_validate(model, value, **options)
    found = _validated.get(place)
    if found is None:
        found = _model_validate(model, value, **options)
        if len(_validated) >= MOST_REMEMBERED:
            _validated.clear()
        _validated[place] = found
    return found


class _Writer:
    """A `ParquetWriter` that packs the same tables once. The tables are remembered, so their ids name them."""

    _packed: dict[tuple[Any, ...], tuple[bytes, Any]] = {}  # noqa: RUF012

    def __init__(self, real: ModuleType, sink: Any, schema: Any, compression: str) -> None:
        self._real, self._sink, self._schema, self._compression = real, sink, schema, compression
        self._tables: list[Any] | None = []

    def __enter__(self) -> Self:
        return self

    def write_table(self, table: Any) -> None:
        """Add rows."""
        assert self._tables is not None
        self._tables.append(table)

    def close(self) -> None:
        """Write the file; the second time, nothing."""
        tables, self._tables = self._tables, None
        if tables is None:
            return
        place = (self._compression, *map(id, tables))
        found = self._packed.get(place)
        if found is None:
            sink = pa.BufferOutputStream()
            with self._real.ParquetWriter(sink, self._schema, compression=self._compression) as writer:
                for table in tables:
                    writer.write_table(table)
            if len(self._packed) >= MOST_REMEMBERED:
                self._packed.clear()
            found = self._packed[place] = (sink.getvalue().to_pybytes(), tables)
        self._sink.write(found[0])


class Parquet:
    """The module `pyarrow.parquet`, whose writer remembers."""

    def __init__(self, real: ModuleType) -> None:
        self._real = real

    def ParquetWriter(self, sink: Any, schema: Any, *, compression: str) -> _Writer:
        """A writer into `sink`."""
        return _Writer(self._real, sink, schema, compression)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


_timestamp = base.timestamp


@lru_cache(maxsize=MOST_REMEMBERED)
def _second(moment: int) -> str:
    return _timestamp(datetime.fromtimestamp(moment, UTC)).removesuffix("000Z")


def timestamp(moment: Any = None) -> str:
    """`prismline_contracts.timestamp`."""
    moment = moment or base.now()
    return f"{_second(int(moment.replace(microsecond=0).timestamp()))}{moment.microsecond // 1000:03d}Z"


#: What is remembered or shortened, by the id of what it stands for.
STAND_INS: dict[int, Any] = {
    id(base.derived_id): lru_cache(maxsize=MOST_REMEMBERED)(base.derived_id),
    id(base.timestamp): timestamp,
    id(tenacity.Retrying): QuickRetrying,
    id(output.from_parquet): remembering(output.from_parquet, lambda body: body),
    id(output.timed_out_rows): remembering(output.timed_out_rows, id),
}
#: Names of the project's modules, and what they mean.
NAMES: list[tuple[Any, str, Any]] = [
    (base.Contract, "model_validate", classmethod(model_validate)),
    (dynamodb, "_serialize", typed),
    (dynamodb, "decode", decode),
    (routing, "BatchProcessor", Batch),
    (routing, "process_partial_response", Batch.process),
    (output, "pq", Parquet(vars(output)["pq"])),
    (
        decompose,
        "_table",
        remembering(decompose._table, lambda rows, x, y, beta: (repr(rows), x.tobytes(), y.tobytes(), beta)),
    ),
]
