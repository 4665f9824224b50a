"""Comparisons of two runs of one cube: the counts, the difference of two models, and the picture."""

from __future__ import annotations

import math

import matplotlib
import numpy as np
import pyarrow as pa
import pytest

from prismline_cli import comparison, comparison_picture, panels
from prismline_cli.comparison import Spread, compare, mismatch, model_distance
from prismline_cli.panels import PixelKind
from prismline_cli.printed import checked_output
from prismline_cli.titles import Title
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_cube import gaussians

GEOMETRY = CubeGeometry(
    n_channels=60, ny=2, nx=3, ctype="VRAD", crval=5000.0, crpix=1.0, cdelt=200.0, cunit="m/s", bunit="K",
    object_name="", cube_key="c",
)  # fmt: skip


def table(*rows):
    """A table with rows (x, y, status, components). Each component is (amplitude, mean, stddev)."""
    looked_at = [status in {"fitted", "empty"} for _, _, status, _ in rows]
    columns = {
        "x": pa.array([x for x, *_ in rows], pa.int32()),
        "y": pa.array([y for _, y, *_ in rows], pa.int32()),
        "rms": pa.array([0.1 if each else None for each in looked_at], pa.float64()),
        "chi2_reduced": pa.array([1.0 if each else None for each in looked_at], pa.float64()),
        "n_components": pa.array([-1 if s == "timed_out" else len(c) for _, _, s, c in rows], pa.int32()),
        "status": pa.array([status for _, _, status, _ in rows], pa.string()),
        "component_fluxes": pa.nulls(len(rows), pa.list_(pa.float64())),
    }
    for place, name in enumerate(("amplitudes", "means", "stddevs")):
        columns[f"component_{name}"] = pa.array([[c[place] for c in cs] for *_, cs in rows], pa.list_(pa.float64()))
    return pa.table(columns)


LINE, OTHER = (3.0, 20.0, 2.0), (1.0, 40.0, 3.0)
FIRST = table(
    (0, 0, "fitted", [LINE]), (1, 0, "fitted", [LINE, OTHER]), (2, 0, "blank", []), (0, 1, "empty", []),
    (1, 1, "timed_out", []),
)  # fmt: skip
SECOND = table(
    (0, 0, "fitted", [LINE]), (1, 0, "fitted", [LINE]), (2, 0, "blank", []), (0, 1, "fitted", [LINE]),
    (1, 1, "fitted", [LINE]), (2, 1, "empty", []),
)  # fmt: skip


def test_pixels_are_counted_by_status() -> None:
    first, second = compare(FIRST, SECOND, GEOMETRY).counts
    assert vars(first) == {
        "fitted": 2, "empty": 1, "blank": 1, "timed_out": 1, "not_processed": 1, "components": 3
    }  # fmt: skip
    assert (second.fitted, second.empty, second.not_processed, second.components) == (4, 1, 0, 4)


def test_pixels_that_both_runs_fitted_are_ordered_by_the_difference_of_their_models() -> None:
    found = compare(FIRST, SECOND, GEOMETRY)
    assert [(pixel.x, pixel.y) for pixel in found.pixels] == [(0, 1), (1, 0), (0, 0)]
    assert (found.identical, found.distinct) == (1, 2)
    largest, middle, same = found.pixels
    # a Gaussian's square has the area sqrt(pi) amplitude^2 sigma
    assert largest.difference == pytest.approx(math.sqrt(math.sqrt(math.pi) * 9.0 * 2.0) / 0.1)
    assert middle.difference == pytest.approx(math.sqrt(math.sqrt(math.pi) * 1.0 * 3.0) / 0.1)
    assert middle.components == (2, 1)
    assert same.difference == 0.0
    assert largest.strongest == (None, pytest.approx(9.0))
    assert largest.integrated == (0.0, pytest.approx(math.sqrt(2.0 * math.pi) * 3.0 * 2.0 * 0.2))


@pytest.mark.parametrize(
    ("first", "second"),
    [([LINE], [OTHER]), ([LINE, OTHER], [(2.9, 20.3, 2.1)]), ([], [LINE]), ([LINE], [(3.0, 20.0, 2.0 + 1e-9)])],
)
def test_the_difference_of_two_models_is_that_of_their_curves(first: list, second: list) -> None:
    channels = np.linspace(-50.0, 150.0, 200_001)
    one, other = (np.array(each, dtype=float).reshape(-1, 3) for each in (first, second))
    gap = gaussians(one, channels).sum(axis=0) - gaussians(other, channels).sum(axis=0)
    numeric = math.sqrt(np.trapezoid(gap**2, channels))
    assert model_distance(one, other) == pytest.approx(numeric, rel=1e-6, abs=1e-6)


