"""The cube of a run in a browser, by keyboard and pointer: maps, spectra, and the comparison of two runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Locator, Page, expect

from prismline_contracts.items import ChunkStatus
from tests.console.conftest import Console
from tests.console.watching import violations
from tests.cubes import write_cube
from tests.system import wait_for

pytestmark = pytest.mark.browser

NX, NY = 12, 10
#: Number of spectra per chunk: one row of the cube.
CHUNK = NX


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cube with a line in each spectrum."""
    return write_cube(tmp_path_factory.mktemp("cube") / "field.fits", NY, NX)


@pytest.fixture(scope="module")
def run_id(console: Console, cube: Path) -> str:
    """A run of the cube with one failed chunk, the last row."""
    system = console.system
    failing = f"chunk-{(NY - 1) * NX:07d}"
    where = {"run_id": system.run_id_for("cube"), "chunk_id": failing}
    system.set_faults([{"point": "chunk.started", "action": "permanent", "where": where}])
    found = system.submit(cube, "field", chunk_size=CHUNK, idempotency_key="cube", tolerated_failure_percent=20)
    system.wait(found)
    system.set_faults([])
    assert [chunk.chunk_id for chunk in system.chunks(found, ChunkStatus.FAILED)] == [failing]
    return found


def by_pixel(table: pa.Table) -> dict[tuple[int, int], dict[str, Any]]:
    return {(row["x"], row["y"]): row for row in table.to_pylist()}


def colour_at(canvas: Locator, x: float, y: float) -> list[int]:
    """Red, green, blue and opacity at (x, y), as fractions of the canvas's width and height."""
    script = """(canvas, [x, y]) => [...canvas.getContext("2d")
        .getImageData(Math.floor(x * canvas.width), Math.floor(y * canvas.height), 1, 1).data]"""
    found: list[int] = canvas.evaluate(script, [x, y])
    return found


def drawn(canvas: Locator, expected: Callable[[list[int]], bool]) -> list[int]:
    """The colour below the middle of the canvas, once it is as expected. The page draws with its next frame."""

    def seen() -> list[int] | None:
        found = colour_at(canvas, 0.5, 0.45)
        return found if expected(found) else None

    return wait_for(seen, "the map to be drawn")


