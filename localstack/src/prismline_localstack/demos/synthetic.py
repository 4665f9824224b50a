"""Generate a survey cube with known components. The demonstration uses it if the user gives no cube.

Three clouds lie along the line of sight. Each has a smooth shape, clumps and a turbulent velocity field. Clumps and
velocities are Gaussian random fields with a power-law spectrum, the usual model of a turbulent interstellar medium
(Stutzki et al. 1998, A&A 336, 697). Every spectrum is the sum of at most three Gaussians and white noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

Map = NDArray[np.float64]

#: Standard deviation of the white noise, kelvin. The median noise of the Galactic Ring Survey's 13CO data is similar.
NOISE_K = 0.25

#: Components fainter than this, kelvin, are left out: at half the noise they cannot be found.
FAINTEST_K = NOISE_K / 2

#: Width of a line without turbulence, channels: 0.7 km/s.
WIDTH_CHANNELS = 3.2

#: Maximum shift of a line by turbulence, and maximum change of its width, channels.
_DRIFT_CHANNELS, _WIDENING_CHANNELS = 3.0, 0.6

#: Exponent of the random fields' power spectrum: steep, as of a real cloud. White noise would have 0.
_POWER_LAW = -3.4

#: Fraction of the field's width that is blank in the lowest row. The blank wedge ends at the middle row.
_UNCOVERED = 0.14


@dataclass(frozen=True)
class Truth:
    """The components of a generated cube.

    `x`, `y`, `amplitude` (kelvin), `mean` and `stddev` (channels, from 0) have one entry for each component of each
    spectrum, ordered by spectrum and mean; `blank` (ny, nx) is true where the cube has no values.
    """

    x: NDArray[np.int32]
    y: NDArray[np.int32]
    amplitude: NDArray[np.float64]
    mean: NDArray[np.float64]
    stddev: NDArray[np.float64]
    blank: NDArray[np.bool_]


@dataclass(frozen=True)
class _Cloud:
    """A cloud without turbulence: its amplitude (K) as a function of (u, v), both 0 to 1 over the field, and its place.

    The mean is `at` + `gradient` . (u, v), as a fraction of the band.
    """

    amplitude: Callable[[Map, Map], Map]
    at: float
    gradient: tuple[float, float]


def _ellipse(u: Map, v: Map, centre: tuple[float, float], size: tuple[float, float], angle: float) -> Map:
    """A Gaussian hill of height 1 whose axes are rotated by `angle` radians."""
    du, dv = u - centre[0], v - centre[1]
    along = np.cos(angle) * du + np.sin(angle) * dv
    across = -np.sin(angle) * du + np.cos(angle) * dv
    return _gaussian(np.hypot(along / size[0], across / size[1]))


def _gaussian(z: Map) -> Map:
    curve: Map = np.exp(-0.5 * z**2)
    return curve


#: A filament from edge to edge, a round cloud that rotates, and a small, elongated one behind the left half.
_CLOUDS = (
    _Cloud(lambda u, v: 4.5 * _gaussian((v - 0.36 - 0.16 * np.sin(4.2 * u + 0.4)) / 0.10), 0.16, (0.18, 0.0)),
    _Cloud(lambda u, v: 4.0 * _ellipse(u, v, (0.66, 0.58), (0.20, 0.17), 0.5), 0.295, (0.30, 0.15)),
    _Cloud(lambda u, v: 3.2 * _ellipse(u, v, (0.30, 0.68), (0.20, 0.10), -0.6), 0.93, (0.0, -0.15)),
)


def make_cube(path: Path, *, ny: int = 40, nx: int = 50, n_channels: int = 100, seed: int = 20) -> Truth:
    """Write a cube of ny * nx spectra to the FITS file `path`, and its truth to `<stem>.truth.npz` beside it.

    The cube is float32 in kelvin, with the axes GLON, GLAT and VRAD (m/s) as in a survey of 13CO(1-0); a wedge at its
    left edge is blank. The same arguments give the same cube.
    """
    rng = np.random.default_rng(seed)
    v, u = np.meshgrid((np.arange(ny) + 0.5) / ny, (np.arange(nx) + 0.5) / nx, indexing="ij")
    channels = np.arange(n_channels)[:, None, None]
    cube = rng.normal(0.0, NOISE_K, (n_channels, ny, nx))
    blank = u + _UNCOVERED * 2 * v < _UNCOVERED
    amplitudes, means, stddevs = [], [], []
    for cloud in _CLOUDS:
        amplitude = cloud.amplitude(u, v) * np.exp(0.35 * _turbulence(rng, ny, nx))
        place = cloud.at + cloud.gradient[0] * u + cloud.gradient[1] * v
        mean = n_channels * place + _DRIFT_CHANNELS * _bounded(_turbulence(rng, ny, nx))
        stddev = WIDTH_CHANNELS + _WIDENING_CHANNELS * _bounded(_turbulence(rng, ny, nx))
        amplitude = np.where((amplitude >= FAINTEST_K) & ~blank, amplitude, 0.0)
        cube += amplitude * _gaussian((channels - mean) / stddev)
        amplitudes.append(amplitude)
        means.append(mean)
        stddevs.append(stddev)
    cube[:, blank] = np.nan
    truth = _truth(np.stack(amplitudes, -1), np.stack(means, -1), np.stack(stddevs, -1), blank)
    fits.PrimaryHDU(cube.astype(np.float32), _header(ny, nx, n_channels)).writeto(path, overwrite=True)
    np.savez_compressed(truth_path(path), **vars(truth))
    return truth


def truth_path(cube: Path) -> Path:
    """The path of the truth of the generated `cube`."""
    return cube.with_suffix(".truth.npz")


def load_truth(cube: Path) -> Truth:
    """The truth of the generated `cube`."""
    with np.load(truth_path(cube)) as arrays:
        return Truth(**arrays)


def _turbulence(rng: np.random.Generator, ny: int, nx: int) -> Map:
    """A Gaussian random field (ny, nx) with a power-law spectrum, mean 0 and standard deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(2 * ny)[:, None], np.fft.rfftfreq(2 * nx)[None, :])
    frequency[0, 0] = np.inf
    # Made at twice the size and then cropped: the field of a Fourier transform is periodic, and the sky is not.
    noise = np.fft.rfft2(rng.normal(size=(2 * ny, 2 * nx)))
    field = np.fft.irfft2(noise * frequency ** (_POWER_LAW / 2), s=(2 * ny, 2 * nx))[:ny, :nx]
    standardised: Map = (field - field.mean()) / max(float(field.std()), np.finfo(float).tiny)
    return standardised


