"""Fits public spectra of a hyperfine group with gaussline and with pyspeckit, in turns in one process.

python benchmarks/gaussline/public_spectra.py GROUP FILE

FILE is a FITS spectrum or a small cube, with its axis in m/s or km/s. Needs what hyperfine.py needs.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyspeckit
from astropy.io import fits
from hyperfine import peer_of

from prismline_gaussline import SpectralAxis
from prismline_gaussline.hyperfine import GROUPS, HyperfineGroup, fit_hyperfine

ROUNDS = 3


def read(path: Path) -> tuple[np.ndarray, SpectralAxis]:
    """The spectra (n, channels) of a file, and their axis in km/s."""
    unit = fits.open(path)[0]
    number = 3 if unit.data.ndim == 3 else 1
    key = {name: unit.header.get(f"{name}{number}") for name in ("CRVAL", "CRPIX", "CDELT", "CUNIT")}
    factor = {"m/s": 1e-3, "km/s": 1.0}[key["CUNIT"]]
    step = key["CDELT"] * factor
    data = unit.data.reshape(unit.data.shape[0], -1).T if number == 3 else np.atleast_2d(unit.data)[:1]
    return np.asarray(data, np.float64), SpectralAxis(key["CRVAL"] * factor + (1.0 - key["CRPIX"]) * step, step, "km/s")


def fit_ours(group: HyperfineGroup, data: np.ndarray, axis: SpectralAxis, noise: np.ndarray) -> np.ndarray:
    """Velocity, width and optical depth, and their uncertainties, (n, 6), of one component of each spectrum."""
    table = fit_hyperfine(
        data, group, axis, noise=noise[:, None], correlation="white", optical_depth=True, max_groups=1
    )
    step, found = abs(axis.step), np.full((len(data), 6), np.nan)
    values = (axis.start + axis.step * table.mean, step * table.stddev, table.optical_depth)
    errors = (step * table.mean_err, step * table.stddev_err, table.optical_depth_err)
    found[table.n_components == 1] = np.column_stack((*values, *errors))
    return found


def fit_peer(
    group: HyperfineGroup, data: np.ndarray, axis: SpectralAxis, noise: np.ndarray, ours: np.ndarray
) -> np.ndarray:
    """The same with pyspeckit, which starts 0.2 km/s beside the velocity that gaussline found."""
    model, velocity, found = peer_of(group), axis.start + axis.step * np.arange(data.shape[1]), np.empty((len(data), 6))
    for row, (values, level) in enumerate(zip(data, noise, strict=True)):
        along = pyspeckit.units.SpectroscopicAxis(
            velocity, unit="km/s", refX=group.rest_frequency, refX_unit="Hz", velocity_convention="radio"
        )
        spectrum = pyspeckit.Spectrum(data=values, error=np.full(len(values), level), xarr=along, unit="K", header={})
        spectrum.Registry.add_fitter("group", model.fitter, 4)
        spectrum.specfit(fittype="group", guesses=[6.0, 2.0, ours[row, 0] + 0.2, 0.3], quiet=True, verbose=False)
        order = [2, 3, 1]
        info = spectrum.specfit.parinfo
        found[row] = [*np.array(info.values)[order], *np.array(info.errors)[order]]
    return found


def main(name: str, path: str) -> None:
    """Print what both found, their differences and their times."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    group = GROUPS[name]
    data, axis = read(Path(path))
    noise = fit_hyperfine(data, group, axis).rms
    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        ours = fit_ours(group, data, axis, noise)
        middle = time.thread_time()
        peer = fit_peer(group, data, axis, noise, ours)
        times.append(((middle - began) / len(data), (time.thread_time() - middle) / len(data)))
    print(f"{Path(path).name}: {len(data)} spectra of {data.shape[1]} channels, noise {noise.round(4).tolist()}")
    for who, found in (("gaussline", ours), ("pyspeckit", peer)):
        for row in found:
            print(f"  {who}: " + ", ".join(f"{v:.4f} +- {e:.4f}" for v, e in zip(row[:3], row[3:], strict=True)))
    print(f"  difference over gaussline's error: {(np.abs(ours - peer)[:, :3] / ours[:, 3:]).round(3).tolist()}")
    mine, theirs = np.median(times, axis=0) * 1e3
    print(f"  {mine:.1f} and {theirs:.1f} ms of thread time a spectrum, ratio {theirs / mine:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
