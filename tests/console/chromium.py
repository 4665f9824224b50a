"""Debian's Chromium. Playwright drives it instead of downloading a browser."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, BrowserType

#: Names of Chromium's executable in distributions, and the command that installs it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL_COMMAND = "apt-get install -y chromium"


def find() -> str | None:
    """The path of Chromium. None if it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def launch(chromium: BrowserType, *options: str) -> Browser:
    """Chromium without a window, started with these options. Raises RuntimeError, with the command that installs one,
    if there is none.
    """
    found = find()
    if found is None:
        raise RuntimeError(f"Chromium is not installed; run: {INSTALL_COMMAND}")
    # A sandbox needs privileges that containers do not have.
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    return chromium.launch(executable_path=found, args=[*sandbox, "--disable-dev-shm-usage", *options])
