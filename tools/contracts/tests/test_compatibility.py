"""Which changes of a contract break its readers."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prismline_contracts.commands import Queue
from prismline_contracts.summaries import NEXT, Kind
from prismline_contracts_tool.command import main
from prismline_contracts_tool.compatibility import Schema, differences
from prismline_contracts_tool.registry import read_registry
from prismline_contracts_tool.release import (
    CHUNK_INPUT,
    NAMES,
    PARQUET,
    breaks,
    current_schemas,
    entry_of,
    names_gone,
    read_released,
)
from prismline_contracts_tool.schemas import MODELS

CONTRACTS = Path(__file__).parents[3] / "contracts"
REPOSITORY = CONTRACTS.parent


def obj(**properties: Any) -> dict[str, Any]:
    """An object schema. A property whose name ends in `_` is optional."""
    names = {name.rstrip("_"): schema for name, schema in properties.items()}
    return {
        "type": "object",
        "properties": names,
        "required": [name for name in properties if not name.endswith("_")],
    }


INT, NUMBER, TEXT, NULL = {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "null"}
ID = {"type": "string", "pattern": "^[a-z]{1,8}$"}
STATUS = {"enum": ["DONE", "FAILED"], "type": "string"}
MORE = {"enum": ["DONE", "FAILED", "SKIPPED"], "type": "string"}
OPEN = {"anyOf": [STATUS, TEXT]}
KNOWN, KNOWN_MORE = ({**TEXT, "x-known-values": values["enum"]} for values in (STATUS, MORE))
MAP = {"type": "object", "additionalProperties": INT}

#: Reader, writer, and whether the reader accepts everything that the writer may write.
PAIRS: dict[str, tuple[Schema, Schema, bool]] = {
    "nothing changed": (obj(a=INT), obj(a=INT), True),
    "the writer has one more field": (obj(a=INT), obj(a=INT, b=INT), True),
    "the writer has one more optional field": (obj(a=INT), obj(a=INT, b_=INT), True),
    "the reader needs one more field": (obj(a=INT, b=INT), obj(a=INT), False),
    "the reader knows one more optional field": (obj(a=INT, b_=INT), obj(a=INT), True),
    "the writer no longer writes what the reader needs": (obj(a=INT, b=INT), obj(b=INT), False),
    "the writer may leave out what the reader needs": (obj(a=INT), obj(a_=INT), False),
    "the writer always writes what the reader may miss": (obj(a_=INT), obj(a=INT), True),
    "a strict reader meets a new field": ({**obj(a=INT), "additionalProperties": False}, obj(a=INT, b=INT), False),
    "a strict reader meets fewer fields": ({**obj(a_=INT), "additionalProperties": False}, obj(), True),
    "integer to number": (NUMBER, INT, True),
    "number to integer": (INT, NUMBER, False),
    "text to integer": (INT, TEXT, False),
    "null is new to the reader": (INT, {"anyOf": [INT, NULL]}, False),
    "null is no longer written": ({"anyOf": [INT, NULL]}, INT, True),
    "a union in another order": ({"anyOf": [INT, TEXT]}, {"anyOf": [TEXT, INT]}, True),
    "a union with one more branch": ({"anyOf": [INT, TEXT]}, {"anyOf": [INT, TEXT, NULL]}, False),
    "a list of types is a union": ({"type": ["integer", "null"]}, {"anyOf": [INT, NULL]}, True),
    "a list of types with one more": ({"type": ["integer"]}, {"type": ["integer", "string"]}, False),
    "a narrower range is written": ({**INT, "minimum": 0}, {**INT, "minimum": 1}, True),
    "a wider range is written": ({**INT, "minimum": 0}, {**INT, "minimum": -1}, False),
    "no range is written": ({**INT, "maximum": 9}, INT, False),
    "the bound itself is excluded by the reader": ({**NUMBER, "exclusiveMinimum": 0}, {**NUMBER, "minimum": 0}, False),
    "the bound itself is excluded by the writer": ({**NUMBER, "minimum": 0}, {**NUMBER, "exclusiveMinimum": 0}, True),
    "an upper bound rises": ({**INT, "maximum": 9}, {**INT, "maximum": 10}, False),
    "multiples of a multiple": ({**INT, "multipleOf": 5}, {**INT, "multipleOf": 10}, True),
    "other multiples": ({**INT, "multipleOf": 5}, {**INT, "multipleOf": 7}, False),
    "longer text": ({**TEXT, "maxLength": 8}, {**TEXT, "maxLength": 9}, False),
    "shorter text": ({**TEXT, "maxLength": 8}, {**TEXT, "maxLength": 7}, True),
    "empty text": ({**TEXT, "minLength": 1}, TEXT, False),
    "the reader's pattern is new": (ID, TEXT, False),
    "the reader's pattern is gone": (TEXT, ID, True),
    "the pattern changed": (ID, {**ID, "pattern": "^[a-z]{1,9}$"}, False),
    "a value is new": (STATUS, MORE, False),
    "a value is gone": (MORE, STATUS, True),
    "a value is new to a tolerant reader": (OPEN, MORE, True),
    "free text where values are listed": (STATUS, TEXT, False),
    "a value is new to a reader that knows others": (KNOWN, KNOWN_MORE, True),
    "a value that nobody listed, to a reader that knows others": (KNOWN, TEXT, True),
    "a value that is not text, to a reader that knows others": (KNOWN, INT, False),
    "known values where the same are listed": (STATUS, KNOWN, True),
    "more known values where some are listed": (STATUS, KNOWN_MORE, False),
    "known values or null where null is new": (KNOWN, {"anyOf": [KNOWN, NULL]}, False),
    "one constant for another": ({"const": "a"}, {"const": "b"}, False),
    "a constant among values": (STATUS, {"const": "DONE"}, True),
    "a constant that a pattern takes": (ID, {"const": "abc"}, True),
    "a constant that a pattern refuses": (ID, {"const": "ABC"}, False),
    "elements of another type": ({"type": "array", "items": INT}, {"type": "array", "items": TEXT}, False),
    "elements of a narrower type": ({"type": "array", "items": NUMBER}, {"type": "array", "items": INT}, True),
    "any elements": ({"type": "array", "items": INT}, {"type": "array"}, False),
    "more elements": ({"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 4}, False),
    "a map of other values": (MAP, {"type": "object", "additionalProperties": TEXT}, False),
    "a map of narrower values": ({"type": "object", "additionalProperties": NUMBER}, MAP, True),
    "a map where fields are declared": (obj(a=INT), MAP, False),
    "fields where a map is read": (MAP, obj(a=INT), True),
    "fields of another type where a map is read": (MAP, obj(a=TEXT), False),
    "anything is read": ({}, obj(a=INT), True),
    "anything is written": (INT, {}, False),
    "nested: one more needed": (obj(a=obj(b=INT, c=INT)), obj(a=obj(b=INT)), False),
    "nested: one more written": (obj(a=obj(b=INT)), obj(a=obj(b=INT, c=INT)), True),
    "a reference and what it stands for": (
        {"$ref": "#/$defs/x", "$defs": {"x": ID}},
        {"anyOf": [{"$ref": "#/$defs/y"}], "$defs": {"y": ID}},
        True,
    ),
    "a reference that got stricter": (
        {**obj(a={"$ref": "#/$defs/x"}), "$defs": {"x": ID}},
        {**obj(a={"$ref": "#/$defs/x"}), "$defs": {"x": TEXT}},
        False,
    ),
    "a schema that contains itself": (
        {**obj(next_={"$ref": "#/$defs/x"}), "$defs": {"x": obj(next_={"$ref": "#/$defs/x"})}},
        {**obj(next_={"$ref": "#/$defs/x"}), "$defs": {"x": obj(next_={"$ref": "#/$defs/x"})}},
        True,
    ),
    "words without a rule are the same": ({**TEXT, "x-unit": "K"}, {**TEXT, "x-unit": "K"}, True),
    "words without a rule differ": ({**TEXT, "x-unit": "K"}, {**TEXT, "x-unit": "Jy"}, False),
    "other descriptions": ({**TEXT, "title": "A", "default": 1}, {**TEXT, "title": "B", "description": "b"}, True),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_of_schemas_has_the_known_verdict(name: str) -> None:
    reader, writer, compatible = PAIRS[name]
    found = differences(reader, writer)
    assert (found == []) is compatible, [str(difference) for difference in found]


def test_there_are_enough_pairs_of_both_verdicts() -> None:
    verdicts = [compatible for _, _, compatible in PAIRS.values()]
    assert verdicts.count(True) >= 20
    assert verdicts.count(False) >= 20


def test_a_difference_says_where_it_is() -> None:
    (found,) = differences(obj(a=obj(b={"type": "array", "items": ID})), obj(a=obj(b={"type": "array", "items": TEXT})))
    assert str(found).startswith("$.a.b[]: ")


# ---- random schemas: the reader accepts what a compatible writer writes

LEAVES = st.sampled_from(
    [
        INT,
        NUMBER,
        TEXT,
        NULL,
        ID,
        STATUS,
        MORE,
        OPEN,
        KNOWN,
        KNOWN_MORE,
        {"type": "boolean"},
        {"const": "DONE"},
        {"type": ["string", "null"]},
    ]
    + [{**INT, "minimum": low} for low in (-1, 0, 1)]
    + [{**NUMBER, "exclusiveMaximum": high} for high in (5, 6)]
    + [{**TEXT, "maxLength": most} for most in (2, 3)]
)


def _objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    fields = st.dictionaries(st.sampled_from("abc"), st.tuples(inner, st.booleans()), max_size=3)
    return st.one_of(
        fields.map(lambda f: obj(**{name if needed else f"{name}_": schema for name, (schema, needed) in f.items()})),
        inner.map(lambda values: {"type": "object", "additionalProperties": values}),
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        _objects(inner),
        inner.map(lambda items: {"type": "array", "items": items, "maxItems": 3}),
        st.tuples(inner, inner).map(lambda pair: {"anyOf": list(pair)}),
    ),
    max_leaves=5,
)


@st.composite
def documents(draw: st.DrawFn, schema: Schema) -> object:
    """A document that a writer with `schema` may write: it has no field that the schema does not declare."""
    if "anyOf" in schema:
        return draw(documents(draw(st.sampled_from(schema["anyOf"]))))
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else draw(st.sampled_from(schema["enum"]))
    if "x-known-values" in schema:
        return draw(st.sampled_from(schema["x-known-values"]))
    kind = schema["type"] if isinstance(schema["type"], str) else draw(st.sampled_from(schema["type"]))
    match kind:
        case "null":
            return None
        case "boolean":
            return draw(st.booleans())
        case "integer":
            return draw(st.integers(schema.get("minimum", -9), 9))
        case "number":
            return draw(st.floats(-9, schema.get("exclusiveMaximum", 9), exclude_max=True))
        case "string" if "pattern" in schema:
            return draw(st.from_regex(schema["pattern"], fullmatch=True))
        case "string":
            return draw(st.text("abDONE", max_size=schema.get("maxLength", 5)))
        case "array":
            return draw(st.lists(documents(schema["items"]), max_size=3))
    if "additionalProperties" in schema:
        return draw(st.dictionaries(st.sampled_from("abcd"), documents(schema["additionalProperties"]), max_size=3))
    fields: Mapping[str, Schema] = schema["properties"]
    return {
        name: draw(documents(inner))
        for name, inner in fields.items()
        if name in schema["required"] or draw(st.booleans())
    }


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reader=SCHEMAS, writer=SCHEMAS, data=st.data())
def test_a_reader_accepts_what_a_compatible_writer_writes(reader: Schema, writer: Schema, data: st.DataObject) -> None:
    for read in (reader, writer):  # two random schemas are rarely compatible, a schema is with itself
        if not differences(read, writer):
            assert jsonschema.Draft202012Validator(read).is_valid(data.draw(documents(writer)))


@given(schema=SCHEMAS)
def test_a_schema_is_compatible_with_itself(schema: Schema) -> None:
    assert differences(schema, copy.deepcopy(schema)) == []


# ---- the current contracts and those of the last release

REGISTRY = read_registry(CONTRACTS / "registry")
RELEASED = read_released(CONTRACTS / "released")
LAST_RELEASE = (CONTRACTS / "released/VERSION").read_text().strip()


def changed(name: str, change: Any, ignorable: str | None = None) -> list[str]:
    """What the check reports after `change` has altered the current schema of `name`.

    ignorable: the path of a property of which the registry says what a reader does that ignores it.
    """
    current, entry = copy.deepcopy(RELEASED[name]), entry_of(REGISTRY, name)
    change(current)
    entry = replace(entry, ignorable={} if ignorable is None else {ignorable: "It does as before."})
    return [str(broken) for broken in breaks({name: RELEASED[name]}, {name: current}, {name: entry})]


def test_the_current_contracts_are_compatible_with_those_of_the_last_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--contracts", str(CONTRACTS), "check"]) == 0, capsys.readouterr().err


def _optional_field(schema: dict[str, Any]) -> None:
    schema["properties"]["weight"] = {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}


def _later_value(schema: dict[str, Any]) -> None:
    schema["properties"]["status"]["x-known-values"].append("SKIPPED")


def _later_choice(schema: dict[str, Any]) -> None:
    schema["properties"]["chunk_input"]["enum"].append("stream")


def _removed_field(schema: dict[str, Any]) -> None:
    del schema["properties"]["output_key"]
    schema["required"].remove("output_key")


def _narrowed_id(schema: dict[str, Any]) -> None:
    schema["properties"]["chunk_id"]["pattern"] = "^chunk-[0-9]{7}$"


def _required_field(schema: dict[str, Any]) -> None:
    schema["properties"]["weight"] = {"type": "number"}
    schema["required"].append("weight")


def _default(name: str, value: Any) -> Any:
    return lambda schema: schema["properties"][name].update(default=value)


def _renamed_value(schema: dict[str, Any]) -> None:
    known = schema["properties"]["status"]["x-known-values"]
    known[known.index("COMPLETED")] = "DONE"


def _removed_value(schema: dict[str, Any]) -> None:
    schema["properties"]["wait_for"]["anyOf"][0]["x-known-values"].remove("drained")


def _renamed_field(schema: dict[str, Any]) -> None:
    schema["properties"]["reason"] = schema["properties"].pop("error")
    schema["required"][schema["required"].index("error")] = "reason"


def _optional_param(schema: dict[str, Any]) -> None:
    schema["$defs"]["RefitParams"]["properties"]["weighting"] = {"type": "string", "default": ""}


def _no_longer_required(schema: dict[str, Any]) -> None:
    schema["required"].remove("error")


def _number_as_text(schema: dict[str, Any]) -> None:
    schema["properties"]["n_items"] = {"type": "string"}


def _longer_text(schema: dict[str, Any]) -> None:
    schema["properties"]["manifest_key"]["maxLength"] = 4096


def _greater_number(schema: dict[str, Any]) -> None:
    schema["properties"]["tolerated_failure_percent"]["maximum"] = 1000


def _other_unit(schema: dict[str, Any]) -> None:
    schema["properties"]["rms"]["x-unit"] = "mK"


def _closed(schema: dict[str, Any]) -> None:
    schema["additionalProperties"] = False


#: A change of a current contract, and whether it breaks the consumers.
CHANGES: dict[str, tuple[str, Any, bool]] = {
    "a new status": ("chunk_item.v1", _later_value, False),
    "people may write one more value": ("manifest.v1", _later_choice, False),
    "people may write one more field": ("manifest.v1", _optional_field, False),
    "a new optional field of which nothing says what it means for an older reader": (
        "chunk.process.v1",
        _optional_field,
        True,
    ),
    "a new optional parameter of which nothing says that": ("spectra.refit.v1", _optional_param, True),
    "a field is removed": ("chunk.completed.v1", _removed_field, True),
    "a field is renamed": ("run.failed.v1", _renamed_field, True),
    "an id is narrowed": ("chunk.process.v1", _narrowed_id, True),
    "a new field is required": ("chunk.process.v1", _required_field, True),
    "a field is no longer required": ("chunk.failed.v1", _no_longer_required, True),
    "a default of a message changes": ("run.submitted.v1", _default("tolerated_failure_percent", 5.0), True),
    "another default of a message changes": ("run.submitted.v1", _default("workload", "urls"), True),
    "a default of a manifest changes": ("manifest.v1", _default("chunk_input", "copy"), True),
    "a default of an item changes": ("chunk_item.v1", _default("deferrals", 1), True),
    "a known value is renamed": ("chunk_item.v1", _renamed_value, True),
    "a known value is removed": ("status.update.v1", _removed_value, True),
    "a number becomes a text": ("chunk.process.v1", _number_as_text, True),
    "a text may be longer": ("run.split.v1", _longer_text, True),
    "a number may be greater": ("run.submitted.v1", _greater_number, True),
    "a column has another unit": (PARQUET, _other_unit, True),
    "unknown fields are refused": ("run.cancelled.v1", _closed, False),
}


def copy_of_contracts(folder: Path) -> Path:
    """The parts of `contracts` that the command reads."""
    copied = folder / "contracts"
    for name in ("released", "registry"):
        shutil.copytree(CONTRACTS / name, copied / name)
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(CONTRACTS / name, copied)
    return copied


def set_version(contracts: Path, version: str, *, changelog: bool = True) -> None:
    """Give the package a version, and its changelog a section."""
    path = contracts / "pyproject.toml"
    path.write_text(re.sub(r'^version = ".*"$', f'version = "{version}"', path.read_text(), flags=re.MULTILINE))
    if changelog:
        path = contracts / "CHANGELOG.md"
        path.write_text(path.read_text() + f"\n## {version}\n\nMore.\n")


def release_next(contracts: Path) -> str:
    """Release the current contracts as the version after the last release. Return that version."""
    version = "9.8.0"
    set_version(contracts, version)
    assert main(["--contracts", str(contracts), "release", version]) == 0
    return version


@pytest.mark.parametrize("change", CHANGES)
def test_the_check_judges_a_change_of_a_current_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    name, alter, broken = CHANGES[change]
    contracts = copy_of_contracts(tmp_path)
    release_next(contracts)
    altered = copy.deepcopy(current_schemas())
    alter(altered[name])
    monkeypatch.setattr("prismline_contracts_tool.command.current_schemas", lambda: altered)
    assert main(["--contracts", str(contracts), "check"]) == int(broken)
    output, consumers = capsys.readouterr().err, ", ".join(REGISTRY[name].consumers)
    assert (f"This breaks {consumers} (" in output) if broken else output == ""
    assert (name in output) is broken


def test_a_new_required_field_breaks_readers_of_messages_in_flight() -> None:
    (event,) = changed("chunk.process.v1", _required_field, ignorable="weight")
    assert "weight" in event
    assert "which reads what the last release wrote" in event


@pytest.mark.parametrize(
    "addition",
    [{"type": "integer"}, {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}],
)
def test_a_new_optional_field_breaks_nobody_once_the_registry_says_what_an_older_reader_does(
    addition: dict[str, Any],
) -> None:
    def add(schema: dict[str, Any]) -> None:
        schema["properties"].update(entirely_new=addition)

    for name in MODELS.keys() & RELEASED.keys():
        assert changed(name, add, ignorable="entirely_new") == []
        output = changed(name, add)
        assert bool(output) == (REGISTRY[name].kind is not Kind.MANIFEST)
        assert all("$.entirely_new: the reader ignores it" in each for each in output)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({"queues": ["chunks", "tasks"]}, {"queues": ["chunks", "work"]}, ["The queue tasks is gone. This breaks"]),
        ({"rules": {"status": ["run-events"]}}, {"rules": {"status": ["events"]}}, ["The rule run-events of status"]),
        ({"rules": {"api": ["hooks"]}}, {"rules": {"api": [], "webhooks": ["hooks"]}}, []),
        ({"rules": {"api": ["hooks"]}}, {"rules": {"worker": []}}, []),
        ({"queues": ["chunks"]}, {"queues": ["chunks", "more"]}, []),
    ],
    ids=["a queue is renamed", "a rule is renamed", "a rule moves", "a sparse checkout", "a queue is added"],
)
def test_names_of_the_last_release_stay(old: dict[str, Any], new: dict[str, Any], message: list[str]) -> None:
    empty: dict[str, Any] = {"queues": [], "rules": {}}
    found = list(names_gone(empty | old, empty | new, REGISTRY))
    assert [each[: len(text)] for each, text in zip(found, message, strict=True)] == message


def test_the_check_reads_the_names_of_the_last_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = copy_of_contracts(tmp_path)
    path = copied / "released" / NAMES
    names = json.loads(path.read_text())
    path.write_text(json.dumps(names | {"queues": [*names["queues"], "older"]}))
    assert main(["--contracts", str(copied), "check"]) == 1
    assert "The queue older is gone" in capsys.readouterr().err


def test_the_default_of_an_object_is_its_content() -> None:
    reader, writer = ({"default": value} | obj() for value in ({"a": 1, "b": 2, "c": None}, {"b": 2, "a": 1}))
    assert differences(obj(p_=reader), obj(p_=writer)) == []
    assert differences(obj(p_=reader), obj(p_={**writer, "default": {"a": 1}})) != []


@pytest.mark.parametrize("name", ["chunk_item.v1", "task_item.v1", "workflow_state_item.v1", "export_item.v1"])
def test_a_new_status_breaks_nobody_once_its_readers_accept_unknown_ones(name: str) -> None:
    old = current_schemas()[name]
    new = copy.deepcopy(old)
    new["properties"]["status"]["x-known-values"].append("SKIPPED")  # type: ignore[index]
    assert list(breaks({name: old}, {name: new}, REGISTRY)) == []


def test_a_new_status_breaks_the_readers_of_a_release_that_listed_them_all() -> None:
    old, new = (copy.deepcopy(current_schemas()["chunk_item.v1"]) for _ in range(2))
    old["properties"]["status"]["enum"] = old["properties"]["status"].pop("x-known-values")  # type: ignore[index]
    new["properties"]["status"]["x-known-values"].append("SKIPPED")  # type: ignore[index]
    (broken,) = breaks({"chunk_item.v1": old}, {"chunk_item.v1": new}, REGISTRY)
    assert "'SKIPPED'" in str(broken)


def test_a_column_may_be_added_but_not_removed_or_given_another_unit() -> None:
    column = {"type": "array", "x-type": "double", "x-unit": "K"}
    assert changed(PARQUET, lambda schema: schema["properties"].update(new=column), ignorable="new") == []
    assert changed(PARQUET, lambda schema: schema["required"].remove("rms")) != []
    assert changed(PARQUET, lambda schema: schema["properties"]["rms"].update({"x-unit": "pixel"})) != []


def test_an_array_of_a_chunks_input_may_be_added_but_not_removed_or_given_another_shape() -> None:
    def breaks_worker(change: Any) -> bool:
        old, new = (copy.deepcopy(current_schemas()[CHUNK_INPUT]) for _ in range(2))
        change(new)
        entry = replace(REGISTRY[CHUNK_INPUT], ignorable={"weights": "It fits without weights."})
        found = list(breaks({CHUNK_INPUT: old}, {CHUNK_INPUT: new}, {CHUNK_INPUT: entry}))
        assert {broken.consumers for broken in found} <= {("worker",)}
        return bool(found)

    weights = {"type": "array", "x-type": "float64", "x-shape": "(n,)", "x-unit": ""}
    assert not breaks_worker(lambda schema: schema["properties"].update(weights=weights))
    assert breaks_worker(lambda schema: schema["required"].remove("x"))
    assert breaks_worker(lambda schema: schema["properties"]["noise"].update({"x-shape": "(n,)"}))
    assert breaks_worker(lambda schema: schema["properties"]["spectra"].update({"x-type": "float16"}))


def _third_preset(schema: dict[str, Any]) -> None:
    (fields,) = (
        each["properties"] for name, each in schema["$defs"].items() if name.endswith(("FitParams", "RefitParams"))
    )
    for choice in fields["preset"].get("anyOf", [fields["preset"]]):
        if "enum" in choice:
            choice["enum"].append("fast")


def test_a_manifest_may_gain_a_value_that_an_old_reader_refuses() -> None:
    assert changed("manifest.v1", _third_preset) == []
    assert changed("spectra.refit.v1", _third_preset) != []


def test_the_check_fails_and_names_a_removed_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = copy_of_contracts(tmp_path)
    (copied / "registry/chunk.weighed.v1").mkdir()
    (copied / "registry/chunk.weighed.v1/contract.toml").write_text(
        'kind = "message"\nchannel = "bus"\nowner = "worker"\nproducers = ["worker"]\nconsumers = ["status"]\n'
        "[history]\n"
    )
    (copied / "released" / "chunk.weighed.v1.json").write_text(json.dumps(obj(a=INT)))
    assert main(["--contracts", str(copied), "check"]) == 1
    output = capsys.readouterr().err
    assert "chunk.weighed.v1 $: the contract is gone" in output
    assert "status" in output


def test_a_release_freezes_the_current_contracts(tmp_path: Path) -> None:
    contracts = copy_of_contracts(tmp_path)
    entry = contracts / "registry/run.started.v1/contract.toml"
    entry.write_text(f'{entry.read_text()}"next" = "More."\n')
    version = release_next(contracts)
    history = read_registry(contracts / "registry")["run.started.v1"].history
    assert history == {**REGISTRY["run.started.v1"].history, version: "More."}
    assert read_released(contracts / "released") == json.loads(json.dumps(current_schemas()))
    assert (contracts / "released/VERSION").read_text() == f"{version}\n"
    assert main(["--contracts", str(contracts), "check"]) == 0


def test_a_release_has_a_later_version_that_package_and_changelog_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contracts = copy_of_contracts(tmp_path)
    frozen = read_released(contracts / "released")

    def refused(version: str) -> str:
        assert main(["--contracts", str(contracts), "release", version]) == 1
        assert read_released(contracts / "released") == frozen
        return capsys.readouterr().err

    assert f"{LAST_RELEASE} is already released" in refused(LAST_RELEASE)
    assert "set the version in contracts/pyproject.toml" in refused("9.10.0")
    set_version(contracts, "9.10.0", changelog=False)
    assert "has no section `## 9.10.0`" in refused("9.10.0")
    set_version(contracts, "9.10.0")
    assert main(["--contracts", str(contracts), "release", "9.10.0"]) == 0
    capsys.readouterr()
    frozen = read_released(contracts / "released")
    assert "9.10.0 is already released" in refused("9.9.0")


def test_a_changed_contract_needs_a_later_version_of_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contracts = copy_of_contracts(tmp_path)
    version = release_next(contracts)
    assert main(["--contracts", str(contracts), "check"]) == 0
    entry = contracts / "registry/chunk_item.v1/contract.toml"
    entry.write_text(entry.read_text().replace("[history]\n", '[history]\n"next" = "More."\n'))
    assert main(["--contracts", str(contracts), "check"]) == 1
    assert f"the package is still {version}" in capsys.readouterr().err
    set_version(contracts, "10.0.0")
    assert main(["--contracts", str(contracts), "check"]) == 0
    set_version(contracts, "0.9.0")
    assert main(["--contracts", str(contracts), "check"]) == 1
    assert f"contracts/released is already {version}" in capsys.readouterr().err


def test_a_history_names_no_version_that_is_not_released(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contracts = copy_of_contracts(tmp_path)
    entry = contracts / "registry/chunk_item.v1/contract.toml"
    entry.write_text(entry.read_text().replace("[history]\n", '[history]\n"9.0.0" = "More."\n'))
    assert main(["--contracts", str(contracts), "check"]) == 1
    assert f"Histories name 9.0.0, and contracts/released is {LAST_RELEASE}." in capsys.readouterr().err


# ---- the registry and the code


def test_the_registry_has_every_contract_and_no_other() -> None:
    assert sorted(REGISTRY) == sorted([*MODELS, PARQUET, CHUNK_INPUT])


def test_a_contract_that_has_changed_since_the_release_says_so_in_its_history() -> None:
    for name, schema in current_schemas().items():
        if name in REGISTRY:
            same = RELEASED.get(name) == json.loads(json.dumps(schema))
            history = f"`[history]` of contracts/registry/{name}/contract.toml"
            if same:
                assert NEXT not in REGISTRY[name].history, f"nothing changed: remove `{NEXT}` from {history}"
            else:
                assert NEXT in REGISTRY[name].history, f"say under `{NEXT}` what changed, in {history}"


def test_every_message_has_a_channel() -> None:
    for name, entry in REGISTRY.items():
        message = entry.kind is Kind.MESSAGE and name != "envelope.v1"
        assert (entry.channel in {"bus", *Queue}) is message, name


#: Where the code of each participant of the registry is.
SOURCES = {path.name: path / "src" for path in sorted((REPOSITORY / "services").iterdir()) if path.is_dir()} | {
    "cli": REPOSITORY / "cli/src",
    "ledger": REPOSITORY / "libs/ledger/src",
}


@pytest.mark.parametrize("participant", SOURCES)
def test_a_participant_whose_code_names_a_contract_is_in_the_registry(participant: str) -> None:
    code = "\n".join(path.read_text() for path in SOURCES[participant].rglob("*.py"))
    for name, model in MODELS.items():
        if re.search(rf"\b{model.__name__}\b", code):
            entry = REGISTRY[name]
            named = (entry.owner, *entry.producers, *entry.consumers)
            assert participant in named, (
                f"{participant} uses {model.__name__}: add it to `producers` or `consumers` of"
                f" contracts/registry/{name}/contract.toml, and run `make schemas`"
            )


def test_every_participant_of_the_registry_exists() -> None:
    named = {who for entry in REGISTRY.values() for who in (entry.owner, *entry.producers, *entry.consumers)}
    assert named <= SOURCES.keys() | {"people", "runtime", "api", "exporter"}
