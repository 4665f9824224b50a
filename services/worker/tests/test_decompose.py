from __future__ import annotations

import time

import numpy as np
import phspectra
import pytest
import worker_kernels as kernels

from prismline_contracts.manifest import FitParams
from prismline_runtime.errors import PermanentError, TransientError
from prismline_worker import decompose as decompose_module
from prismline_worker.chunk_file import SpectraBlock
from prismline_worker.decompose import decompose
from prismline_worker.schema import FIT_SCHEMA

PHSPECTRA = FitParams(decomposer="phspectra")


def run(spectra, fitter, params=None, **limits):
    spectra = np.asarray(spectra)
    n = len(spectra)
    block = SpectraBlock(spectra, np.arange(n), np.arange(n) + 50)
    return decompose(block, params or PHSPECTRA, fitter=fitter, **limits)


def orders(*first_channels):
    """Spectra for the kernel of worker_kernels."""
    spectra = np.zeros((len(first_channels), 4))
    spectra[:, 0] = first_channels
    return spectra


def test_every_spectrum_gets_what_phspectra_gives_when_called_directly(fitter, spectra):
    params = FitParams(decomposer="phspectra", beta=4.0, max_refine_iter=2, snr_min=2.0)
    table = run(spectra, fitter, params)
    assert table.schema == FIT_SCHEMA
    assert sum(table["n_components"].to_pylist()) > 0
    for row, spectrum in zip(table.to_pylist(), spectra.astype(np.float64), strict=True):
        components = phspectra.fit_gaussians(spectrum, beta=4.0, max_refine_iter=2, snr_min=2.0)
        rms = phspectra.estimate_rms(spectrum)
        assert row["component_amplitudes"] == [c.amplitude for c in components]
        assert row["component_means"] == [c.mean for c in components]
        assert row["component_stddevs"] == [c.stddev for c in components]
        assert row["n_components"] == len(components)
        assert row["status"] == ("fitted" if components else "empty")
        assert (row["beta"], row["rms"], row["min_persistence"]) == (4.0, rms, 4.0 * rms)


def test_without_phspectra_the_error_says_how_to_add_it(fitter, spectra, monkeypatch):
    monkeypatch.setattr(decompose_module, "find_spec", lambda _: None)
    with pytest.raises(PermanentError, match=r"pip install 'prismline-worker\[phspectra\]'.*--build-arg PHSPECTRA=yes"):
        run(spectra[:1], fitter)


def test_rows_keep_the_order_and_the_pixels_of_the_chunk(fitter, spectra):
    table = decompose(SpectraBlock(spectra[:3], np.array([9, 3, 5]), np.array([2, 2, 1])), PHSPECTRA, fitter=fitter)
    assert table["x"].to_pylist() == [9, 3, 5]
    assert table["y"].to_pylist() == [2, 2, 1]


def test_a_blank_spectrum_is_blank_and_has_no_noise(fitter, spectra):
    row = run([np.full(100, np.nan), spectra[0]], fitter).to_pylist()[0]
    assert (row["status"], row["n_components"], row["component_means"]) == ("blank", 0, [])
    assert (row["beta"], row["rms"], row["min_persistence"]) == (3.5, None, None)


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_channels_that_are_not_finite_count_as_zero(fitter, spectra, hole):
    holed, zeroed = spectra[2].copy(), spectra[2].astype(np.float64)
    holed[:3], zeroed[:3] = hole, 0.0
    row = run([holed], fitter).to_pylist()[0]
    assert row["component_means"] == [c.mean for c in phspectra.fit_gaussians(zeroed)]
    assert row["n_components"] == 2


@pytest.mark.parametrize("level", [0.0, 3.0, -3.0])
def test_a_constant_spectrum_has_no_components(fitter, level):
    row = run([np.full(100, level)], fitter).to_pylist()[0]
    assert (row["status"], row["n_components"], row["rms"]) == ("empty", 0, 0.0)


