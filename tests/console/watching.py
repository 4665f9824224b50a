"""Watches a page: errors of its scripts, violations of its content security policy, and findings of axe-core."""

from __future__ import annotations

from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Error, Page

#: Part of Chromium's console message when the policy blocks something.
POLICY = "Content Security Policy"


@dataclass
class Watched:
    """The faults of a page since it was opened."""

    faults: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, page: Page) -> Watched:
        """Watch `page` from this moment."""
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
    """The violations that axe-core finds on the page: the rule, its help, and the elements."""
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {violation['help']} at {[node['target'] for node in violation['nodes']]}"
        for violation in found
    ]
