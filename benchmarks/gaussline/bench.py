"""Compares the gaussline kernel with phspectra 1.0.2 in one run. README.md in this folder describes each part.

python bench.py speed quality cubes threads cost flops --cube CUBE.fits --out results
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import phspectra.decompose
import trade as curves
from numpy.typing import NDArray
from phspectra.quality import aicc as peer_aicc

import prismline_gaussline
from prismline_gaussline import (
    Decomposition,
    Flag,
    Params,
    Preset,
    decompose,
    estimate_correlation,
    refit_from_neighbours,
)
from prismline_gaussline.synthetic import (
    BASELINES,
    CATEGORIES,
    CHANNELS,
    NOISE_K,
    absorption,
    baseline,
    broad_lines,
    correlation_of,
    count_jumps,
    count_matches,
    f1_by_category,
    make_cube,
    make_noise,
    make_spectra,
    model,
)

#: Seeds of the quality table and of the timed set; none was used to choose a constant of the kernel.
QUALITY_SEEDS = (20260101, 20260102, 20260103)
TIMED_SEED = 20260201

#: Spectra of each category: in the quality table, in the timed set, and in the set of the threads' part.
QUALITY_PER_CATEGORY, TIMED_PER_CATEGORY, THREADS_PER_CATEGORY = 150, 30, 1430

#: Correlation of neighbouring channels -> standard deviation, in channels, of the Gaussian that smooths the noise.
SMOOTHING = {"white": 0.0, ".26": 0.5, ".45": 0.6, ".58": 0.7, ".78": 1.0, ".89": 1.5}

#: Images of the second pass: pixels, seeds, and correlations of the noise.
SPATIAL_SHAPE, SPATIAL_SEEDS, SPATIAL_SMOOTHING = (32, 32), (20260301, 20260302, 20260303), ("white", ".58", ".89")

#: Spectra of each category and seed for the peer and the ceiling, and numbers of empty and isolated spectra.
PEER_PER_CATEGORY, PEER_EMPTY, EMPTY_SPECTRA, PULL_SPECTRA = 15, 100, 5000, 5000

#: Broad lines: S/N -> widths, and the spectra of each.
BROAD, BROAD_SPECTRA = {8: (3, 6, 12, 16, 24, 40), 10: (3, 6, 12, 24, 40, 60)}, 1000

#: White noise in the covariance of the ceiling, as in the kernel.
CEILING_FLOOR = 0.05

#: Rounds of the paired timing, and spectra of the peer between two runs of the kernel over the whole set.
ROUNDS, INTERLEAVE = 3, 7

#: Rounds of the threads' part, and of the cost's.
THREADS_ROUNDS, COST_ROUNDS = 31, 9

#: A round of the threads' part is quiet if other programs took less than this many processors.
QUIET_PROCESSORS = 0.1

WALL_GAIN, OTHER_WORK = "wall clock, one over two threads", "processors that other work took"

#: Rounds of the comparison with an earlier version. One round runs both on each set, in turns.
EARLIER_ROUNDS = 41

#: Runs as a process of its own, so that two versions do not share an interpreter: a package folder, a file of sets.
EARLIER_TIMER = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from prismline_gaussline import decompose
sets = dict(np.load(sys.argv[2]))
for line in sys.stdin:
    start = time.process_time()
    decompose(sets[line.strip()])
    print(time.process_time() - start, flush=True)
"""

#: Channels of the spectra in the cost's part; those above the synthetic set's 424 are multiples of it.
COST_CHANNELS = (106, 212, 424, 848, 1696, 3392)

#: Lines and channels of the crowded spectra of the limits' part, its seed, its time budgets and its rounds.
LIMIT_SIZES, LIMIT_SEED = ((60, 424), (300, 20_000), (500, 70_000)), 20260501
LIMIT_BUDGETS_S, LIMIT_ROUNDS = (0.3, 1.0), 3

#: The work limit of the kernel (`workspace.h`).
WORK_LIMIT = 2e8

#: Floating-point operations of one unit of `work`, from the inner loops: 7 in an evaluation, 23 in the two units of a
#: component's own sums, 13 in a pair's. The mean is between them; the script uses the upper value.
FLOPS_PER_WORK = 13

Spectra = NDArray[np.float64]


