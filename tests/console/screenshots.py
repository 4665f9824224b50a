"""Takes the pictures of docs/reference/console.md: `python -m tests.console.screenshots`, or `make screenshots`.

It starts its own system, sets the stage, and takes each page in both themes.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tests.console import stage
from tests.console.chromium import launch
from tests.console.stage import Scene
from tests.cubes import write_cube
from tests.system import System

#: Folder of the pictures.
FOLDER = Path(__file__).parents[2] / "docs" / "images" / "console"
#: Width and height of a picture, and its maximum size in bytes. A larger one is reduced to 256 colours.
SIZE, MOST_BYTES = {"width": 1280, "height": 900}, 150_000
#: The error of a dead letter that is not about a chunk.
NOTE = "The object is not a FITS file."
#: Names of the runs that keep the queues busy.
SURVEYS = ("outer-arm", "local-arm", "sagittarius")
#: Time limit of each wait for a page, in milliseconds.
PATIENCE_MS = 60_000
#: Time in milliseconds for a page to draw the data that it has fetched.
SETTLE_MS = 1500
#: Pages that are taken completely, also the part below the window.
HIGH = {"cube", "system"}


def choose_failed(page: Page, _system: System) -> None:
    """Select the dead letters of the failed run."""
    for box in page.locator("#list tbody tr").filter(has_text="chunk-").get_by_role("checkbox").all():
        box.check()


def busy_queues(page: Page, system: System) -> None:
    """Make the queues fill and drain while the page is open."""
    for survey in SURVEYS:
        with tempfile.TemporaryDirectory() as folder:
            system.submit(write_cube(Path(folder) / f"{survey}.fits", ny=20, nx=20), survey, chunk_size=4)
        page.wait_for_timeout(6000)


def raise_alarm(page: Page, system: System) -> None:
    """Set an alarm to ALARM."""
    stage.raise_alarm(system, "It was 1.0.")
    expect(page.locator("#alarms tbody tr").first).to_contain_text("Threshold crossed")


def open_cell(page: Page, _system: System) -> None:
    """Wait for the history of the cell that the address names."""
    expect(page.locator("#detail-body")).to_contain_text("Attempts")


def open_pixel(page: Page, _system: System) -> None:
    """Wait for the map, and for the spectrum of the pixel that the address names."""
    expect(page.locator("#readout")).to_contain_text("K km/s")
    expect(page.locator("#charts canvas").first).to_be_visible()


def both_maps(page: Page, _system: System) -> None:
    """Wait for the maps of both runs and their difference."""
    expect(page.get_by_text("Pixels with a value in both")).to_be_visible()


def nothing(_page: Page, _system: System) -> None:
    """Do nothing: the page is taken as it opens."""


def shots(scene: Scene) -> dict[str, tuple[str, Callable[[Page, System], None]]]:
    """The page of each picture, by its name, and the function that prepares the page."""
    return {
        "system": ("/console/system", busy_queues),
        "runs": ("/console/runs", nothing),
        "run": (f"/console/runs/{scene.bad_run}?cell=10", open_cell),
        "cube": (f"/console/runs/{scene.good_run}/cube?x=24&y=20", open_pixel),
        "compare": (f"/console/compare?a={scene.good_run}&b={scene.other_run}", both_maps),
        "dead-letters": ("/console/dead-letters", choose_failed),
        "alerts": ("/console/alerts", raise_alarm),
        "contracts": ("/console/contracts", nothing),
    }


def take(page: Page, file: Path, *, whole: bool) -> None:
    """Take a picture of the window, or of the whole page."""
    with Image.open(io.BytesIO(page.screenshot(full_page=whole))) as picture:
        plain = picture.convert("RGB")
    plain.save(file, optimize=True)
    if file.stat().st_size > MOST_BYTES:
        plain.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


def take_all(url: str, system: System, scene: Scene, folder: Path) -> None:
    """Take all pictures of the console at `url`."""
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = launch(playwright.chromium)
        for theme in ("light", "dark"):
            context = browser.new_context(
                base_url=url,
                viewport=SIZE,
                locale="en-GB",
                timezone_id="Europe/Berlin",
                color_scheme="dark" if theme == "dark" else "light",
            )
            for name, (address, prepare) in shots(scene).items():
                page = context.new_page()
                page.goto(address)
                expect(page.locator("main [aria-busy=true]")).to_have_count(0)
                prepare(page, system)
                page.wait_for_timeout(SETTLE_MS)
                take(page, folder / f"{name}-{theme}.png", whole=name in HIGH)
                page.close()
        browser.close()


def main() -> None:
    """Take all pictures."""
    with (
        tempfile.TemporaryDirectory() as name,
        pytest.MonkeyPatch.context() as patch,
        System.running(Path(name), patch) as system,
    ):
        scene = stage.set_stage(system, Path(name), NOTE)
        system.sqs.delete_queue(QueueUrl=system.observer.url)  # only the tests need it
        take_all(os.environ["PRISMLINE_API_URL"], system, scene, FOLDER)


if __name__ == "__main__":
    main()
