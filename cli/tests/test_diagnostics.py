from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from prismline_cli import diagnostics
from prismline_cli.titles import Title

CHANNELS, SPECTRA = 400, 60


def run(smoothing: float, noise: float = 0.25):
    """Spectra with one line, and a table with its true components."""
    rng = np.random.default_rng(1)
    kernel = np.exp(-0.5 * (np.arange(-6, 7) / smoothing) ** 2) if smoothing else np.ones(1)
    kernel /= np.sqrt((kernel**2).sum())
    line = 3.0 * np.exp(-0.5 * ((np.arange(CHANNELS) - 150.0) / 5.0) ** 2)
    rows = [np.convolve(rng.normal(0.0, noise, CHANNELS + len(kernel) - 1), kernel, "valid") for _ in range(SPECTRA)]
    one = [[3.0]] * SPECTRA, [[150.0]] * SPECTRA, [[5.0]] * SPECTRA
    table = pa.table(
        {
            "x": pa.array(range(SPECTRA), pa.int32()),
            "y": pa.array([0] * SPECTRA, pa.int32()),
            "rms": [0.25] * (SPECTRA - 1) + [None],
            "component_amplitudes": one[0],
            "component_means": one[1],
            "component_stddevs": one[2],
            "status": ["fitted"] * SPECTRA,
        }
    )
    return table, {(x, 0): line + row for x, row in enumerate(rows)}


@pytest.mark.parametrize(("smoothing", "expected"), [(0.0, 0.0), (1.0, 0.78)])
def test_the_autocorrelation_of_the_residuals_is_that_of_the_noise(smoothing, expected):
    found = diagnostics.diagnose(*run(smoothing))
    assert found.n_spectra == SPECTRA - 1
    assert found.correlation[0] == 1.0
    assert found.correlation[1] == pytest.approx(expected, abs=0.02)


def test_pulls_are_as_wide_as_the_noise_was_misjudged():
    assert diagnostics.diagnose(*run(0.0)).pulls.std() == pytest.approx(1.0, abs=0.02)
    assert diagnostics.diagnose(*run(0.0, noise=0.5)).pulls.std() == pytest.approx(2.0, abs=0.04)


def test_blank_channels_do_not_count():
    table, spectra = run(1.0)
    for values in spectra.values():
        values[100:120] = np.nan
    found = diagnostics.diagnose(table, spectra)
    assert len(found.pulls) == (SPECTRA - 1) * (CHANNELS - 20)
    assert found.correlation[1] == pytest.approx(0.78, abs=0.02)


def test_without_a_noise_estimate_there_is_nothing_to_show():
    table, spectra = run(0.0)
    with pytest.raises(ValueError, match="noise"):
        diagnostics.diagnose(table, {(SPECTRA - 1, 0): spectra[SPECTRA - 1, 0]})


def test_the_picture_shows_the_numbers():
    figure = diagnostics.draw(diagnostics.diagnose(*run(0.0)), title=Title("a survey"))
    assert f"{SPECTRA - 1} spectra" in figure.axes[0].get_title(loc="left")
