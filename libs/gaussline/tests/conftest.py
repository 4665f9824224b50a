"""Sets of spectra that the tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from prismline_gaussline import kernel_available
from prismline_gaussline.synthetic import MadeSpectrum, make_spectra

#: Never used to choose a constant of the kernel.
TEST_SEEDS = (9101, 9102)

CUBE = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "grs-test_field_10x10.fits"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if kernel_available():
        return
    for item in items:
        if "without_kernel" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason="the C kernel is not built: pip install with a C compiler"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "without_kernel: holds without the C kernel too")


@pytest.fixture(scope="session", params=TEST_SEEDS)
def made(request: pytest.FixtureRequest) -> tuple[list[MadeSpectrum], NDArray[np.float64]]:
    """150 spectra of each category with their truth."""
    spectra = make_spectra(150, request.param)
    return spectra, np.array([s.signal for s in spectra])


@pytest.fixture(scope="session")
def grs() -> NDArray[np.float64]:
    """The spectra of the real cube without a blank channel, (98, 424)."""
    if not CUBE.exists():
        pytest.skip(f"the real cube is missing: {CUBE.name} in shared/data beside the repository")
    fits = pytest.importorskip("astropy.io.fits", reason="astropy reads the cube")
    data = np.asarray(fits.getdata(CUBE), dtype=np.float64)
    spectra = data.reshape(len(data), -1).T
    return np.ascontiguousarray(spectra[np.isfinite(spectra).all(axis=1)])