def test_a_spectrum_is_found_by_keyboard_and_restored_from_the_address(
    console: Console, page: Page, run_id: str
) -> None:
    rows = by_pixel(console.system.table(run_id))
    page.goto(f"/console/runs/{run_id}/cube?map=components")
    canvas = page.get_by_label("Map of the run")
    expect(page.locator("#legend canvas")).to_be_visible()
    page.wait_for_function("() => document.getElementById('chunks').textContent.includes('1 failed')")
    canvas.focus()
    start = (NX // 2, NY // 2)
    x, y = start
    for key, (dx, dy) in {"ArrowRight": (1, 0), "ArrowDown": (0, -1), "ArrowLeft": (-1, 0), "ArrowUp": (0, 1)}.items():
        page.keyboard.press(key)
        x, y = x + dx, y + dy
        expect(page.get_by_role("heading", name=f"Spectrum at x {x}, y {y}", exact=True)).to_be_visible()
        count = rows[x, y]["n_components"]
        expect(page.locator("#components tbody tr")).to_have_count(count)
        expect(page.locator("#readout")).to_have_text(re.compile(rf"x {x}, y {y} · GLON .*° · {count}$"))
    assert (x, y) == start
    expect(page).to_have_url(re.compile(rf"\?map=components&x={x}&y={y}$"))
    page.reload()
    expect(page.get_by_role("heading", name=f"Spectrum at x {x}, y {y}", exact=True)).to_be_visible()
    expect(page.locator("#charts .chart")).to_have_count(2)
    assert violations(page) == []


def test_the_map_shows_what_failed_and_why(page: Page, run_id: str) -> None:
    page.goto(f"/console/runs/{run_id}/cube?map=chunks")
    canvas = page.get_by_label("Map of the run")
    expect(page.locator("#legend")).to_contain_text("failed")
    page.wait_for_function(
        """() => { const canvas = document.getElementById("map");
        return canvas.getContext("2d").getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data[3] === 255; }"""
    )
    canvas.focus()
    for _ in range(NY):
        page.keyboard.press("ArrowUp")
    expect(page.locator("#readout")).to_have_text(re.compile(rf"y {NY - 1} · .* · failed$"))
    expect(page.locator("#facts")).to_contain_text("Injected permanent fault")
    assert colour_at(canvas, 0.5, 0.5) == [0, 158, 115, 255]  # completed
    link = page.locator("#facts").get_by_role("link", name=re.compile("chunk-"))
    chunk_id = link.inner_text()
    link.click()
    expect(page.locator("#detail-body")).to_contain_text(chunk_id)


def test_zoom_and_colours_change_what_is_drawn(page: Page, run_id: str) -> None:
    page.goto(f"/console/runs/{run_id}/cube?map=rms")
    canvas = page.get_by_label("Map of the run")
    page.wait_for_function("() => (document.querySelector('[name=low]')?.placeholder ?? 'auto') !== 'auto'")
    canvas.hover()
    expect(page.locator("#readout")).to_contain_text(" K")
    viridis = drawn(canvas, lambda colour: colour[3] == 255)
    assert len(set(viridis[:3])) > 1
    page.get_by_label("Colours").select_option("grey")
    drawn(canvas, lambda colour: colour[0] == colour[1] == colour[2])
    page.wait_for_function("() => location.search.includes('colours=grey')")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function("() => location.search.includes('view=')")
    page.get_by_role("button", name="Whole map").click()
    page.wait_for_function("() => !location.search.includes('view=')")


def test_wheel_drag_and_pinch_move_the_map(page: Page, run_id: str) -> None:
    page.goto(f"/console/runs/{run_id}/cube?map=rms")
    canvas = page.get_by_label("Map of the run")
    expect(page.locator("#legend canvas")).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.wheel(0, -480)
    column, row, scale = view_of(page, lambda _column, _row, scale: scale > 0)
    assert (column, row) == pytest.approx((NX / 2, NY / 2), abs=0.1)
    page.mouse.down()
    page.mouse.move(x + 30, y, steps=3)
    page.mouse.up()
    moved = view_of(page, lambda seen, _row, _scale: seen != column)
    assert moved == pytest.approx((column - 30 / scale, row, scale), abs=0.1)
    assert "x=" not in page.url  # a drag does not select a pixel
    touch = page.context.new_cdp_session(page)

    def fingers(kind: str, *places: float) -> None:
        points = [{"x": place, "y": y, "id": number} for number, place in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", x - 40, x + 40)
    for reach in (35, 30, 25, 20):
        fingers("touchMove", x - reach, x + reach)
    fingers("touchEnd")
    assert view_of(page, lambda _column, _row, seen: seen != scale)[2] == pytest.approx(scale / 2, rel=0.05)


def view_of(page: Page, known: Callable[[float, float, float], bool]) -> tuple[float, float, float]:
    """Column and row in the middle of the map, and CSS pixels per map pixel, once the address has new values."""

    def seen() -> tuple[float, float, float] | None:
        found = re.search(r"view=([\d.]+)%2C([\d.]+)%2C([\d.]+)", page.evaluate("location.search"))
        view = (float(found[1]), float(found[2]), float(found[3])) if found else None
        return view if view is not None and known(*view) else None

    return wait_for(seen, "the view in the address")


def test_two_runs_are_compared(console: Console, page: Page, cube: Path, run_id: str) -> None:
    system = console.system
    other = system.submit(cube, "field", chunk_size=50, params={"mf_snr_min": 60.0})
    system.wait(other)
    one, two = (by_pixel(system.table(run)) for run in (run_id, other))
    both = [pixel for pixel in one if pixel in two]
    different = sum(one[pixel]["n_components"] != two[pixel]["n_components"] for pixel in both)
    page.goto(f"/console/compare?a={run_id}&b={other}&map=rms")
    differences = page.get_by_role("table", name="Differences of source and parameters").locator("tbody tr")
    expect(differences.locator("td:first-child")).to_have_text(["cube_key", "mf_snr_min"])
    expect(differences.last.locator("td")).to_have_text(["mf_snr_min", "5", "60"])
    share = f"{100 * different / len(both):.1f} % ({different} of {len(both)})"
    expect(page.locator("#summary")).to_contain_text(share)
    median = np.median([one[pixel]["rms"] - two[pixel]["rms"] for pixel in both])
    output = page.locator("#summary div", has_text="Median difference of noise").locator("dd").inner_text()
    assert float(output.removesuffix(" K")) == pytest.approx(median, abs=1e-4)
    page.locator("#map-difference").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("heading", name=f"Both fits at x {NX // 2 + 1}, y {NY // 2}")).to_be_visible()
    expect(page.locator("#fits h3")).to_have_text(["Fit of A", "Fit of B"])
    expect(page.locator("#charts .u-legend").first).to_contain_text("fit of B")
    assert violations(page) == []
