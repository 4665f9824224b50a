"""Compares gaussline's `baseline_order` with pyspeckit on spectra that have lines on a polynomial baseline.

python benchmarks/gaussline/baselines.py            needs prismline-gaussline; pyspeckit==1.0.4 is optional

Astronomers make two fits with pyspeckit: a polynomial to the channels outside the windows of the lines, then the lines
to the spectrum minus this polynomial. Here pyspeckit gets the true windows and starts near the true lines. gaussline
searches for the lines itself.
"""

from __future__ import annotations

import logging
import os
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from prismline_gaussline import decompose
from prismline_gaussline.synthetic import CHANNELS, NOISE_K, broad_lines, count_matches, make_noise

try:
    import pyspeckit
except ImportError:  # only gaussline's rows are printed
    pyspeckit = None

#: Neither seed was used to choose a constant.
SEED, SHARE_SEED = 20260601, 20260602
SPECTRA, ROUNDS, EMPTY, SHARES = 40, 3, 2000, 500
#: Coefficients of the baseline, in units of the noise, by power of the place from -1 to 1.
BASELINE = 3.0
ORDERS = (0, 1, 2, 3)
#: Widths of the lines in channels, and half the excluded window in widths.
WIDTHS = {"narrow": (2.0, 5.0), "wide": (8.0, 20.0)}
EXCLUDED = 3.0

X = np.arange(CHANNELS, dtype=float)
PLACES = np.linspace(-1.0, 1.0, CHANNELS)


def baselines(rng: np.random.Generator, n: int, order: int) -> np.ndarray:
    """Random polynomials (n, channels)."""
    return np.asarray(rng.normal(0.0, BASELINE * NOISE_K, (n, order + 1)) @ PLACES ** np.arange(order + 1)[:, None])


