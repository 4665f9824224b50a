"""The columns of the table and what they mean in physical units."""

from __future__ import annotations

import numpy as np
import pytest

from prismline_gaussline import COMPONENT_COLUMNS, SPECTRUM_COLUMNS, Decomposition, SpectralAxis, decompose
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
    [{}, {"CRVAL3": 1.0}, {"CRVAL3": 1.0, "CDELT3": 2.0, "CTYPE3": "FREQ-LOG"}],
)
def test_a_header_without_a_linear_axis_gives_none(header: dict[str, object]) -> None:
    assert SpectralAxis.from_header(header) is None


def test_arrow_table_has_a_row_a_spectrum_and_a_list_of_components(table: Decomposition) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow makes the table")
    arrow = table.to_arrow()
    assert arrow.num_rows == 5
    assert set(arrow.column_names) == {*SPECTRUM_COLUMNS, *COMPONENT_COLUMNS, *table.physical()}
    assert arrow.column("mean").to_pylist()[2] == table.components(2)[:, 1].tolist()
    assert arrow.column("mean").to_pylist()[4] == []


def test_the_table_tells_the_processor_time_of_every_thread() -> None:
    noise = np.random.default_rng(9402).normal(0.0, 0.1, (200, 424))
    table = decompose(noise, threads=2)
    assert table.thread_seconds.shape == (2,)
    assert (table.thread_seconds > 0.0).all()
