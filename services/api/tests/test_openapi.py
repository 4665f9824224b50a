"""The OpenAPI document matches the running service: valid and invalid requests made from it get documented answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from api_world import ApiWorld, urls_job
from cube_world import CubeRun

pytestmark = pytest.mark.emulator

#: Random requests to each operation, in addition to those made from the document's examples and limits.
EXAMPLES = 3


def test_requests_made_from_the_document_get_documented_answers(world: ApiWorld, url: str, tmp_path: Path) -> None:
    acme = world.caller()
    for _ in range(3):
        acme.post("/jobs", urls_job(3))
    cube = CubeRun.create(world)
    cube.complete()
    command = ["run", f"{url}/openapi.json", "--header", f"Authorization: Bearer {acme.api_key}"]
    # The service may refuse requests that fit the schema: a cube that is not in the bucket, a deadline that has passed.
    checks = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    extent = ["--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"]
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    done = subprocess.run(
        [schemathesis, *command, *checks, *extent],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-8000:]


def test_the_document_is_valid_and_has_examples(world: ApiWorld) -> None:
    document = world.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))
    assert {"submit_job", "get_run", "cancel_run"} <= set(ids), "clients that are generated have methods of these names"
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation.get("summary"), path
            assert operation.get("description"), path
            assert operation["operationId"].isidentifier(), path
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is not None:
                example = world.example(content["schema"])
                schema = content["schema"] | {"components": document["components"]}
                jsonschema.Draft202012Validator(schema).validate(example)