def make_spectra(
    rng: np.random.Generator, order: int, widths: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spectra with two lines each, at a distance, the lines (n, 2, 3), and the baselines."""
    lines = np.stack(
        (
            rng.uniform(5.0, 15.0, (SPECTRA, 2)) * NOISE_K,
            np.stack((rng.uniform(90, 150, SPECTRA), rng.uniform(270, 330, SPECTRA)), axis=1),
            rng.uniform(*widths, (SPECTRA, 2)),
        ),
        axis=2,
    )
    clean = (lines[:, :, :1] * np.exp(-0.5 * ((X - lines[:, :, 1:2]) / lines[:, :, 2:]) ** 2)).sum(axis=1)
    base = baselines(rng, SPECTRA, order)
    return clean + base + make_noise(rng, (SPECTRA, CHANNELS)), lines, base


def fit_peer(data: np.ndarray, lines: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """The lines (n, 2, 3) that pyspeckit finds, and the baselines (n, channels)."""
    found, base = np.empty_like(lines), np.empty_like(data)
    for row, (values, true) in enumerate(zip(data, lines, strict=True)):
        axis = pyspeckit.units.SpectroscopicAxis(X, unit="km/s")
        error = np.full(CHANNELS, NOISE_K)
        spectrum = pyspeckit.Spectrum(data=values.copy(), error=error, xarr=axis, unit="K", header={})
        windows = [edge for _, mean, width in true for edge in (mean - EXCLUDED * width, mean + EXCLUDED * width)]
        spectrum.baseline(order=order, exclude=windows, exclude_units="km/s", subtract=True, quiet=True)
        base[row] = values - spectrum.data
        guesses = (true * [0.8, 1.0, 1.2] + [0.0, 0.5, 0.0]).ravel().tolist()
        spectrum.specfit(fittype="gaussian", guesses=guesses, quiet=True, verbose=False)
        found[row] = np.array(spectrum.specfit.parinfo.values).reshape(-1, 3)
    return found, base


def fit_ours(data: np.ndarray, lines: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The same with gaussline: of each line the nearest component, and the numbers of missed and of false ones."""
    table = decompose(data, {"baseline_order": order}, noise=NOISE_K, correlation="white")
    found, missed = np.full_like(lines, np.nan), 0
    for row, true in enumerate(lines):
        components = table.components(row)
        missed += len(true) - count_matches(true, components)
        for k, line in enumerate(true):
            if len(components):
                found[row, k] = components[np.argmin(np.abs(components[:, 1] - line[1]))]
    false = len(table.mean) - (lines.shape[0] * lines.shape[1] - missed)
    return found, table.baseline() @ X ** np.arange(4)[:, None], missed, false


def describe(who: str, found: np.ndarray, base: np.ndarray, lines: np.ndarray, true_base: np.ndarray) -> str:
    flux, wanted = found[..., 0] * found[..., 2], lines[..., 0] * lines[..., 2]
    errors = (
        np.abs(flux / wanted - 1.0),
        np.abs(found[..., 1] - lines[..., 1]),
        np.abs(found[..., 2] / lines[..., 2] - 1.0),
        np.sqrt(((base - true_base) ** 2).mean(axis=1)) / NOISE_K,
    )
    flux_error, mean, width, level = (float(np.nanmedian(error)) for error in errors)
    return (
        f"  {who}: flux {flux_error:.4f}, position {mean:.4f} channels, width {width:.4f}, baseline {level:.3f} noise"
        f" (medians of the sizes); flux, mean error {np.nanmean(flux / wanted - 1.0):+.4f}"
    )


def compare() -> None:
    """Print errors and times of both on the same spectra, in turns."""
    for order in ORDERS:
        for name, widths in WIDTHS.items():
            data, lines, true_base = make_spectra(np.random.default_rng(SEED + order), order, widths)
            ratios, ours_ms = [], []
            for _ in range(ROUNDS):
                began = time.thread_time()
                found, base, missed, false = fit_ours(data, lines, order)
                middle = time.thread_time()
                if pyspeckit is not None:
                    peer, peer_base = fit_peer(data, lines, order)
                    ratios.append((time.thread_time() - middle) / (middle - began))
                ours_ms.append(1e3 * (middle - began) / SPECTRA)
            counts = f"{missed} missed, {false} false"
            print(f"order {order}, {name} lines: {np.median(ours_ms):.2f} ms a spectrum; {counts}")
            print(describe("gaussline", found, base, lines, true_base))
            if pyspeckit is not None:
                print(describe("pyspeckit", peer, peer_base, lines, true_base))
                spread = f"{np.median(ratios):.0f} ({min(ratios):.0f} to {max(ratios):.0f})"
                print(f"  time, pyspeckit over gaussline: {spread}")


def shares() -> None:
    """Print the share of lines that are found by width and order, and false components of empty spectra."""
    for smoothing in (0.0, 0.7, 1.5):
        for order in (None, *ORDERS):
            row = []
            for width, snr in ((3, 8), (12, 8), (24, 8), (40, 8), (24, 20), (40, 20)):
                rng = np.random.default_rng(SHARE_SEED)
                truth, spectra = broad_lines(SHARES, SHARE_SEED, width, snr, smoothing)
                if order is not None:
                    spectra = spectra + baselines(rng, SHARES, order)
                table = decompose(spectra, {"baseline_order": order})
                hits = sum(count_matches(truth[i : i + 1], table.components(i)) for i in range(SHARES))
                row.append(f"{hits / SHARES:.3f}")
            rng = np.random.default_rng(SHARE_SEED)
            empty = make_noise(rng, (EMPTY, CHANNELS), smoothing)
            if order is not None:
                empty = empty + baselines(rng, EMPTY, order)
            false = decompose(empty, {"baseline_order": order}).n_components.mean()
            print(f"smoothing {smoothing}, order {order}: {' '.join(row)}; false {false:.4f}", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    compare()
    shares()


if __name__ == "__main__":
    main()
