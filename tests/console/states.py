"""Drives a running system into states of docs/reference/states.md, and reads the API, the command and the console."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from prismline_localstack import harness
from tests.console.conftest import Console
from tests.cubes import write_cube
from tests.system import wait_for


def api_view(console: Console, path: str) -> dict[str, Any]:
    """A document of the API."""
    with console.api() as api:
        document: dict[str, Any] = api.get(path).raise_for_status().json()
        return document


def condition(console: Console, run_id: str, name: str, text: str = "") -> str:
    """The sentence of a condition of the run, once the API sends it with this text."""

    def sentence() -> str | None:
        found = api_view(console, f"/runs/{run_id}")["conditions"] if console_knows(console, run_id) else []
        return next((each["sentence"] for each in found if each["name"] == name and text in each["sentence"]), None)

    return wait_for(sentence, f"the condition {name}")


def run_command(console: Console, run_id: str) -> str:
    """What `prismline run` prints beside the table. Its exit code is 1 if something has failed."""
    run = api_view(console, f"/runs/{run_id}")
    failed = run["status"] == "failed" or bool(run.get("counts", {}).get("failed"))
    return console.system.cli("run", run_id, expect=int(failed), stream="stderr")


def shown(page: Page, console: Console, run_id: str, name: str, text: str) -> None:
    """The run is in this state, and the API, the console and the command say so with this text."""
    condition(console, run_id, name, text)
    page.goto(f"/console/runs/{run_id}")
    expect(page.locator(f"#condition-{name.replace('_', '-')}")).to_contain_text(text)
    assert text in run_command(console, run_id)


@contextmanager
def paused(console: Console, *names: str) -> Iterator[None]:
    """The processes whose names begin so are stopped, and go on afterwards."""
    chosen = [
        each.process
        for name, each in harness.load_state(console.home).processes.items()
        if name.startswith(names) and each.process is not None
    ]
    assert chosen
    for process in chosen:
        process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in chosen:
            process.signal(signal.SIGCONT)


def submit_urls(console: Console, name: str, **fields: Any) -> str:
    with console.api() as api:
        body = {"workload": "urls", "name": name, "urls": ["https://prismline.invalid/"], **fields}
        return str(api.post("/jobs", json=body).raise_for_status().json()["run"]["run_id"])


def rules(point: str, run_id: str, action: str = "transient", times: int | None = None) -> list[dict[str, Any]]:
    return [{"point": point, "action": action, "where": {"run_id": run_id}, "times": times}]


def submit_cube(console: Console, tmp_path: Path, key: str, **fields: Any) -> str:
    return console.system.submit(
        write_cube(tmp_path / "field.fits", ny=4, nx=5),
        **({"survey": key, "chunk_size": 10, "idempotency_key": key} | fields),
    )


def console_knows(console: Console, run_id: str) -> bool:
    with console.api() as api:
        return api.get(f"/runs/{run_id}").status_code == 200


def condition_names(console: Console, run_id: str) -> set[str]:
    return {each["name"] for each in api_view(console, f"/runs/{run_id}")["conditions"]}
