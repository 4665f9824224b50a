"""Debian's Chromium. Playwright drives it and downloads no browser of its own."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, Playwright

#: Names under which distributions install Chromium, and how to install it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL_COMMAND = "apt-get install -y chromium"


def find() -> str | None:
    """Where Chromium is installed. None: nowhere."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def launch(playwright: Playwright) -> Browser:
    """Chromium without a window. Raises RuntimeError, with the command that installs one, if there is none."""
    found = find()
    if found is None:
        raise RuntimeError(f"No Chromium is installed here; run: {INSTALL_COMMAND}")
    # A sandbox needs privileges that containers do not have.
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    return playwright.chromium.launch(executable_path=found, args=[*sandbox, "--disable-dev-shm-usage"])
