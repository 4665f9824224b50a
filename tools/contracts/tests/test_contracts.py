"""The JSON Schemas, the models and the examples say the same."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from prismline_cli.printed import OUTPUT_MODELS
from prismline_contracts.base import derived_id
from prismline_contracts.captions import CaptionsManifest, CaptionWindow
from prismline_contracts.commands import run_queue_name, run_queue_prefix
from prismline_contracts.envelope import Envelope, traceparent_of
from prismline_contracts.events import ChunkCompleted
from prismline_contracts.items import ChunkItem, NewerStatus
from prismline_contracts.manifest import FitParams, Manifest, SpectraManifest
from prismline_contracts.messages import MESSAGES
from prismline_contracts.tasks import TaskItem, UrlsManifest, partition, shard_of, task_id
from prismline_contracts_tool.schemas import DOCUMENTS, MODELS, output_schema_of, schema_of

ROOT = Path(__file__).parents[3] / "contracts"
NAMES = sorted(MODELS)


def example(name: str) -> dict[str, Any]:
    """The part of the example that the schema `name` describes."""
    document: dict[str, Any] = json.loads((ROOT / "registry" / name / "example.json").read_text())
    return document if name in DOCUMENTS else document["data"]


def schema_accepts(name: str, document: object) -> bool:
    return jsonschema.Draft202012Validator(schema_of(name)).is_valid(document)


def model_accepts(name: str, document: object) -> bool:
    try:
        MODELS[name].model_validate_json(json.dumps(document))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_file_equals_the_models_schema(name: str) -> None:
    committed = json.loads((ROOT / "registry" / name / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(committed)
    assert committed == schema_of(name), "run `make schemas`"


@pytest.mark.parametrize("name", OUTPUT_MODELS)
def test_the_schema_of_a_commands_output_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(output_schema_of(name))


def test_there_is_no_schema_or_example_without_a_contract() -> None:
    for file in ("schema", "example"):
        assert sorted(path.parent.name for path in (ROOT / "registry").glob(f"*/{file}.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_example_satisfies_schema_and_model(name: str) -> None:
    assert schema_accepts(name, example(name))
    assert model_accepts(name, example(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_writes_the_example_with_the_names_that_it_read(name: str) -> None:
    model = MODELS[name].model_validate_json(json.dumps(example(name)))
    assert model.model_dump(mode="json", exclude_unset=True) == example(name)
    assert json.loads(model.model_dump_json(exclude_unset=True)) == example(name)


@pytest.mark.parametrize("name", sorted(n for n in NAMES if n not in DOCUMENTS))
def test_a_message_example_is_a_whole_envelope_of_its_type(name: str) -> None:
    message = json.loads((ROOT / "registry" / name / "example.json").read_text())
    jsonschema.validate(message, schema_of("envelope.v1"))
    assert Envelope.model_validate(message).type == f"prismline.{name}"
    assert message["type"] in MESSAGES


#: Values of every JSON type, to replace other values with.
JSON_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.just(0.5), st.text(max_size=5), st.just([]), st.just({})
)


#: Fields that the model compares with one another, which a JSON Schema cannot.
COMPARED = {
    "caption_window.v1": {"frame_count", "frames"},
    "urls_manifest.v1": {"urls", "list", "batches", "rerun"},
    "function_manifest.v1": {"source", "rerun"},
}


@given(name=st.sampled_from(NAMES), data=st.data())
def test_schema_and_model_agree_on_altered_examples(name: str, data: st.DataObject) -> None:
    document = copy.deepcopy(example(name))
    field = data.draw(st.sampled_from(sorted(set(document) - COMPARED.get(name, set()))))
    if data.draw(st.booleans()):
        del document[field]
    else:
        document[field] = data.draw(JSON_VALUES)
    assert schema_accepts(name, document) == model_accepts(name, document)


@given(name=st.sampled_from(NAMES), extra=st.text(st.characters(codec="ascii"), min_size=1), value=JSON_VALUES)
def test_a_reader_ignores_fields_it_does_not_know(name: str, extra: str, value: object) -> None:
    known = set(schema_of(name)["properties"])
    document = example(name) | ({extra: value} if extra not in known else {})
    assert schema_accepts(name, document)
    assert model_accepts(name, document)


#: Fields that may get more values in a newer release, by contract.
OPEN_FIELDS = [
    ("chunk_item.v1", "status"),
    ("task_item.v1", "status"),
    ("workflow_state_item.v1", "status"),
    ("export_item.v1", "status"),
    ("webhook_item.v1", "status"),
    ("recovery_operation_item.v1", "status"),
    ("status.update.v1", "status"),
    ("status.update.v1", "wait_for"),
    ("job_item.v1", "state"),
    ("run_item.v1", "unit"),
    ("run_item.v1", "stop_reason"),
    ("run_item.v1", "workload"),
    ("run.drained.v1", "unit"),
]


@pytest.mark.parametrize(("name", "field"), OPEN_FIELDS)
def test_a_reader_reads_a_value_that_only_a_newer_release_knows(name: str, field: str) -> None:
    document = example(name) | {field: "newer"}
    assert schema_accepts(name, document)
    assert model_accepts(name, document)
    assert getattr(MODELS[name].model_validate(document), field) == "newer"


def test_an_older_reader_does_not_take_an_unknown_status_for_an_end() -> None:
    for name in ("chunk_item.v1", "task_item.v1"):
        item = MODELS[name].model_validate(example(name) | {"status": "ARCHIVED"})
        assert isinstance(item, ChunkItem | TaskItem)
        assert item.state is NewerStatus.NEWER
        assert not item.state.terminal


def test_an_api_key_with_a_scope_of_a_newer_release_is_read() -> None:
    assert model_accepts("api_key_item.v1", example("api_key_item.v1") | {"scopes": ["read", "administer"]})


def test_an_unknown_fit_parameter_is_refused() -> None:
    with pytest.raises(ValidationError, match="betta"):
        SpectraManifest.model_validate({"cube_key": "c.fits", "survey": "s", "params": {"betta": 3}})


@pytest.mark.parametrize("survey", ["a/b", "", "../x", "a=b", "x" * 65, ".hidden", "a b"])
def test_a_survey_that_would_break_a_path_is_refused(survey: str) -> None:
    assert not model_accepts("manifest.v1", {"cube_key": "c.fits", "survey": survey})


def test_a_repeat_of_a_message_has_the_same_id() -> None:
    def completed(chunk: str) -> Envelope:
        data = ChunkCompleted(
            run_id="r1", survey="s", chunk_id=chunk, output_key="o", n_items=1, n_timed_out=0, duration_ms=5
        )
        return Envelope.wrap(data, source="test", traceparent=traceparent_of("r1"), key=(chunk,))

    assert completed("chunk-0000001").id == completed("chunk-0000001").id
    assert completed("chunk-0000001").id != completed("chunk-0000002").id


@given(st.lists(st.text(st.characters(blacklist_characters="\x1f", codec="utf-8")), min_size=1, max_size=4))
def test_a_derived_id_depends_on_how_its_parts_are_divided(parts: list[str]) -> None:
    assert derived_id(*parts) != derived_id(*parts, "")


def test_the_defaults_are_those_of_the_reference_decomposer() -> None:
    phspectra = pytest.importorskip("phspectra", reason="the reference decomposer is not installed")
    defaults = phspectra.fit_gaussians.__kwdefaults__
    assert FitParams().model_dump(include=set(defaults)) == defaults


def captions(**fields: object) -> dict[str, object]:
    window = {"window_index": 0, "frame_count": 2, "frames": ["a.png", "b.png"]}
    return {"workload": "captions", "session_id": "s", "user_id": "u", "windows": [window]} | fields


def test_caption_runs_are_listed_by_their_session() -> None:
    manifest = CaptionsManifest.model_validate(captions())
    assert manifest.survey == manifest.session_id == "s"
    assert CaptionsManifest.model_validate_json(manifest.model_dump_json(by_alias=True)) == manifest


@pytest.mark.parametrize(
    ("windows", "wrong"),
    [
        ([{"window_index": 0, "frame_count": 3, "frames": ["a.png"]}], "frame_count is 3, but there are 1 frames"),
        ([{"window_index": 4, "frame_count": 1, "frames": ["a.png"]}] * 2, "the same window_index"),
        ([], "at least 1 item"),
    ],
)
def test_windows_that_contradict_themselves_are_refused(windows: object, wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        CaptionsManifest.model_validate(captions(windows=windows))


#: Numbers that a table, a message or a browser would change or refuse. JSON has a word for some that it does not allow.
EXTREME_FRACTIONS = (5e-324, 1e-320, 1e-101, 1e101, 1.7e308, float("inf"), float("nan"))


@pytest.mark.parametrize("value", EXTREME_FRACTIONS)
@pytest.mark.parametrize(
    ("model", "given", "path"),
    [
        (SpectraManifest, {"survey": "s", "cube_key": "cubes/a.fits"}, "tolerated_failure_percent"),
        (SpectraManifest, {"survey": "s", "cube_key": "cubes/a.fits"}, "params.beta"),
        (SpectraManifest, {"survey": "s", "cube_key": "cubes/a.fits"}, "params.noise"),
        (UrlsManifest, {"workload": "urls", "survey": "s", "urls": ["https://example.org"]}, "params.timeout_s"),
    ],
)
def test_a_fraction_that_a_table_cannot_hold_is_refused_and_named(
    model: type[Manifest], given: dict[str, Any], path: str, value: float
) -> None:
    outer, _, inner = path.partition(".")
    with pytest.raises(ValidationError) as refused:
        model.model_validate(given | {outer: {inner: value} if inner else value})
    assert {error["loc"][: 1 + bool(inner)] for error in refused.value.errors()} == {tuple(path.split("."))}


def test_a_negative_zero_is_a_zero() -> None:
    manifest = SpectraManifest(survey="s", cube_key="cubes/a.fits", tolerated_failure_percent=-0.0)
    assert str(manifest.tolerated_failure_percent) == "0.0"


@pytest.mark.parametrize("index", [2**31, 2**53, 10**30, 10**400])
def test_a_window_whose_number_no_cell_can_have_is_refused(index: int) -> None:
    window = {"window_index": index, "frame_count": 1, "frames": ["a.png"]}
    with pytest.raises(ValidationError, match="at most 2147483647"):
        CaptionsManifest.model_validate(captions(windows=[window]))


def test_a_window_of_an_older_release_is_still_read() -> None:
    """The worker processes chunks whose windows were stored before their numbers had a limit."""
    window = CaptionWindow(window_index=10**30, frame_count=1, frames=["a.png"], session_id="s", user_id="u")
    assert window.window_index == 10**30


@pytest.mark.parametrize(
    "sources",
    [{}, {"urls": ["https://example.org"], "list": {"key": "uploads/t/1"}}, {"urls": []}, {"urls": ["u"] * 1001}],
)
def test_a_manifest_of_urls_has_one_source(sources: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        UrlsManifest.model_validate({"workload": "urls", "survey": "s"} | sources)


def test_a_task_has_the_id_that_the_specification_defines() -> None:
    assert task_id("r", 0) == hashlib.sha256(b"r:0").hexdigest()


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=20, unique=True), st.integers(1, 256))
def test_every_task_is_in_one_partition_of_its_run(indices: list[int], shard_count: int) -> None:
    partitions = {partition("r", shard, shard_count) for shard in range(shard_count)}
    assert len(partitions) == shard_count
    assert {partition("r", shard_of(task_id("r", n), shard_count), shard_count) for n in indices} <= partitions


def test_the_tasks_of_a_run_are_spread_evenly_over_its_shards() -> None:
    tasks = Counter(shard_of(task_id("r", index), 16) for index in range(16_000))
    assert len(tasks) == 16
    assert max(tasks.values()) < 1.15 * min(tasks.values())


@given(run_id=st.text("abcXYZ019_-", min_size=1, max_size=80))
def test_the_queue_of_a_run_has_a_name_that_sqs_accepts(run_id: str) -> None:
    name = run_queue_name("a-long-environment", run_id)
    assert len(name) <= 80
    assert name.startswith(run_queue_prefix("a-long-environment"))
    assert name == run_queue_name("a-long-environment", run_id)
    assert name != run_queue_name("a-long-environment", run_id + "x")
