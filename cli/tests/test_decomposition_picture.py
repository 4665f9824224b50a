from __future__ import annotations

import itertools
import math

import matplotlib
import numpy as np
import pyarrow as pa
import pytest
from matplotlib.image import imread
from matplotlib.text import Text

from prismline_cli import decomposition_picture, panels, titles
from prismline_cli.panels import PixelKind
from prismline_cli.titles import Title
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_cube import DisplayAxis

nan = math.nan


def geometry(ny=2, nx=3, **axis):
    described = {"ctype": "VRAD", "crval": 5000.0, "crpix": 11.0, "cdelt": 200.0, "cunit": "m/s", "bunit": "K"} | axis
    return CubeGeometry(n_channels=40, ny=ny, nx=nx, object_name="", cube_key="cubes/a/b.fits", **described)


def table(*rows):
    """A table with rows (x, y, status, components). Each component is (amplitude, mean, stddev)."""
    return pa.table(
        {
            "x": pa.array([x for x, _, _, _ in rows], pa.int32()),
            "y": pa.array([y for _, y, _, _ in rows], pa.int32()),
            "rms": pa.array([0.25 if s in {"fitted", "empty"} else None for _, _, s, _ in rows], pa.float64()),
            "n_components": pa.array([-1 if s == "timed_out" else len(c) for _, _, s, c in rows], pa.int32()),
            **{
                f"component_{name}": pa.array([[one[place] for one in c] for *_, c in rows], pa.list_(pa.float64()))
                for place, name in enumerate(("amplitudes", "means", "stddevs"))
            },
            "component_fluxes": pa.nulls(len(rows), pa.list_(pa.float64())),
            "status": pa.array([s for _, _, s, _ in rows], pa.string()),
        }
    )


FOUND = pa.concat_tables(
    [
        table((0, 0, "fitted", [(2.0, 10.0, 3.0), (1.0, 30.0, 5.0)]), (1, 0, "empty", [])),
        table((2, 0, "blank", []), (0, 1, "timed_out", []), (1, 1, "fitted", [(1.0, 5.0, 2.0), (4.0, 20.0, 1.0)])),
    ]
)


@pytest.mark.parametrize(
    ("axis", "label", "at_channel_20"),
    [
        ({}, "Velocity (km/s)", 7.0),
        ({"ctype": "VOPT-W2F", "crval": 5.0, "cdelt": 0.2, "cunit": "km/s"}, "Velocity (km/s)", 7.0),
        ({"ctype": "FREQ", "crval": 110e9, "cdelt": -1e6, "cunit": "Hz"}, "Frequency (GHz)", 109.99),
        ({"ctype": "WAVE", "crval": 0.1, "cdelt": 0.01, "cunit": "m"}, "Wavelength (m)", 0.2),
        ({"ctype": "ODD", "crval": 1.0, "cdelt": 1.0, "cunit": "furlong?"}, "ODD (furlong?)", 11.0),
        ({"ctype": "", "crval": 1.0, "cdelt": 1.0, "cunit": ""}, "Spectral axis", 11.0),
    ],
)
def test_channels_are_shown_in_the_unit_that_a_person_reads(axis, label, at_channel_20):
    shown = DisplayAxis.of(geometry(**axis))
    assert shown.label == label
    assert float(shown.at(20)) == pytest.approx(at_channel_20)


def test_channel_zero_is_the_fits_standards_pixel_one():
    assert DisplayAxis.of(geometry(crpix=1.0)).at(0) == pytest.approx(5.0)


@pytest.mark.parametrize("cdelt", [200.0, -200.0])
def test_integrated_intensity_is_the_area_of_the_components(cdelt):
    found = decomposition_picture.maps(FOUND, geometry(cdelt=cdelt)).integrated
    area = math.sqrt(2 * math.pi) * 0.2
    np.testing.assert_allclose(found, [[11.0 * area, 0.0, nan], [nan, 6.0 * area, nan]])


def test_components_are_counted_only_where_a_spectrum_was_fitted():
    np.testing.assert_array_equal(
        decomposition_picture.maps(FOUND, geometry()).n_components, [[2, 0, nan], [nan, 2, nan]]
    )


