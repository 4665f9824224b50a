"""Whether two versions of a contract can be in use at the same time: which documents of a writer a reader would refuse.

`differences(reader, writer)` compares two JSON Schemas by explicit rules. A rule that cannot show that the reader takes
everything that the writer may write reports a difference, so a wrong answer is "incompatible", never "compatible".

The writer is closed: it writes the properties that it declares and no other. The reader is open: it ignores properties
that it does not declare, unless its schema forbids them.

The writer writes the values of `x-known-values`, and no other. The reader that has this keyword accepts any value.
With `all_known`, it has to know each of them.

A property that the writer may leave out has the same default on both sides, because each side takes its own default for
what is left out. With `ignorable`, the reader declares every property that the writer may write, except those: nobody
can see in a schema what becomes of a document whose reader ignores a part of it.

The keywords are those that pydantic writes. Any other keyword must be the same on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jsonschema

from prismline_contracts.base import KNOWN_VALUES

Schema: TypeAlias = Mapping[str, Any]
Found: TypeAlias = "Iterator[Difference]"

#: Keywords that only describe a value. No value is refused because of them.
ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "title", "description", "default", "examples", "discriminator"})

#: Keywords of each bound: inclusive, exclusive.
BOUNDS = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
#: Keywords of the least and the greatest size.
SIZES = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))
#: Keywords that the rules below compare. Every other one must be equal.
COMPARED = frozenset(
    {"type", "enum", "const", "anyOf", "oneOf", "$ref", "properties", "required", "additionalProperties", "items"}
    | {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", KNOWN_VALUES}
    | {name for pair in SIZES for name in pair}
)


@dataclass(frozen=True)
class Difference:
    """Something that the writer may write and the reader refuses.

    path: where, e.g. `$.params.beta`; `[]` is an element of an array, `{}` a value of a map.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def differences(
    reader: Schema, writer: Schema, *, all_known: bool = False, ignorable: Collection[str] | None = None
) -> list[Difference]:
    """Why `reader` may refuse or misunderstand a document of `writer`, in the order of the schema. Empty: it does not.

    all_known: the reader has to know every known value of the writer. ignorable: paths of the properties that the
    reader may ignore, e.g. `params.beta`; None: it may ignore any.
    """
    return list(_Comparison(reader, writer, all_known, ignorable).compare(reader, writer, "$", frozenset()))


class _Comparison:
    """Compares parts of two schemas. A reference is looked up in the schema that contains it."""

    def __init__(self, reader: Schema, writer: Schema, all_known: bool, ignorable: Collection[str] | None) -> None:
        self._reader, self._writer = reader, writer
        self._all_known = all_known
        self._ignorable = ignorable

    def compare(self, reader: Schema | bool, writer: Schema | bool, path: str, seen: frozenset[object]) -> Found:
        """The differences at `path`. seen: the pairs of references that are being compared already."""
        pair = (_reference(reader), _reference(writer))
        if pair in seen:
            return
        if None not in pair:
            seen |= {pair}
        writes = list(_alternatives(_plain(writer, self._writer), self._writer, writes=True))
        reads = list(_alternatives(_plain(reader, self._reader), self._reader))
        for written in writes:
            attempts = [list(self._one(read, written, path, seen)) for read in reads]
            if all(attempts):
                yield from min(attempts, key=lambda found: (_other_type(found), len(found)))

    def _one(self, reader: Schema, writer: Schema, path: str, seen: frozenset[object]) -> Found:
        """Compare two schemas without alternatives."""
        if not reader:
            return
        if "const" in writer:
            yield from self._value(reader, writer["const"], path)
            if self._all_known and writer["const"] not in reader.get(KNOWN_VALUES, (writer["const"],)):
                yield Difference(path, f"the writer may write {writer['const']!r}, which the reader does not know")
            return
        if "const" in reader:
            yield Difference(path, f"the reader accepts only {reader['const']!r}")
            return
        kind = writer.get("type")
        if kind is None:
            yield Difference(path, "the writer may write any type")
            return
        if not (kind == reader.get("type", kind) or (kind == "integer" and reader["type"] == "number")):
            yield Difference(path, f"{_OTHER_TYPE} {kind}, the reader accepts {reader['type']}")
            return
        yield from _bounds(reader, writer, path)
        yield from _others(reader, writer, path)
        if kind == "array" and "items" in reader:
            yield from self.compare(reader["items"], writer.get("items", {}), f"{path}[]", seen)
        if kind == "object":
            yield from self._object(reader, writer, path, seen)

    def _value(self, reader: Schema, value: object, path: str) -> Found:
        whole = {"$defs": self._reader.get("$defs", {}), **reader}
        if not jsonschema.Draft202012Validator(whole).is_valid(value):
            yield Difference(path, f"the writer may write {value!r}, which the reader refuses")

    def _object(self, reader: Schema, writer: Schema, path: str, seen: frozenset[object]) -> Found:
        reads, writes = reader.get("properties", {}), writer.get("properties", {})
        always = set(writer.get("required", ()))
        for name in reader.get("required", ()):
            if name not in always:
                state = "may leave out" if name in writes else "does not write"
                yield Difference(f"{path}.{name}", f"the reader needs it and the writer {state} it")
        for name, written in writes.items():
            if name not in reads:
                yield from self._undeclared(reader, written, f"{path}.{name}", seen)
                continue
            if name not in always:
                yield from _defaults(reads[name], written, f"{path}.{name}")
            yield from self.compare(reads[name], written, f"{path}.{name}", seen)
        # A map, e.g. `dict[str, int]`, declares what its values are. Without that the writer is closed.
        values = writer.get("additionalProperties", "properties" not in writer)
        if values is False:
            return
        rest = reader.get("additionalProperties", True)
        for name, read in reads.items():
            if name not in writes:
                yield from self.compare(read, values, f"{path}.{name}", seen)
        if rest is False:
            yield Difference(path + "{}", "the reader forbids properties that it does not know")
        else:
            yield from self.compare(rest, values, path + "{}", seen)

    def _undeclared(self, reader: Schema, written: Schema | bool, path: str, seen: frozenset[object]) -> Found:
        """Compare a property that the reader does not declare."""
        rest = reader.get("additionalProperties", True)
        if rest is False:
            yield Difference(path, "the reader forbids properties that it does not know")
        elif self._ignorable is not None and path.removeprefix("$.") not in self._ignorable:
            reason = "the reader ignores it, and `[ignorable]` in contract.toml does not say what it then does"
            yield Difference(path, reason)
        else:
            yield from self.compare(rest, written, path, seen)


