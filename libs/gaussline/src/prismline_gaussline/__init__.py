"""Gaussian decomposition of many spectra at once.

>>> import numpy as np
>>> from prismline_gaussline import decompose
>>> x = np.arange(200)
>>> noise = np.random.default_rng(1).normal(0.0, 0.1, (1, 200))
>>> table = decompose(2.0 * np.exp(-0.5 * ((x - 80) / 4.0) ** 2) + noise)
>>> int(table.n_components[0])
1
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from .axis import SpectralAxis
from .batch import INSTRUCTION_SETS, NoDataWarning, decompose, kernel_available
from .cube import CubeSpectra, cube_spectra, decompose_cube
from .models import evaluate
from .noise import estimate_correlation, estimate_noise_shape
from .params import Params, Preset
from .spatial import refit_from_neighbours
from .table import BASELINE_COLUMNS, COMPONENT_COLUMNS, SPECTRUM_COLUMNS, ComponentFlag, Decomposition, Flag

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "BASELINE_COLUMNS",
    "COMPONENT_COLUMNS",
    "INSTRUCTION_SETS",
    "SPECTRUM_COLUMNS",
    "ComponentFlag",
    "CubeSpectra",
    "Decomposition",
    "Flag",
    "NoDataWarning",
    "Params",
    "Preset",
    "SpectralAxis",
    "cube_spectra",
    "decompose",
    "decompose_cube",
    "estimate_correlation",
    "estimate_noise_shape",
    "evaluate",
    "kernel_available",
    "refit_from_neighbours",
]


def __getattr__(name: str) -> str:
    """`__version__`, read when it is used: an image may hold the modules without the metadata of the package."""
    if name == "__version__":
        return metadata.version("prismline-gaussline")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
