"""Runs in a browser: submitted by drag and drop, watched, inspected, recovered, cancelled."""

from __future__ import annotations

import base64
import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from prismline_contracts.base import timestamp
from prismline_contracts.items import ChunkStatus
from prismline_localstack import harness
from tests.console import stage
from tests.console.conftest import Console
from tests.console.stage import Scene
from tests.cubes import write_cube
from tests.system import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

#: Creates the DataTransfer of a dropped file.
DROPPED = """([name, content]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([Uint8Array.from(atob(content), (one) => one.charCodeAt(0))], name));
  return transfer;
}"""


def drop(page: Page, name: str, content: bytes) -> Locator:
    """Drop a file on the page. Returns the dialog that opens."""
    transfer = page.evaluate_handle(DROPPED, [name, base64.b64encode(content).decode()])
    page.dispatch_event("#drop", "dragenter", {"dataTransfer": transfer})
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
    return page.get_by_role("dialog")


def fact(page: Page, name: str) -> Locator:
    """The value beside `name` in the head of a run's page."""
    return page.locator(".facts > div").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def test_a_cube_is_submitted_by_drag_and_drop_watched_to_its_end_and_exported(
    page: Page, console: Console, tmp_path: Path
) -> None:
    cube = write_cube(tmp_path / "field.fits", ny=4, nx=5)
    page.goto("/console/runs")
    dialog = drop(page, "My field (1).fits", cube.read_bytes())
    expect(dialog.get_by_label("Survey")).to_have_value("My-field-1-")
    expect(dialog).to_contain_text(re.compile(r"Estimated cost on AWS: .* USD"))
    dialog.get_by_label("Survey").fill("dropped")
    dialog.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile(r"/console/runs/[0-9a-f-]+$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("dropped")
    expect(fact(page, "Status")).to_contain_text("completed")
    expect(page.locator("#legend")).to_contain_text("completed 1")
    page.get_by_role("button", name="Export").click()
    expect(dialog).to_contain_text("1 completed chunk")
    dialog.get_by_role("button", name="Export").click()
    link = page.get_by_role("link", name=re.compile("download"))
    with page.expect_download() as download:
        link.click()
    assert download.value.path().read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize(
    ("name", "what", "survey"),
    [
        ("field.fits.fz", "a spectral cube, compressed by fpack", "field"),
        ("field.zarr.zip", "a spectral cube, Zarr in a ZIP file", "field"),
        ("list.csv.gz", "a list of URLs, in the column url of a CSV table", "list"),
    ],
)
def test_the_name_of_a_file_decides_its_workload(
    page: Page, console: Console, name: str, what: str, survey: str
) -> None:
    page.goto("/console/runs")
    dialog = drop(page, name, b"not looked into before it is split")
    expect(dialog).to_contain_text(what)
    expect(dialog.locator("input[name=name]")).to_have_value(survey)


def test_a_file_of_another_kind_is_refused_with_instructions(page: Page, console: Console) -> None:
    page.goto("/console/runs")
    drop(page, "holiday.png", b"a picture")
    expect(page.locator("#notices")).to_contain_text("the name of a cube ends in .fits")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_failed_chunk_is_opened_and_recovered_and_the_page_shows_it_complete(
    page: Page, console: Console, tmp_path: Path
) -> None:
    run_id = stage.broken_run(console.system, tmp_path, "turned", "turned")
    page.goto(f"/console/runs/{run_id}?show=failed")
    first = stage.FAILED_CHUNKS[0]
    panel = page.locator("#detail-body")
    expect(panel).to_contain_text(first)
    expect(panel.locator("pre").first).not_to_be_empty()
    expect(panel.get_by_role("heading", name="Dead letters")).to_be_visible()
    expect(page.locator("#legend")).to_contain_text(f"failed {len(stage.FAILED_CHUNKS)}")
    page.get_by_role("button", name="Rerun failed").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{len(stage.FAILED_CHUNKS)} chunks will be retried in this run")
    assert console.system.connection.ledger.chunk(run_id, first).state is ChunkStatus.FAILED, "a preview does nothing"
    dialog.get_by_role("button", name="Rerun", exact=True).click()
    expect(page.locator("#legend")).to_contain_text(f"completed {stage.BAD_CHUNKS}")
    attempts = panel.get_by_role("table", name="Attempts").locator("tbody tr")
    expect(attempts).to_have_count(2)
    expect(attempts.first).to_contain_text("Injected")
    expect(attempts.last).to_contain_text("completed")
    expect(fact(page, "Attempts")).to_contain_text(str(stage.BAD_CHUNKS + len(stage.FAILED_CHUNKS)))
    expect(panel.locator(".badge")).to_have_text(re.compile("completed"))
    expect(fact(page, "Status")).to_contain_text("completed")


def test_the_panel_of_a_chunk_has_its_log_lines_and_no_others(page: Page, console: Console, tmp_path: Path) -> None:
    run_id = stage.broken_run(console.system, tmp_path, "logged", "logged")
    page.goto(f"/console/runs/{run_id}?cell=10")
    lines = page.get_by_role("table", name="Log lines").locator("tbody tr")
    expect(lines.filter(has_text="chunk_failed")).to_contain_text("Injected")
    expect(lines.filter(has_text="chunk_completed")).to_have_count(0)
    page.goto(f"/console/runs/{run_id}?cell=20")
    expect(page.locator("#logs")).not_to_have_attribute("open", "")
    page.locator("#logs summary").focus()
    page.keyboard.press("Enter")
    expect(lines.filter(has_text="chunk_completed")).to_have_count(1)
    expect(lines.filter(has_text="chunk_failed")).to_have_count(0)


def test_a_map_that_has_the_focus_before_its_cells_are_loaded_announces_the_current_cell(
    page: Page, scene: Scene
) -> None:
    page.goto(f"/console/runs/{scene.bad_run}")
    found = page.evaluate("""async () => {
      const { HeatMap } = await import("/console/static/js/heatmap.js");
      const place = document.body.appendChild(document.createElement("div"));
      const rows = [];
      const map = new HeatMap(place, { onCursor: (row) => rows.push(row) });
      const cells = (length) => ({
        length, state: new Uint8Array(length), attempts: new Uint8Array(length), duration: new Int32Array(length),
      });
      map.show(cells(0));
      map.canvas.focus();
      map.show(cells(3));
      map.show(cells(4));
      return rows;
    }""")
    assert found == [0]


def test_cells_are_walked_and_chosen_by_keyboard_and_the_address_can_be_shared(page: Page, scene: Scene) -> None:
    page.goto(f"/console/runs/{scene.bad_run}")
    cells = page.get_by_role("application", name="Cells of the run")
    cells.focus()
    says = page.locator("#cell-says")
    expect(says).to_contain_text("Chunk 0, completed, 1 attempt")
    page.keyboard.press("ArrowRight")
    expect(says).to_contain_text("Chunk 10, failed")
    page.keyboard.press("Enter")
    expect(page.locator("#detail-body")).to_contain_text("chunk-0000010")
    expect(page).to_have_url(re.compile(r"\?cell=10$"))
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    chosen = page.locator("#selection")
    expect(chosen).to_contain_text(f"{stage.BAD_CHUNKS} selected")
    expect(chosen).to_contain_text(f"{len(stage.FAILED_CHUNKS)} failed")
    expect(chosen.get_by_role("button")).to_have_count(len(stage.FAILED_CHUNKS))
    page.keyboard.press("Escape")
    expect(chosen).to_be_empty()
    page.reload()
    expect(page.locator("#detail-body")).to_contain_text("chunk-0000010")


def test_ids_and_errors_are_copied(page: Page, scene: Scene) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/console/runs/{scene.bad_run}?cell=10")
    panel = page.locator("#detail-body")
    copied = {
        "Copy id": panel.locator("dt", has_text=re.compile("^Id$")).locator("+ dd code"),
        "Copy error": panel.locator("pre").first,
    }
    for name, source in copied.items():
        panel.get_by_role("button", name=name, exact=True).click()
        expect(panel.get_by_role("button", name=name, exact=True)).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == source.inner_text()
    run_id = page.get_by_role("button", name="Copy id", exact=True).first
    run_id.click()
    expect(run_id).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == scene.bad_run


def test_a_run_is_cancelled_after_a_preview(page: Page, console: Console) -> None:
    with console.api() as api:
        job = api.post("/jobs", json={"workload": "urls", "name": "waits", "open": True}).raise_for_status().json()
        run_id = job["run"]["run_id"]
        urls = {"urls": ["https://prismline.invalid/"] * 3}
        headers = {"Idempotency-Key": "waits"}
        api.post(f"/jobs/{job['job_id']}/tasks", json=urls, headers=headers).raise_for_status()
    page.goto(f"/console/runs/{run_id}")
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The run ends as cancelled")
    dialog.get_by_role("button", name="Close").click()
    expect(fact(page, "Status")).not_to_contain_text("cancelled")
    page.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(fact(page, "Status")).to_contain_text("cancelled")


def test_a_cancelled_run_is_continued_and_the_page_says_that_it_goes_on(page: Page, console: Console) -> None:
    with console.api() as api:
        job = api.post("/jobs", json={"workload": "urls", "name": "again", "open": True}).raise_for_status().json()
        run_id = job["run"]["run_id"]
        urls = {"urls": ["https://prismline.invalid/"] * 3}
        api.post(f"/jobs/{job['job_id']}/tasks", json=urls, headers={"Idempotency-Key": "again"}).raise_for_status()
        api.post(f"/runs/{run_id}/cancel").raise_for_status()
        wait_for(
            lambda: (api.get(f"/runs/{run_id}").json().get("counts") or {}).get("total") == 3,
            "the number of tasks to be final",
        )
    page.goto(f"/console/runs/{run_id}")
    expect(fact(page, "Status")).to_contain_text("cancelled")
    page.get_by_role("button", name="Continue").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 tasks that have not ended will be processed.")
    dialog.get_by_role("button", name="Continue the run").click()
    expect(page.locator("#condition-continued")).to_contain_text("The run was cancelled and continues")
    page.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(page.locator("#condition-continued")).to_have_count(0)


def test_the_timeline_ends_a_cell_when_the_ledger_recorded_its_end(page: Page, scene: Scene) -> None:
    """The duration of an attempt is shorter: a task's end is recorded with its whole batch."""
    page.goto(f"/console/runs/{scene.bad_run}")
    counted = page.evaluate("""async () => {
      const { overTime } = await import("/console/static/js/cells.js");
      const cells = {
        length: 2, state: [2, 2], started: [0, 0], duration: [100, 100], ended: [900, 300],
      };
      const { completed, running } = overTime(cells, 1000, 10);
      return { completed, running };
    }""")
    assert counted == {"completed": [0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2], "running": [2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0]}


@pytest.mark.parametrize(
    ("counts", "complete", "message"),
    [
        (
            {"total": 3510, "completed": 400, "failed": 10},
            False,
            "3,100 tasks have not ended. Those in progress, at least",
        ),
        ({"total": 4, "completed": 1, "failed": 0}, True, "2 waiting tasks will not be processed."),
        ({"completed": 1, "failed": 0}, True, "At least 3 tasks have not ended."),
    ],
)
def test_the_dialog_of_a_cancellation_counts_from_the_counters_of_the_run(
    page: Page, scene: Scene, counts: dict[str, int], complete: bool, message: str
) -> None:
    """The page has read four cells: two wait, one is in progress, one has completed."""
    page.goto(f"/console/runs/{scene.bad_run}")
    lines = page.evaluate(
        """async ([counts, complete]) => {
          const { effectOfCancel } = await import("/console/static/js/actions.js");
          const cells = { length: 4, about: { complete }, counts: () => [2, 1, 1, 0, 0] };
          return effectOfCancel({ unit: "task", counts }, cells);
        }""",
        [counts, complete],
    )
    assert lines[0].startswith(message)
    assert lines[-1].startswith(f"{counts['completed']} completed keep their results.")


@pytest.mark.parametrize("number", [20, 3000, 60_000])
def test_failed_cells_differ_from_others_by_more_than_their_colour_at_every_size(
    page: Page, scene: Scene, number: int
) -> None:
    """All states have the same colour here, and one of two maps has a failed cell."""
    page.goto(f"/console/runs/{scene.bad_run}")
    pictures = page.evaluate(
        """async (length) => {
          for (const name of ["pending", "running", "completed", "failed", "deferred"])
            document.documentElement.style.setProperty(`--${name}`, "#888888");
          const { HeatMap } = await import("/console/static/js/heatmap.js");
          const drawn = (failed) => {
            const place = document.body.appendChild(document.createElement("div"));
            const map = new HeatMap(place, { onCursor: () => {}, onOpen: () => {}, onSelect: () => {} });
            const state = new Uint8Array(length).fill(2);
            if (failed) state[length >> 1] = 3;
            map.show({ length, state, attempts: new Uint8Array(length), duration: new Int32Array(length) });
            return map.canvas.toDataURL();
          };
          return [drawn(false), drawn(true)];
        }""",
        number,
    )
    assert pictures[0] != pictures[1]


def test_a_server_that_hangs_is_noticed(page: Page, console: Console, scene: Scene) -> None:
    """It accepts connections and answers none, so the browser reports no error."""
    page.goto(f"/console/runs/{scene.good_run}")
    expect(fact(page, "Status")).to_contain_text("completed")
    process = harness.load_state(console.home).processes["api"].process
    assert process is not None
    process.signal(signal.SIGSTOP)
    try:
        expect(page.locator("#live")).to_contain_text("The server has not answered for 15 s.")
    finally:
        process.signal(signal.SIGCONT)
    expect(page.locator("#live")).to_be_empty()


@pytest.mark.parametrize(("method", "message"), [("get", "The page tries again"), ("post", "Look whether it did")])
def test_a_page_does_not_promise_to_repeat_what_it_does_not_repeat(page: Page, method: str, message: str) -> None:
    page.goto("/console/runs")
    page.route("**/v1/nothing", lambda route: route.abort())
    detail = page.evaluate(
        """async (method) => {
          const api = await import("/console/static/js/api.js");
          return api[method]("/nothing").catch((problem) => problem.detail);
        }""",
        method,
    )
    assert message in detail


def test_the_link_to_a_dead_letter_opens_it(page: Page, scene: Scene) -> None:
    chunk = stage.FAILED_CHUNKS[0]
    page.goto(f"/console/runs/{scene.bad_run}?cell={int(chunk.removeprefix('chunk-'))}")
    page.locator("#detail-body").get_by_role("link", name="chunks").first.click()
    letter = page.get_by_role("dialog")
    expect(letter.get_by_role("heading", name="Dead letter")).to_be_visible()
    expect(letter).to_contain_text(chunk)


def test_a_chunk_that_is_tried_again_does_not_look_as_if_it_had_failed(page: Page, scene: Scene) -> None:
    def waiting(route: Route) -> None:
        retry = {
            "attempts": 2,
            "at_least": 5,
            "next_at": timestamp(),
            "sentence": "Being retried after an error (2 of 5).",
        }
        cell = route.fetch().json() | {"status": "pending", "last_error": "It did not answer.", "retry": retry}
        route.fulfill(json={name: value for name, value in cell.items() if name != "error"})

    page.route("**/cells/10", waiting)
    page.goto(f"/console/runs/{scene.bad_run}?cell=10")
    expect(page.locator("#retrying")).to_contain_text("Being retried after an error (2 of 5). This is not final.")


@pytest.mark.parametrize(("width", "beside"), [(1100, True), (1000, False)])
def test_the_map_and_the_spectrum_are_side_by_side_on_a_wide_screen(
    page: Page, scene: Scene, width: int, beside: bool
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/console/runs/{scene.good_run}/cube")
    expect(page.locator("#spectrum")).to_be_visible()
    map_box, spectrum_box = page.locator("#map").bounding_box(), page.locator("#spectrum").bounding_box()
    assert map_box is not None
    assert spectrum_box is not None
    assert (spectrum_box["x"] >= map_box["x"] + map_box["width"]) is beside


def test_a_map_without_values_shows_no_scale(page: Page, scene: Scene) -> None:
    page.goto(f"/console/runs/{scene.bad_run}")
    found = page.evaluate("""async () => {
      const { Look, legend } = await import("/console/static/js/maps/panel.js");
      const place = document.createElement("div");
      legend(place, new Look(new URLSearchParams()).style(null), "K km/s");
      return place.textContent;
    }""")
    assert found == "No values yet, so the colours have no scale."


def test_a_run_is_found_by_the_beginning_of_its_id(page: Page, scene: Scene) -> None:
    page.goto("/console/runs")
    page.get_by_label("Name or id").fill(scene.bad_run[:13])
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(page.locator("#list tbody tr")).to_contain_text("perseus-arm")


def test_the_filters_of_the_list_are_in_its_address(page: Page, scene: Scene) -> None:
    page.goto("/console/runs")
    rows = page.locator("#list tbody tr")
    page.get_by_label("Name or id").fill("PERSEUS")
    expect(rows).to_have_count(1)
    page.get_by_label("Status").select_option("failed")
    expect(page).to_have_url(re.compile(r"\?name=PERSEUS&status=failed$"))
    page.reload()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("perseus-arm")
    page.get_by_label("Workload").select_option("urls")
    expect(page.locator("#list")).to_contain_text("No run matches these filters.")


def test_without_events_the_page_polls(page: Page, console: Console, tmp_path: Path) -> None:
    page.route("**/v1/events?*", lambda route: route.fulfill(status=204))
    cube = write_cube(tmp_path / "field.fits", ny=4, nx=5)
    run_id = console.system.submit(cube, "polled", chunk_size=10)
    wait_for(lambda: console.system.view(run_id) is not None, "the run to be known")
    page.goto(f"/console/runs/{run_id}")
    expect(page.locator("#legend")).to_contain_text("completed 2")
    expect(fact(page, "Status")).to_contain_text("completed")
