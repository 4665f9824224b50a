"""The console with a run of 100,000 chunks and with a list of 1,000 runs, in a real Chromium.

The emulator holds a generated ledger, and one api process serves it. At the first visit the api has not yet
read the run; at later visits it has. For each visit the script measures the first contentful paint, the time until the
map of all cells is drawn (from then on the page can be used), and the transferred bytes. Then it recolours the map and
moves its cursor by the keyboard. It measures the time of a frame in the page's script, and the longest time between two
frames.

    python benchmarks/console.py [--chunks 100000] [--runs 1000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from playwright.sync_api import Page, sync_playwright

from prismline_api.dependencies import Dependencies
from prismline_contracts.base import timestamp
from prismline_ledger import NewRun
from prismline_localstack import harness
from prismline_runtime import encode

#: Items of one BatchWriteItem, and the number of concurrent requests.
BATCH, WRITERS = 25, 4
#: Longest wait for a page, in milliseconds.
PATIENCE_MS = 300_000
#: Workers of the generated run.
WORKERS = 8

TIMINGS = """() => {
  const entries = performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"));
  const cells = performance.getEntriesByName("prismline-heat-map")[0];
  return {
    first_contentful_paint_ms: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
    map_drawn_ms: cells && cells.startTime + cells.duration,
    bytes: entries.reduce((sum, entry) => sum + (entry.transferSize || 0), 0),
    bytes_of_cells: entries.filter((entry) => entry.name.endsWith("/cells")).at(-1)?.encodedBodySize,
  };
}"""
FRAMES = """async (presses) => {
  const canvas = document.querySelector("#heat canvas");
  canvas.focus();
  performance.clearMeasures("prismline-heat-map");
  const gaps = [];
  let before = performance.now();
  for (let press = 0; press < presses; press += 1) {
    if (press % 10 === 0) {
      const colours = document.querySelectorAll("#colours input");
      colours[(press / 10) % colours.length].click();
    }
    const key = press % 2 ? "ArrowDown" : "ArrowRight";
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey: press % 3 === 0 }));
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - before);
    before = now;
  }
  return { gaps, frames: performance.getEntriesByName("prismline-heat-map").map((entry) => entry.duration) };
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="console-benchmark-") as folder:
        state = harness.up(Path(folder), services=["api"])
        try:
            state.activate()
            deps = Dependencies.from_environment()
            make_runs(deps, arguments.runs)
            run_id = make_run(deps, arguments.chunks)
            with sync_playwright() as playwright:
                found = shutil.which("chromium") or shutil.which("google-chrome")
                browser = playwright.chromium.launch(
                    executable_path=found, args=[] if os.geteuid() else ["--no-sandbox", "--disable-dev-shm-usage"]
                )
                figures = measure(lambda: browser.new_page(base_url=state.url("api")), run_id, arguments)
                browser.close()
            print(json.dumps(figures, indent=2))
        finally:
            harness.down(Path(folder))