def test_the_velocity_is_that_of_the_strongest_component():
    np.testing.assert_allclose(
        decomposition_picture.maps(FOUND, geometry()).strongest, [[5.0, nan, nan], [nan, 7.0, nan]]
    )


def test_every_pixel_says_why_it_has_a_value_or_none():
    """A pixel whose chunk has not completed is marked as not processed, not as blank."""
    kinds = PixelKind.FITTED, PixelKind.EMPTY, PixelKind.BLANK, PixelKind.TIMED_OUT, PixelKind.UNPROCESSED
    fitted, empty, blank, timed_out, unprocessed = kinds
    expected = [[fitted, empty, blank], [timed_out, fitted, unprocessed]]
    assert decomposition_picture.maps(FOUND, geometry()).kinds.tolist() == expected


def test_the_gallery_goes_from_faint_and_simple_to_bright_and_complex():
    rows = [(x, y, "fitted", [(1.0 + x, 10.0, 2.0)] * (y + 1)) for x in range(10) for y in range(3)]
    np.random.default_rng(0).shuffle(rows)
    pixels = decomposition_picture.gallery_pixels(
        table(*rows, (0, 9, "empty", []), (1, 9, "blank", []), (2, 9, "timed_out", []))
    )
    assert len(set(pixels)) == 9
    assert [y for _, y in pixels] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all(first[0] < second[0] for first, second in itertools.pairwise(pixels) if first[1] == second[1])


def test_the_gallery_shows_fewer_spectra_if_there_are_fewer():
    assert set(decomposition_picture.gallery_pixels(FOUND)) == {(0, 0), (1, 1)}
    assert decomposition_picture.gallery_pixels(table((0, 0, "empty", []))) == []


def draw(tmp_path, found, shape):
    spectra = {pixel: np.linspace(0.0, 1.0, 40) for pixel in decomposition_picture.gallery_pixels(found)}
    figure = decomposition_picture.overview(found, geometry(*shape), spectra, title=Title("A run"))
    return imread(decomposition_picture.save(figure, tmp_path / "run.png"))


@pytest.mark.parametrize(
    ("found", "shape"),
    [
        (FOUND, (2, 3)),
        (table((0, 0, "fitted", [(1.0, 10.0, 2.0)] * 33)), (1, 1)),
        (table(*[(x, 0, "fitted", [(1.0, 10.0, 2.0)]) for x in range(500)]), (1, 500)),
        (table(*[(0, y, "fitted", [(1.0, 10.0, 2.0)]) for y in range(300)]), (300, 2)),
        (table((0, 0, "blank", [])), (3, 4)),
        (table((0, 0, "empty", [])), (3, 4)),
        (table((0, 0, "timed_out", [])), (3, 4)),
    ],
    ids=["every status", "one pixel", "a row", "a column", "blank", "empty", "out of time"],
)
def test_a_run_is_drawn_1600_pixels_wide_whatever_was_found(tmp_path, found, shape):
    image = draw(tmp_path, found, shape)
    height, width = image.shape[:2]
    assert width == 1600
    assert 300 < height < 1400
    assert image[..., :3].std() > 0.05


def share_of(colour, image):
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.isclose(image[..., :3], rgb, atol=0.005).all(axis=-1).mean()


def test_blank_pixels_and_those_that_were_not_processed_have_colours_of_their_own(tmp_path):
    blank, unprocessed = "#d6d6d6", "#f0c987"
    for found, expected in (
        (table((0, 0, "blank", [])), {blank}),
        (table((0, 0, "empty", [])), set()),
        (table((9, 0, "empty", []))[:0], {unprocessed}),
    ):
        image = draw(tmp_path, found, (1, 1))
        assert {colour for colour in (blank, unprocessed) if share_of(colour, image) > 0.15} == expected


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def test_the_legend_counts_the_pixels_without_a_value():
    output = texts(decomposition_picture.overview(FOUND, geometry(), {}, title=Title("A run")))
    for label in ("not processed (1)", "blank in the cube (1)", "no component (1)"):
        assert label in output
    assert "out of time, to be fitted again (1)" in output


