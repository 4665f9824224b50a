"""Flags of spectra that are not flat at zero beside their lines."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from prismline_gaussline import Flag, decompose
from prismline_gaussline.synthetic import (
    BASELINES,
    CHANNELS,
    NOISE_K,
    absorption,
    baseline,
    broad_lines,
    make_noise,
    make_spectra,
)

NOT_FLAT = Flag.OFFSET | Flag.SLOPE | Flag.RIPPLE | Flag.NEGATIVE
N, SEED = 400, 9701


def share(spectra: NDArray[np.float64], flag: Flag) -> float:
    return float(np.mean(decompose(spectra).flags & flag != 0))


def of_one_noise(kind: str, shape: tuple[int, int] = (N, CHANNELS)) -> NDArray[np.float64]:
    return baseline(np.random.default_rng(SEED), shape, kind) / BASELINES[kind]


def noise(smoothing: float = 0.0, shape: tuple[int, int] = (N, CHANNELS)) -> NDArray[np.float64]:
    return make_noise(np.random.default_rng(SEED + 1), shape, smoothing)


@pytest.mark.parametrize(
    ("kind", "flag", "smoothing"),
    [("offset", Flag.OFFSET, s) for s in (0.0, 0.7, 1.5)]
    + [("ripple", Flag.RIPPLE, s) for s in (0.0, 0.7, 1.5)]
    + [("slope", Flag.SLOPE, s) for s in (0.0, 0.7)],
)
def test_a_baseline_of_one_noise_is_flagged(kind: str, flag: Flag, smoothing: float) -> None:
    shape = (2000, CHANNELS)
    assert share(of_one_noise(kind, shape) + noise(smoothing, shape), flag) >= 0.95


def test_an_offset_below_zero_is_flagged() -> None:
    assert share(noise() - of_one_noise("offset"), Flag.OFFSET) >= 0.95


@pytest.mark.parametrize("smoothing", [0.0, 0.7, 1.5])
def test_an_absorption_line_is_flagged(smoothing: float) -> None:
    lines = absorption(np.random.default_rng(SEED), (N, CHANNELS))
    assert share(lines + noise(smoothing), Flag.NEGATIVE) >= 0.95


@pytest.mark.parametrize("kind", ["offset", "ripple"])
def test_a_baseline_beneath_lines_is_flagged(kind: str) -> None:
    lines = np.array([made.signal for made in make_spectra(40, SEED)])
    flag = Flag.OFFSET if kind == "offset" else Flag.RIPPLE
    assert share(lines + of_one_noise(kind, lines.shape), flag) >= 0.9


@pytest.mark.parametrize("smoothing", [0.0, 0.7, 1.5])
def test_clean_spectra_have_none_of_the_flags(smoothing: float) -> None:
    lines = np.array([made.signal for made in make_spectra(150, SEED, smoothing)])
    lone = ((24.0, 8.0), (40.0, 8.0), (60.0, 10.0), (60.0, 20.0))
    broad = [broad_lines(1000, SEED, width, snr, smoothing)[1] for width, snr in lone]
    for spectra in (noise(smoothing, (1000, CHANNELS)), lines, *broad):
        assert share(spectra, NOT_FLAT) <= 0.015  # .01, and the scatter of 1,000 spectra


@pytest.mark.parametrize(("width", "height"), [(3.0, 20.0), (6.0, 5.0), (6.0, 20.0), (10.0, 5.0)])
def test_lines_at_even_distances_are_not_taken_for_an_offset(width: float, height: float) -> None:
    means = CHANNELS * (np.arange(6.0) + 0.5) / 6.0
    lines = height * NOISE_K * np.exp(-0.5 * ((np.arange(CHANNELS)[:, None] - means) / width) ** 2).sum(axis=1)
    assert share(lines + noise(), Flag.OFFSET) <= 0.03


def test_a_strong_line_that_is_no_gaussian_is_not_taken_for_absorption() -> None:
    x = np.arange(CHANNELS)
    means = np.random.default_rng(SEED).uniform(100.0, 300.0, (N, 1))
    lines = 15.0 * NOISE_K / np.cosh((x - means) / 6.0)
    assert share(lines + noise(), Flag.NEGATIVE) <= 0.02


@pytest.mark.parametrize("channels", [1300, 3000])
def test_a_narrow_dip_is_flagged_anywhere_in_a_long_spectrum(channels: int) -> None:
    spectra = noise(shape=(N, channels))
    at = np.random.default_rng(SEED).integers(2, channels - 5, N)
    for spectrum, first in zip(spectra, at, strict=True):
        spectrum[first : first + 4] -= 4.0 * NOISE_K
    assert share(spectra, Flag.NEGATIVE) >= 0.95
    assert share(noise(shape=(N, channels)), NOT_FLAT) <= 0.015


def test_an_offset_is_flagged_where_an_end_of_the_spectrum_is_blank() -> None:
    spectra = of_one_noise("offset") + noise()
    spectra[:, :130] = np.nan
    assert share(spectra, Flag.OFFSET) >= 0.95


def test_an_offset_is_flagged_beside_blank_channels_and_under_given_noise() -> None:
    spectra = of_one_noise("offset") + noise()
    spectra[:, 100:150] = np.nan
    table = decompose(spectra, noise=NOISE_K)
    assert np.mean(table.flags & Flag.OFFSET != 0) >= 0.95


def test_a_spectrum_of_few_channels_has_none_of_the_flags() -> None:
    assert share(noise(shape=(N, 100)) + 10.0 * NOISE_K, NOT_FLAT) == 0.0


def test_the_flags_do_not_depend_on_the_unit() -> None:
    spectra = of_one_noise("ripple") + noise()
    assert (decompose(spectra).flags == decompose(1e-200 * spectra).flags).all()
