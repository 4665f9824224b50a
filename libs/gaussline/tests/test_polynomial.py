"""`baseline_order`: a polynomial baseline is fitted together with the lines."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from prismline_gaussline import (
    BASELINE_COLUMNS,
    Decomposition,
    Flag,
    SpectralAxis,
    decompose,
    evaluate,
    refit_from_neighbours,
)
from prismline_gaussline.hyperfine import fit_hyperfine
from prismline_gaussline.synthetic import (
    CHANNELS,
    NOISE_K,
    MadeSpectrum,
    baseline,
    broad_lines,
    count_matches,
    f1_by_category,
    make_cube,
    make_noise,
)

Spectra = NDArray[np.float64]

ORDERS = (0, 1, 2, 3)
PLACES = np.linspace(-1.0, 1.0, CHANNELS)


def baselines(rng: np.random.Generator, n: int, order: int, size: float = 3.0) -> Spectra:
    """Random polynomials (n, channels), whose coefficients are of `size` times the noise."""
    coefficients = rng.normal(0.0, size * NOISE_K, (n, order + 1))
    return np.asarray(coefficients @ PLACES ** np.arange(order + 1)[:, None])


def f1(spectra: list[MadeSpectrum], table: Decomposition) -> float:
    return f1_by_category(spectra, [table.components(i) for i in range(len(table))])["all"]


def fitted_baselines(table: Decomposition) -> Spectra:
    return np.asarray(table.baseline() @ np.arange(CHANNELS, dtype=float) ** np.arange(4)[:, None])


@pytest.mark.parametrize("order", ORDERS)
def test_lines_on_a_baseline_are_found_as_on_a_flat_zero(order: int, made: tuple[list[MadeSpectrum], Spectra]) -> None:
    spectra, signals = made
    base = baselines(np.random.default_rng(9701), len(signals), order)
    table = decompose(signals + base, {"baseline_order": order})
    assert f1(spectra, table) > f1(spectra, decompose(signals)) - 0.01
    assert f1(spectra, decompose(signals + base)) < 0.7
    error = np.sqrt(((fitted_baselines(table) - base) ** 2).mean(axis=1)) / NOISE_K
    assert np.median(error) < 0.15
    assert np.percentile(error, 95) < 0.3
    assert not table.baseline()[:, order + 1 :].any()


def test_what_is_added_as_a_baseline_is_found_as_a_baseline(made: tuple[list[MadeSpectrum], Spectra]) -> None:
    _, signals = made
    base = baselines(np.random.default_rng(9702), len(signals), 3, size=30.0)
    flat, high = (decompose(data, {"baseline_order": 3}, noise=NOISE_K) for data in (signals, signals + base))
    same = flat.n_components == high.n_components
    assert same.mean() > 0.99
    difference = np.abs(fitted_baselines(high) - fitted_baselines(flat) - base).max(axis=1)
    # a broad line at an end of the spectrum and a cubic are nearly the same: one spectrum in 1,000
    assert np.mean(difference[same] < 0.1 * NOISE_K) > 0.998


@pytest.mark.parametrize(
    ("order", "width", "least"), [(0, 40.0, 0.85), (1, 40.0, 0.8), (2, 24.0, 0.83), (3, 24.0, 0.63)]
)
def test_a_wide_line_is_found_by_the_snr_that_its_baseline_leaves(order: int, width: float, least: float) -> None:
    truth, spectra = broad_lines(500, 9702, width, 8.0)
    spectra = spectra + baselines(np.random.default_rng(9702), 500, order)
    table = decompose(spectra, {"baseline_order": order})
    assert np.mean([count_matches(truth[i : i + 1], table.components(i)) for i in range(500)]) >= least


def test_the_crests_of_a_ripple_beside_a_cubic_baseline_are_no_lines() -> None:
    rng = np.random.default_rng(9703)
    spectra = baseline(rng, (500, 2048), "ripple") + make_noise(rng, (500, 2048))
    assert decompose(spectra, {"baseline_order": 3}).n_components.mean() <= 0.05


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("smoothing", [0.0, 1.5])
def test_empty_spectra_stay_empty_and_flat(order: int, smoothing: float) -> None:
    rng = np.random.default_rng(9703)
    spectra = baselines(rng, 2000, order) + make_noise(rng, (2000, CHANNELS), smoothing)
    table = decompose(spectra, {"baseline_order": order})
    assert (table.n_components > 0).mean() <= (0.02 if smoothing else 0.005)
    assert ((table.flags & (Flag.OFFSET | Flag.SLOPE | Flag.RIPPLE | Flag.NEGATIVE)) != 0).mean() <= 0.012


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_the_errors_include_those_of_the_baseline(smoothing: float) -> None:
    rng = np.random.default_rng(9704)
    truth, spectra = broad_lines(1500, 9704, 12.0, 30.0, smoothing)
    table = decompose(spectra + baselines(rng, 1500, 2), {"baseline_order": 2})
    alone = table.n_components == 1
    assert alone.mean() > 0.95
    first = table.offsets[:-1][alone]
    pulls = (table.amplitude[first] - truth[alone, 0]) / table.amplitude_err[first]
    assert abs(pulls.mean()) < 0.15
    assert 0.9 < pulls.std() < 1.1
    without = decompose(spectra)
    one = without.n_components == 1
    assert np.median(table.flux_err[first]) > 1.1 * np.median(without.flux_err[without.offsets[:-1][one]])


def test_the_model_of_a_table_includes_its_baseline() -> None:
    rng = np.random.default_rng(9705)
    _, lines = broad_lines(50, 9705, 5.0, 20.0)
    spectra = lines + baselines(rng, 50, 3, size=20.0)
    table = decompose(spectra, {"baseline_order": 3})
    left = spectra - evaluate(table, CHANNELS)
    assert left.std() == pytest.approx(NOISE_K, rel=0.05)
    only_lines = evaluate(table, CHANNELS, baseline=False)
    np.testing.assert_allclose(evaluate(table, CHANNELS) - only_lines, fitted_baselines(table), atol=1e-9)
    pytest.importorskip("pyarrow")
    np.testing.assert_array_equal(evaluate(table.to_arrow(), CHANNELS), evaluate(table, CHANNELS))


def test_without_the_parameter_the_coefficients_are_zero_and_without_a_fit_they_are_unknown() -> None:
    rng = np.random.default_rng(9706)
    spectra = make_noise(rng, (3, CHANNELS))
    spectra[1] = np.nan
    assert not decompose(spectra).baseline()[[0, 2]].any()
    table = decompose(spectra, {"baseline_order": 1})
    assert np.isnan(table.baseline()[1]).all()
    assert table.baseline()[[0, 2], :2].all()
    assert list(BASELINE_COLUMNS) == [name for name in table.spectrum_columns() if name.startswith("baseline")]


@pytest.mark.parametrize("preset", ["best", "compatible"])
@pytest.mark.parametrize("how", ["given", "shape", "correlation"])
def test_it_goes_with_blanks_and_given_noise(preset: str, how: str) -> None:
    rng = np.random.default_rng(9707)
    truth = np.array([10.0 * NOISE_K, 250.0, 5.0])
    line = truth[0] * np.exp(-0.5 * ((np.arange(CHANNELS) - truth[1]) / truth[2]) ** 2)
    shape = np.linspace(1.0, 3.0, CHANNELS) if how != "correlation" else np.ones(CHANNELS)
    spectra = line + baselines(rng, 200, 3, size=50.0) + shape * make_noise(rng, (200, CHANNELS))
    spectra[:, :60] = np.nan
    spectra[::2, 150:180] = np.nan
    given = {
        "given": {"noise": NOISE_K * shape},
        "shape": {"noise": shape, "noise_is_shape": True},
        "correlation": {"correlation": [1.0, 0.2, 0.0]},
    }[how]
    table = decompose(spectra, {"preset": preset, "baseline_order": 3}, **given)  # type: ignore[arg-type]
    near = [np.abs(table.components(i)[:, 1] - truth[1]).min(initial=np.inf) < 3.0 for i in range(len(table))]
    assert np.mean(near) > 0.97
    assert table.n_components.mean() < 1.25


def test_few_channels_of_data_have_a_lower_order() -> None:
    spectra = np.full((1, 1000), np.nan)
    spectra[0, [0, 1, 2, 3, 999]] = [1.0, 2.0, 1.5, 1.2, 1.1]
    table = decompose(spectra, {"baseline_order": 3}, noise=1.0)
    assert np.isfinite(table.baseline()).all()


def test_a_second_pass_fits_it_too() -> None:
    shape = (8, 8)
    rng = np.random.default_rng(9708)
    spectra, truth = make_cube(shape, 9708, channels=CHANNELS)
    spectra = spectra + baselines(rng, len(spectra), 1)
    params = {"baseline_order": 1}
    first = decompose(spectra, params)
    second = refit_from_neighbours(spectra, first, shape, params)
    left = spectra - evaluate(second, CHANNELS)
    assert left.std() == pytest.approx(NOISE_K, rel=0.05)
    expected = sum(len(components) for components in truth)
    assert abs(second.n_components.sum() - expected) <= abs(first.n_components.sum() - expected) + 0.05 * expected


@pytest.mark.parametrize("order", [-1, 4, 1.5, "1", True])
def test_another_order_is_refused(order: object) -> None:
    with pytest.raises(ValueError, match="baseline_order"):
        decompose(np.zeros((1, 10)), {"baseline_order": order})


def test_hyperfine_groups_are_fitted_without_it() -> None:
    with pytest.raises(ValueError, match="subtract the baseline"):
        fit_hyperfine(np.zeros((1, 100)), "n2h+_1-0", SpectralAxis(0.0, 0.1, "km/s"), {"baseline_order": 1})
