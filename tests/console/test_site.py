"""The documentation site works from disk: its search finds pages, and nothing is loaded from another host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from prismline_localstack.settings import REPOSITORY

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, which `make check` builds."""
    built = REPOSITORY / "site" / "index.html"
    if not built.exists():
        subprocess.run([sys.executable, "docs/pages.py"], cwd=REPOSITORY, check=True)
    return built


def test_the_search_of_the_site_finds_a_page_from_disk(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(site.as_uri())
    page.keyboard.press("/")
    page.get_by_placeholder("Search").last.press_sequentially("dead letter")
    found = page.locator("a", has_text="why messages are in dead-letter queues")
    expect(found.first).to_be_visible(timeout=60_000)
    found.first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ead letter")
    assert [url for url in loaded if not url.startswith(("file:", "data:", "blob:"))] == []
