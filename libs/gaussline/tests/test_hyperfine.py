"""Hyperfine groups are fitted as components with one velocity and one width, whose errors are right."""

from __future__ import annotations

import numpy as np
import pytest

from prismline_gaussline import ComponentFlag, Params, SpectralAxis, decompose, evaluate, kernel_available
from prismline_gaussline.hyperfine import GROUPS, HyperfineGroup, fit_hyperfine

pytestmark = pytest.mark.skipif(not kernel_available(), reason="the noise of these spectra is estimated by the kernel")

NOISE, CHANNELS = 0.3, 400
AXIS = SpectralAxis(-20.0, 0.1, "km/s")


def spectra(group: HyperfineGroup, rows: np.ndarray, seed: int = 1, noise: float = NOISE) -> np.ndarray:
    """One component (amplitude, mean, width) in each spectrum."""
    channels = np.arange(CHANNELS)[None, :, None]
    amplitude, mean, width = (rows[:, column, None, None] for column in range(3))
    lines = np.exp(-0.5 * ((channels - mean - np.array(group.offsets) / AXIS.step) / width) ** 2)
    added = np.random.default_rng(seed).normal(0.0, noise, (len(rows), CHANNELS))
    return (amplitude * lines * np.array(group.weights)).sum(axis=2) + added


