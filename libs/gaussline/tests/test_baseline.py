"""Broad faint lines are found, and an offset, a slope or a ripple of the baseline is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from prismline_gaussline import decompose
from prismline_gaussline.synthetic import (
    CHANNELS,
    NOISE_K,
    baseline,
    broad_lines,
    count_matches,
    make_noise,
)

Spectra = NDArray[np.float64]


def found(spectra: Spectra, truth: Spectra) -> float:
    """Share of the spectra whose one true component (n, 3) is found."""
    table = decompose(spectra)
    return float(np.mean([count_matches(truth[i : i + 1], table.components(i)) for i in range(len(table))]))


@pytest.mark.parametrize(
    ("width", "snr", "least"), [(3.0, 8.0, 0.95), (24.0, 8.0, 0.95), (40.0, 8.0, 0.85), (60.0, 10.0, 0.95)]
)
def test_a_line_is_found_by_its_matched_snr_whatever_its_width(width: float, snr: float, least: float) -> None:
    truth, spectra = broad_lines(500, 9601, width, snr)
    assert found(spectra, truth) >= least - 0.015  # 1.5 standard errors


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.7, 1.5])
@pytest.mark.parametrize(("width", "snr", "least"), [(24.0, 8.0, 0.90), (40.0, 8.0, 0.80), (60.0, 10.0, 0.90)])
def test_it_is_found_in_correlated_noise_too(smoothing: float, width: float, snr: float, least: float) -> None:
    truth, spectra = broad_lines(500, 9602, width, snr, smoothing)
    assert found(spectra, truth) >= least


@pytest.mark.parametrize("broad", [16.0, 24.0])
def test_a_faint_broad_line_below_a_narrow_one_is_found(broad: float) -> None:
    truth, spectra = broad_lines(1000, 9603, broad, 8.0)
    narrow = np.array([[10.0, 0.0, 3.0]]) + truth * [[0.0, 1.0, 0.0]]
    x = np.arange(CHANNELS)
    spectra = spectra + NOISE_K * narrow[:, :1] * np.exp(-0.5 * ((x - narrow[:, 1:2]) / 3.0) ** 2)
    table = decompose(spectra)
    like = 0
    for i, (_, mean, width) in enumerate(truth):
        _, means, widths = table.components(i).T
        like += bool(((np.abs(means - mean) < width) & (widths > 0.3 * width) & (widths < 2.5 * width)).any())
    assert like >= 0.85 * len(truth)


@pytest.mark.parametrize("channels", [424, 2048])
@pytest.mark.parametrize(("kind", "most"), [("offset", 0.03), ("slope", 0.03), ("ripple", 0.03), ("all", 0.3)])
def test_a_faint_baseline_makes_few_components(channels: int, kind: str, most: float) -> None:
    rng = np.random.default_rng(9604)
    spectra = baseline(rng, (1000, channels), kind) + make_noise(rng, (1000, channels))
    limit = 0.1 if kind == "all" and channels == 424 else most
    assert decompose(spectra).n_components.mean() <= limit


def test_the_crests_of_a_ripple_are_no_lines() -> None:
    rng = np.random.default_rng(9605)
    spectra = 2.0 * baseline(rng, (500, 2048), "ripple") + make_noise(rng, (500, 2048))  # 0.6 of the noise
    assert decompose(spectra).n_components.mean() <= 0.1