@pytest.mark.parametrize("pixel", [(0, 0), (1, 0), (2, 0), (0, 1)], ids=["fitted", "empty", "blank", "out of time"])
def test_one_spectrum_is_drawn_with_its_components(tmp_path, pixel):
    values = np.full(40, nan) if pixel == (2, 0) else np.linspace(0.0, 1.0, 40)
    figure = decomposition_picture.one_spectrum(FOUND, geometry(), pixel, values, title=Title("A spectrum"))
    image = imread(decomposition_picture.save(figure, tmp_path / "one.png"))
    assert image.shape[1] == 1200
    assert 650 < image.shape[0] < 750


def test_the_sum_that_is_drawn_is_the_sum_of_the_components():
    values = np.zeros(40)
    figure = decomposition_picture.one_spectrum(FOUND, geometry(), (1, 1), values, title=Title("A spectrum"))
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    velocity, height = lines["sum"].get_data()
    assert velocity[np.argmax(height)] == pytest.approx(7.0, abs=0.05)
    assert height.max() == pytest.approx(4.0, rel=0.01)
    residual = figure.axes[1].get_lines()[0].get_ydata()
    assert residual[20] == pytest.approx(-4.0)


def test_the_residual_of_components_with_an_optical_depth_is_the_data_minus_their_curve():
    line, n = LineProfile(offsets=[-6.0, 0.0], weights=[0.4, 0.6]), 60
    found = table((0, 0, "fitted", [(4.0, 30.0, 2.0)]))
    found = found.append_column("component_optical_depths", pa.array([[8.0]], pa.list_(pa.float64())))
    channels = np.arange(n)
    profile = sum(w * np.exp(-0.5 * ((channels - 30.0 - o) / 2.0) ** 2) for o, w in ((-6.0, 0.4), (0.0, 0.6)))
    values = 4.0 / 8.0 * (1.0 - np.exp(-8.0 * profile))
    shown = geometry(ny=1, nx=1).model_copy(update={"line": line, "n_channels": n})
    figure = decomposition_picture.one_spectrum(found, shown, (0, 0), values, title=Title("A run"))
    lower = figure.subfigs[1].axes[1]
    np.testing.assert_allclose(lower.lines[0].get_ydata(), np.zeros(n), atol=1e-12)


def test_a_pixel_without_a_result_is_a_lookup_error():
    with pytest.raises(LookupError, match="x=2, y=1"):
        decomposition_picture.one_spectrum(FOUND, geometry(), (2, 1), np.zeros(40), title=Title("A spectrum"))


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(matplotlib.rcParams)
    decomposition_picture.overview(FOUND, geometry(), {}, title=Title("A run"))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(("ny", "nx"), [(40, 10), (10, 40), (12, 12), (80, 2)])
def test_no_title_is_cut_whatever_the_cube_is_like(ny, nx):
    pixels = [(x, y, "fitted", [(1.0, 20.0, 3.0)]) for y in range(ny) for x in range(nx)]
    figure = decomposition_picture.overview(table(*pixels), geometry(ny=ny, nx=nx), {}, title=Title("a survey"))
    figure.draw_without_rendering()
    width = figure.bbox.width
    panels = [axes for part in figure.subfigs for axes in part.axes if axes.get_xlabel()]
    titles = [
        text
        for axes in panels
        for text in axes.get_children()
        if isinstance(text, Text) and text.get_text() in {axes.get_title(), axes.get_title("left")} - {""}
    ]
    assert len(titles) == 3
    extents = [title.get_window_extent() for title in titles]
    assert all(extent.x0 >= 0.0 and extent.x1 <= width for extent in extents)
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(sorted(extents, key=lambda e: e.x0)))


# ---- the sky

