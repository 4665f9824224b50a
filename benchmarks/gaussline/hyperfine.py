"""Compares the fit of hyperfine groups with pyspeckit's, on the same optically thick spectra, in turns in one process.

python benchmarks/gaussline/hyperfine.py            needs prismline-gaussline and pyspeckit==1.0.4
"""

from __future__ import annotations

import logging
import os
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pyspeckit
from pyspeckit.spectrum.models.hyperfine import hyperfinemodel

from prismline_gaussline import SpectralAxis
from prismline_gaussline.hyperfine import GROUPS, HyperfineGroup, fit_hyperfine

#: The seed was not used to choose a constant.
SEED, SPECTRA, ROUNDS = 20260801, 8, 3
NOISE_K, CHANNELS, DEPTH = 0.1, 400, 4.0
AXIS = SpectralAxis(-20.0, 0.1, "km/s")
BACKGROUND_K = 2.7315


def brightness(temperature: float, frequency: float) -> float:
    """The Rayleigh-Jeans equivalent of a temperature, K."""
    quantum = 6.62607015e-34 * frequency / 1.380649e-23
    return float(quantum / np.expm1(quantum / temperature))


def make_spectra(group: HyperfineGroup, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Spectra, and the excitation temperature (K), velocity and width (km/s) of each."""
    true = np.column_stack((rng.uniform(5, 9, SPECTRA), rng.uniform(-2, 2, SPECTRA), rng.uniform(0.2, 0.5, SPECTRA)))
    velocity = AXIS.start + AXIS.step * np.arange(CHANNELS)
    distance = (velocity - true[:, 1, None, None] - np.array(group.offsets)[:, None]) / true[:, 2, None, None]
    profile = (np.array(group.weights)[:, None] * np.exp(-0.5 * distance**2)).sum(axis=1)
    rest = group.rest_frequency or 0.0
    level = np.array([brightness(t, rest) - brightness(BACKGROUND_K, rest) for t in true[:, 0]])
    return level[:, None] * -np.expm1(-DEPTH * profile) + rng.normal(0.0, NOISE_K, (SPECTRA, CHANNELS)), true


def peer_of(group: HyperfineGroup) -> hyperfinemodel:
    """pyspeckit's model with the same lines."""
    names = [f"line {n}" for n in range(len(group.offsets))]
    rest = group.rest_frequency or 0.0
    return hyperfinemodel(
        names,
        dict(zip(names, group.offsets, strict=True)),
        {n: rest * (1.0 - o / 299_792.458) for n, o in zip(names, group.offsets, strict=True)},
        dict(zip(names, group.weights, strict=True)),
        dict.fromkeys(names, 1.0),
    )


def fit_peer(model: hyperfinemodel, data: np.ndarray, true: np.ndarray, rest: float) -> np.ndarray:
    """Velocity, width and optical depth, and their uncertainties, (n, 6). The starts are near the truth."""
    velocity = AXIS.start + AXIS.step * np.arange(CHANNELS)
    found = np.empty((len(data), 6))
    for row, (values, (_, centre, _)) in enumerate(zip(data, true, strict=True)):
        axis = pyspeckit.units.SpectroscopicAxis(
            velocity, unit="km/s", refX=rest, refX_unit="Hz", velocity_convention="radio"
        )
        spectrum = pyspeckit.Spectrum(data=values, error=np.full(CHANNELS, NOISE_K), xarr=axis, unit="K", header={})
        spectrum.Registry.add_fitter("group", model.fitter, 4)
        spectrum.specfit(fittype="group", guesses=[6.0, 2.0, centre + 0.2, 0.3], quiet=True, verbose=False)
        order = [2, 3, 1]
        found[row] = [
            *np.array(spectrum.specfit.parinfo.values)[order],
            *np.array(spectrum.specfit.parinfo.errors)[order],
        ]
    return found


def fit_ours(group: HyperfineGroup, data: np.ndarray) -> tuple[np.ndarray, int]:
    """The same as `fit_peer` for the strongest component of each spectrum, without starts, and the wrong numbers."""
    table = fit_hyperfine(data, group, AXIS, noise=NOISE_K, correlation="white", optical_depth=True)
    at = [
        table.offsets[i] + int(np.argmax(table.amplitude[table.offsets[i] : table.offsets[i + 1]]))
        for i in range(len(data))
    ]
    values = (AXIS.start + AXIS.step * table.mean, AXIS.step * table.stddev, table.optical_depth)
    errors = (AXIS.step * table.mean_err, AXIS.step * table.stddev_err, table.optical_depth_err)
    columns = np.column_stack((*values, *errors))
    return columns[at], int((table.n_components != 1).sum())


def main() -> None:
    """Print a row for each group and program, and the ratio of the times."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for name, group in GROUPS.items():
        data, true = make_spectra(group, np.random.default_rng(SEED))
        wanted = np.column_stack((true[:, 1:], np.full(SPECTRA, DEPTH)))
        model, ratios = peer_of(group), []
        for _ in range(ROUNDS):
            began = time.thread_time()
            peer = fit_peer(model, data, true, group.rest_frequency or 0.0)
            middle = time.thread_time()
            ours, wrong = fit_ours(group, data)
            ended = time.thread_time()
            ratios.append((middle - began) / (ended - middle))
        times = f"{1e3 * (ended - middle) / SPECTRA:.1f} and {1e3 * (middle - began) / SPECTRA:.1f} ms a spectrum"
        print(f"{name}: {times}; ratio {np.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}); {wrong} wrong")
        for who, found in (("gaussline", ours), ("pyspeckit", peer)):
            error, sigma = found[:, :3] - wanted, found[:, 3:]
            rms = np.sqrt(np.median(error**2, axis=0)) * 1.4826
            pulls = (np.percentile(error / sigma, 84, axis=0) - np.percentile(error / sigma, 16, axis=0)) / 2
            print(f"  {who}: error of velocity, width, depth {rms.round(4)}, pulls {pulls.round(2)}")
        apart = np.abs(ours - peer) / ours[:, [3, 4, 5, 3, 4, 5]]
        print(f"  between the two, in sigma, median of values and of errors: {np.median(apart, axis=0).round(3)}")


if __name__ == "__main__":
    main()
