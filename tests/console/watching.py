"""Watches a page: what its scripts throw, what its content security policy blocks, what axe-core finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Error, Page

#: What Chromium says when the policy blocks something.
POLICY = "Content Security Policy"


@dataclass
class Watched:
    """The faults of a page since it was opened."""

    faults: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, page: Page) -> Watched:
        """Watch `page` from now on."""
        watched = cls()
        page.on("pageerror", watched._script_failed)
        page.on("console", watched._said)
        return watched

    def _script_failed(self, error: Error) -> None:
        self.faults.append(f"a script failed: {error.message}\n{error.stack}")

    def _said(self, message: ConsoleMessage) -> None:
        if POLICY in message.text:
            self.faults.append(message.text)


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with the page: the rule, the help, and where."""
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {violation['help']} at {[node['target'] for node in violation['nodes']]}"
        for violation in found
    ]
