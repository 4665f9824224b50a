"""One geometry: the splitter, gaussline and the command's check find in a cube what astropy finds in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from astropy import units

from prismline_cube.axis import channel_widths, has_coordinates, spectral_coordinates
from prismline_cube.cube_file import open_cube
from prismline_cube.inspection import check_cube
from prismline_gaussline import cube_spectra
from tests.cube_forms import CHANNELS, FORMS, Form, in_order, values_of, wcs_of


def test_there_are_sixty_forms_of_cubes() -> None:
    assert len({form.name for form in FORMS}) == len(FORMS) >= 60


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_reader_and_library_give_the_spectra_and_the_axis_of_astropy(form: Form, tmp_path: Path) -> None:
    path = form.write(form, tmp_path)
    values, header = values_of(path)
    cube = open_cube(path, tmp_path)
    spectra = np.concatenate([block.spectra for block in cube.blocks(5)])
    expected = in_order(form, values)
    np.testing.assert_allclose(spectra.T.reshape(expected.shape), expected, rtol=1e-6, atol=1e-6)

    geometry = cube.geometry("cubes/cube.fits")
    assert has_coordinates(geometry)
    channels = np.linspace(0.0, CHANNELS - 1.0, 200)
    theirs = wcs_of(header).sub([cube.spectral_axis])
    world = theirs.wcs_pix2world(channels[:, None], 0)[:, 0]
    ours = spectral_coordinates(geometry, channels)
    scale = _factor(theirs.wcs.cunit[0], geometry.cunit)
    np.testing.assert_allclose(ours, world * scale, rtol=1e-12, atol=1e-9 * geometry.cdelt)
    half = theirs.wcs_pix2world(channels[:, None] + 0.5, 0) - theirs.wcs_pix2world(channels[:, None] - 0.5, 0)
    np.testing.assert_allclose(channel_widths(geometry, channels), np.abs(half[:, 0]) * scale, rtol=1e-6)

    library = cube_spectra(values, header)
    np.testing.assert_allclose(library.spectra, spectra, rtol=1e-6, atol=1e-6)
    assert library.shape == (cube.ny, cube.nx)
    if geometry.linear:
        assert library.axis is not None
        np.testing.assert_allclose(library.axis.start + library.axis.step * channels, ours, rtol=1e-12, atol=1e-9)
        assert library.axis.unit == geometry.cunit
    else:
        assert library.axis is None

    checked = check_cube(path).geometry("cubes/cube.fits")
    assert checked == geometry


def _factor(own: object, unit: str) -> float:
    return float(units.Unit(own).to(units.Unit(unit))) if unit else 1.0
