"""Facts that are in two places, because neither place may import the other."""

from __future__ import annotations

from prismline_api.actions import EXPORT_SECONDS
from prismline_api.dependencies import LINK_SECONDS
from prismline_contracts.maps import FLAG_NAMES
from prismline_cube import header
from prismline_gaussline import Flag, axis
from tests.templates.reading import read_stacks


def test_the_splitter_and_gaussline_know_the_same_spectral_axes() -> None:
    assert header.SPECTRAL_TYPES == axis.SPECTRAL_TYPES


def test_the_contracts_name_the_flags_as_gaussline_does() -> None:
    assert {name: 1 << bit for bit, name in enumerate(FLAG_NAMES)} == {flag.name: flag.value for flag in Flag}


def test_no_link_to_an_export_outlives_its_object() -> None:
    days = read_stacks()["platform"]["Parameters"]["ExportDays"]["Default"]
    assert days * 86_400 >= EXPORT_SECONDS + LINK_SECONDS
