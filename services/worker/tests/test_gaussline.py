from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from prismline_contracts.manifest import FitParams, RefitParams
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_gaussline import decompose as decompose_directly
from prismline_gaussline import kernel_available
from prismline_runtime import PermanentError, TransientError
from prismline_worker import decompose as decompose_module
from prismline_worker.chunk_file import SpectraBlock
from prismline_worker.decompose import decompose, decompose_lines
from prismline_worker.gaussline import decompose_with_gaussline, with_correlation, with_noise_shape
from prismline_worker.schema import FIT_SCHEMA

pytestmark = pytest.mark.skipif(
    not kernel_available(), reason="gaussline was built without a C compiler; install gcc and run make install again"
)


def run(spectra, fitter=None, params=None, noise=None, **limits):
    n = len(spectra)
    block = SpectraBlock(np.asarray(spectra), np.arange(n), np.arange(n) + 50, noise=noise)
    return decompose(block, params or FitParams(), fitter=fitter, **limits)


@pytest.mark.parametrize("preset", ["best", "compatible"])
def test_every_spectrum_gets_what_gaussline_gives_when_called_directly(spectra, preset):
    table = run(spectra, params=FitParams(beta=4.0, preset=preset))
    assert table.schema == FIT_SCHEMA
    found = decompose_directly(spectra, {"beta": 4.0, "preset": preset})
    assert table["n_components"].to_pylist() == found.n_components.tolist()
    assert sum(found.n_components) > 0
    for row, (start, stop) in zip(table.to_pylist(), pairwise(found.offsets), strict=True):
        assert row["component_amplitudes"] == found.amplitude[start:stop].tolist()
        assert row["component_means"] == found.mean[start:stop].tolist()
        assert row["component_stddevs"] == found.stddev[start:stop].tolist()
        assert row["component_flux_errors"] == found.flux_err[start:stop].tolist()
    np.testing.assert_array_equal(table["rms"].to_numpy(), found.rms)
    np.testing.assert_array_equal(table["chi2_reduced"].to_numpy(), found.chi2_reduced)
    assert table["min_persistence"].to_pylist() == [4.0 * rms for rms in found.rms.tolist()]
    assert set(table["decomposer"].to_pylist()) == {"gaussline"}


def test_the_status_shows_spectra_that_cannot_be_fitted(spectra):
    rows = run([np.full(100, np.nan), np.zeros(100), spectra[1], spectra[0] * np.nan]).to_pylist()
    assert [row["status"] for row in rows] == ["blank", "empty", "fitted", "blank"]
    assert [row["n_components"] for row in rows] == [0, 0, 1, 0]
    assert [row["rms"] is None for row in rows] == [True, True, False, True]
    assert [row["decomposer"] for row in rows] == [None, "gaussline", "gaussline", None]


def test_a_spectrum_over_its_budget_is_timed_out_and_has_no_half_results(spectra):
    rows = run(spectra[:3], budget_s=1e-12).to_pylist()
    assert {row["status"] for row in rows} == {"timed_out"}
    assert {row["n_components"] for row in rows} == {-1}
    assert all(row["component_means"] == row["component_fluxes"] == [] for row in rows)
    assert all(row["rms"] is row["aicc"] is row["decomposer"] is None for row in rows)


def test_a_block_that_has_not_begun_at_the_deadline_is_left_to_the_slow_lane(spectra):
    table = run([spectra[0], np.full(100, np.nan)], deadline=0.0)
    assert table["status"].to_pylist() == ["timed_out", "blank"]
    assert table["flags"].null_count == 2


def test_without_the_kernel_phspectra_does_the_work(spectra, fitter, monkeypatch):
    monkeypatch.setattr(decompose_module, "kernel_available", lambda: False)
    table = run(spectra[:3], fitter)
    assert set(table["decomposer"].to_pylist()) == {"phspectra"}
    assert table.equals(run(spectra[:3], fitter, FitParams(decomposer="phspectra")))


