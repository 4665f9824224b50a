"""Cubes of all axis orders and the models of their tables, and the example of the README."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from prismline_gaussline import NoDataWarning, SpectralAxis, cube_spectra, decompose, evaluate
from prismline_gaussline.synthetic import model

README = Path(__file__).parents[1] / "README.md"
CHANNELS, NY, NX = 100, 3, 8
AXES = {"x": ("GLON-CAR", NX), "y": ("GLAT-CAR", NY), "v": ("VRAD", CHANNELS), "s": ("STOKES", 1)}


def cube(order: str) -> tuple[np.ndarray, dict[str, object]]:
    """A cube with the FITS axes `order` and its header. Every spectrum has one line, at channel 20 + 3 * x + 10 * y."""
    header: dict[str, object] = {"BUNIT": "K"}
    for number, letter in enumerate(order, 1):
        header |= {f"CTYPE{number}": AXES[letter][0], f"NAXIS{number}": AXES[letter][1]}
        if letter == "v":
            header |= {f"CRVAL{number}": 5000.0, f"CRPIX{number}": 1.0, f"CDELT{number}": 200.0}
    canonical = np.random.default_rng(3).normal(0.0, 0.1, (NY, NX, CHANNELS))
    for y in range(NY):
        for x in range(NX):
            canonical[y, x] += model(np.array([[3.0, 20.0 + 3 * x + 10 * y, 3.0]]), CHANNELS)
    places = {"y": 0, "x": 1, "v": 2}
    data = canonical.transpose([places[letter] for letter in reversed(order) if letter != "s"])
    return data.reshape([AXES[letter][1] for letter in reversed(order)]), header


@pytest.mark.parametrize("order", ["xyv", "vxy", "xvy", "xyvs", "xysv", "svxy"])
def test_spectra_are_extracted_for_every_position_of_the_spectral_axis(order: str) -> None:
    data, header = cube(order)
    spectra = cube_spectra(data.astype(">f4"), header)
    assert spectra.spectra.shape == (NY * NX, CHANNELS)
    assert (spectra.shape, spectra.unit) == ((NY, NX), "K")
    assert spectra.axis == SpectralAxis(5000.0, 200.0, "m/s")
    table = decompose(spectra.spectra, axis=spectra.axis)
    assert table.n_components.tolist() == [1] * NY * NX
    y, x = np.divmod(np.arange(NY * NX), NX)
    np.testing.assert_allclose(table.physical()["mean_physical"], 5000.0 + 200.0 * (20 + 3 * x + 10 * y), atol=60.0)


def test_strips_and_single_spectra_are_cubes_too() -> None:
    strip = {"CTYPE1": "GLON-CAR", "CTYPE2": "FREQ"}
    assert cube_spectra(np.zeros((50, 7)), strip).shape == (1, 7)
    one = {"CTYPE1": "FREQ", "CTYPE2": "RA---TAN", "CTYPE3": "DEC--TAN"}
    assert cube_spectra(np.zeros((1, 1, 50)), one).spectra.shape == (1, 50)
    assert cube_spectra(np.zeros((1, 1, 50), ">i2"), one).spectra.dtype == np.float64


def test_masked_values_of_a_cube_are_blank() -> None:
    data, header = cube("xyv")
    masked = np.ma.array(data, mask=False)
    masked[:20, 0, 0] = 100.0  # interference
    masked[:20, 0, 0] = np.ma.masked
    found = cube_spectra(masked, header).spectra
    assert np.isnan(found[0, :20]).all()
    assert np.isfinite(found[0, 20:]).all()
    assert decompose(found).n_components.tolist() == [1] * NY * NX


@pytest.mark.parametrize(
    ("shape", "header", "cause"),
    [
        ((4, 4, 4), {"CTYPE1": "GLON-CAR"}, "no axis of the header is spectral"),
        ((4, 4, 4), {"CTYPE1": "FREQ", "CTYPE3": "VRAD"}, r"axes \[1, 3\] of the header are both spectral"),
        ((2, 4, 4, 4), {"CTYPE3": "FREQ", "CTYPE4": "STOKES"}, "one plane at a time"),
        ((4,), {"CTYPE1": "FREQ"}, "two to four axes"),
    ],
)
def test_data_that_are_not_a_cube_are_a_value_error(
    shape: tuple[int, ...], header: dict[str, object], cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        cube_spectra(np.zeros(shape), header)


@pytest.mark.parametrize("ctype", ["VELO-LSR", "VOPT", "FREQ-HEL"])
def test_an_axis_that_names_its_rest_frame_is_linear(ctype: str) -> None:
    header = {"CTYPE4": "STOKES", "CTYPE1": ctype, "CRVAL1": 1.0, "CRPIX1": 1.0, "CDELT1": 2.0, "CUNIT1": "km/s"}
    assert SpectralAxis.from_header(header) == SpectralAxis(1.0, 2.0, "km/s")


def test_a_batch_without_data_warns() -> None:
    blank = np.full((4, 50), np.nan)
    with pytest.warns(NoDataWarning, match=r"none of the 4 spectra .* cube_spectra"):
        decompose(blank)


def test_one_spectrum_with_data_is_enough_not_to_warn(recwarn: pytest.WarningsRecorder) -> None:
    spectra = np.full((4, 50), np.nan)
    spectra[2] = np.random.default_rng(1).normal(size=50)
    decompose(spectra)
    decompose(np.empty((0, 50)))
    assert not [warning for warning in recwarn if warning.category is NoDataWarning]


def test_a_table_is_the_sum_of_its_gaussians() -> None:
    spectra = np.random.default_rng(5).normal(0.0, 0.1, (3, 120))
    spectra[0] += model(np.array([[3.0, 30.0, 4.0], [2.0, 80.0, 6.0]]), 120)
    spectra[2] += model(np.array([[1.5, 60.0, 9.0]]), 120)
    table = decompose(spectra)
    found = evaluate(table, 120)
    for i in range(3):
        np.testing.assert_allclose(found[i], model(table.components(i), 120), rtol=1e-12, atol=1e-15)
    assert not found[1].any()
    assert (spectra - found).std() == pytest.approx(0.1, rel=0.1)
    np.testing.assert_array_equal(evaluate(table, [30.0, 80.5])[:, 0], found[:, 30])


def test_arrow_tables_evaluate_to_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow makes the table")
    data, header = cube("xyv")
    table = decompose(cube_spectra(data, header).spectra)
    expected = evaluate(table, CHANNELS)
    monkeypatch.setattr("prismline_gaussline.models._BLOCK_VALUES", 500)
    arrow = table.to_arrow()
    np.testing.assert_array_equal(evaluate(arrow, CHANNELS), expected)
    names = {"amplitude": "component_amplitudes", "mean": "component_means", "stddev": "component_stddevs"}
    service = arrow.select(list(names)).rename_columns(list(names.values()))
    np.testing.assert_array_equal(evaluate(service, CHANNELS), expected)
    with pytest.raises(ValueError, match="no columns amplitude, mean, stddev"):
        evaluate(arrow.select(["rms"]), CHANNELS)


@pytest.mark.parametrize("order", ["xyv", "xyvs"])
def test_the_example_of_the_readme_runs_on_cubes_of_three_and_four_axes(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = pytest.importorskip("astropy.io.fits", reason="the example reads FITS")
    pytest.importorskip("pyarrow", reason="the example makes an Arrow table")
    data, header = cube(order)
    axes = {name: value for name, value in header.items() if not name.startswith("NAXIS")}
    fits.PrimaryHDU(data.astype(np.float32), fits.Header(axes)).writeto(tmp_path / "cube.fits")
    code = re.search(r"\n\n((?:    .*\n|\n)*?    from astropy(?:    .*\n|.*\n)*?)\n`pip install", README.read_text())
    assert code is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec("\n".join(line[4:] for line in code[1].splitlines()), names)
    assert names["table"].n_components.tolist() == [1] * NY * NX  # type: ignore[attr-defined]
    assert names["residual"].std() == pytest.approx(0.1, rel=0.1)  # type: ignore[attr-defined]
