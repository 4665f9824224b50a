from __future__ import annotations

import numpy as np
import phspectra
import pytest
from astropy.io import fits
from astropy.wcs import WCS

from prismline_localstack.demos.synthetic import NOISE_K, load_truth, make_cube


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The demonstration's cube: its path, its values (channels, ny, nx) and its truth."""
    path = tmp_path_factory.mktemp("cube") / "cube.fits"
    truth = make_cube(path)
    return path, fits.getdata(path), truth


def model(truth, shape):
    """The noiseless cube that the truth describes."""
    channels = np.arange(shape[0])
    cube = np.zeros(shape)
    for x, y, amplitude, mean, stddev in zip(truth.x, truth.y, truth.amplitude, truth.mean, truth.stddev, strict=True):
        cube[:, y, x] += amplitude * np.exp(-0.5 * ((channels - mean) / stddev) ** 2)
    return cube


def test_the_cube_is_its_truth_and_noise(made):
    _, cube, truth = made
    residual = (cube - model(truth, cube.shape))[:, ~truth.blank]
    assert cube.shape == (100, 40, 50)
    assert np.std(residual) == pytest.approx(NOISE_K, rel=0.01)
    assert np.mean(residual) == pytest.approx(0.0, abs=0.005)


def test_a_part_of_the_left_edge_is_blank_and_nothing_else(made):
    _, cube, truth = made
    np.testing.assert_array_equal(np.isnan(cube), np.broadcast_to(truth.blank, cube.shape))
    assert 20 < truth.blank.sum() < 200
    assert not truth.blank[:, 10:].any()


def test_most_spectra_hold_one_to_three_components_and_some_hold_none(made):
    _, _, truth = made
    counts = np.bincount((truth.y * 50 + truth.x)[truth.amplitude > 4 * NOISE_K], minlength=2000)
    assert counts.max() == 3
    assert all((counts == n).sum() > 50 for n in range(4))


def test_the_header_places_the_cube_on_the_sky_and_in_velocity(made):
    path, _, _ = made
    header = fits.getheader(path)
    longitude, latitude, velocity = WCS(header).wcs_pix2world([[24.5, 19.5, 49.5]], 0)[0]
    assert (longitude, latitude, velocity) == pytest.approx((24.0, 0.0, 60_000.0))
    assert [header[f"CTYPE{n}"] for n in (1, 2, 3)] == ["GLON-CAR", "GLAT-CAR", "VRAD"]
    assert (header["BUNIT"], header["CUNIT3"], header["BITPIX"]) == ("K", "m/s", -32)


def test_the_truth_is_saved_beside_the_cube(made):
    path, _, truth = made
    for name, values in vars(load_truth(path)).items():
        np.testing.assert_array_equal(values, getattr(truth, name))


def test_the_same_seed_gives_the_same_cube_and_another_one_another(tmp_path):
    first, second, other = (tmp_path / name for name in ("a.fits", "b.fits", "c.fits"))
    for path, seed in ((first, 1), (second, 1), (other, 2)):
        make_cube(path, ny=4, nx=5, n_channels=30, seed=seed)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() != other.read_bytes()


@pytest.mark.parametrize("shape", [(1, 1, 20), (1, 7, 64), (9, 2, 500)])
def test_a_cube_can_have_any_size(tmp_path, shape):
    ny, nx, n_channels = shape
    make_cube(tmp_path / "cube.fits", ny=ny, nx=nx, n_channels=n_channels)
    assert fits.getdata(tmp_path / "cube.fits").shape == (n_channels, ny, nx)


def test_bright_components_are_found_where_the_truth_has_them(made):
    _, cube, truth = made
    bright = np.flatnonzero(truth.amplitude > 8 * NOISE_K)[::20]
    assert len(bright) > 20
    for index in bright:
        fitted = phspectra.fit_gaussians(cube[:, truth.y[index], truth.x[index]].astype(float))
        nearest = min(fitted, key=lambda component: abs(component.mean - truth.mean[index]))
        assert abs(nearest.mean - truth.mean[index]) < truth.stddev[index] / 2
