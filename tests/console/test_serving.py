"""The test kit itself: the running system answers a real browser."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def test_a_browser_reaches_the_running_system(page: Page) -> None:
    answer = page.goto("/health")
    assert answer is not None
    assert answer.ok
    assert json.loads(page.locator("body").inner_text()) == {"status": "ok"}
