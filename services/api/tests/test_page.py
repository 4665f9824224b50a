"""The test runs every curl line of docs/reference/http-api.md, in order, and checks that every operation has one."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from api_world import ALL_SCOPES, ApiWorld
from cube_world import CubeRun

from prismline_contracts.deadletters import DeadLetterRecord, dead_letter_key
from prismline_contracts.jobs import Scope

PAGE = Path(__file__).parents[3] / "docs/reference/http-api.md"

#: Scopes for the last section of the page, which is about the whole deployment.
EVERYTHING: tuple[Scope, ...] = (*ALL_SCOPES, "all")

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(not PAGE.exists(), reason="a sparse checkout has no docs/"),
]


def lines() -> list[str]:
    """The commands of the page. Some have several lines."""
    blocks = re.findall(r"```sh\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    return [command for block in blocks for command in re.split(r"\n(?=curl |printf )", block)]


def learn(answer: Any, variables: dict[str, str]) -> None:
    """Remember the ids of an answer under the names that the page uses."""
    run = answer.get("run", {})
    learned = {
        "JOB": answer.get("job_id") if "run" in answer else None,
        "RUN": run.get("run_id"),
        "UPLOAD": answer.get("upload_id"),
        "UPLOAD_URL": answer.get("url") if "upload_id" in answer else None,
        "EXPORT": answer.get("export_id"),
        "RECOVERY": answer["status_url"].rpartition("/")[2] if "/recoveries/" in answer.get("status_url", "") else None,
    }
    variables.update({name: value for name, value in learned.items() if value})


def completed_cube(world: ApiWorld) -> str:
    """The id of a run of a cube whose chunks have completed."""
    run = CubeRun.create(world)
    run.complete()
    return run.run_id


def test_every_line_of_the_page_works(world: ApiWorld, url: str, tmp_path: Path) -> None:
    variables = {
        "PRISMLINE_API_URL": url,
        "PRISMLINE_API_KEY": world.key(scopes=EVERYTHING),
        "PATH": os.environ["PATH"],
    }
    variables |= {"MAP": "integrated", "LEVEL": "0", "COLUMN": "0", "ROW": "0", "X": "3", "Y": "2", "CELL": "0"}
    world.deps.bucket.write("cubes/grs/field.fits", b"a cube")
    world.deps.settings.functions_local = True
    asked = set()
    for line in lines():
        if "/tasks?status=completed" in line:  # a worker has fetched the URLs of the job on the page
            (name, *_) = [task.task_id for task in world.deps.ledger.tasks(world.deps.ledger.run(variables["RUN"]))]
            world.complete(variables["RUN"], name, b"<html>")
            variables["TASK"] = f"{variables['RUN']}.{name}"
        if "$CUBE_RUN" in line and "CUBE_RUN" not in variables:
            variables |= {"CUBE_RUN": completed_cube(world), "OTHER_RUN": completed_cube(world)}
        if "/rerun?only=all" in line:  # the splitter has closed the open job of the page
            ledger = world.deps.ledger
            ledger.set_task_total(variables["RUN"], [len(list(ledger.tasks(ledger.run(variables["RUN"]))))])
            ledger.latch(variables["RUN"])
        if "/dead-letters?run_id=" in line:
            record = DeadLetterRecord(body="{}", run_id=variables["RUN"])
            world.deps.bucket.write(dead_letter_key("2026-03-01", "m1"), record.model_dump_json().encode())
            variables |= {"DAY": "2026-03-01", "MESSAGE": "m1"}
        done = subprocess.run(
            ["bash", "-c", line], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        document = json.loads(done.stdout) if done.stdout.strip() else {}
        learn(document, variables)
        if "/tasks?status=completed" in line:
            assert [task["task_id"] for task in document["items"]] == [variables["TASK"]]
        asked.add(operation(line))
    described = {
        (method.upper(), re.sub(r"{.*?}", "*", path))
        for path, methods in world.client.get("/openapi.json").json()["paths"].items()
        for method in methods
    }
    assert described <= asked


def operation(line: str) -> tuple[str, str]:
    """The method and the path of a curl line, with `*` for parameters."""
    method = re.search(r"-X (\w+)", line)
    path = re.search(r'\$PRISMLINE_API_URL([^"?]*)', line)
    found = re.sub(r"\$\w+", "*", path[1]) if path else ""
    return (method[1] if method else "POST" if " -d '" in line else "GET"), found