def test_distributions_are_those_of_all_components() -> None:
    found = compare(FIRST, SECOND, GEOMETRY)
    first, second = found.values["amplitude (K)"]
    assert sorted(first) == [1.0, 3.0, 3.0]
    assert Spread.of(second) == Spread(4, 3.0, 3.0, 3.0)
    assert Spread.of(found.values["width (km/s)"][0]).median == pytest.approx(0.4)
    assert Spread.of(np.array([math.nan])).n == 0


def test_the_json_has_null_for_nan_and_at_most_the_requested_number_of_pixels() -> None:
    nothing = table((0, 0, "blank", []))
    document = comparison.as_json(compare(nothing, nothing, GEOMETRY), ["a", "b"], {}, 10)
    assert document["distributions"]["amplitude (K)"][0] == {"n": 0, "p16": None, "median": None, "p84": None}
    document = comparison.as_json(compare(FIRST, SECOND, GEOMETRY), ["a", "b"], {"beta": [3.5, 5.0]}, 1)
    (pixel,) = document["most_different"]
    assert (pixel["x"], pixel["y"], pixel["components"]) == (0, 1, [0, 1])
    assert document["pixels"] == {"compared": 3, "identical": 1, "distinct": 2}
    assert document["params"] == {"beta": [3.5, 5.0]}
    checked_output("compare", document | {"picture": "a.png"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nx": 4}, "one has 3 columns and the other 4"),
        ({"n_channels": 61}, "one has 60 channels"),
        ({"bunit": "Jy/beam"}, "one has K as unit"),
        ({"crval": 5100.0}, "one goes from 5 to 16.8 and the other from 5.1 to 16.9"),
        ({"crval": 5.0, "cdelt": 0.2, "cunit": "km/s"}, None),
    ],
)
def test_cubes_that_are_not_alike_are_not_compared(change: dict, message: str | None) -> None:
    why = mismatch(GEOMETRY, GEOMETRY.model_copy(update=change))
    assert why is None if message is None else message in (why or "")


def test_a_pixel_of_a_difference_map_has_the_more_serious_reason_of_both_runs() -> None:
    unprocessed, blank, empty, fitted = PixelKind.UNPROCESSED, PixelKind.BLANK, PixelKind.EMPTY, PixelKind.FITTED
    both = panels.kinds_of_both(np.array([unprocessed, blank, empty, fitted]), np.array([empty, empty, fitted, fitted]))
    assert both.tolist() == [unprocessed, blank, empty, fitted]


def test_both_maps_have_one_scale_and_the_difference_has_zero_in_the_middle() -> None:
    found = compare(FIRST, SECOND, GEOMETRY)
    models = np.array([LINE]), np.array([LINE, OTHER])
    figure = comparison_picture.draw(found, {(1, 0): (np.zeros(60), *models)}, ("aaa", "bbb"), title=Title("Two runs"))
    figure.draw_without_rendering()
    maps = [axes for axes in figure.subfigs[1].axes if axes.images]
    assert len(maps) == 9
    first, second, difference = (axes.images[1].get_clim() for axes in maps[:3])
    assert first == second
    assert difference[0] == -difference[1]
    texts = {text.get_text() for text in figure.findobj(matplotlib.text.Text)}
    assert {"Integrated intensity: aaa", "Integrated intensity: bbb", "Second minus first"} <= texts
    assert any("2 and 1 components, difference 23.1" in text for text in texts)


def test_components_with_and_without_an_optical_depth_are_two_models() -> None:
    line = LineProfile(offsets=[-6.0, 0.0], weights=[0.5, 0.5])
    geometry, thin = GEOMETRY.model_copy(update={"line": line}), table((0, 0, "fitted", [LINE]))
    depths = pa.array([[5.0]], pa.list_(pa.float64()))
    thick = thin.append_column("component_optical_depths", depths)
    assert compare(thick, thick, geometry, line).identical == 1
    found = compare(thin, thick, geometry, line)
    channels = np.arange(60.0)
    one = gaussians(np.array([LINE]), channels, line)[0]
    other = LINE[0] / 5.0 * -np.expm1(-5.0 * one / LINE[0])
    assert found.identical == 0
    assert found.pixels[0].difference == pytest.approx(math.sqrt(((one - other) ** 2).sum()) / 0.1, rel=1e-3)


def test_the_same_components_with_and_without_a_line_are_two_models() -> None:
    line = LineProfile(offsets=[-6.0, 0.0], weights=[0.5, 0.5])
    found = compare(table((0, 0, "fitted", [LINE])), table((0, 0, "fitted", [LINE])), GEOMETRY, line)
    channels, components = np.arange(60.0), np.array([LINE])
    gap = gaussians(components, channels).sum(axis=0) - gaussians(components, channels, line).sum(axis=0)
    assert found.identical == 0
    assert found.pixels[0].difference == pytest.approx(math.sqrt((gap**2).sum()) / 0.1, rel=1e-3)
