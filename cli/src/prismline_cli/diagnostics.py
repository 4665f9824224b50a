"""Diagnostics of a run's residuals: they show whether the noise is white and normal, as the fits assume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from numpy.typing import NDArray

from prismline_cli import decomposition_picture
from prismline_cli.titles import Title
from prismline_contracts.objects import LineProfile
from prismline_cube import gaussians

#: How many spectra are used. They are evenly spaced over the fitted ones.
SAMPLE = 200

#: Lags of the autocorrelation, channels, and range and bins of the pulls.
LAGS, PULL_RANGE, PULL_BINS = 16, 6.0, 60


@dataclass(frozen=True)
class Diagnostics:
    """Statistics of the residuals of some spectra."""

    #: Autocorrelation at lags 0 to 15 channels, shape (16,).
    correlation: NDArray[np.float64]
    #: Residuals of all channels with data, in units of the noise of their spectra.
    pulls: NDArray[np.float64]
    #: How many spectra they come from.
    n_spectra: int


def diagnose(
    table: pa.Table,
    spectra: Mapping[decomposition_picture.Pixel, NDArray[np.floating]],
    line: LineProfile | None = None,
) -> Diagnostics:
    """Statistics of the residuals of `spectra` (channels,) after subtraction of their components in `table`.

    line: the lines of which each component is the sum.
    Spectra without a noise estimate are left out. Raises `ValueError` if none is left.
    """
    products, counts = np.zeros(LAGS), np.zeros(LAGS)
    pulls = []
    for pixel, values in spectra.items():
        spectrum = decomposition_picture.spectrum_at(table, pixel, values)
        if not spectrum.rms:
            continue
        channels = np.arange(len(values), dtype=np.float64)
        pull = (values - gaussians(spectrum.components, channels, line).sum(axis=0)) / spectrum.rms
        there = np.isfinite(pull)
        pulls.append(pull[there])
        filled = np.where(there, pull, 0.0)
        for lag in range(min(LAGS, len(pull))):
            products[lag] += filled[: len(pull) - lag] @ filled[lag:]
            counts[lag] += (there[: len(pull) - lag] & there[lag:]).sum()
    if not pulls:
        raise ValueError("no spectrum with a noise estimate")
    means = products / np.maximum(counts, 1.0)
    return Diagnostics(means / means[0], np.concatenate(pulls), len(pulls))


def draw(found: Diagnostics, *, title: Title) -> Figure:
    """The autocorrelation of the residuals, and their distribution beside a unit normal."""
    with matplotlib.rc_context(decomposition_picture.STYLE):
        figure, (part,) = decomposition_picture.titled_figure(title, decomposition_picture.WIDTH_IN * 0.75, [3.6])
        left, right = part.subplots(1, 2)
        left.stem(np.arange(LAGS), found.correlation)
        left.axhline(0.0, color="black", linewidth=0.7)
        left.set_xlabel("Lag (channels)")
        left.set_title(f"Autocorrelation of the residuals, {found.n_spectra} spectra", loc="left")
        edges = np.linspace(-PULL_RANGE, PULL_RANGE, PULL_BINS + 1)
        right.hist(np.clip(found.pulls, -PULL_RANGE, PULL_RANGE), edges, density=True, histtype="step")
        right.plot(edges, np.exp(-0.5 * edges**2) / np.sqrt(2.0 * np.pi), linewidth=1.0)
        right.set_yscale("log")
        right.set_ylim(bottom=1e-5)
        right.set_xlabel("Residual over noise")
        right.set_title(f"Pulls: mean {found.pulls.mean():+.3f}, width {found.pulls.std():.3f}", loc="left")
        return figure