GALACTIC = {
    "CTYPE1": "GLON-CAR", "CRVAL1": 30.0, "CRPIX1": 2.0, "CDELT1": -0.01, "CUNIT1": "deg",
    "CTYPE2": "GLAT-CAR", "CRVAL2": 0.0, "CRPIX2": 1.0, "CDELT2": 0.01, "CUNIT2": "deg",
}  # fmt: skip
EQUATORIAL = GALACTIC | {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRVAL2": 40.0, "RADESYS": "FK5"}


@pytest.mark.parametrize(
    ("celestial", "names"),
    [
        (GALACTIC, ("Galactic longitude (deg)", "Galactic latitude (deg)")),
        (EQUATORIAL, ("Right ascension (FK5)", "Declination (FK5)")),
        (None, ("x (pixel)", "y (pixel)")),
        ({"CTYPE1": "GLON-CAR"}, ("x (pixel)", "y (pixel)")),
    ],
    ids=["galactic", "equatorial", "none", "unreadable"],
)
def test_maps_have_the_axes_of_the_sky_where_the_header_gives_them(celestial, names):
    described = geometry().model_copy(update={"celestial": celestial})
    figure = decomposition_picture.overview(FOUND, described, {}, title=Title("A run"))
    figure.draw_without_rendering()
    maps = [axes for part in figure.subfigs for axes in part.axes if axes.get_xlabel()]
    assert {axes.get_xlabel() for axes in maps} == {names[0]}
    assert len(maps) == 3
    assert maps[0].get_ylabel() == names[1]


# ---- colour scales


def test_a_few_outliers_do_not_stretch_the_colours_and_are_mentioned():
    values = np.random.default_rng(1).normal(10.0, 1.0, (50, 40))
    values[0, :5], values[1, :3], values[2] = 1e6, -1e6, nan
    scale = panels.robust_scale(values)
    assert 5.0 < scale.low < 9.0
    assert 11.0 < scale.high < 15.0
    assert (scale.above >= 5, scale.below >= 3, scale.extend) == (True, True, "both")
    assert scale.clipped == pytest.approx((scale.above + scale.below) / 1960)
    assert panels.clipped_note([("velocity", scale)]).startswith(
        "Pixels beyond the ends of a colour scale: velocity 0."
    )


def test_values_without_outliers_are_shown_from_end_to_end():
    values = np.linspace(2.0, 5.0, 100).reshape(10, 10)
    assert panels.robust_scale(values) == panels.Scale(2.0, 5.0, 0, 0, 100)
    assert panels.clipped_note([("velocity", panels.robust_scale(values))]) == ""


@pytest.mark.parametrize("values", [np.full((2, 2), nan), np.full((2, 2), 3.0), np.zeros((1, 1))])
def test_any_values_have_a_scale(values):
    scale = panels.robust_scale(values)
    assert scale.low < scale.high
    assert scale.clipped == 0.0


def test_differences_have_zero_in_the_middle():
    scale = panels.robust_scale(np.array([[-1.0, 0.5, 4.0]]), symmetric=True)
    assert scale.low == -scale.high


def test_the_part_of_the_pixels_beyond_the_colours_is_in_the_picture():
    rows = [(x, 0, "fitted", [(1000.0 if x == 7 else 1.0 + x / 300, 10.0, 2.0)]) for x in range(300)]
    figure = decomposition_picture.overview(table(*rows), geometry(1, 300), {}, title=Title("A run"))
    assert "Pixels beyond the ends of a colour scale: integrated intensity 0.3%." in texts(figure)


# ---- titles


@pytest.mark.parametrize("width", [9.6, 12.8])
@pytest.mark.parametrize(
    "title",
    [
        Title("s" * 64 + ", run 1a2b3c4d", ("job " + "j" * 200, " ".join(f"parameter_{n} {n}" for n in range(40)))),
        Title("W " * 200, ("$a$ _b_ \\c {d}",), ("Partial: 1 of 2 chunks completed (1 failed).",)),
    ],
    ids=["long names", "many words"],
)
def test_no_line_of_a_title_is_cut(title, width):
    figure, _ = decomposition_picture.titled_figure(title, width, [2.0])
    figure.draw_without_rendering()
    extents = [text.get_window_extent() for text in figure.subfigs[0].texts]
    assert all(extent.x0 >= 0.0 and extent.x1 <= figure.bbox.width for extent in extents)
    assert all(extent.y0 >= figure.bbox.height - 125 * titles.height_in(title, width) - 1 for extent in extents)
    assert all(above.y0 >= below.y0 for above, below in itertools.pairwise(extents))
    shown = "".join("".join(text.get_text() for text in figure.subfigs[0].texts).split())
    assert shown == "".join("".join((title.heading, *title.lines, *title.warnings)).split())


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.SVG", b"<?xml")])
def test_the_suffix_of_the_file_chooses_the_format_of_the_picture(tmp_path, name, magic):
    figure = decomposition_picture.overview(FOUND, geometry(), {}, title=Title("A run"))
    assert decomposition_picture.save(figure, tmp_path / name).read_bytes().startswith(magic)
