"""The client's models of answers are those of the API's OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from prismline_api.app import api
from prismline_client import (
    Action,
    Chunk,
    Condition,
    Costs,
    Counts,
    Finalization,
    Pace,
    Recovery,
    RepeatedError,
    Retry,
    Run,
    RunSummary,
    Task,
    TaskResult,
)

#: The models of the client, by their names in the document.
MODELS: dict[str, type[BaseModel]] = {
    "ActionView": Action,
    "ChunkView": Chunk,
    "ConditionView": Condition,
    "Costs": Costs,
    "Counts": Counts,
    "FinalizationView": Finalization,
    "PaceView": Pace,
    "RecoveryView": Recovery,
    "RepeatedErrorView": RepeatedError,
    "RetryView": Retry,
    "RunSummary": RunSummary,
    "RunView": Run,
    "TaskResultView": TaskResult,
    "TaskView": Task,
}
NAMES = {model.__name__: name for name, model in MODELS.items()}


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    app = FastAPI()
    app.include_router(api)
    found: dict[str, Any] = app.openapi()["components"]["schemas"]
    return found


def shape(schema: Any) -> Any:
    """What a schema accepts, without explanations and defaults, and with the API's names of models."""
    if isinstance(schema, list):
        return [shape(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return NAMES.get(name, name)
    kept = {
        key: shape(value) for key, value in schema.items() if key in {"type", "anyOf", "items", "additionalProperties"}
    }
    return {} if kept == {"additionalProperties": True} else kept


@pytest.mark.parametrize("name", MODELS)
def test_the_fields_of_a_model_are_fields_of_the_answer(schemas: dict[str, Any], name: str) -> None:
    """The API may have more: within a version it adds fields, and the models ignore those that they do not know."""
    theirs, ours = schemas[name], MODELS[name].model_json_schema()
    fields = {field: shape(each) for field, each in ours["properties"].items()}
    assert fields == {field: shape(each) for field, each in theirs["properties"].items() if field in fields}
    assert set(ours.get("required", [])) <= set(theirs.get("required", []))
