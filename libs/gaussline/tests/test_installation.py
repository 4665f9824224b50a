"""Installations without a C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from prismline_gaussline import ComponentFlag, Flag, __version__, decompose
from prismline_gaussline.synthetic import model

LIBRARY = Path(__file__).resolve().parent.parent


@pytest.fixture
def without_kernel() -> Iterator[Any]:
    """The library as it is imported where the kernel was not built."""

    def imported() -> dict[str, ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "prismline_gaussline"}

    before = imported()
    for name in before:
        del sys.modules[name]
    sys.modules["prismline_gaussline._kernel"] = None  # type: ignore[assignment]  an import of it fails
    yield import_module("prismline_gaussline")
    for name in imported():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.without_kernel
def test_without_the_kernel_phspectra_does_the_work_and_one_warning_says_how_to_get_it(
    without_kernel: Any,
) -> None:
    pytest.importorskip("phspectra", reason="phspectra is the slow fallback")
    truth = np.array([[3.0, 100.0, 5.0]])
    spectra = model(truth, 200) + np.random.default_rng(9501).normal(0.0, 0.1, (2, 200))
    spectra[1, 150:] = np.nan
    assert not without_kernel.kernel_available()
    with pytest.warns(RuntimeWarning, match="C compiler"):
        table = without_kernel.decompose(spectra)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", without_kernel.NoDataWarning)
        empty = without_kernel.decompose(np.full((1, 200), np.nan))
    assert table.components(0)[0] == pytest.approx(truth[0], rel=0.05)
    assert table.n_components.tolist() == [1, 1]
    assert table.chi2_reduced[0] == pytest.approx(1.0, abs=0.5)
    assert (table.component_flags & ComponentFlag.NO_ERROR == 0).all()
    assert [bool(f & Flag.BLANK) for f in table.flags] == [False, True]
    assert empty.flags[0] & Flag.NO_DATA


def test_the_slow_fallback_gives_the_same_uncertainties(without_kernel: Any) -> None:
    pytest.importorskip("phspectra", reason="phspectra is the slow fallback")
    spectra = model(np.array([[3.0, 100.0, 5.0]]), 200) + np.random.default_rng(9502).normal(0.0, 0.1, (1, 200))
    fast = decompose(spectra)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        slow = without_kernel.decompose(spectra)
    for name in (
        "amplitude_err",
        "mean_err",
        "stddev_err",
        "flux",
        "flux_err",
        "aicc",
        "chi2_reduced",
        "rms",
    ):
        np.testing.assert_allclose(getattr(slow, name), getattr(fast, name), rtol=2e-3, err_msg=name)


@pytest.mark.without_kernel
def test_without_kernel_and_phspectra_the_error_says_what_to_install(
    without_kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "phspectra", None)
    with pytest.warns(RuntimeWarning), pytest.raises(ImportError, match=r"prismline-gaussline\[phspectra\]"):
        without_kernel.decompose(np.zeros((1, 20)))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pytest.importorskip("setuptools", minversion="77", reason="setuptools builds the package")
    ignored = ("build", "*.egg-info", "__pycache__", "*.so")
    return Path(shutil.copytree(LIBRARY, tmp_path / "source", ignore=shutil.ignore_patterns(*ignored)))


def _without_a_compiler(source: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=source,
        env=os.environ | {"CC": "no-such-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.without_kernel
def test_it_installs_where_there_is_no_compiler(source: Path, tmp_path: Path) -> None:
    command = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", ".", "-w", str(tmp_path))
    _without_a_compiler(source, *command)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "prismline_gaussline/batch.py" in names
    assert not [name for name in names if name.endswith(".so")]
    assert [name for name in names if name.endswith("/LICENSE")], "a copy has to carry the licence"


@pytest.mark.without_kernel
def test_a_failed_build_removes_the_kernel_of_earlier_sources(source: Path) -> None:
    earlier = source / "src" / "prismline_gaussline" / "_kernel.abi3.so"
    earlier.write_bytes(b"of earlier sources")
    _without_a_compiler(source, "setup.py", "build_ext", "--inplace")
    assert not earlier.exists()
    assert (earlier.parent / "_kernel.pyi").exists()


@pytest.mark.without_kernel
def test_the_version_is_that_of_the_installed_package() -> None:
    assert __version__ == metadata.version("prismline-gaussline")