def test_a_given_noise_decides_what_is_a_line(spectra):
    """The lines have 3 K: gaussline finds them with a noise of 0.25 K, and not with a noise of 2.5 K."""
    number = run(spectra, params=FitParams(noise=2.5))
    assert set(number["status"].to_pylist()) == {"empty"}
    assert number["rms"].to_pylist() == pytest.approx([2.5] * len(spectra))
    of_rows = run(spectra, noise=np.where(np.arange(len(spectra)) % 2, 0.25, 2.5)[:, None])
    assert of_rows["rms"].to_pylist() == pytest.approx([2.5, 0.25] * 6)
    of_channels = run(spectra, noise=np.where(np.arange(100) < 50, 0.25, np.nan)[None, :], params=FitParams(noise="k"))
    means = [mean for row in of_channels["component_means"].to_pylist() for mean in row]
    assert means
    assert max(means) < 50, "channels whose noise is not a number are blank"


def test_the_same_noise_in_another_form_gives_the_same_bits(spectra):
    number = run(spectra, params=FitParams(noise=0.25))
    assert number.equals(run(spectra, noise=np.full((len(spectra), 1), 0.25)))


def test_phspectra_does_not_take_a_given_noise(spectra, fitter, monkeypatch):
    with pytest.raises(ValueError, match="noise can be given to gaussline only"):
        FitParams(noise=0.25, decomposer="phspectra")
    monkeypatch.setattr(decompose_module, "kernel_available", lambda: False)
    with pytest.raises(PermanentError, match="phspectra estimates the noise"):
        run(spectra, fitter, FitParams(noise=0.25))


def test_a_noise_that_the_chunk_lacks_is_not_replaced_by_an_estimate(spectra):
    with pytest.raises(PermanentError, match="lacks the noise of a-map"):
        run(spectra, params=FitParams(noise="a-map"))


@pytest.mark.parametrize(
    ("given", "of_the_cube", "assumed"),
    [
        (None, None, None),
        (None, [1.0, 0.4], [1.0, 0.4]),
        ("spectrum", [1.0, 0.4], "spectrum"),
        ("white", [1.0, 0.4], "white"),
        ([1.0, 0.2], [1.0, 0.4], [1.0, 0.2]),
    ],
)
def test_the_correlation_is_the_given_one_or_else_that_of_the_cube(given, of_the_cube, assumed):
    geometry = CubeGeometry(
        n_channels=9, ny=1, nx=1, ctype="VRAD", crval=0.0, crpix=1.0, cdelt=1.0, cunit="m/s", bunit="K",
        object_name="", cube_key="cubes/c.fits", noise_correlation=of_the_cube,
    )  # fmt: skip
    assert with_correlation(FitParams(correlation=given), geometry).correlation == assumed
    assert with_correlation(FitParams(), None).correlation is None


def test_the_given_correlation_reaches_gaussline(spectra):
    found = decompose_directly(spectra, correlation=[1.0, 0.4])
    assert run(spectra, params=FitParams(correlation=[1.0, 0.4]))["rms"].to_pylist() == found.rms.tolist()
    assert run(spectra, params=FitParams(correlation="spectrum")).equals(run(spectra))


def geometry_with(**known):
    return CubeGeometry(
        n_channels=100, ny=1, nx=300, ctype="", crval=0, crpix=1, cdelt=1, cunit="", bunit="",
        object_name="", cube_key="cubes/c.fits", **known,
    )  # fmt: skip


def test_noisy_channels_of_the_whole_cube_make_no_components():
    """The level of each spectrum is its own."""
    level = np.where(np.arange(100) < 20, 4.0, 1.0)
    spectra = np.random.default_rng(6).normal(size=(300, 100)) * level * np.linspace(0.5, 3.0, 300)[:, None]
    plain = SpectraBlock(spectra, np.arange(300), np.zeros(300, int))
    shape = level.reshape(50, 2).mean(axis=1).tolist()  # a value for two channels
    params = FitParams(correlation="white")
    shaped = with_noise_shape(plain, params, geometry_with(noise_shape=shape))
    assert shaped.noise[0].tolist() == level.tolist()
    assert sum(decompose_with_gaussline(plain, params)["n_components"].to_pylist()) > 100
    table = decompose_with_gaussline(shaped, params)
    assert sum(table["n_components"].to_pylist()) <= 2
    levels = np.array(table["rms"].to_pylist())
    assert np.corrcoef(levels, np.linspace(0.5, 3.0, 300))[0, 1] > 0.95
    parts = pa.concat_tables(decompose_with_gaussline(shaped.rows(slice(k, k + 100)), params) for k in (0, 100, 200))
    assert parts.equals(table)


