"""Facts that stand in two places, because neither place may depend on the other."""

from __future__ import annotations

from prismline_gaussline import axis
from prismline_splitter import cube


def test_the_splitter_and_gaussline_know_the_same_spectral_axes() -> None:
    assert cube.SPECTRAL_TYPES == axis.SPECTRAL_TYPES