@contextmanager
def corrected_peer() -> Iterator[bool]:
    """phspectra with a corrected cost-convergence test, which compares with the cost before the step: its own C source,
    one line changed, compiled in a temporary folder. Yields False if it cannot be compiled."""
    source = (Path(phspectra.decompose.__file__).parent / "_gaussfit.c").read_text(encoding="utf-8")
    wrong, accept = "if (fabs(cost_new) < ftol * ftol)", "            cost = cost_new;\n"
    if wrong not in source or source.count(accept) != 1:
        yield False
        return
    source = source.replace(accept, "            double cost_before = cost;\n" + accept)
    source = source.replace(wrong, "if (cost_before - cost_new <= ftol * cost_before)")
    original = phspectra.decompose._c_bounded_lm_fit
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_gaussfit.c"
        path.write_text(source, encoding="utf-8")
        target = Path(folder) / "_gaussfit.so"
        includes = [f"-I{sysconfig.get_paths()['include']}", f"-I{np.get_include()}"]
        command = ["cc", "-O3", "-fPIC", "-shared", *includes, str(path), "-o", str(target), "-lm"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            yield False
            return
        spec = importlib.util.spec_from_file_location("_gaussfit", target)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        phspectra.decompose._c_bounded_lm_fit = module.bounded_lm_fit
        try:
            yield True
        finally:
            phspectra.decompose._c_bounded_lm_fit = original


def peer_fit(spectrum: Spectra) -> Spectra:
    found = phspectra.decompose.fit_gaussians(spectrum)
    return np.array([[c.amplitude, c.mean, c.stddev] for c in found]).reshape(-1, 3)


def read_cube(path: Path) -> Spectra:
    """Spectra of a cube, (n, channels), without those with a blank channel, which phspectra does not accept."""
    from astropy.io import fits  # noqa: PLC0415 - for the cubes only

    data = np.squeeze(np.asarray(fits.getdata(path), dtype=np.float64))
    spectra = data.reshape(len(data), -1).T
    return np.ascontiguousarray(spectra[np.isfinite(spectra).all(axis=1)])


def timed_synthetic() -> Spectra:
    return np.array([s.signal for s in make_spectra(TIMED_PER_CATEGORY, TIMED_SEED)])


def speed(sets: dict[str, Spectra]) -> dict[str, object]:
    """Thread-CPU time for each spectrum of the peer, of the corrected peer and of both presets, interleaved."""
    result: dict[str, object] = {}
    for name, spectra in sets.items():
        rounds = [_speed_round(spectra) for _ in range(ROUNDS)]
        summary: dict[str, object] = {"spectra": len(spectra)}
        for who in rounds[0]:
            for statistic in ("mean", "median", "p99"):
                summary[f"{who} {statistic} ms"] = _spread([r[who][statistic] for r in rounds])
        for preset in Preset:
            for peer in ("phspectra", "phspectra corrected"):
                if peer not in rounds[0]:
                    continue
                for statistic in ("mean", "median"):
                    ratios = [r[peer][statistic] / r[preset.value][statistic] for r in rounds]
                    summary[f"{peer} / {preset.value}, {statistic}"] = _spread(ratios)
        result[name] = summary
    return result


def _speed_round(spectra: Spectra) -> dict[str, dict[str, float]]:
    kernel: dict[str, list[tuple[float, Spectra]]] = {preset.value: [] for preset in Preset}

    def run_kernel() -> None:
        for preset in Preset:
            start = time.thread_time()
            table = decompose(spectra, Params(preset=preset))
            kernel[preset.value].append(((time.thread_time() - start) / len(spectra), table.seconds))

    def run_peer() -> list[float]:
        times = []
        for i, spectrum in enumerate(spectra):
            if i % INTERLEAVE == 0:
                run_kernel()
            start = time.thread_time()
            peer_fit(spectrum)
            times.append(time.thread_time() - start)
        return times

    times = {"phspectra": run_peer()}
    with corrected_peer() as there:
        if there:
            times["phspectra corrected"] = run_peer()
    result = {who: _statistics(np.array(values)) for who, values in times.items()}
    for name, runs in kernel.items():
        # every run gives the thread-CPU mean; the shape of the distribution comes from the kernel's own clock
        result[name] = _statistics(np.median([seconds for _, seconds in runs], axis=0))
        result[name]["mean"] = 1e3 * float(np.median([mean for mean, _ in runs]))
    return result


def _statistics(seconds: Spectra) -> dict[str, float]:
    return {
        "mean": 1e3 * float(seconds.mean()),
        "median": 1e3 * float(np.median(seconds)),
        "p99": 1e3 * float(np.percentile(seconds, 99)),
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": float(np.median(values)), "least": min(values), "most": max(values)}


def quality() -> dict[str, object]:
    """F1 of each category and seed, by the published criteria."""
    table: dict[str, object] = {}
    for seed in QUALITY_SEEDS:
        spectra = make_spectra(QUALITY_PER_CATEGORY, seed)
        signals = np.array([s.signal for s in spectra])
        scores = {"phspectra": f1_by_category(spectra, [peer_fit(s) for s in signals])}
        for preset in Preset:
            fitted = decompose(signals, Params(preset=preset))
            scores[preset.value] = f1_by_category(spectra, [fitted.components(i) for i in range(len(fitted))])
        table[str(seed)] = scores
    table["mean"] = {
        who: {c: float(np.mean([table[str(s)][who][c] for s in QUALITY_SEEDS])) for c in (*CATEGORIES, "all")}  # type: ignore[index]
        for who in ("phspectra", *(preset.value for preset in Preset))
    }
    return table


def correlated() -> dict[str, object]:
    """For each correlation of the noise: F1 with the correlation estimated and given, F1 of the peer, false components
    of empty spectra, and the ceiling: fits that start at the truth with the correlation known."""
    table: dict[str, object] = {}
    for name, smoothing in SMOOTHING.items():
        lags = correlation_of(smoothing)
        ways = {"estimated": "estimate"} | ({"given": lags} if smoothing else {})
        scores: dict[str, list[dict[str, float]]] = {}
        for seed in QUALITY_SEEDS:
            made = make_spectra(QUALITY_PER_CATEGORY, seed, smoothing)
            signals = np.array([s.signal for s in made])
            for way, correlation in ways.items():
                found = decompose(signals, correlation=correlation)
                scores.setdefault(f"best, {way}", []).append(
                    f1_by_category(made, [found.components(i) for i in range(len(found))])
                )
            few = [s for i, s in enumerate(made) if i % QUALITY_PER_CATEGORY < PEER_PER_CATEGORY]
            scores.setdefault("phspectra", []).append(f1_by_category(few, [peer_fit(s.signal) for s in few]))
            whitening = _whitening(smoothing)
            pairs = [_ceiling(s.signal, s.components, whitening) for s in few]
            scores.setdefault("truth, fitted", []).append(f1_by_category(few, [p[0] for p in pairs]))
            scores.setdefault("truth, fitted and pruned", []).append(f1_by_category(few, [p[1] for p in pairs]))
        row: dict[str, object] = {
            who: {c: round(float(np.mean([s[c] for s in values])), 4) for c in values[0]}
            for who, values in scores.items()
        }
        empty = make_noise(np.random.default_rng(QUALITY_SEEDS[0]), (EMPTY_SPECTRA, CHANNELS), smoothing)
        row["false components of an empty spectrum"] = {
            way: float(decompose(empty, correlation=correlation).n_components.mean())
            for way, correlation in ways.items()
        } | {"phspectra": float(np.mean([len(peer_fit(s)) for s in empty[:PEER_EMPTY]]))}
        table[name] = row
        print(name, json.dumps(row), flush=True)
    return table


def broad() -> dict[str, object]:
    """Shares of lines that are found, by their width and their matched-filter S/N, and false components per spectrum of
    empty spectra with faint baselines."""
    table: dict[str, object] = {}
    for name in ("white", ".58", ".89"):
        for snr, widths in BROAD.items():
            shares = {}
            for width in widths:
                truth, spectra = broad_lines(BROAD_SPECTRA, QUALITY_SEEDS[0] + width, width, snr, SMOOTHING[name])
                found = decompose(spectra)
                matches = [count_matches(truth[i : i + 1], found.components(i)) for i in range(len(found))]
                shares[width] = float(np.mean(matches))
            table[f"found, {name}, S/N {snr}, by width"] = shares
    table["found below a narrow line, white, S/N 8, by width"] = {w: curves.found_below(w) for w in (16, 24)}
    for channels in (CHANNELS, 2048):
        false = {}
        for kind in (*BASELINES, "all"):
            rng = np.random.default_rng(QUALITY_SEEDS[0])
            shape = (BROAD_SPECTRA, channels)
            false[kind] = float(decompose(baseline(rng, shape, kind) + make_noise(rng, shape)).n_components.mean())
        table[f"false components, {channels} channels"] = false
    return table


def flags() -> dict[str, object]:
    """Shares of spectra with each flag of a spectrum that is not flat at zero: clean ones, and those with a disturbance
    of one noise (absorption: of five), without and with lines."""
    table: dict[str, object] = {}
    for name in ("white", ".58", ".89"):
        rng, smoothing = np.random.default_rng(QUALITY_SEEDS[1]), SMOOTHING[name]
        shape = (BROAD_SPECTRA, CHANNELS)
        lines = np.array([made.signal for made in make_spectra(BROAD_SPECTRA // 7 + 1, QUALITY_SEEDS[1], smoothing)])
        lines = lines[rng.permutation(len(lines))[:BROAD_SPECTRA]]
        clean = {"empty": make_noise(rng, shape, smoothing), "lines": lines}
        for width, snr in ((24, 8), (40, 8), (60, 10), (60, 20)):
            seed = QUALITY_SEEDS[1] + width
            clean[f"line of {width} channels, S/N {snr}"] = broad_lines(BROAD_SPECTRA, seed, width, snr, smoothing)[1]
        for kind, spectra in clean.items():
            table[f"{name}, {kind}"] = _flag_shares(spectra)
        disturbed: dict[str, Spectra] = {
            kind: baseline(rng, shape, kind) / height for kind, height in BASELINES.items()
        }
        disturbed["offset below zero"] = -disturbed["offset"]
        for width in (3, 10, 30):
            disturbed[f"absorption of {width} channels"] = absorption(rng, shape, 5.0, width)
        for kind, disturbance in disturbed.items():
            table[f"{name}, {kind}"] = _flag_shares(disturbance + make_noise(rng, shape, smoothing))
            table[f"{name}, {kind}, with lines"] = _flag_shares(disturbance + lines)
    return table


def _flag_shares(spectra: Spectra) -> dict[str, float]:
    found = decompose(spectra).flags
    names = (Flag.OFFSET, Flag.SLOPE, Flag.RIPPLE, Flag.NEGATIVE)
    shares = {str(flag.name): float(np.mean(found & flag != 0)) for flag in names}
    return shares | {"any": float(np.mean(found & sum(names) != 0))}


def pulls() -> dict[str, object]:
    """Pulls of isolated components for each correlation of the noise, with the correlation estimated and given."""
    return {
        name: {
            way: _pulls(smoothing, correlation)
            for way, correlation in {"estimated": "estimate", "given": correlation_of(smoothing)}.items()
        }
        for name, smoothing in SMOOTHING.items()
    }


def _pulls(smoothing: float, correlation: object) -> dict[str, dict[str, float]]:
    """Mean and width of the pulls of isolated components of 4 to 20 times the noise, where the line and nothing
    else was found, half the range of the central 68 % of them, and how many are beyond six."""
    rng = np.random.default_rng(QUALITY_SEEDS[1])
    low, high = (1.0, 60.0, 3.0), (5.0, 360.0, 10.0)
    truth = rng.uniform(low, high, (PULL_SPECTRA, 3))
    bells = np.exp(-0.5 * ((np.arange(CHANNELS) - truth[:, 1:2]) / truth[:, 2:]) ** 2)
    signals = truth[:, :1] * bells + make_noise(rng, bells.shape, smoothing)
    table = decompose(signals, correlation=correlation)  # type: ignore[arg-type]
    alone = table.n_components == 1
    alone[alone] = np.abs(table.mean[table.offsets[:-1][alone]] - truth[alone, 1]) < 3.0 * truth[alone, 2]
    rows = table.offsets[:-1][alone]
    result = {}
    for name, true in zip(("amplitude", "mean", "stddev"), truth[alone].T, strict=True):
        pull = (getattr(table, name)[rows] - true) / getattr(table, f"{name}_err")[rows]
        pull = pull[np.isfinite(pull)]
        low, high = np.percentile(pull, (15.87, 84.13))
        result[name] = {
            "mean": round(float(pull.mean()), 3),
            "width": round(float(pull.std()), 3),
            "central": round(float(high - low) / 2.0, 3),
            "beyond six": int((np.abs(pull) > 6.0).sum()),
        }
    return result


def _whitening(smoothing: float) -> Spectra:
    """Inverse Cholesky factor of the true covariance of the noise (and the kernel's floor of white noise), (n, n)."""
    lags = correlation_of(smoothing, CHANNELS)
    covariance = lags[np.abs(np.subtract.outer(np.arange(CHANNELS), np.arange(CHANNELS)))]
    covariance = covariance + (CEILING_FLOOR if smoothing else 0.0) * np.eye(CHANNELS)
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)) / NOISE_K)


def _ceiling(signal: Spectra, truth: Spectra, whitening: Spectra) -> tuple[Spectra, Spectra]:
    """The fit that starts at the truth, and its components without those that the criteria of `best` reject: a
    matched-filter S/N below 5, and blended components whose absence costs chi-square less than 12."""
    fitted, chi2 = _fit(signal, truth, whitening)
    kept = fitted
    while len(kept):
        bells = np.exp(-0.5 * ((np.arange(CHANNELS)[:, None] - kept[:, 1]) / kept[:, 2]) ** 2)
        snr = kept[:, 0] * np.linalg.norm(whitening @ bells, axis=0)
        if snr.min() < 5.0:
            kept, chi2 = _fit(signal, np.delete(kept, snr.argmin(), 0), whitening)
            continue
        trials = []
        for i in range(len(kept)):
            others = np.delete(kept, i, 0)
            near = np.abs(others[:, 1] - kept[i, 1]) < 1.2 * 2.3548 * np.minimum(others[:, 2], kept[i, 2])
            if near.any():
                trials.append(_fit(signal, others, whitening))
        cheapest = min(trials, key=lambda trial: trial[1], default=None)
        if cheapest is None or cheapest[1] - chi2 > 12.0:
            break
        kept, chi2 = cheapest
    return fitted, kept


def _fit(signal: Spectra, start: Spectra, whitening: Spectra) -> tuple[Spectra, float]:
    """Generalised least squares from `start`, and chi-square."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - for the ceiling only

    white = whitening @ signal
    if not len(start):
        return start, float(white @ white)
    x = np.arange(CHANNELS)[:, None]

    def residual(p: Spectra) -> Spectra:
        return np.asarray(whitening @ model(p.reshape(-1, 3), CHANNELS) - white)

    def jacobian(p: Spectra) -> Spectra:
        a, mu, s = p.reshape(-1, 3).T
        z = (x - mu) / s
        bell = np.exp(-0.5 * z**2)
        return np.asarray(whitening @ np.stack((bell, a * bell * z / s, a * bell * z**2 / s), 2).reshape(CHANNELS, -1))

    low, high = np.tile([0.0, 0.0, 0.3], len(start)), np.tile([np.inf, CHANNELS, CHANNELS / 2], len(start))
    p = np.clip(start.ravel(), low + 1e-9, high - 1e-9)
    found = least_squares(residual, p, jacobian, bounds=(low, high), xtol=1e-5, ftol=1e-5, max_nfev=30)
    return found.x.reshape(-1, 3), 2.0 * float(found.cost)


def cubes(sets: dict[str, Spectra], out: Path) -> dict[str, object]:
    """AICc of both presets and of the peer for each spectrum, and pictures of the largest differences."""
    result: dict[str, object] = {}
    for name, spectra in sets.items():
        peer = [peer_fit(s) for s in spectra]
        peer_scores = np.array([_aicc(s, c) for s, c in zip(spectra, peer, strict=True)])
        summary: dict[str, object] = {
            "spectra": len(spectra),
            "phspectra": {
                "summed AICc": float(peer_scores.sum()),
                "components": float(np.mean([len(c) for c in peer])),
            },
        }
        for preset in Preset:
            table = decompose(spectra, Params(preset=preset), correlation="white")  # as AICc assumes
            ours = [table.components(i) for i in range(len(table))]
            scores = np.array([_aicc(s, c) for s, c in zip(spectra, ours, strict=True)])
            difference = scores - peer_scores
            order = np.argsort(difference)
            chosen = [int(i) for i in (*order[:10], *order[::-1][:10])]
            summary[preset.value] = {
                "summed AICc": float(scores.sum()),
                "components": float(table.n_components.mean()),
                "not worse": float(np.mean(scores <= peer_scores + 1e-6 * np.abs(peer_scores))),
                "largest differences (spectrum, ours minus phspectra's, components ours, phspectra's)": [
                    (i, round(float(difference[i]), 2), len(ours[i]), len(peer[i])) for i in chosen
                ],
            }
            _draw(spectra, ours, peer, difference, chosen, out / f"{name}-{preset.value}.png")
        result[name] = summary
    return result


def changes(sets: dict[str, Spectra], out: Path) -> dict[str, object]:
    """How the correlation changes the results of real cubes: `best` as in 0.1.0 (which assumes white noise), as it is
    now, and as it is now with the correlation of the whole cube; with pictures of the ten largest changes."""
    result: dict[str, object] = {}
    for name, spectra in sets.items():
        cube = estimate_correlation(spectra)
        tables = {
            "0.1.0": decompose(spectra, Params(second_start=False), correlation="white"),
            "estimated from each spectrum": decompose(spectra),
            "given, of the cube": decompose(spectra, correlation=cube),
        }
        rows: dict[str, object] = {
            "spectra": len(spectra),
            "correlation of the cube": [round(float(r), 3) for r in cube],
        }
        models = {}
        for who, table in tables.items():
            components = [table.components(i) for i in range(len(table))]
            residuals = np.stack([s - model(c, len(s)) for s, c in zip(spectra, components, strict=True)])
            models[who] = components
            rows[who] = {
                "components a spectrum": float(table.n_components.mean()),
                "noise": float(table.rms.mean()),
                "reduced chi-square": float(np.median(table.chi2_reduced)),
                "rms of the residual": float(residuals.std()),
                "correlation of the residual at lags 1, 2, 3": [
                    float((residuals[:, :-lag] * residuals[:, lag:]).mean() / (residuals**2).mean())
                    for lag in (1, 2, 3)
                ],
                "correlation assumed, median": float(np.nanmedian(table.correlation)),
                "effective channels, median": float(np.nanmedian(table.effective_channels)),
                "milliseconds a spectrum": 1e3 * float(np.mean(table.seconds)),
            }
        before, after = models["0.1.0"], models["estimated from each spectrum"]
        moved = np.array(
            [
                np.abs(model(a, spectra.shape[1]) - model(b, spectra.shape[1])).sum()
                for a, b in zip(before, after, strict=True)
            ]
        )
        chosen = [int(i) for i in np.argsort(-moved)[:10]]
        rows["largest changes (spectrum, components before, after)"] = [
            (i, len(before[i]), len(after[i])) for i in chosen
        ]
        _draw_changes(spectra, before, after, chosen, out / f"{name}-changes.png")
        result[name] = rows
    return result


def spatial(paths: list[Path]) -> dict[str, object]:
    """The second pass over images: F1 and pixel-to-pixel jumps before and after, on generated and on real cubes."""
    table: dict[str, object] = {}
    for name in SPATIAL_SMOOTHING:
        rows = []
        for seed in SPATIAL_SEEDS:
            signals, truth = make_cube(SPATIAL_SHAPE, seed, smoothing=SMOOTHING[name])
            row, before, after = _second_pass(signals, SPATIAL_SHAPE)
            row["jumps of the truth"] = count_jumps(truth, SPATIAL_SHAPE)
            for when, models in (("before", before), ("after", after)):
                found = sum(count_matches(t, m) for t, m in zip(truth, models, strict=True))
                row[f"F1 {when}"] = 2.0 * found / sum(len(t) + len(m) for t, m in zip(truth, models, strict=True))
            rows.append(row)
        table[name] = {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
    for path in paths:
        from astropy.io import fits  # noqa: PLC0415 - for the cubes only

        data = np.squeeze(np.asarray(fits.getdata(path), dtype=np.float64))
        table[path.stem] = _second_pass(data.reshape(len(data), -1).T, data.shape[1:])[0]
    return table


def _second_pass(signals: Spectra, shape: tuple[int, int]) -> tuple[dict[str, float], list[Spectra], list[Spectra]]:
    start = time.thread_time()
    first = decompose(signals)
    middle = time.thread_time()
    second = refit_from_neighbours(signals, first, shape)
    end = time.thread_time()
    before, after = ([t.components(i) for i in range(len(t))] for t in (first, second))
    row = {
        "jumps before": count_jumps(before, shape),
        "jumps after": count_jumps(after, shape),
        "components before": float(first.n_components.mean()),
        "components after": float(second.n_components.mean()),
        "reduced chi-square before": float(np.nanmedian(first.chi2_reduced)),
        "reduced chi-square after": float(np.nanmedian(second.chi2_reduced)),
        "ms a spectrum, first pass": 1e3 * (middle - start) / len(signals),
        "ms a spectrum, second pass": 1e3 * (end - middle) / len(signals),
    }
    return row, before, after


def _draw_changes(spectra: Spectra, before: list[Spectra], after: list[Spectra], chosen: list[int], path: Path) -> None:
    import matplotlib  # noqa: PLC0415 - for the pictures only

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after its backend is chosen

    figure, axes = plt.subplots(5, 2, figsize=(14, 14), sharex=True)
    for panel, i in zip(axes.ravel(), chosen, strict=False):
        panel.step(range(spectra.shape[1]), spectra[i], color="0.7", linewidth=0.6, where="mid")
        for components, colour, who in ((before, "tab:orange", "0.1.0"), (after, "tab:blue", "correlated noise")):
            label = f"{who}, {len(components[i])}"
            panel.plot(model(components[i], spectra.shape[1]), color=colour, linewidth=1.0, label=label)
        panel.set_title(f"spectrum {i}", fontsize=8)
        panel.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=60)
    plt.close(figure)


def _aicc(spectrum: Spectra, components: Spectra) -> float:
    return float(peer_aicc(spectrum - model(components, len(spectrum)), 3 * len(components)))


def _draw(
    spectra: Spectra,
    ours: list[Spectra],
    peer: list[Spectra],
    difference: Spectra,
    chosen: list[int],
    path: Path,
) -> None:
    import matplotlib  # noqa: PLC0415 - for the pictures only

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after its backend is chosen

    figure, axes = plt.subplots(10, 2, figsize=(14, 24), sharex=True)
    for k, i in enumerate(chosen):
        panel = axes[k % 10, k // 10]
        panel.step(range(spectra.shape[1]), spectra[i], color="0.7", linewidth=0.6, where="mid")
        panel.plot(
            model(peer[i], spectra.shape[1]),
            color="tab:orange",
            linewidth=1.0,
            label=f"phspectra, {len(peer[i])}",
        )
        panel.plot(model(ours[i], spectra.shape[1]), color="tab:blue", linewidth=1.0, label=f"ours, {len(ours[i])}")
        panel.set_title(f"spectrum {i}: AICc {difference[i]:+.1f}", fontsize=8)
        panel.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=60)
    plt.close(figure)


def threads() -> dict[str, object]:
    """Two threads compared with one thread and with two processes, for 10,010 synthetic spectra in turns.

    Wall clock shows the speed on this machine. Processor time shows where the loss comes from, even if others use it.
    """
    spectra = np.array([s.signal for s in make_spectra(THREADS_PER_CATEGORY, TIMED_SEED)], dtype=np.float32)
    barrier = multiprocessing.Barrier(2)
    with ProcessPoolExecutor(2, initializer=_hold, initargs=(barrier, spectra)) as processes:
        rounds = [_threads_round(spectra, processes) for _ in range(THREADS_ROUNDS)]
    result: dict[str, object] = {"spectra": len(spectra), "rounds": len(rounds)}
    for name in rounds[0]:
        result[name] = _spread([values[name] for values in rounds])
    quiet = [values[WALL_GAIN] for values in rounds if values[OTHER_WORK] < QUIET_PROCESSORS]
    result["quiet rounds"] = len(quiet)
    if quiet:
        result[f"{WALL_GAIN}, quiet rounds"] = _spread(quiet)
    return result


def _threads_round(spectra: NDArray[np.float32], processes: ProcessPoolExecutor) -> dict[str, float]:
    before = _machine_seconds()
    one = _clocked(lambda: decompose(spectra, threads=1))
    two = _clocked(lambda: decompose(spectra, threads=2))
    halves = list(processes.map(_decompose_half, range(2)))
    busy, stolen, idle = (now - then for then, now in zip(before, _machine_seconds(), strict=True))
    elapsed = (busy + stolen + idle) / (os.cpu_count() or 1) or float("nan")
    pair_s = sum(half.process_s for half in halves)
    pair_wall = max(half.end_s for half in halves) - min(half.start_s for half in halves)
    fitting = two.table.thread_seconds
    serial = two.thread_s - float(fitting[0])
    return {
        "one thread, wall clock s": one.wall_s,
        WALL_GAIN: one.wall_s / two.wall_s,
        "wall clock, one thread over two processes": one.wall_s / pair_wall,
        "wall clock, two processes over two threads": pair_wall / two.wall_s,
        "processor time, two threads over one": two.process_s / one.process_s,
        "processor time, two processes over one": pair_s / one.process_s,
        "serial share of the two threads' processor time": serial / two.process_s,
        "balance, busiest thread over the mean": float(fitting.max() / fitting.mean()),
        "processor time, one thread over the serial part and half of the rest": one.process_s
        / (serial + (two.process_s - serial) / 2),
        OTHER_WORK: (busy - one.process_s - two.process_s - pair_s) / elapsed,
        "processors stolen by the host": stolen / elapsed,
    }


@dataclass(frozen=True)
class _Clocked:
    table: Decomposition
    start_s: float
    end_s: float
    process_s: float
    thread_s: float

    @property
    def wall_s(self) -> float:
        return self.end_s - self.start_s


def _clocked(run: Callable[[], Decomposition]) -> _Clocked:
    start, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
    table = run()
    return _Clocked(table, start, time.perf_counter(), time.process_time() - process, time.thread_time() - thread)


def _hold(barrier: Barrier, spectra: NDArray[np.float32]) -> None:
    """The data of one process of the pair."""
    _decompose_half.barrier, _decompose_half.spectra = barrier, spectra  # type: ignore[attr-defined]


def _decompose_half(which: int) -> _Clocked:
    """Fit every second spectrum, starting at the same time as the other process."""
    half = _decompose_half.spectra[which::2].copy()  # type: ignore[attr-defined]
    _decompose_half.barrier.wait()  # type: ignore[attr-defined]
    return _clocked(lambda: decompose(half))


def _machine_seconds() -> tuple[float, float, float]:
    """Seconds of all processors so far: busy, stolen by the host, idle. Zeros if the system does not report them."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0, 0.0, 0.0
    user, nice, system, idle, waiting, hard, soft, stolen = (
        float(value) / os.sysconf("SC_CLK_TCK") for value in path.read_text(encoding="ascii").split()[1:9]
    )
    return user + nice + system + hard + soft, stolen, idle + waiting


def cost(sets: dict[str, Spectra]) -> dict[str, object]:
    """Thread-CPU time for each spectrum of `best`, and how it grows with the channels: the 424 channels of the
    synthetic set cut, extended by channels without lines, and repeated (with their lines)."""
    synthetic = timed_synthetic()
    rng = np.random.default_rng(TIMED_SEED)
    channels = synthetic.shape[1]
    for n in COST_CHANNELS:
        if n <= channels:
            first = (channels - n) // 2
            sets |= {f"synthetic, the {n} channels in the middle": synthetic[:, first : first + n]}
        else:
            empty = rng.normal(0.0, NOISE_K, (len(synthetic), n - channels))
            sets |= {f"synthetic and noise, {n} channels": np.hstack((synthetic, empty))}
            sets |= {f"synthetic repeated, {n} channels": np.tile(synthetic, n // channels)}
    rounds: dict[str, list[float]] = {name: [] for name in sets}
    for _ in range(COST_ROUNDS):
        for name, spectra in sets.items():
            run = _clocked(lambda spectra=spectra: decompose(spectra))  # type: ignore[misc]
            rounds[name].append(1e3 * run.thread_s / len(spectra))
    return {
        name: {
            "ms a spectrum": _spread(values),
            "ms a spectrum and 100 channels": np.median(values) * 100 / sets[name].shape[1],
        }
        for name, values in rounds.items()
    }


def limits() -> dict[str, object]:
    """Processor time divided by the time budget, and work divided by the work limit, of spectra crowded with lines: the
    largest of some rounds. The time includes that for the workspace of the call."""
    result: dict[str, object] = {}
    for components, channels in LIMIT_SIZES:
        rng = np.random.default_rng(LIMIT_SEED)
        x, spectrum = np.arange(channels), rng.normal(0.0, 1.0, channels)
        for mean in np.linspace(0.02, 0.98, components) * channels:
            width = 0.35 * channels / components * rng.uniform(1.0, 3.0)
            spectrum += 30.0 * rng.uniform(0.5, 1.5) * np.exp(-0.5 * ((x - mean) / width) ** 2)
        for order in (None, 3):
            for budget in LIMIT_BUDGETS_S:
                params = {"max_components": 512, "time_budget_s": budget, "baseline_order": order}
                times, works = [], []
                for _ in range(LIMIT_ROUNDS):
                    run = _clocked(lambda y=spectrum[None], p=params: decompose(y, p, noise=1.0))  # type: ignore[misc]
                    times.append(run.thread_s / budget)
                    works.append(float(run.table.work[0]) / WORK_LIMIT)
                name = f"{components} lines on {channels} channels, {budget} s, baseline_order {order}"
                result[name] = {"time / budget": max(times), "work / limit": max(works)}
    return result


def flops(sets: dict[str, Spectra]) -> dict[str, object]:
    """Floating-point operations for each spectrum (from the kernel's own count of evaluations), and their rate as a
    share of the rate of a matrix product on one core of this machine."""
    a = np.random.default_rng(1).normal(size=(1024, 1024))
    rates = []
    for _ in range(7):
        start = time.perf_counter()
        _ = a @ a
        rates.append(2 * 1024**3 / (time.perf_counter() - start))
    peak = max(rates)
    result: dict[str, object] = {"matrix product, Gflop/s": peak / 1e9}
    for name, spectra in sets.items():
        runs = [decompose(spectra) for _ in range(9)]
        seconds = float(np.median([r.seconds.mean() for r in runs]))
        count = float(runs[0].work.mean()) * FLOPS_PER_WORK
        result[name] = {
            "flops a spectrum": count,
            "Gflop/s": count / seconds / 1e9,
            "share of the matrix product's rate": count / seconds / peak,
            "microseconds at that rate": 1e6 * count / peak,
        }
    return result


def earlier(folder: Path) -> dict[str, object]:
    """Processor time of this version, divided by that of the one whose packages are in ``folder``, for sets of spectra.
    Both run in turns, each in a process of its own."""
    rng = np.random.default_rng(TIMED_SEED)
    sets: dict[str, Spectra] = {}
    for name in ("white", ".58", ".89"):
        sets[f"{name}, empty"] = make_noise(rng, (600, CHANNELS), SMOOTHING[name])
        sets[f"{name}, lines"] = np.array([s.signal for s in make_spectra(40, TIMED_SEED, SMOOTHING[name])])
    sets["white, line of 24 channels, S/N 8"] = broad_lines(300, TIMED_SEED, 24, 8)[1]
    sets["white, empty, 2048 channels"] = make_noise(rng, (150, 2048))
    folders = (folder, Path(prismline_gaussline.__file__).parents[1])
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "sets.npz"
        np.savez(path, **sets)  # type: ignore[arg-type]
        timers = [
            subprocess.Popen(
                [sys.executable, "-c", EARLIER_TIMER, str(where), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for where in folders
        ]
        result: dict[str, object] = {}
        for name, spectra in sets.items():
            rounds = [
                [_timed(timer, name) for timer in timers[:: (-1) ** i]][:: (-1) ** i] for i in range(EARLIER_ROUNDS)
            ]
            ratios = [now / then for then, now in rounds]
            low, middle, high = np.percentile(ratios, [25, 50, 75])
            result[name] = {
                "this version / earlier": {"median": middle, "lower quartile": low, "upper quartile": high},
                "microseconds a spectrum, least": 1e6 * min(now for _, now in rounds) / len(spectra),
            }
        for timer in timers:
            timer.communicate()
    return result


def _timed(timer: subprocess.Popen[str], name: str) -> float:
    assert timer.stdin is not None
    assert timer.stdout is not None
    timer.stdin.write(f"{name}\n")
    timer.stdin.flush()
    return float(timer.stdout.readline())


def machine() -> dict[str, object]:
    names = (
        [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ]
        if Path("/proc/cpuinfo").exists()
        else [platform.processor()]
    )
    return {
        "processor": names[0],
        "processors": len(names),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "phspectra": phspectra.__version__,
        "prismline-gaussline": prismline_gaussline.__version__,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = (
        "speed",
        "quality",
        "correlated",
        "broad",
        "flags",
        "pulls",
        "cubes",
        "changes",
        "spatial",
        "threads",
        "cost",
        "flops",
        "limits",
    )
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[[], *parts, "trade", "earlier"],
        help="all but 'trade' and 'earlier' when none is named",
    )
    parser.add_argument("--earlier", type=Path, help="folder of the packages of an earlier version, for 'earlier'")
    parser.add_argument("--cube", type=Path, action="append", default=[], help="a FITS cube; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the JSON and the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cube_sets = {path.stem: read_cube(path) for path in options.cube}
    all_sets = cube_sets | {"synthetic": timed_synthetic()}
    run: dict[str, Callable[[], dict[str, object]]] = {
        "speed": lambda: speed(all_sets),
        "quality": quality,
        "correlated": correlated,
        "broad": broad,
        "flags": flags,
        "pulls": pulls,
        "cubes": lambda: cubes(cube_sets, options.out),
        "changes": lambda: changes(cube_sets, options.out),
        "spatial": lambda: spatial(options.cube),
        "threads": threads,
        "cost": lambda: cost(dict(cube_sets)),
        "flops": lambda: flops(all_sets),
        "limits": limits,
        "trade": lambda: curves.trade(options.out),
        "earlier": lambda: earlier(options.earlier),
    }
    if "earlier" in options.parts and options.earlier is None:
        parser.error("'earlier' needs --earlier FOLDER")
    for part in options.parts or parts:
        result = {"machine": machine(), part: run[part]()}
        text = json.dumps(result, indent=1)
        (options.out / f"{part}.json").write_text(text + "\n", encoding="utf-8")
        print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