@pytest.mark.parametrize(
    ("params", "noise"),
    [({"noise": 2.0}, None), ({"decomposer": "phspectra"}, None), ({}, np.array([[2.0]]))],
    ids=["a number", "phspectra", "of the chunk"],
)
def test_a_given_noise_and_phspectra_take_no_shape(params, noise):
    block = SpectraBlock(np.zeros((3, 100)), np.arange(3), np.arange(3), noise=noise)
    assert with_noise_shape(block, FitParams(**params), geometry_with(noise_shape=[1.0, 2.0])) is block
    assert with_noise_shape(block, FitParams(**params), None) is block


LINE = LineProfile(name="two", offsets=[-12.0, 0.0], weights=[0.4, 0.6])


def with_lines(n):
    """A component (amplitude 8, mean 60, width 2) with the lines of LINE in each of `n` spectra."""
    channels = np.arange(100)
    lines = [
        8.0 * w * np.exp(-0.5 * ((channels - 60 - o) / 2.0) ** 2)
        for o, w in zip(LINE.offsets, LINE.weights, strict=True)
    ]
    return np.sum(lines, axis=0) + np.random.default_rng(3).normal(0.0, 0.2, (n, 100))


def run_lines(spectra, noise=None, line=LINE, **limits):
    n = len(spectra)
    block = SpectraBlock(np.asarray(spectra), np.arange(n), np.arange(n) + 50, noise=noise)
    return decompose_lines(block, FitParams(line="hcn_1-0", decomposer="hyperfine"), line, **limits)


def test_lines_are_fitted_as_one_component_in_any_number_of_parts():
    progress = []
    table = run_lines(with_lines(150), done=progress.append)
    assert table.schema == FIT_SCHEMA
    assert progress == [64, 64, 22]
    assert table["n_components"].to_pylist() == [1] * 150
    assert set(table["decomposer"].to_pylist()) == {"hyperfine"}
    means = np.array(table["component_means"].to_pylist())[:, 0]
    errors = np.array(table["component_mean_errors"].to_pylist())[:, 0]
    assert np.abs((means - 60.0) / errors).max() < 4.5
    assert 0.9 < float(table.schema.metadata[b"prismline_gaussline.median_effective_channels"]) / 100 <= 1.0


def test_components_have_an_optical_depth_only_if_it_is_asked_for():
    spectra, params = with_lines(3), FitParams(line="hcn_1-0", decomposer="hyperfine", optical_depth=True)
    block = SpectraBlock(spectra, np.arange(3), np.arange(3))
    thick = decompose_lines(block, params, LINE)
    assert thick.schema == FIT_SCHEMA
    assert [len(row) for row in thick["component_optical_depths"].to_pylist()] == thick["n_components"].to_pylist()
    assert [len(row) for row in thick["component_optical_depth_errors"].to_pylist()] == [1, 1, 1]
    thin = run_lines(spectra)
    assert thin["component_optical_depths"].null_count == thin["component_optical_depth_errors"].null_count == 3


def test_lines_take_the_noise_of_their_own_part():
    noise = np.where(np.arange(150) < 100, 0.2, 50.0)[:, None]
    assert run_lines(with_lines(150), noise=noise)["n_components"].to_pylist() == [1] * 100 + [0] * 50
    of_channels = np.where(np.arange(100) < 50, 0.2, np.nan)[None, :]
    means = run_lines(with_lines(3), noise=of_channels)["component_means"].to_pylist()
    assert all(abs(mean - 60.0) < 2.0 for row in means for mean in row)


def test_lines_that_are_not_fitted_at_the_deadline_are_tried_again():
    """They have no slow lane: a service of an older release would send its message without the line."""
    with pytest.raises(TransientError, match="smaller chunks"):
        run_lines(with_lines(3), deadline=0.0)


def test_a_line_whose_profile_the_chunk_lacks_fails_it_with_the_reason():
    with pytest.raises(PermanentError, match="the chunk's input lacks it"):
        run_lines(with_lines(1), line=None)


def test_a_refit_has_no_parameter_that_was_not_given():
    """Workers of release 1.0.0 refuse parameters that they do not know."""
    given = RefitParams.model_validate(FitParams(beta=4.0).model_dump()).model_dump(exclude_none=True)
    assert set(given) == {
        "beta", "max_refine_iter", "snr_min", "mf_snr_min", "f_sep", "neg_thresh", "decomposer", "preset"
    }  # fmt: skip
