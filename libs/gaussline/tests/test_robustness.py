"""Any spectrum: no exception, and no NaN without a flag."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from prismline_gaussline import (
    ComponentFlag,
    Decomposition,
    Flag,
    Params,
    Preset,
    SpectralAxis,
    decompose,
    estimate_correlation,
    estimate_noise_shape,
    evaluate,
    refit_from_neighbours,
)
from prismline_gaussline.synthetic import NOISE_K, make_noise, make_spectra, model

pytestmark = pytest.mark.filterwarnings("ignore::prismline_gaussline.NoDataWarning")

FLOAT32_MAX = float(np.finfo(np.float32).max)


def assert_nan_only_with_a_flag(table: Decomposition) -> None:
    fitted = table.flags & (Flag.NO_DATA | Flag.NO_NOISE | Flag.NOT_FINITE) == 0
    assert np.isfinite(table.chi2_reduced[fitted]).all()
    assert np.isfinite(table.aicc[fitted]).all()
    assert (table.rms[fitted] > 0).all()
    assert (table.n_components[~fitted] == 0).all()
    assert np.isnan(table.rms[~fitted]).all()
    for name in ("amplitude", "mean", "stddev", "flux"):
        assert np.isfinite(getattr(table, name)).all()
    sure = table.component_flags & ComponentFlag.NO_ERROR == 0
    for name in ("amplitude_err", "mean_err", "stddev_err", "flux_err"):
        assert np.isfinite(getattr(table, name)[sure]).all()


def hostile() -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(9201)
    noise = rng.normal(0.0, 1.0, 424)
    line = model(np.array([[20.0, 210.0, 6.0]]), 424)
    spike = np.zeros(424)
    spike[200] = 100.0
    return {
        "zero": np.zeros(424),
        "constant": np.full(424, 5.0),
        "blank": np.full(424, np.nan),
        "infinite": np.full(424, np.inf),
        "spike in nothing": spike,
        "spike in noise": spike + noise,
        "saturated": np.minimum(noise + line, 8.0),
        "negative": -np.abs(noise) - 3.0,
        "absorption": noise - line,
        "ramp": np.arange(424.0) + noise,
        "comb": 50.0 * (np.arange(424) % 4 == 0) + noise,
        "float32 large": (noise + line) * (FLOAT32_MAX / 50.0),
        "float32 small": (noise + line) * 1e-44,
        "float64 large": (noise + line) * 1e305,
        "float64 small": (noise + line) * 1e-300,
        "half blank": np.where(np.arange(424) % 2, noise + line, np.nan),
        "noise free line": line,
        "alternating": 1.0 - 2.0 * (np.arange(424) % 2),
    }


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize("kind", sorted(hostile()))
def test_degenerate_spectra_come_back_with_flags_and_no_exception(kind: str, preset: Preset) -> None:
    spectrum = hostile()[kind]
    assert_nan_only_with_a_flag(decompose(spectrum[None], Params(preset=preset)))
    with np.errstate(over="ignore", under="ignore"):
        assert_nan_only_with_a_flag(decompose(spectrum[None].astype(np.float32), Params(preset=preset)))


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("zero", Flag.NO_NOISE),
        ("constant", Flag.NO_NOISE),
        ("blank", Flag.NO_DATA | Flag.BLANK),
        ("infinite", Flag.NO_DATA | Flag.BLANK),
        ("half blank", Flag.BLANK),
    ],
)
def test_a_spectrum_that_cannot_be_fitted_has_a_flag_with_the_reason(kind: str, flag: Flag) -> None:
    assert Flag(int(decompose(hostile()[kind][None]).flags[0])) & flag == flag


def spikes_on_correlated_noise(count: int) -> NDArray[np.float64]:
    """Noise smoothed by 1.5 channels, with three lines and two spikes of one channel."""
    rng = np.random.default_rng(9204)
    spectra = make_noise(rng, (count, 424), 1.5) / NOISE_K
    for i in range(count):
        lines = np.stack((rng.uniform(5.0, 25.0, 3), rng.uniform(0.0, 424.0, 3), rng.uniform(2.0, 10.0, 3)), axis=1)
        spectra[i] += model(lines, 424)
        spectra[i, rng.integers(0, 424, 2)] += 10.0 ** rng.uniform(2.3, 5.0, 2)
    return spectra


@pytest.mark.parametrize(
    "params", [Params(preset=Preset.COMPATIBLE), Params(fwhm_min=0.0), Params(preset=Preset.COMPATIBLE, fwhm_min=0.0)]
)
def test_a_spike_of_one_channel_gives_no_component_below_the_least_width(params: Params) -> None:
    table = decompose(spikes_on_correlated_noise(500), params)
    assert_nan_only_with_a_flag(table)
    assert table.n_components.mean() >= 2.0
    assert table.stddev.min() >= 0.3
    assert table.stddev.max() <= 212.0


def test_a_flux_beyond_the_largest_number_has_a_flag_and_no_component() -> None:
    spectrum = (hostile()["spike in noise"] + model(np.array([[20.0, 210.0, 30.0]]), 424)) * 1e306
    table = decompose(spectrum[None])
    assert Flag(int(table.flags[0])) == Flag.NOT_FINITE
    assert table.n_components[0] == 0
    assert np.isnan(table.rms[0])


def test_blanks_between_the_largest_numbers_of_both_signs_are_blank() -> None:
    spectrum = hostile()["spike in noise"] * 1e306
    spectrum[[100, 102]] = 1.7e308, -1.7e308
    spectrum[[101, 300]] = np.nan
    table = decompose(spectrum[None], {"mf_snr_min": 1e3})
    assert Flag(int(table.flags[0])) & Flag.NOT_FINITE == 0
    assert np.isfinite(table.chi2_reduced[0])


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_the_scale_of_float64_extremes_does_not_matter(scale: float) -> None:
    spectrum = hostile()["spike in noise"][None] + model(np.array([[20.0, 100.0, 6.0]]), 424)
    reference, scaled = decompose(spectrum), decompose(spectrum * scale)
    np.testing.assert_allclose(scaled.mean, reference.mean, rtol=1e-6)
    np.testing.assert_allclose(scaled.amplitude / scale, reference.amplitude, rtol=1e-6)


@pytest.mark.parametrize("channels", [1, 2, 4, 5, 8, 9, 15, 16, 17, 100, 1023, 65_536])
def test_any_length_is_accepted(channels: int) -> None:
    rng = np.random.default_rng(9202)
    spectra = rng.normal(0.0, 1.0, (3, channels)) + model(
        np.array([[30.0, 0.4 * channels, max(1.0, 0.02 * channels)]]), channels
    )
    table = decompose(spectra)
    assert_nan_only_with_a_flag(table)
    assert len(table) == 3
    if channels >= 100:
        assert all(np.abs(table.components(i)[:, 1] - 0.4 * channels).min() < 0.01 * channels for i in range(3))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda table: SpectralAxis(None, 1.0), "a spectral axis needs finite start and step"),  # type: ignore[arg-type]
        (lambda table: SpectralAxis(0.0, 10**400), "a spectral axis needs finite start and step"),
        (lambda table: evaluate(table, 1j), "channels must be an array of numbers"),  # type: ignore[arg-type]
        (lambda table: evaluate(table, -1), "channels must be a whole number"),
        (lambda table: evaluate(table, np.zeros((2, 2))), "channels must be their number"),
        (lambda table: refit_from_neighbours(np.zeros((1, 64)), table, None), r"shape must be \(ny, nx\)"),  # type: ignore[arg-type]
        (lambda table: refit_from_neighbours(np.zeros((1, 64)), table, (1, 1), rounds=None), "rounds must be a whole"),  # type: ignore[arg-type]
        (lambda table: estimate_correlation(np.ones((1, 64)), np.ones(63)), "noise of shape"),
        (lambda table: estimate_noise_shape(np.ones((1, 2, 64))), "spectra must have the shape"),
    ],
)
def test_misuse_of_the_other_functions_is_a_clear_value_error(
    call: Callable[[Decomposition], object], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        call(decompose(np.zeros((1, 64))))


def test_an_empty_batch_gives_an_empty_table() -> None:
    table = decompose(np.empty((0, 424)))
    assert len(table) == 0
    assert table.offsets.tolist() == [0]


def test_layout_and_byte_order_do_not_matter() -> None:
    rng = np.random.default_rng(9203)
    spectra = (rng.normal(0.0, 1.0, (6, 424)) + model(np.array([[9.0, 99.0, 4.0]]), 424)).astype(np.float32)
    reference = decompose(spectra)
    padded = np.zeros((12, 848), dtype=np.float32)
    padded[::2, ::2] = spectra
    for other in (spectra.astype(">f4"), np.asfortranarray(spectra), padded[::2, ::2]):
        table = decompose(other)
        assert table.mean.tobytes() == reference.mean.tobytes()
        assert table.amplitude.tobytes() == reference.amplitude.tobytes()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"spectra": np.zeros(424)}, "shape"),
        ({"spectra": np.zeros((3, 0))}, "channel"),
        ({"spectra": np.zeros((3, 4, 5))}, r"decompose_cube takes an array \(channels, ny, nx\)"),
        ({"spectra": np.zeros((3, 424), dtype=np.float16)}, "float32, float64 or integers"),
        ({"spectra": np.zeros((3, 424)), "threads": 0}, "threads"),
        ({"spectra": np.zeros((3, 424)), "noise": np.ones(423)}, "broadcast"),
        ({"spectra": np.zeros((3, 424)), "params": {"betta": 3.0}}, "betta"),
        ({"spectra": np.zeros((3, 424)), "params": {"beta": float("nan")}}, "beta"),
        ({"spectra": np.zeros((3, 424)), "params": {"max_components": 0}}, "max_components"),
        ({"spectra": np.zeros((3, 424)), "params": {"preset": "fastest"}}, "fastest"),
        ({"spectra": np.zeros((3, 424)), "instruction_set": "mmx"}, "instruction_set"),
        ({"spectra": np.zeros((3, 424)), "instruction_set": ["avx2"]}, "instruction_set"),
        ({"spectra": None}, "spectra must be an array of numbers"),
        ({"spectra": [[1.0, 2.0], [1.0]]}, "spectra must be an array of numbers"),
        ({"spectra": np.zeros((3, 424), dtype=complex)}, "spectra must be an array of numbers"),
        ({"spectra": np.zeros((3, 424)), "noise": "loud"}, "noise must be an array of numbers"),
        ({"spectra": np.zeros((3, 424)), "noise": [[1.0], [1.0, 2.0]]}, "noise must be an array of numbers"),
        ({"spectra": np.zeros((3, 424)), "noise_is_shape": None}, "noise_is_shape must be true or false"),
        ({"spectra": np.zeros((3, 424)), "threads": float("nan")}, "threads must be a whole number from 1 to 256"),
        ({"spectra": np.zeros((3, 424)), "threads": None}, "threads must be a whole number from 1 to 256"),
        ({"spectra": np.zeros((3, 424)), "axis": (0.0, 1.0)}, "axis must be a SpectralAxis"),
        ({"spectra": np.zeros((3, 424)), "params": 5}, "params must be Params or a mapping"),
        ({"spectra": np.zeros((3, 424)), "params": {"beta": None}}, "beta must be a finite number"),
        ({"spectra": np.zeros((3, 424)), "params": {"max_components": float("inf")}}, "max_components must be a whole"),
        ({"spectra": np.zeros((3, 424)), "params": {"preset": None}}, "preset must be one of best, compatible"),
        ({"spectra": np.zeros((3, 424)), "correlation": None}, "correlation must be an array of numbers"),
        ({"spectra": np.zeros((3, 424)), "correlation": [1.0, 0.9, -0.9]}, "not positive definite"),
        ({"spectra": np.zeros((3, 424)), "starts": 5}, "starts must be a sequence"),
        ({"spectra": np.zeros((3, 424)), "starts": [None] * 3}, r"starts\[0\] must be an array of numbers"),
        ({"spectra": np.zeros((2, 424)), "starts": [[], [[1.0, 2.0], [1.0]]]}, r"starts\[1\] must be an array of numb"),
        ({"spectra": np.zeros((2, 424)), "starts": [[], [1.0, 2.0, 3.0]]}, r"starts\[1\] must have the shape \(k, 3\)"),
    ],
)
def test_misuse_is_a_clear_value_error(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decompose(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_masked_channels_are_blank(dtype: str) -> None:
    spectra = lines_and_noise(9205)[None].astype(dtype)
    spectra[0, 300:310] = 1e6
    masked = np.ma.MaskedArray(spectra, spectra == 1e6)
    reference = decompose(masked.filled(np.nan))
    for values in (masked, [masked[0]]):
        table = decompose(values)
        assert table.flags[0] & Flag.BLANK
        assert table.mean.tobytes() == reference.mean.tobytes()


def test_a_masked_noise_makes_its_channels_blank() -> None:
    noise = np.ma.MaskedArray(np.ones(424), np.arange(424) == 7)
    assert decompose(lines_and_noise(9205)[None], noise=noise).flags[0] & Flag.BLANK


def test_the_estimates_of_a_cube_leave_masked_channels_out() -> None:
    spectra = make_noise(np.random.default_rng(9206), (60, 424), 1.0)
    bad = np.ma.MaskedArray(spectra.copy(), np.arange(424)[None] // 20 == np.arange(60)[:, None] % 21)
    blank = bad.filled(np.nan)
    bad.data[bad.mask] = -50.0
    np.testing.assert_array_equal(estimate_correlation(bad), estimate_correlation(blank))
    np.testing.assert_array_equal(estimate_noise_shape(bad), estimate_noise_shape(blank))


@pytest.mark.parametrize("scale", [1e-200, 1e200, 1e300])
def test_the_scale_of_a_cube_does_not_change_its_correlation(scale: float) -> None:
    spectra = make_noise(np.random.default_rng(9206), (60, 424), 1.0)
    np.testing.assert_allclose(estimate_correlation(spectra * scale), estimate_correlation(spectra), rtol=1e-9)


def test_no_spectra_are_taken_with_a_map_of_the_noise() -> None:
    assert len(decompose(np.empty((0, 424)), noise=np.empty((0, 424)))) == 0


def test_a_given_noise_that_cannot_be_used_leaves_no_rms() -> None:
    table = decompose(np.ones((1, 424)), noise=1e-300)
    assert Flag(int(table.flags[0])) == Flag.NO_NOISE
    assert np.isnan(table.rms[0])


@pytest.mark.parametrize("height", [1e2, 1e26, 1e160, 1e308])
def test_the_height_of_a_start_does_not_change_the_fit(height: float) -> None:
    rng = np.random.default_rng(9207)
    spectra = (model(np.array([[20.0, 210.0, 6.0], [8.0, 250.0, 10.0]]), 424) + rng.normal(0.0, 1.0, 424))[None]
    reference = decompose(spectra, starts=[np.array([[19.0, 214.0, 5.0], [7.0, 246.0, 9.0]])])
    table = decompose(spectra, starts=[np.array([[height, 214.0, 5.0], [height, 246.0, 9.0]])])
    np.testing.assert_allclose(table.components(0), reference.components(0), rtol=1e-2)
    assert table.flags[0] == reference.flags[0] == Flag.CONVERGED


@pytest.mark.parametrize("preset", list(Preset))
def test_a_component_passes_the_thresholds_or_has_the_flag_that_it_does_not(preset: Preset) -> None:
    spectra = np.array([s.signal for s in make_spectra(40, 9208)])
    table = decompose(spectra, Params(preset=preset), correlation="white")
    height = table.amplitude / np.repeat(table.rms, table.n_components)
    matched = height * np.sqrt(table.stddev) * np.pi**0.25
    passes = (height >= 1.5) & (matched >= 5.0) & (table.stddev * 2.3548200450309493 >= 1.0)
    flagged = table.component_flags & ComponentFlag.BELOW_THRESHOLD != 0
    np.testing.assert_array_equal(flagged, ~passes)
    assert matched.min() >= 2.0
    assert preset is Preset.COMPATIBLE or not flagged.any()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(0, 4), st.integers(1, 70)),
        elements={"allow_nan": True, "allow_infinity": True},
    ),
    st.sampled_from(Preset),
)
def test_arbitrary_numbers_never_break_it(spectra: NDArray[np.float64], preset: Preset) -> None:
    assert_nan_only_with_a_flag(decompose(spectra, Params(preset=preset)))


def lines_and_noise(seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    components = np.stack(
        (rng.uniform(8.0, 40.0, count), 120.0 + 80.0 * np.arange(count), rng.uniform(3.0, 9.0, count)), axis=1
    )
    return model(components, 424) + rng.normal(0.0, 1.0, 424)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.floats(-30.0, 30.0).map(lambda e: 10.0**e), st.integers(-60, 60))
def test_the_components_follow_shift_scale_and_reversal_of_a_spectrum(seed: int, scale: float, shift: int) -> None:
    spectrum = lines_and_noise(seed)
    reference = decompose(spectrum[None], noise=1.0).components(0)
    scaled = decompose(scale * spectrum[None], noise=scale).components(0)
    np.testing.assert_allclose(scaled, reference * [scale, 1.0, 1.0], rtol=2e-3)
    reversed_ = decompose(spectrum[None, ::-1], noise=1.0).components(0)[::-1]
    np.testing.assert_allclose(reversed_ * [1.0, -1.0, 1.0] + [0.0, 423.0, 0.0], reference, rtol=5e-3, atol=5e-2)
    shifted = decompose(np.roll(spectrum, shift)[None], noise=1.0).components(0)
    np.testing.assert_allclose(shifted - [0.0, shift, 0.0], reference, rtol=5e-3, atol=5e-2)


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize("beta", [3.5, 5.0])
def test_two_lines_at_the_last_channels_do_not_leave_the_spectrum_empty(preset: Preset, beta: float) -> None:
    for truth in ([[16.0, 88.5, 22.5], [11.0, 95.0, 10.0]], [[6.4, 81.4, 15.6], [15.0, 95.0, 1.8]]):
        spectra = model(np.array(truth), 100) + np.random.default_rng(9420).normal(0.0, 1.0, (200, 100))
        table = decompose(spectra, Params(preset=preset, beta=beta), noise=1.0)
        assert (table.n_components > 0).all()
        assert (spectra - evaluate(table, 100)).max() < 8.0  # the largest channel is 20
        assert (table.mean <= 99.0).all()


def test_a_narrow_line_is_not_lost_between_two_narrower_halves() -> None:
    spectra = model(np.array([[7.0, 48.8, 11.7], [27.7, 90.7, 1.0]]), 200)
    spectra = spectra + np.random.default_rng(9421).normal(0.0, 1.0, (8000, 200))
    left = (spectra - evaluate(decompose(spectra, noise=1.0), 200)).max(axis=1)
    assert (left < 8.0).all()
