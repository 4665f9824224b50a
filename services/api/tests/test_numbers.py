"""Extreme numbers: no number that a client sends, and no number in the ledger, leads to a fault of the service."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from api_world import Api, ApiWorld, urls_job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_cells import unpacked

pytestmark = pytest.mark.emulator

#: JSON's words for numbers, and words that Python's parser takes for numbers.
EXTREMES = (
    "1e-320", "5e-324", "2.3e-308", "1e-200", "1e-131", "-0.0", "-1e-320", "1e126", "1e308", "1e400", "-1e400",
    "NaN", "Infinity", "-Infinity", "0", "-1", "2147483648", "4294967296", "9007199254740993", "9223372036854775808",
    "1" + "0" * 30, "1" + "0" * 39, "9" * 400, "9" * 5000, "0.1234567890123456789012345678901234567890123",
)  # fmt: skip
NUMBERS = st.one_of(st.sampled_from(EXTREMES), st.integers().map(str), st.floats().map(json.dumps))
#: Stands for a number in a body, until the number's text replaces it.
HERE = "<number>"


class Document:
    """The OpenAPI document, and the places in it where a client sends a number."""

    def __init__(self, world: ApiWorld) -> None:
        self.whole = world.client.get("/openapi.json").json()

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        return self.whole["components"]["schemas"][name] if name else schema

    def alternatives(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        schema = self.resolved(schema)
        branches = schema.get("oneOf") or schema.get("anyOf")
        return [each for branch in branches for each in self.alternatives(branch)] if branches else [schema]

    def numbers(self, schema: dict[str, Any], path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
        """The paths of all numbers in a document of the schema."""
        for each in self.alternatives(schema):
            if each.get("type") in ("integer", "number"):
                yield path
            for name, field in each.get("properties", {}).items():
                yield from self.numbers(field, (*path, name))
            if "items" in each:
                yield from self.numbers(each["items"], (*path, 0))

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self.whole["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def bodies(self) -> Iterator[tuple[str, str]]:
        """Each operation with a number in its body: path, and an example with `HERE` in place of the number."""
        for _, path, operation in self.operations():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            for schema in self.alternatives(content["schema"]) if content else ():
                for where in self.numbers(schema):
                    yield path, json.dumps(placed(copy.deepcopy(schema["examples"][0]), where))

    def addresses(self) -> Iterator[str]:
        """The address of each operation with a number in it, with `HERE` in place of one number."""
        for method, path, operation in self.operations():
            for parameter in operation.get("parameters", []) if method == "GET" else ():
                if not any(True for _ in self.numbers(parameter["schema"])):
                    continue
                name = parameter["name"]
                yield path.replace(f"{{{name}}}", HERE) if parameter["in"] == "path" else f"{path}?{name}={HERE}"


def placed(body: Any, where: tuple[str | int, ...]) -> Any:
    """`body` with `HERE` at this path."""
    inner = body
    for name in where[:-1]:
        inner = inner.setdefault(name, {}) if isinstance(inner, dict) else inner[name]
    inner[where[-1]] = HERE
    return body


def test_no_number_in_a_request_is_a_fault(world: ApiWorld, acme: Api) -> None:
    generous = {"requests_per_second": 1e6, "request_burst": 10**6}
    object.__setattr__(world.deps, "settings", world.deps.settings.model_copy(update=generous))
    document = Document(world)
    bodies, addresses = list(document.bodies()), list(document.addresses())
    for expected in ("window_index", "tolerated_failure_percent", "beta", "noise", "timeout_s", "size_bytes"):
        assert any(f'"{expected}": "{HERE}"' in body for _, body in bodies), expected
    job = acme.post("/jobs", urls_job(1))
    named = {"run_id": job["run"]["run_id"], "job_id": job["job_id"], "map_name": "integrated"}
    world.deps.bucket.write("cubes/grs/field.fits", b"a cube")
    headers = {"Authorization": f"Bearer {acme.api_key}", "Content-Type": "application/json"}

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(place=st.sampled_from([*bodies, *addresses]), number=NUMBERS)
    def every_number(place: tuple[str, str] | str, number: str) -> None:
        if isinstance(place, str):
            path = place.replace(HERE, quote(number))
            for name, value in named.items():
                path = path.replace(f"{{{name}}}", value)
            answer = world.client.get(path.replace("{", "").replace("}", ""), headers=headers)
        else:
            path, body = place
            path = path.replace("{job_id}", named["job_id"])
            answer = world.client.post(path, content=body.replace(f'"{HERE}"', number), headers=headers)
        assert answer.status_code < 500, (path, answer.text)
        if answer.status_code in (201, 202) and path == "/v1/jobs":
            shown = answer.json()
            for later in (f"jobs/{shown['job_id']}", f"runs/{shown['run']['run_id']}"):
                assert world.client.get(f"/v1/{later}", headers=headers).status_code == 200

    every_number()


def test_a_rerun_of_a_job_whose_manifest_has_such_a_number_is_refused_and_adds_no_run(
    world: ApiWorld, acme: Api
) -> None:
    window = {"window_index": 7, "frame_count": 1, "frames": ["frames/s/0.png"]}
    job = acme.post("/jobs", {"workload": "captions", "name": "s", "user_id": "u", "windows": [window]}, expect=202)
    (key,) = world.keys(f"jobs/{job['job_id']}/")
    body = world.deps.bucket.read(key)
    world.deps.bucket.write(key, body.replace(b'"window_index":7', b'"window_index":' + b"9" * 30))
    assert "window_index" in acme.post(f"/jobs/{job['job_id']}/rerun", {}, expect=409)["detail"]
    assert acme.get(f"/jobs/{job['job_id']}")["run_ids"] == [job["run"]["run_id"]]


def test_a_cell_whose_number_is_too_large_for_the_picture_is_shown_with_the_largest(
    world: ApiWorld, acme: Api, url: str
) -> None:
    """An older release accepted windows with any number, so the ledger has chunks like these."""
    window = {"window_index": 0, "frame_count": 1, "frames": ["frames/s/0.png"]}
    job = acme.post("/jobs", {"workload": "captions", "name": "s", "user_id": "u", "windows": [window]}, expect=202)
    run_id = job["run"]["run_id"]
    world.open_run(job)
    for number in (0, 2**31, 2**63, 10**30):
        item = {
            "SK": f"CHUNK#chunk-{number:07d}",
            "status": "COMPLETED",
            "chunk_key": "k",
            "n_spectra": 1,
            "n_items": 1,
        }
        world.put("runs", {"PK": run_id, "created_at": "2026-03-01T12:00:00.000Z", "attempts": 1, **item})
    shown = acme.get(f"/runs/{run_id}/cells")
    assert unpacked(shown["columns"]["cell"], 4) == [0, 2**31 - 1, 2**31 - 1, 2**31 - 1]
    assert len(acme.get(f"/runs/{run_id}/chunks")["items"]) == 4
    asked = {"run": run_id, "since": "x-1"}
    headers = {"Authorization": f"Bearer {acme.api_key}"}
    with httpx.stream("GET", f"{url}/v1/events", params=asked, headers=headers, timeout=30) as answer:
        kinds = (line.removeprefix("event: ") for line in answer.iter_lines() if line.startswith("event: "))
        assert (next(kinds), next(kinds)) == ("run", "reset")