def _bounded(field: Map) -> Map:
    """`field` squeezed into -1 to 1."""
    squeezed: Map = np.tanh(field / 2)
    return squeezed


def _truth(amplitude: Map, mean: Map, stddev: Map, blank: NDArray[np.bool_]) -> Truth:
    """The components (ny, nx, clouds) as a list, without those of amplitude 0."""
    order = np.argsort(mean, axis=-1)
    amplitude, mean, stddev = (np.take_along_axis(each, order, axis=-1) for each in (amplitude, mean, stddev))
    y, x, _ = there = np.nonzero(amplitude)
    return Truth(x.astype(np.int32), y.astype(np.int32), amplitude[there], mean[there], stddev[there], blank)


def _header(ny: int, nx: int, n_channels: int) -> fits.Header:
    """A header like the Galactic Ring Survey's (Jackson et al. 2006, ApJS 163, 145): its grid, channels and line."""
    header = fits.Header()
    for keyword, value, comment in (
        ("OBJECT", "Prismline demo", "generated, with known components"),
        ("BUNIT", "K", "main-beam temperature"),
        ("CTYPE1", "GLON-CAR", "galactic longitude, plate carree"),
        ("CRVAL1", 0.0, "[deg]"),
        ("CRPIX1", 24.0 / 0.00614 + (nx + 1) / 2, "the field's centre is at 24 deg"),
        ("CDELT1", -0.00614, "[deg] 22 arcsec"),
        ("CUNIT1", "deg", ""),
        ("CTYPE2", "GLAT-CAR", "galactic latitude, plate carree"),
        ("CRVAL2", 0.0, "[deg]"),
        ("CRPIX2", (ny + 1) / 2, "the field's centre is at 0 deg"),
        ("CDELT2", 0.00614, "[deg] 22 arcsec"),
        ("CUNIT2", "deg", ""),
        ("CTYPE3", "VRAD", "radio velocity"),
        ("CRVAL3", 60000.0, "[m/s]"),
        ("CRPIX3", (n_channels + 1) / 2, "the band's centre"),
        ("CDELT3", 212.5, "[m/s]"),
        ("CUNIT3", "m/s", ""),
        ("RESTFRQ", 110.201354e9, "[Hz] 13CO(1-0)"),
        ("SPECSYS", "LSRK", "local standard of rest"),
    ):
        header[keyword] = (value, comment)
    return header
