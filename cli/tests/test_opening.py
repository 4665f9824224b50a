"""`prismline open`: the address of the console, in the browser and on the terminal."""

from __future__ import annotations

import os

import pytest
from cli_world import CliWorld

from prismline_cli.commands import opening

pytestmark = pytest.mark.emulator

RUN = "e4e1aaaa-0000"


@pytest.fixture
def opened(world: CliWorld, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr(opening.webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def test_the_list_of_runs_is_opened_and_its_address_printed(world: CliWorld, opened: list[str]) -> None:
    address = f"{os.environ['PRISMLINE_API_URL']}/console/runs"
    assert world.run("open").stdout.strip() == address
    assert opened == [address]


def test_a_run_is_named_by_the_beginning_of_its_id(world: CliWorld, opened: list[str]) -> None:
    world.add_run(RUN)
    address = f"{os.environ['PRISMLINE_API_URL']}/console/runs/{RUN}"
    assert world.json("open", "e4e1", "--no-browser") == {"url": address, "opened": False}
    assert opened == []
    world.run("open", "e4e1")
    assert opened == [address]


def test_without_an_address_a_sentence_says_how_to_get_one(world: CliWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRISMLINE_API_URL", raising=False)
    assert "prismline up" in world.run("open", expect=3).stderr
