"""The same answers sooner: pure functions that are remembered, and libraries' usual paths without their detours.

Schedules repeat each other: the same cubes, chunk files, outputs and ids, thousands of times. What is a function of its
arguments alone is computed once by the project's own code and remembered. Nothing that a schedule can influence is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, wraps
from types import ModuleType, TracebackType
from typing import Any, Self, cast

import pyarrow as pa
import tenacity
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from prismline_contracts import base
from prismline_runtime import dynamodb
from prismline_worker import decompose, output

#: Results that are remembered of a function. Beyond, all of them are forgotten.
MOST_REMEMBERED = 10_000

_deserializer, _serializer = TypeDeserializer(), TypeSerializer()


def plain(value: Mapping[str, Any]) -> Any:
    """A value of DynamoDB's client as `Table.decode` makes it: whole numbers are int at once, not Decimal first."""
    ((kind, content),) = value.items()
    if kind == "S":
        return content
    if kind == "N" and content.isdecimal():
        return int(content)
    return _deserializer.deserialize(cast("Any", value))


def typed(value: Any) -> Any:
    """A value as DynamoDB's client takes it."""
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is int:
        return {"N": str(value)}
    return _serializer.serialize(value)


class FirstTry:
    """The first attempt of a `QuickRetrying`, as tenacity's AttemptManager."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: tuple[type[BaseException], BaseException, TracebackType | None] | None = None

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if kind is None or error is None:
            return None
        self.error = (kind, error, traceback)
        return True


class QuickRetrying:
    """tenacity's `Retrying` in a `for` loop, which is made only after the first attempt has failed."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def __iter__(self) -> Iterator[Any]:
        clock: Any = vars(tenacity)["time"]
        began = clock.monotonic()
        first = FirstTry()
        yield first
        if first.error is None:
            return
        retrying = tenacity.Retrying(**self._options)
        retrying.begin()
        state = tenacity.RetryCallState(retrying, fn=None, args=(), kwargs={})
        state.start_time = began
        retrying.iter(retry_state=state)  # what it says is to make the attempt that was made
        state.set_exception(first.error)
        while True:
            todo = retrying.iter(retry_state=state)
            if isinstance(todo, tenacity.DoAttempt):
                yield tenacity.AttemptManager(retry_state=state)
            elif isinstance(todo, tenacity.DoSleep):
                state.prepare_for_next_attempt()
                retrying.sleep(todo)
            else:
                return


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
_timestamp_at = lru_cache(maxsize=MOST_REMEMBERED)(_timestamp)


def timestamp(moment: Any = None) -> str:
    """`prismline_contracts.timestamp`."""
    return _timestamp_at(moment or base.now())


#: What is remembered or shortened, by the id of what it stands for.
STAND_INS: dict[int, Any] = {
    id(base.derived_id): lru_cache(maxsize=MOST_REMEMBERED)(base.derived_id),
    id(base.timestamp): timestamp,
    id(tenacity.Retrying): QuickRetrying,
    id(output.from_parquet): remembering(output.from_parquet, lambda body: body),
    id(output.timed_out_rows): remembering(output.timed_out_rows, id),
}
#: Names of the project's modules, and what they mean.
NAMES: list[tuple[ModuleType, str, Any]] = [
    (dynamodb, "_serialize", typed),
    (dynamodb, "_deserialize", plain),
    (output, "pq", Parquet(vars(output)["pq"])),
    (
        decompose,
        "_table",
        remembering(decompose._table, lambda rows, x, y, beta: (repr(rows), x.tobytes(), y.tobytes(), beta)),
    ),
]