def truth(n: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.stack((rng.uniform(5, 12, n), rng.uniform(170, 230, n), rng.uniform(2, 5, n)), axis=1)


def significances(group: HyperfineGroup, data: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Significance of each component (amplitude, mean, width) in a spectrum without the others, with the true noise."""
    curves = [spectra(group, row[None], noise=0.0)[0] for row in rows]
    rest = data - np.sum(curves, axis=0)
    return np.array([curve @ (rest + curve) / np.sqrt(curve @ curve) / NOISE for curve in curves])


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_one_component_with_the_true_velocity_and_right_errors(name: str) -> None:
    rows, group = truth(60), GROUPS[name]
    data = spectra(group, rows)
    table = fit_hyperfine(data, name, AXIS)
    found = np.stack((table.amplitude, table.mean, table.stddev), axis=1)
    errors = np.stack((table.amplitude_err, table.mean_err, table.stddev_err), axis=1)
    of = np.repeat(np.arange(len(rows)), table.n_components)
    true = np.abs(found[:, 1] - rows[of, 1]) < 3.0
    assert of[true].tolist() == list(range(len(rows)))
    # White noise reaches five sigma somewhere in one of a thousand of these spectra. It does here, in one for NH3. Any
    # component that is not the true one has to be that significant with the true noise too.
    assert (~true).sum() <= 1
    for extra in np.flatnonzero(~true):
        components = found[of == of[extra]]
        assert significances(group, data[of[extra]], components).min() >= Params().mf_snr_min
    pulls = (found[true] - rows) / errors[true]
    assert (np.abs(pulls.mean(axis=0)) < 0.5).all()
    assert ((pulls.std(axis=0) > 0.7) & (pulls.std(axis=0) < 1.35)).all()
    np.testing.assert_allclose(table.physical()["mean_physical"], -20.0 + 0.1 * table.mean)
    residual = data - table.model(CHANNELS)
    assert residual.std() == pytest.approx(NOISE, rel=0.05)


def test_two_components_of_a_spectrum_are_found() -> None:
    group, rows = GROUPS["n2h+_1-0"], np.array([[9.0, 190.0, 2.5], [9.0, 202.0, 2.5]])
    one, two = spectra(group, rows)
    table = fit_hyperfine(one[None] + two[None], group, AXIS)
    np.testing.assert_allclose(table.mean, rows[:, 1], atol=0.5)


@pytest.mark.parametrize("name", GROUPS)
def test_an_estimated_noise_makes_no_more_components_than_the_true_one(name: str) -> None:
    data = spectra(GROUPS[name], truth(1000), seed=77)
    lowest = np.argsort(decompose(data).rms)[:100]  # too low by a twentieth and more
    known = fit_hyperfine(data[lowest], name, AXIS, noise=NOISE, correlation="white")
    assert fit_hyperfine(data[lowest], name, AXIS).n_components.sum() <= known.n_components.sum()


@pytest.mark.parametrize(("name", "depth"), [("n2h+_1-0", 5.0), ("n2h+_1-0", 2.0), ("nh3_1-1", 5.0), ("hcn_1-0", 4.0)])
def test_an_optical_depth_is_found_with_right_errors(name: str, depth: float) -> None:
    group, rows = GROUPS[name], truth(60) * [4.0, 1.0, 1.0]
    profile = spectra(group, rows, noise=0.0) / rows[:, :1]
    data = rows[:, :1] / depth * -np.expm1(-depth * profile)
    data += np.random.default_rng(3).normal(0.0, NOISE, data.shape)
    table = fit_hyperfine(data, name, AXIS, optical_depth=True)
    assert table.n_components.tolist() == [1] * len(rows)
    found = np.stack((table.amplitude, table.mean, table.stddev, table.optical_depth), axis=1)
    errors = np.stack((table.amplitude_err, table.mean_err, table.stddev_err, table.optical_depth_err), axis=1)
    pulls = (found - np.column_stack((rows, np.full(len(rows), depth)))) / errors
    assert (np.abs(np.median(pulls, axis=0)) < 0.6).all()
    assert ((pulls.std(axis=0) > 0.7) & (pulls.std(axis=0) < 1.35)).all()
    assert (data - table.model(CHANNELS)).std() == pytest.approx(NOISE, rel=0.05)


def test_noisy_channels_whose_shape_is_known_make_no_components() -> None:
    shape = np.where(np.arange(CHANNELS) < 60, 4.0, 1.0)
    noise = np.random.default_rng(4).normal(0.0, NOISE, (200, CHANNELS)) * shape
    noise *= np.linspace(0.5, 2.0, 200)[:, None]
    assert fit_hyperfine(noise, "n2h+_1-0", AXIS).n_components.sum() > 10
    empty = fit_hyperfine(noise, "n2h+_1-0", AXIS, noise=shape, noise_is_shape=True)
    assert empty.n_components.sum() <= 1
    rows = truth(200) * [3.0, 1.0, 1.0]
    table = fit_hyperfine(
        spectra(GROUPS["n2h+_1-0"], rows, noise=0.0) + noise, "n2h+_1-0", AXIS, noise=shape, noise_is_shape=True
    )
    assert table.n_components.tolist() == [1] * len(rows)
    assert 0.8 < ((table.mean - rows[:, 1]) / table.mean_err).std() < 1.2
    assert table.chi2_reduced.mean() == pytest.approx(1.0, abs=0.1)


def thick_spectra(n: int, depth: float) -> tuple[np.ndarray, np.ndarray]:
    """N2H+ spectra (n, channels) with this optical depth, and the area of each."""
    group, rows = GROUPS["n2h+_1-0"], truth(n) * [4.0, 1.0, 1.0]
    profile = spectra(group, rows, noise=0.0) / rows[:, :1]
    clean = rows[:, :1] / depth * -np.expm1(-depth * profile)
    return clean + np.random.default_rng(9).normal(0.0, NOISE, clean.shape), clean.sum(axis=1)


@pytest.mark.parametrize("depth", [0.5, 5.0, 20.0])
def test_the_flux_with_an_optical_depth_is_the_area_of_the_curve(depth: float) -> None:
    data, areas = thick_spectra(60, depth)
    table = fit_hyperfine(data, "n2h+_1-0", AXIS, optical_depth=True)
    np.testing.assert_allclose(table.flux, table.model(CHANNELS).sum(axis=1), rtol=1e-6)
    pulls = (table.flux - areas) / table.flux_err
    assert abs(pulls.mean()) < 0.5
    assert 0.75 < pulls.std() < 1.3


def test_an_arrow_table_keeps_the_optical_depth_and_evaluates_to_the_same_model() -> None:
    data, _ = thick_spectra(5, 8.0)
    table = fit_hyperfine(data, "n2h+_1-0", AXIS, optical_depth=True)
    arrow = table.to_arrow()
    np.testing.assert_array_equal(np.concatenate(arrow["optical_depth"].to_pylist()), table.optical_depth)
    lines = (table.offsets_in_channels, table.group.weights)
    np.testing.assert_allclose(evaluate(arrow, CHANNELS, lines=lines), table.model(CHANNELS), atol=1e-12)
    names = {"amplitude": "component_amplitudes", "mean": "component_means", "stddev": "component_stddevs"}
    names["optical_depth"] = "component_optical_depths"
    service = arrow.select(list(names)).rename_columns(list(names.values()))
    np.testing.assert_allclose(evaluate(service, CHANNELS, lines=lines), table.model(CHANNELS), atol=1e-12)


@pytest.mark.parametrize("name", GROUPS)
def test_thin_lines_that_are_fitted_with_an_optical_depth_have_no_second_component(name: str) -> None:
    data = spectra(GROUPS[name], truth(200))
    assert (fit_hyperfine(data, name, AXIS, optical_depth=True).n_components > 1).sum() <= 1


def test_an_optical_depth_that_is_not_determined_is_at_its_bound_and_has_a_flag() -> None:
    group, rows = GROUPS["n2h+_1-0"], truth(40)
    table = fit_hyperfine(spectra(group, rows), group, AXIS, optical_depth=True)
    at_bound = table.component_flags & ComponentFlag.AT_BOUND != 0
    assert at_bound.any()
    np.testing.assert_array_equal(at_bound, (table.optical_depth <= 0.1) | (table.optical_depth >= 100.0))


def test_noise_and_blank_spectra_have_no_component() -> None:
    noise = np.random.default_rng(5).normal(0.0, NOISE, (50, CHANNELS))
    noise[0] = np.nan
    assert fit_hyperfine(noise, "hcn_1-0", AXIS).n_components.sum() <= 1


def test_an_axis_in_frequency_gives_the_same_component() -> None:
    group, rows = GROUPS["hcn_1-0"], truth(5)
    rest = group.rest_frequency
    assert rest is not None
    frequency = SpectralAxis(rest, -rest * 0.1 / 299_792.458, "Hz")
    data = spectra(group, rows)
    np.testing.assert_allclose(
        fit_hyperfine(data, group, frequency).mean, fit_hyperfine(data, group, AXIS).mean, rtol=1e-6
    )


def test_tables_and_axes_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ValueError, match="each with an offset and a weight"):
        HyperfineGroup("own", (0.0, 1.0), (1.0,))
    with pytest.raises(ValueError, match="there is no hyperfine group 'co'; choose one of"):
        fit_hyperfine(np.zeros((1, 50)), "co", AXIS)
    with pytest.raises(ValueError, match="give an axis in km/s or m/s"):
        fit_hyperfine(np.zeros((1, 50)), "hcn_1-0", SpectralAxis(0.0, 1.0, "m"))
