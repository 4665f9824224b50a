"""Fixtures of the browser tests: one running system, one Chromium, and a new page for each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from prismline_localstack import harness
from prismline_localstack.api_keys import read_api_key
from tests.console import chromium
from tests.console.stage import Scene, set_stage
from tests.console.watching import Watched
from tests.system import System, settings_for, wait_for

#: Time limit of each wait for a page, in milliseconds. The machine may be busy.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
#: A time zone that differs from UTC all year, so that times in the reader's zone can be distinguished from UTC.
TIME_ZONE = "Asia/Tokyo"


@dataclass(frozen=True)
class Console:
    """A running system, and the address of its console."""

    system: System
    url: str
    api_key: str
    home: Path

    def kill_emulator(self) -> None:
        """Kill the emulator. The harness then ends all other processes."""
        process = harness.load_state(self.home).processes["emulator"].process
        assert process is not None
        process.signal(signal.SIGKILL)
        wait_for(lambda: not harness.is_up(self.home), "the system to end")

    def start_again(self) -> None:
        """Start the system again with its previous state."""
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("AWS_ENDPOINT_URL")  # the variable still names the killed emulator
            harness.up(self.home, workers=2, settings=settings_for(self.system.faults_file))

    def api(self) -> httpx.Client:
        """A client of the API with the local user's key."""
        headers = {"Authorization": f"Bearer {self.api_key}"}
        return httpx.Client(base_url=f"{self.url}/v1", headers=headers, timeout=60)


@pytest.fixture(scope="package")
def console(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Console]:
    """The running system of all browser tests. It is not started without a browser."""
    folder = tmp_path_factory.mktemp("system")
    with pytest.MonkeyPatch.context() as patch, System.running(folder, patch) as running:
        key = read_api_key(folder / "home" / "api-key")
        assert key is not None
        yield Console(running, os.environ["PRISMLINE_API_URL"], key, folder / "home")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window."""
    if chromium.find() is None:
        pytest.skip(f"Chromium is not installed; run: {chromium.INSTALL_COMMAND}")
    with sync_playwright() as playwright:
        started = chromium.launch(playwright.chromium)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, console: Console, tmp_path: Path) -> Iterator[Page]:
    """A new page of a new user. The test fails if a script of the page failed or broke the content security policy."""
    context = browser.new_context(
        base_url=console.url,
        viewport={"width": 1280, "height": 800},
        locale="en-GB",
        timezone_id=TIME_ZONE,
        color_scheme="light",
    )
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    watched = Watched.of(opened)
    yield opened
    opened.screenshot(path=tmp_path / "last.png")
    context.close()
    assert watched.faults == []


@pytest.fixture(scope="package")
def scene(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Completed and failed runs, dead letters and an alarm."""
    return set_stage(console.system, tmp_path_factory.mktemp("stage"))
