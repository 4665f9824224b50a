"""The columns of the table and what they mean in physical units."""

from __future__ import annotations

import numpy as np
import pytest

from prismline_gaussline import (
    COMPONENT_COLUMNS,
    SPECTRUM_COLUMNS,
    Decomposition,
    SpectralAxis,
    cube_spectra,
    decompose,
    decompose_cube,
)
from prismline_gaussline.synthetic import model

GRS_HEADER = {"CTYPE3": "VOPT", "CRVAL3": -5000.0, "CDELT3": 211.96, "CRPIX3": 2.0, "CUNIT3": "m/s"}


@pytest.fixture(scope="module")
def table() -> Decomposition:
    rng = np.random.default_rng(9401)
    spectra = rng.normal(0.0, 0.1, (5, 424))
    spectra[:3] += model(np.array([[3.0, 100.0, 5.0], [2.0, 300.0, 8.0]]), 424)
    return decompose(spectra, axis=SpectralAxis.from_header(GRS_HEADER))


def test_flux_is_the_area_under_the_component(table: Decomposition) -> None:
    area = [model(row[None], 424).sum() for i in range(len(table)) for row in table.components(i)]
    np.testing.assert_allclose(table.flux, area, rtol=1e-6)


def test_components_of_a_spectrum_are_the_rows_between_its_offsets(table: Decomposition) -> None:
    assert table.n_components.tolist() == [2, 2, 2, 0, 0]
    assert table.offsets.tolist() == [0, 2, 4, 6, 6, 6]
    assert table.components(1)[:, 1].tolist() == table.mean[2:4].tolist()
    assert (np.diff(table.components(0)[:, 1]) > 0).all()


def test_means_and_widths_follow_the_header(table: Decomposition) -> None:
    physical = table.physical()
    np.testing.assert_allclose(physical["mean_physical"], -5000.0 + (table.mean - 1.0) * 211.96)
    np.testing.assert_allclose(physical["stddev_physical_err"], 211.96 * table.stddev_err)
    np.testing.assert_allclose(physical["flux_physical"], 211.96 * table.flux)


def test_a_falling_axis_gives_positive_widths() -> None:
    spectra = model(np.array([[3.0, 100.0, 5.0]]), 424)[None] + np.random.default_rng(1).normal(0, 0.1, (1, 424))
    axis = SpectralAxis(100.0, -0.5, "km/s")
    physical = decompose(spectra, axis=axis).physical()
    assert physical["mean_physical"][0] == pytest.approx(50.0, abs=0.5)
    assert physical["stddev_physical"][0] == pytest.approx(2.5, abs=0.2)


@pytest.mark.parametrize(
    "header",
    [{}, {"CRPIX3": 1.0}, {"CRVAL3": 1.0, "CDELT3": 2.0, "CTYPE3": "FREQ-LOG"}],
)
def test_a_header_without_a_linear_axis_gives_none(header: dict[str, object]) -> None:
    assert SpectralAxis.from_header(header) is None


def test_an_arrow_table_has_a_row_for_each_spectrum_with_lists_of_components(table: Decomposition) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow makes the table")
    arrow = table.to_arrow()
    assert arrow.num_rows == 5
    assert set(arrow.column_names) == {*SPECTRUM_COLUMNS, *COMPONENT_COLUMNS, *table.physical()}
    assert arrow.column("mean").to_pylist()[2] == table.components(2)[:, 1].tolist()
    assert arrow.column("mean").to_pylist()[4] == []


def test_the_table_has_the_processor_time_of_every_thread() -> None:
    noise = np.random.default_rng(9402).normal(0.0, 0.1, (200, 424))
    table = decompose(noise, threads=2)
    assert table.thread_seconds.shape == (2,)
    assert (table.thread_seconds > 0.0).all()


def test_a_qtable_has_a_row_for_each_component_with_units(table: Decomposition) -> None:
    units = pytest.importorskip("astropy.units", reason="astropy makes the table")
    q = table.to_qtable("K")
    assert q["spectrum"].tolist() == [0, 0, 1, 1, 2, 2]
    assert q["amplitude"].unit == units.K
    assert q["flux_physical"].to_value("K km/s")[0] == pytest.approx(table.flux[0] * 0.21196)
    assert q["mean_physical_err"].unit == units.Unit("m/s")
    with pytest.raises(ValueError, match="furlongs"):
        table.to_qtable("furlongs per pint")


def test_the_metadata_of_the_arrow_table_has_the_assumptions_about_the_noise(table: Decomposition) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow makes the table")
    metadata = table.to_arrow().schema.metadata
    assert float(metadata[b"prismline_gaussline.median_correlation"]) == 0.0
    assert float(metadata[b"prismline_gaussline.median_effective_channels"]) == 424.0


class Cube:
    """The parts of a SpectralCube that decompose_cube uses."""

    def __init__(self, data: np.ndarray, axis: object) -> None:
        self.filled_data, self.spectral_axis = data, axis


def test_a_spectral_cube_is_decomposed_with_its_axis() -> None:
    units = pytest.importorskip("astropy.units", reason="a cube has units")
    data = np.random.default_rng(9403).normal(0.0, 0.1, (100, 2, 3))
    data[:, 1, 2] += model(np.array([[3.0, 40.0, 4.0]]), 100)
    found = decompose_cube(Cube(data * units.K, (10.0 + 0.5 * np.arange(100)) * units.km / units.s))
    assert np.flatnonzero(found.n_components).tolist() == [5]
    assert found.physical()["mean_physical"][0] == pytest.approx(30.0, abs=0.1)
    assert (found.shape, found.unit) == ((2, 3), "K")
    assert found.to_qtable()["amplitude"].unit == units.K
    with pytest.raises(ValueError, match="linear"):
        decompose_cube(Cube(data * units.K, np.arange(100) ** 1.1 * units.Hz))


def test_a_cube_is_decomposed_in_each_of_its_forms() -> None:
    data = np.random.default_rng(9403).normal(0.0, 10.0, (100, 2, 3))
    data[:, 1, 2] += model(np.array([[300.0, 40.0, 4.0]]), 100)
    counts = np.round(data).astype(">i2")
    axis = SpectralAxis(10.0, 0.5, "km/s")
    header = {"CTYPE3": "VRAD", "CRVAL3": 10.0, "CRPIX3": 1.0, "CDELT3": 0.5, "CUNIT3": "km/s", "BUNIT": "K"}
    expected = decompose(counts.reshape(100, 6).T.astype(np.float64), axis=axis)
    for form, how, unit in (
        (counts, {"axis": axis}, ""),
        (counts.astype(np.float64), {"axis": axis}, ""),
        (np.ma.array(counts), {"axis": axis}, ""),
        (cube_spectra(counts, header), {}, "K"),
    ):
        found = decompose_cube(form, **how)
        assert (found.shape, found.unit, found.axis) == ((2, 3), unit, axis)
        assert found.mean.tobytes() == expected.mean.tobytes()
    assert np.argwhere(found.n_components.reshape(found.shape)).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match=r"must be an array \(channels, ny, nx\)"):
        decompose_cube(counts[0])


@pytest.mark.parametrize("kind", ["u1", "<i2", ">i4", "i8"])
def test_integers_are_decomposed_as_the_same_floats(kind: str) -> None:
    counts = np.round(100 + np.random.default_rng(1).normal(0.0, 5.0, (3, 200))).astype(kind)
    assert decompose(counts).rms.tobytes() == decompose(counts.astype(np.float64)).rms.tobytes()