def test_a_spectrum_over_its_budget_is_timed_out_and_its_neighbours_are_fitted(obedient):
    rows = run(orders(1.0, kernels.SLOW, 2.0, kernels.SLOW, 3.0), obedient, budget_s=0.3).to_pylist()
    assert [row["status"] for row in rows] == ["fitted", "timed_out", "fitted", "timed_out", "fitted"]
    assert [row["n_components"] for row in rows] == [1, -1, 1, -1, 1]
    assert [row["component_amplitudes"] for row in rows] == [[1.0], [], [2.0], [], [3.0]]
    assert rows[1]["rms"] is None


def test_each_spectrum_has_its_own_budget(obedient):
    spectra = orders(*range(1, 40))
    run(spectra[:1], obedient)
    budget_s = 0.2
    started = time.monotonic()
    statuses = set()
    while time.monotonic() - started < 2 * budget_s:
        statuses |= set(run(spectra, obedient, budget_s=budget_s)["status"].to_pylist())
    assert statuses == {"fitted"}


def test_at_the_deadline_the_current_spectrum_and_all_after_it_are_timed_out(obedient):
    run(orders(1.0), obedient)
    started = time.monotonic()
    table = run(orders(1.0, kernels.SLOW, 2.0, np.nan), obedient, budget_s=None, deadline=started + 0.5)
    assert time.monotonic() - started < 5.0
    assert table["status"].to_pylist() == ["fitted", "timed_out", "timed_out", "timed_out"]


def test_after_the_deadline_all_spectra_but_blank_ones_are_left_to_the_slow_lane(obedient):
    run(orders(1.0), obedient)
    child = obedient.pid
    blank = np.full(4, np.nan)
    table = run([orders(1.0)[0], blank, orders(2.0)[0]], obedient, deadline=time.monotonic())
    assert table["status"].to_pylist() == ["timed_out", "blank", "timed_out"]
    assert obedient.pid == child


def test_an_exception_of_the_kernel_is_permanent_and_names_the_pixel(obedient):
    with pytest.raises(PermanentError, match=r"x=1, y=51 failed: ZeroDivisionError: float division by zero\.$"):
        run(orders(1.0, kernels.RAISES), obedient)
    assert run(orders(1.0), obedient)["status"].to_pylist() == ["fitted"]


def test_a_fit_that_runs_out_of_memory_is_not_the_spectrums_fault(obedient):
    with pytest.raises(TransientError, match=r"x=1, y=51: the fitting process raised MemoryError\.$"):
        run(orders(1.0, kernels.OUT_OF_MEMORY), obedient)
    assert run(orders(1.0), obedient)["status"].to_pylist() == ["fitted"]


def test_a_spectrum_that_crashes_the_kernel_is_permanent_and_names_the_pixel(obedient):
    with pytest.raises(PermanentError, match=r"x=1, y=51 failed: .*exit code 7\.$"):
        run(orders(1.0, kernels.CRASHES), obedient)
    assert run(orders(1.0), obedient)["status"].to_pylist() == ["fitted"]


def test_a_child_that_is_killed_once_costs_nothing(obedient):
    table = run(orders(1.0, kernels.KILLED_ONCE, 2.0), obedient)
    assert table["component_amplitudes"].to_pylist() == [[1.0], [kernels.KILLED_ONCE], [2.0]]


def test_a_child_that_is_killed_again_and_again_is_transient(obedient):
    with pytest.raises(TransientError, match=r"x=0, y=50.*exit code -9"):
        run(orders(kernels.KILLED_ALWAYS), obedient)


def test_spectra_and_pixels_of_different_length_are_refused(obedient):
    with pytest.raises(ValueError, match="shorter"):
        decompose(SpectraBlock(orders(1.0, 2.0), np.array([0, 1]), np.array([0])), PHSPECTRA, fitter=obedient)
