"""Correlated noise and noise that varies along the spectrum: components and their errors stay correct."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from prismline_gaussline import (
    COMPONENT_COLUMNS,
    SPECTRUM_COLUMNS,
    ComponentFlag,
    Decomposition,
    Params,
    decompose,
    estimate_correlation,
    estimate_noise_shape,
)
from prismline_gaussline.synthetic import (
    CHANNELS,
    NOISE_K,
    correlation_of,
    f1_by_category,
    make_noise,
    make_spectra,
    model,
)

#: Smoothing of the noise in channels -> correlation of neighbouring channels, least F1, and most false components of an
#: empty spectrum if the correlation is estimated from each spectrum.
BARS = {
    0.6: (0.45, 0.915, 0.005),
    0.7: (0.58, 0.905, 0.005),
    1.0: (0.78, 0.88, 0.010),
    1.5: (0.89, 0.85, 0.010),
}

LINE = np.array([[3.0, 200.0, 5.0]])


def lines(smoothing: float, n: int, seed: int = 9501) -> NDArray[np.float64]:
    """Spectra of one line of twelve times the noise, (n, channels)."""
    return model(LINE, CHANNELS) + make_noise(np.random.default_rng(seed), (n, CHANNELS), smoothing)


def bits(table: Decomposition) -> dict[str, bytes]:
    return {
        name: getattr(table, name).tobytes() for name in (*SPECTRUM_COLUMNS, *COMPONENT_COLUMNS) if name != "seconds"
    }


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", list(BARS))
def test_components_are_found_and_false_ones_are_rare_at_any_correlation(smoothing: float) -> None:
    _, least_f1, most_false = BARS[smoothing]
    made = make_spectra(150, 9502, smoothing)
    table = decompose(np.array([s.signal for s in made]))
    assert f1_by_category(made, [table.components(i) for i in range(len(table))])["all"] >= least_f1
    empty = decompose(make_noise(np.random.default_rng(9503), (4000, CHANNELS), smoothing))
    assert empty.n_components.mean() <= most_false


@pytest.mark.slow
@pytest.mark.parametrize("way", ["estimated", "given"])
@pytest.mark.parametrize("smoothing", [0.0, 0.5, *BARS])
def test_pulls_are_a_unit_normal_at_any_correlation(smoothing: float, way: str) -> None:
    rng = np.random.default_rng(9504)
    truth = rng.uniform((1.0, 60.0, 3.0), (5.0, 360.0, 10.0), (5000, 3))
    bells = truth[:, :1] * np.exp(-0.5 * ((np.arange(CHANNELS) - truth[:, 1:2]) / truth[:, 2:]) ** 2)
    correlation = "estimate" if way == "estimated" else correlation_of(smoothing)
    table = decompose(bells + make_noise(rng, bells.shape, smoothing), correlation=correlation)
    alone = table.n_components == 1
    alone[alone] = np.abs(table.mean[table.offsets[:-1][alone]] - truth[alone, 1]) < 3.0 * truth[alone, 2]
    assert alone.mean() > 0.97
    rows = table.offsets[:-1][alone]
    for name, true in zip(("amplitude", "mean", "stddev"), truth[alone].T, strict=True):
        pull = (getattr(table, name)[rows] - true) / getattr(table, f"{name}_err")[rows]
        assert 0.9 < pull.std() < 1.1, name
        low, high = np.percentile(pull, (15.87, 84.13))
        assert 0.93 < (high - low) / 2.0 < 1.07, name


@pytest.mark.parametrize("smoothing", [0.7, 1.5])
def test_the_correlation_is_estimated_beside_the_lines_and_returned(smoothing: float) -> None:
    table = decompose(lines(smoothing, 200))
    true = correlation_of(smoothing)
    assert table.correlation.mean() == pytest.approx(true[1], abs=0.06)
    white = decompose(lines(0.0, 200))
    assert np.mean(white.correlation == 0.0) >= 0.99
    assert (white.effective_channels[white.correlation == 0.0] == CHANNELS).all()
    share = table.effective_channels.mean() / CHANNELS
    assert share == pytest.approx(1.0 / (2.0 * correlation_of(smoothing, 30).sum() - 1.0), rel=0.25)


@pytest.mark.parametrize("smoothing", [0.6, 1.5])
def test_reduced_chi_square_is_one_under_correlated_noise(smoothing: float) -> None:
    assert decompose(lines(smoothing, 500)).chi2_reduced.mean() == pytest.approx(1.0, abs=0.05)


def test_given_and_detected_white_noise_give_the_same_bits() -> None:
    spectra = lines(0.0, 200)
    white = decompose(spectra, correlation="white")
    assert bits(decompose(spectra, correlation=[1.0, 0.0, 0.0])) == bits(white)
    found = decompose(spectra)
    same = np.flatnonzero(found.correlation == 0.0)
    assert bits(decompose(spectra[same])) == bits(decompose(spectra[same], correlation="white"))


@pytest.mark.parametrize("correlation", ["estimate", "given"])
def test_neither_threads_nor_the_cut_of_the_batch_change_a_bit(correlation: str) -> None:
    spectra = np.array([s.signal for s in make_spectra(12, 9505, 0.7)])
    how = "estimate" if correlation == "estimate" else correlation_of(0.7)
    whole = bits(decompose(spectra, correlation=how))
    assert bits(decompose(spectra, correlation=how, threads=3)) == whole
    parts = [bits(decompose(part, correlation=how, threads=2)) for part in (spectra[:5], spectra[5:40], spectra[40:])]
    assert {name: b"".join(part[name] for part in parts) for name in whole} == whole


def test_errors_hold_beside_blank_channels_and_at_an_edge() -> None:
    rng = np.random.default_rng(9506)
    truth = np.array([[3.0, 100.0, 4.0], [3.0, 3.0, 5.0]])
    signals = model(truth, CHANNELS) + make_noise(rng, (1500, CHANNELS), 1.0)
    signals[:, 101:103] = np.nan
    table = decompose(signals, correlation=correlation_of(1.0))
    two = table.n_components == 2
    assert two.mean() > 0.9
    for k, row in enumerate(truth[np.argsort(truth[:, 1])]):
        rows = table.offsets[:-1][two] + k
        pull = (table.mean[rows] - row[1]) / table.mean_err[rows]
        low, high = np.nanpercentile(pull, (15.87, 84.13))
        assert 0.85 < (high - low) / 2.0 < 1.15


def test_the_correlation_of_a_cube_is_estimated_from_its_spectra() -> None:
    spectra = np.array([s.signal for s in make_spectra(20, 9507, 1.0)])
    spectra[3, 40:60] = np.nan
    np.testing.assert_allclose(estimate_correlation(spectra), correlation_of(1.0), atol=0.04)
    assert estimate_correlation(lines(0.0, 300))[1:].tolist() == [0.0] * 7
    with pytest.raises(ValueError, match="without signal"):
        estimate_correlation(np.full((3, 100), np.nan))


@pytest.mark.parametrize("period", [25, 100, 300])
@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_a_ripple_of_the_baseline_makes_no_components(period: int, smoothing: float) -> None:
    rng = np.random.default_rng(9508)
    phase = rng.uniform(0.0, 2.0 * np.pi, (1500, 1))
    ripple = 0.4 * NOISE_K * np.sin(2.0 * np.pi * np.arange(CHANNELS) / period + phase)
    table = decompose(ripple + make_noise(rng, ripple.shape, smoothing))
    # a ripple of 1.4 periods looks like a broad line: more of either cannot be told apart (the curve of WAVE_SHARE)
    assert table.n_components.mean() <= (0.02 if period == 300 else 0.01)


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_noisy_edges_make_no_components_when_the_shape_of_the_noise_is_given(smoothing: float) -> None:
    rng = np.random.default_rng(9509)
    channel = np.arange(CHANNELS)
    shape = 1.0 + 2.0 * ((channel < 20) | (channel >= 404))
    spectra = shape * make_noise(rng, (1500, CHANNELS), smoothing)
    for noise in (shape, estimate_noise_shape(spectra[:300])):
        table = decompose(spectra, noise=5.0 * noise, noise_is_shape=True)
        assert table.n_components.mean() <= 0.01
        middle = table.rms * (shape**-2.0).mean() ** 0.5  # rms is the harmonic mean square
        assert middle.mean() == pytest.approx(NOISE_K, rel=0.06)
    assert decompose(spectra).n_components.mean() > 0.1  # without the shape the edges look like lines


def test_a_component_is_not_narrower_than_fwhm_min_and_a_narrow_one_is_flagged() -> None:
    spikes = model(np.array([[4.0, 200.0, 0.8]]), CHANNELS) + make_noise(np.random.default_rng(9510), (100, CHANNELS))
    assert (decompose(spikes).n_components == 1).mean() > 0.9
    assert (decompose(spikes, Params(fwhm_min=3.0)).stddev * 2.3548 >= 3.0).all()
    smooth = model(np.array([[4.0, 200.0, 1.1]]), CHANNELS) + make_noise(
        np.random.default_rng(9511), (100, CHANNELS), 1.5
    )
    narrow = decompose(smooth, correlation=correlation_of(1.5))
    assert (narrow.component_flags & ComponentFlag.NARROW != 0).mean() > 0.9
    wide = decompose(lines(1.5, 100), correlation=correlation_of(1.5))
    assert (wide.component_flags & ComponentFlag.NARROW == 0).mean() > 0.9


@pytest.mark.parametrize("correlation", ["pink", [0.5, 1.0], [1.0, 1.5], [1.0, np.nan], [[1.0, 0.5]], []], ids=str)
def test_an_invalid_correlation_is_a_value_error(correlation: object) -> None:
    with pytest.raises(ValueError, match="correlation"):
        decompose(lines(0.0, 1), correlation=correlation)  # type: ignore[arg-type]


@pytest.mark.parametrize("coefficient", [0.99, -0.95])
def test_noise_that_is_almost_a_random_walk_or_alternates_gives_a_result(coefficient: float) -> None:
    rng = np.random.default_rng(9512)
    spectra = rng.normal(size=(50, CHANNELS))
    for i in range(1, CHANNELS):
        spectra[:, i] += coefficient * spectra[:, i - 1]
    table = decompose(spectra)
    assert np.isfinite(table.chi2_reduced).all()
    assert (np.abs(table.correlation) < 1.0).all()