_OTHER_TYPE = "the writer writes"


def _other_type(found: list[Difference]) -> bool:
    return any(difference.reason.startswith(_OTHER_TYPE) for difference in found)


def _reference(schema: Schema | bool) -> str | None:
    return None if isinstance(schema, bool) else schema.get("$ref")


def _plain(schema: Schema | bool, root: Schema) -> Schema:
    """`schema` with its reference looked up in `root`, without annotations."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    while "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = {**found, **{name: value for name, value in schema.items() if name != "$ref"}}
    return {name: value for name, value in schema.items() if name not in ANNOTATIONS}


def _alternatives(schema: Schema, root: Schema, *, writes: bool = False) -> Iterator[Schema]:
    """The alternatives in `schema`; a value satisfies one of them: branches of `anyOf`, types, values of `enum`.

    writes: `schema` is the writer's, which writes its known values only.
    """
    for word in ("anyOf", "oneOf"):
        if word in schema:
            rest = {name: value for name, value in schema.items() if name != word}
            for branch in schema[word]:
                yield from _alternatives({**rest, **_plain(branch, root)}, root, writes=writes)
            return
    if "enum" in schema or (writes and KNOWN_VALUES in schema):
        for value in schema["enum"] if "enum" in schema else schema[KNOWN_VALUES]:
            yield {"const": value}
    elif isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield {**schema, "type": kind}
    else:
        yield schema


def _bounds(reader: Schema, writer: Schema, path: str) -> Found:
    """Differences of ranges and sizes."""
    for inclusive, exclusive in BOUNDS:
        read, written = _limit(reader, inclusive, exclusive), _limit(writer, inclusive, exclusive)
        if read is not None and (written is None or written < read):
            yield Difference(path, f"the reader accepts only {_named(reader, inclusive, exclusive)}")
    for least, most in SIZES:
        if reader.get(least, 0) > writer.get(least, 0):
            yield Difference(path, f"the reader accepts only {least} {reader[least]}")
        if most in reader and writer.get(most, float("inf")) > reader[most]:
            yield Difference(path, f"the reader accepts only {most} {reader[most]}")
    factor = reader.get("multipleOf")
    if factor is not None and ("multipleOf" not in writer or writer["multipleOf"] % factor):
        yield Difference(path, f"the reader accepts only multiples of {factor}")


def _limit(schema: Schema, inclusive: str, exclusive: str) -> tuple[float, bool] | None:
    """The bound of `schema` as a pair: the greater of two pairs accepts less."""
    sign = 1 if inclusive == "minimum" else -1
    limits = [
        (sign * schema[name], name == exclusive) for name in (inclusive, exclusive) if schema.get(name) is not None
    ]
    return max(limits, default=None)


def _named(schema: Schema, inclusive: str, exclusive: str) -> str:
    return ", ".join(f"{name} {schema[name]}" for name in (inclusive, exclusive) if name in schema)


def _defaults(reader: Schema | bool, writer: Schema | bool, path: str) -> Found:
    """The difference between the defaults of a property that the writer may leave out."""
    if isinstance(reader, bool) or isinstance(writer, bool):
        return
    read, written = _default(reader), _default(writer)
    if read != written:
        yield Difference(path, f"the writer may leave it out; its default is {written}, the reader's {read}")


def _default(schema: Schema) -> str:
    """The default as text. A property of an object that is null is as good as absent."""
    if "default" not in schema:
        return "none"
    value = schema["default"]
    if isinstance(value, Mapping):
        value = {name: each for name, each in value.items() if each is not None}
    return json.dumps(value, sort_keys=True)


def _others(reader: Schema, writer: Schema, path: str) -> Found:
    """Differences of keywords that have no rule: patterns, formats, units."""
    for name, value in reader.items():
        if name not in COMPARED and writer.get(name) != value:
            yield Difference(path, f"the reader asks for {name} {value!r}, the writer has {writer.get(name)!r}")
