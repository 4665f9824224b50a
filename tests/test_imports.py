"""The import rules are read from the folders, so a new service is held to them at once."""

from __future__ import annotations

import configparser
from pathlib import Path

from tests.imports import ROOT, rules


def read(text: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.read_string(text)
    return found


def test_a_new_service_and_a_new_library_have_their_place_in_the_layers(tmp_path: Path) -> None:
    for folder, package in (
        ("services/tally", "prismline_tally"),
        ("services/worker", "prismline_worker"),
        ("libs/abacus", "prismline_abacus"),
        ("libs/runtime", "prismline_runtime"),
        ("contracts", "prismline_contracts"),
    ):
        (tmp_path / folder / "src" / package).mkdir(parents=True)
        (tmp_path / folder / "src" / package / "__init__.py").touch()
    found = read(rules(tmp_path))
    assert found["importlinter:contract:services"]["modules"].split() == ["prismline_tally", "prismline_worker"]
    layers = found["importlinter:contract:layers"]["layers"].splitlines()
    assert layers[-4:] == [
        "prismline_tally | prismline_worker",
        "prismline_abacus",
        "prismline_runtime",
        "prismline_contracts",
    ]
    assert "prismline_abacus" in found["importlinter"]["root_packages"].split()


def test_every_package_of_this_checkout_is_held_to_the_rules() -> None:
    folders = [path.parent for pattern in ("*", "*/*") for path in ROOT.glob(f"{pattern}/pyproject.toml")]
    names = {path.name for folder in folders for path in (folder / "src").glob("prismline*") if path.is_dir()}
    names = {name for name in names if not name.endswith(".egg-info")}
    assert names == set(read(rules(ROOT))["importlinter"]["root_packages"].split())