def measure(open_page: Any, run_id: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of all visits."""
    began = time.perf_counter()
    page: Page = open_page()
    page.goto(f"/console/runs/{run_id}")
    # The legend counts every cell once the last answer of the api is drawn.
    page.locator("#legend", has_text=f"completed {completed(arguments.chunks):,}").wait_for(timeout=PATIENCE_MS)
    first = {"all_cells_shown_s": round(time.perf_counter() - began, 1)}
    page.close()
    visits, frames, gaps = [], [], []
    for _ in range(arguments.rounds):
        page = open_page()
        page.goto(f"/console/runs/{run_id}")
        page.locator("#legend", has_text="completed").wait_for(timeout=PATIENCE_MS)
        visits.append(page.evaluate(TIMINGS))
        moved = page.evaluate(FRAMES, 90)
        frames += moved["frames"]
        gaps += moved["gaps"]
        page.close()
    return {
        "cells": arguments.chunks,
        "first_visit": first,
        "later_visits": {name: round(statistics.median(visit[name] for visit in visits)) for name in visits[0]},
        "frame_ms": summary(frames),
        "between_frames_ms": summary(gaps),
        "list": list_of_runs(open_page, arguments),
    }


def list_of_runs(open_page: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """The list with all runs: the time until its rows are shown, and the longest tasks while the page updates it."""
    page: Page = open_page()
    page.add_init_script(
        "window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration)))"
        ".observe({ type: 'longtask', buffered: true });"
    )
    page.goto("/console/runs")
    rows = page.locator("#list tbody tr")
    rows.first.wait_for(timeout=PATIENCE_MS)
    shown = page.evaluate("performance.now()")
    while rows.count() < arguments.runs and page.locator("#more").is_visible():
        before = rows.count()
        page.locator("#more").click()
        rows.nth(before).wait_for(timeout=PATIENCE_MS)
    page.evaluate("window.tasks.length = 0")
    page.wait_for_timeout(6000)
    tasks = page.evaluate("window.tasks")
    count = rows.count()
    page.close()
    return {"runs": count, "first_rows_ms": round(shown), "longest_task_while_current_ms": round(max(tasks, default=0))}


def summary(times: list[float]) -> dict[str, float]:
    """Median, 99th percentile and longest."""
    cut = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50": round(cut[49], 1), "p99": round(cut[98], 1), "longest": round(max(times), 1)}


def completed(chunks: int) -> int:
    """The number of completed chunks of the generated run."""
    return sum(state_of(number, chunks) == "COMPLETED" for number in range(chunks))


def state_of(number: int, chunks: int) -> str:
    """The state of a chunk. Four fifths have ended, one in a hundred of them with an error; the others wait."""
    ended = chunks * 4 // 5
    if number >= ended + WORKERS:
        return "PENDING"
    if number >= ended:
        return "IN_PROGRESS"
    return "FAILED" if number % 100 == 99 else "COMPLETED"


def make_run(deps: Dependencies, chunks: int) -> str:
    """An unfinished run of `chunks` chunks."""
    run_id = "console-benchmark"
    opened = datetime.now(UTC) - timedelta(hours=12)
    run = deps.ledger.open_run(NewRun(run_id=run_id, survey="large", job_id="bench", workload="spectra"))
    chance, ends = random.Random(1), [0.0] * WORKERS

    def items() -> Iterator[dict[str, Any]]:
        for number in range(chunks):
            status = state_of(number, chunks)
            item: dict[str, Any] = {
                "PK": run_id,
                "SK": f"CHUNK#chunk-{number * 50:07d}",
                "status": status,
                "chunk_key": "cubes/large/field.fits",
                "created_at": timestamp(opened),
                "n_items": 50,
                "n_spectra": 50,
                "attempts": 0 if status == "PENDING" else 1 + (chance.random() < 0.05),
            }
            if status != "PENDING":
                worker = min(range(WORKERS), key=ends.__getitem__)
                took = chance.uniform(2, 5)
                item["started_at"] = timestamp(opened + timedelta(seconds=ends[worker]))
                ends[worker] += took
                if status != "IN_PROGRESS":
                    item |= {
                        "duration_ms": round(took * 1000),
                        "completed_at": timestamp(opened + timedelta(seconds=ends[worker])),
                    }
                if status == "COMPLETED":
                    item["output_key"] = f"decompositions/survey=large/run={run_id}/chunk-{number * 50:07d}.parquet"
                if status == "FAILED":
                    item["error"] = "The spectra of the chunk cannot be read: the object was removed."
            yield item

    write(deps.settings.runs_table, items())
    states = [state_of(number, chunks) for number in range(chunks)]
    counts = {"jobs_total": chunks, "jobs_completed": states.count("COMPLETED"), "jobs_failed": states.count("FAILED")}
    body = run.model_dump(by_alias=True, exclude_none=True)
    write(deps.settings.runs_table, [body | counts | {"created_at": timestamp(opened), "n_spectra": 50 * chunks}])
    write(deps.states.name, [workflow_state(run_id, "large", opened, "running")])
    return run_id


def make_runs(deps: Dependencies, number: int) -> None:
    """Make so many runs that have ended."""
    moment = datetime.now(UTC) - timedelta(days=2)
    states = []
    for n in range(number - 1):
        run_id = f"bench-{n:05d}"
        deps.ledger.open_run(NewRun(run_id=run_id, survey=f"survey-{n}", job_id="bench", workload="spectra"))
        states.append(workflow_state(run_id, f"survey-{n}", moment + timedelta(seconds=n), "completed"))
    write(deps.states.name, states)


def workflow_state(run_id: str, survey: str, created_at: datetime, status: str) -> dict[str, Any]:
    """The workflow-state item of a run."""
    ended = {"completed_at": timestamp(created_at + timedelta(minutes=5))} if status == "completed" else {}
    return {
        "run_id": run_id, "status": status, "created_at": timestamp(created_at), "updated_at": timestamp(created_at),
        "job_id": "bench", "survey": survey, "workload": "spectra", **ended,
    }  # fmt: skip


def write(table: str, items: Iterable[dict[str, Any]]) -> None:
    """Put all items."""
    dynamodb = boto3.client("dynamodb")
    requests = [{"PutRequest": {"Item": encode(item)}} for item in items]

    def put(start: int) -> None:
        left = {table: requests[start : start + BATCH]}
        while left:
            left = dynamodb.batch_write_item(RequestItems=left).get("UnprocessedItems", {})  # type: ignore[arg-type]

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(put, range(0, len(requests), BATCH)))


if __name__ == "__main__":
    main()
