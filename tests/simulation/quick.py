"""Faster replacements with the same results: caches of pure functions, and short versions of library code.

Schedules repeat the same cubes, chunk files, outputs and ids thousands of times. The result of a pure function is
computed once by the project's own code and cached. Nothing that a schedule can influence is cached.
"""

from __future__ import annotations

import io
import marshal
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import lru_cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Self, cast

import numpy as np
import numpy.lib.format
import pyarrow as pa
import tenacity
import tenacity.nap
from boto3.dynamodb.conditions import (
    Attr,
    AttributeBase,
    BuiltConditionExpression,
    ConditionBase,
    ConditionExpressionBuilder,
    Key,
)
from boto3.dynamodb.types import TypeSerializer
from pydantic import BaseModel

from prismline_contracts import base, decomposition
from prismline_contracts.objects import CubeGeometry
from prismline_runtime import dynamodb, errors, routing, telemetry
from prismline_splitter.workloads import spectra
from prismline_worker import chunk_file, decompose, inputs, output, physical_columns, workload
from tests.simulation.aws.dynamodb import Shown, Version

#: Most cached results of a function. When there are more, the cache is cleared.
MOST_REMEMBERED = 10_000

_serializer = TypeSerializer()
_real_decode = dynamodb.decode
_aws_errors = errors.aws_errors
_NOTHING = nullcontext()
#: Types whose plain values in the fake are already the decoded values.
_SIMPLE = frozenset({str, int, bool, type(None)})


def typed(value: Any) -> Any:
    """A value in the form of DynamoDB's client."""
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is int:
        return {"N": str(value)}
    return _serializer.serialize(value)


class Remembered:
    """The objects that were made from one version of an item."""

    __slots__ = ("decoded", "models", "others")

    def __init__(self, version: Version) -> None:
        plain = version.plain
        #: Attributes whose values are mutable, or differ from the plain values of the fake.
        self.others = [name for name, value in plain.items() if type(value) not in _SIMPLE]
        self.decoded: Mapping[str, Any] = plain
        if self.others:
            self.decoded = {**plain, **_real_decode({name: version.wire[name] for name in self.others})}
        #: The validated contracts of the item, by model.
        self.models: dict[type, Any] = {}


class Decoded(dict[str, Any]):
    """A decoded item that knows the version that it was made from."""

    __slots__ = ("remembered",)
    remembered: Remembered


def decode(item: Mapping[str, Any]) -> dict[str, Any]:
    """`prismline_runtime.dynamodb.decode`, once for each version of an item; sets, lists and dicts every time."""
    if not isinstance(item, Shown):
        return _real_decode(item)
    version = item.version
    remembered: Remembered | None = version.remembered
    if remembered is None:
        remembered = version.remembered = Remembered(version)
    made = Decoded(remembered.decoded)
    made.remembered = remembered
    for name in remembered.others:
        made[name] = _real_decode({name: item[name]})[name]
    return made


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
        """The error of the attempt."""
        return self.error


class QuickRetrying:
    """tenacity's `Retrying` in a `for` loop, with its own rules and without its other features."""

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


class Received:
    """The part of Powertools' SQSRecord that `Delivery.of` reads."""

    __slots__ = (
        "approximate_receive_count",
        "body",
        "event_source_arn",
        "message_id",
        "raw_event",
        "receipt_handle",
    )

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw_event = raw
        self.message_id, self.receipt_handle, self.body = raw["messageId"], raw["receiptHandle"], raw["body"]
        self.event_source_arn = raw["eventSourceARN"]
        self.approximate_receive_count = raw["attributes"]["ApproximateReceiveCount"]

    @property
    def attributes(self) -> Received:
        """The attributes of the message from SQS."""
        return self


class AwsErrors:
    """`prismline_runtime.errors.aws_errors` without work unless there is an error."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> bool | None:
        if error[0] is None:
            return None
        real = _aws_errors(self._doing)
        real.__enter__()
        return real.__exit__(*error)


class Batch:
    """Powertools' BatchProcessor with `process_partial_response` for SQS."""

    def __init__(self, **_: Any) -> None: ...

    @staticmethod
    def process(*, event: Mapping[str, Any], record_handler: Callable[..., Any], processor: Any) -> dict[str, Any]:
        """Call the handler with each record. The answer names the records for which it raised."""
        failures = []
        for record in event["Records"]:
            try:
                record_handler(record=Received(record))
            except Exception:
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}


