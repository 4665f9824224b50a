"""Small generated cubes for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

#: Noise of a generated spectrum, K.
NOISE = 0.2


def spectra(ny: int, nx: int, n_channels: int = 60, seed: int = 0) -> np.ndarray:
    """A cube (n_channels, ny, nx) with one bright line in each spectrum."""
    rng = np.random.default_rng(seed)
    channel = np.arange(n_channels)[:, None, None]
    mean = rng.uniform(15, n_channels - 15, (ny, nx))
    line = rng.uniform(2, 5, (ny, nx)) * np.exp(-0.5 * ((channel - mean) / rng.uniform(2, 4, (ny, nx))) ** 2)
    return (line + rng.normal(0, NOISE, (n_channels, ny, nx))).astype(np.float32)


def header(**cards: Any) -> fits.Header:
    """A header of a position-position-velocity cube, changed by `cards`; a card of None is left out."""
    base = {
        "CTYPE1": "GLON-CAR",
        "CTYPE2": "GLAT-CAR",
        "CTYPE3": "VRAD",
        "CRPIX3": 1.0,
        "CRVAL3": -5000.0,
        "CDELT3": 200.0,
        "CUNIT3": "m/s",
        "BUNIT": "K",
    }
    return fits.Header({name: value for name, value in (base | cards).items() if value is not None})


def write_cube(path: Path, ny: int = 4, nx: int = 5, n_channels: int = 60, seed: int = 0, **cards: Any) -> Path:
    """A cube file of ny * nx spectra."""
    fits.writeto(path, spectra(ny, nx, n_channels, seed), header(**cards), overwrite=True)
    return path


def write_large_cube(path: Path, n_bytes: int, lines: int = 4, n_channels: int = 64) -> Path:
    """A cube file of at least `n_bytes` that is fitted quickly: only `lines` of its spectra are not blank.

    The spectral axis is the first one, so the spectra of a chunk are one range of the file.
    """
    ny, nx = 64, -(-n_bytes // (64 * n_channels * 4))
    data = np.full((ny, nx, n_channels), np.nan, np.float32)
    data[0, :lines] = spectra(1, lines, n_channels).reshape(n_channels, lines).T
    axes = {"CTYPE1": "VRAD", "CTYPE2": "GLON-CAR", "CTYPE3": "GLAT-CAR"}
    velocity = {f"{name}1": header()[f"{name}3"] for name in ("CRPIX", "CRVAL", "CDELT", "CUNIT")}
    rest = dict.fromkeys(("CRPIX3", "CRVAL3", "CDELT3", "CUNIT3"))
    fits.writeto(path, data, header(**axes, **velocity, **rest), overwrite=True)
    return path
