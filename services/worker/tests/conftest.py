from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from prismline_worker.fit_process import FitProcess

# The tests and the children that they start import worker_kernels by name.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def fitter():
    """The real fitter; one child serves every test, as it serves every chunk of a worker."""
    with FitProcess() as process:
        yield process


@pytest.fixture
def obedient(monkeypatch, tmp_path):
    """A fitter whose behaviour depends on the first channel of the spectrum; see worker_kernels."""
    monkeypatch.setenv("WORKER_KERNELS_MARKER", str(tmp_path / "killed"))
    with FitProcess("worker_kernels:obey") as process:
        yield process


@pytest.fixture(scope="session")
def spectra():
    """12 noisy spectra of 100 channels with zero to two lines, in kelvin, (12, 100) float32."""
    rng = np.random.default_rng(7)
    channels = np.arange(100)
    made = rng.normal(0.0, 0.25, (12, 100))
    for row in range(12):
        for line in range(row % 3):
            made[row] += 3.0 * np.exp(-0.5 * ((channels - 25 - 40 * line) / 4.0) ** 2)
    return made.astype(np.float32)


@pytest.fixture
def world(aws_env, monkeypatch):
    """A worker for spectra on an emulator; see worker_world."""
    from worker_world import spectra_world  # noqa: PLC0415  only tests that use it need an emulator

    return spectra_world(aws_env["ENVIRONMENT"], monkeypatch)