def remembering(function: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, computed once for each `key` of its arguments. Errors are not cached.

    The arguments are kept with the result, so that a key may use their `id`.
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


def model_validate(model: type[Any], /, value: Any, **options: Any) -> Any:
    """`Contract.model_validate`, once for each model and value, because contracts are immutable."""
    if type(value) is Decoded and value == value.remembered.decoded:
        models = value.remembered.models
        found = models.get(model)
        if found is None:
            found = models[model] = _model_validate(model, value, **options)
        return found
    try:
        place = (model, marshal.dumps(value, 2))
    except ValueError:  # a value that is not plain Python
        return _model_validate(model, value, **options)
    found = _validated.get(place)
    if found is None:
        found = _model_validate(model, value, **options)
        if len(_validated) >= MOST_REMEMBERED:
            _validated.clear()
        _validated[place] = found
    return found


class _Writer:
    """A `ParquetWriter` that packs the same tables once. The tables stay in memory, so their ids identify them."""

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
        """Write the file. A second call does nothing."""
        tables, self._tables = self._tables, None
        if tables is None:
            return
        about = self._schema.metadata or {}  # the rest of the schema depends only on this
        place = (self._compression, *about.items(), *map(id, tables))
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
    """The module `pyarrow.parquet` with a caching writer."""

    def __init__(self, real: ModuleType) -> None:
        self._real = real

    def ParquetWriter(self, sink: Any, schema: Any, *, compression: str) -> _Writer:
        """A writer into `sink`."""
        return _Writer(self._real, sink, schema, compression)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def content_of(table: pa.Table) -> tuple[Any, ...]:
    """A key that is the same for equal tables with equal metadata."""
    batches = table.to_batches()
    return (
        *(batch.serialize().to_pybytes() for batch in batches),
        *table.column_names,
        *(table.schema.metadata or {}).items(),
    )


class Names:
    """A module with some names replaced."""

    def __init__(self, real: ModuleType, **names: Any) -> None:
        self._real = real
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class QuickBuilder(ConditionExpressionBuilder):
    """boto3's builder of condition expressions, faster for names without dots and brackets."""

    _name_count: int
    _value_count: int
    _build_expression_component: Callable[..., str]

    def build_expression(self, condition: Any, is_key_condition: bool = False) -> Any:
        """The expression with placeholders, and the names and values of the placeholders."""
        names, values = dict[str, str](), dict[str, Any]()
        text = self._expression(condition, names, values, is_key_condition)
        return BuiltConditionExpression(text, names, values)

    def _expression(self, condition: Any, names: dict[str, str], values: dict[str, Any], key: bool) -> str:
        parts, usual, grouped = [], Key if key else Attr, condition.has_grouped_values
        for value in condition.get_expression()["values"]:
            kind = type(value)
            if kind is usual and value.name.isidentifier():
                place = f"#n{self._name_count}"
                self._name_count += 1
                names[place] = value.name
                parts.append(place)
            elif kind not in _SIMPLE and isinstance(value, ConditionBase):
                parts.append(self._expression(value, names, values, key))
            elif grouped or (kind not in _SIMPLE and isinstance(value, AttributeBase)):
                parts.append(self._build_expression_component(value, names, values, grouped, key))
            else:
                place = f":v{self._value_count}"
                self._value_count += 1
                values[place] = value
                parts.append(place)
        return str(condition.expression_format.format(*parts, operator=condition.expression_operator))


class Chunk(chunk_file.ChunkFile):
    """A chunk file whose blocks are read only once."""

    _blocks: list[Any] | None = None

    def blocks(self, most_bytes: int = chunk_file.BLOCK_BYTES) -> Iterator[Any]:
        """All spectra in order; their arrays are read-only."""
        if most_bytes != chunk_file.BLOCK_BYTES:
            return super().blocks(most_bytes)
        if self._blocks is None:
            self._blocks = list(super().blocks())
        return iter(self._blocks)


def open_chunk(file: Any, *, n_items: int | None = None) -> chunk_file.ChunkFile:
    """`ChunkFile`, once for each content."""
    return _chunk(file.getvalue(), n_items) if type(file) is io.BytesIO else chunk_file.ChunkFile(file, n_items=n_items)


@lru_cache(maxsize=MOST_REMEMBERED)
def _chunk(body: bytes, n_items: int | None) -> Chunk:
    return Chunk(io.BytesIO(body), n_items=n_items)


def read_header(member: Any) -> Any:
    """numpy's `read_array_header_1_0`, which parses each text once."""
    length = member.read(2)
    return _header(length + member.read(int.from_bytes(length, "little")))


@lru_cache(maxsize=MOST_REMEMBERED)
def _header(text: bytes) -> Any:
    return numpy.lib.format.read_array_header_1_0(io.BytesIO(text))


def write_npz(file: Any, blocks: Any, start: int, n: int, about: Any) -> int:
    """`write_npz` of `prismline_splitter`, once for each cube and chunk. A cube that was opened once has one axis."""
    if about.noise is not None:
        return _write_npz(file, blocks, start, n, about)
    place = (id(about.cube.axis), about.geometry, start, n)
    found = _written.get(place)
    if found is None:
        n_blank = _write_npz(file, blocks, start, n, about)
        file.flush()
        _written[place] = n_blank, Path(file.name).read_bytes(), about.cube.axis
        return n_blank
    file.write(found[1])
    return found[0]


_write_npz = spectra.write_npz
_written: dict[tuple[Any, ...], tuple[int, bytes, Any]] = {}
_timestamp = base.timestamp


@lru_cache(maxsize=MOST_REMEMBERED)
def _minute(year: int, month: int, day: int, hour: int, minute: int) -> str:
    return _timestamp(datetime(year, month, day, hour, minute, tzinfo=UTC)).removesuffix("00.000Z")


def timestamp(moment: Any = None) -> str:
    """`prismline_contracts.timestamp`."""
    moment = moment or base.now()
    if moment.tzinfo is not UTC:
        return _timestamp(moment)
    minute = _minute(moment.year, moment.month, moment.day, moment.hour, moment.minute)
    return f"{minute}{moment.second:02d}.{moment.microsecond // 1000:03d}Z"


@lru_cache
def _modules(path: tuple[str, ...]) -> list[pkgutil.ModuleInfo]:
    return list(pkgutil.iter_modules(path))


def _place_of(table: pa.Table, block: Any, geometry: Any) -> tuple[Any, ...]:
    sky = (None if values is None else values.tobytes() for values in (block.longitude, block.latitude))
    return id(table), id(geometry), *sky


_RETRIES = (
    tenacity.retry_if_exception_type,
    tenacity.stop_after_attempt,
    tenacity.stop_after_delay,
    tenacity.wait_random_exponential,
)
#: The replacements, by the id of the replaced object.
STAND_INS: dict[int, Any] = {
    id(base.derived_id): lru_cache(maxsize=MOST_REMEMBERED)(base.derived_id),
    id(base.timestamp): timestamp,
    id(tenacity.Retrying): QuickRetrying,
    id(output.from_parquet): remembering(output.from_parquet, lambda body: body),
    id(output.timed_out_rows): remembering(output.timed_out_rows, id),
    id(output.patch): remembering(output.patch, lambda table, rows, refit: (id(table), *rows, content_of(refit))),
    id(output.to_parquet): remembering(output.to_parquet, content_of),
    id(decomposition.arrow_schema): remembering(decomposition.arrow_schema, lambda *about: tuple(map(id, about))),
    id(physical_columns.with_physical_columns): remembering(physical_columns.with_physical_columns, _place_of),
    id(spectra.write_npz): write_npz,
    id(errors.aws_errors): AwsErrors,
    id(telemetry.log_keys): lambda _logger, **_keys: _NOTHING,  # the trace does not show keys
    # the objects that decide about a retry have no state
    **{id(kind): lru_cache(maxsize=MOST_REMEMBERED)(kind) for kind in _RETRIES},
    id(ConditionExpressionBuilder): QuickBuilder,
}
#: Names in the project's modules, and their replacements.
NAMES: list[tuple[Any, str, Any]] = [
    (base.Contract, "model_validate", classmethod(model_validate)),
    (CubeGeometry, "model_validate_json", remembering(CubeGeometry.model_validate_json, lambda body: body)),
    (chunk_file, "np", Names(np, lib=Names(np.lib, format=Names(np.lib.format, read_array_header_1_0=read_header)))),
    (inputs, "ChunkFile", open_chunk),
    (workload, "pkgutil", Names(pkgutil, iter_modules=lambda path: _modules(tuple(path)))),
    (dynamodb, "_serialize", typed),
    (dynamodb, "decode", decode),
    (routing, "BatchProcessor", Batch),
    (routing, "process_partial_response", Batch.process),
    (output, "pq", Parquet(vars(output)["pq"])),
    (
        decompose,
        "_table",
        remembering(
            decompose._table,  # noqa: SLF001  no public function makes the table alone
            lambda rows, block, params: (repr(rows), block.x.tobytes(), block.y.tobytes(), params.beta),
        ),
    ),
]
