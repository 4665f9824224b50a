"""Measures gaussline with other constants of its kernel: the shares of found and false lines and flags, and the time.

python benchmarks/gaussline/bench.py trade --out results

A constant of the C source is changed in a copy of libs/gaussline, which is compiled and measured in a process of its
own. README.md in this folder describes the part.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismline_gaussline import Flag, Params, decompose
from prismline_gaussline.synthetic import (
    BASELINES,
    CHANNELS,
    NOISE_K,
    absorption,
    baseline,
    broad_lines,
    count_matches,
    f1_by_category,
    make_noise,
    make_spectra,
)

Spectra = NDArray[np.float64]
Row = dict[str, float]

#: Not used to choose a constant.
SEED = 20260701
SPECTRA, EMPTY, PER_CATEGORY = 1000, 5000, 150
PACKAGE = Path(__file__).resolve().parents[2] / "libs" / "gaussline"

X = np.arange(CHANNELS)
SHAPE = (SPECTRA, CHANNELS)
NOT_FLAT = Flag.OFFSET | Flag.SLOPE | Flag.RIPPLE | Flag.NEGATIVE
SMOOTHING = {"white": 0.0, ".58": 0.7, ".89": 1.5}

#: Height, in units of the noise, and periods in the spectrum of a ripple that looks like a broad line.
WAVE_HEIGHT, WAVE_PERIODS = 0.4, (1.0, 1.4, 2.0)

#: Rounds of the timing; each runs all ways in turns.
TIMING_ROUNDS = 15


def found(width: float, snr: float) -> float:
    truth, spectra = broad_lines(SPECTRA, SEED + int(width), width, snr)
    table = decompose(spectra)
    return float(np.mean([count_matches(truth[i : i + 1], table.components(i)) for i in range(SPECTRA)]))


def found_below(width: float) -> float:
    """Share of lines of S/N 8 that are found behind the middle of a narrow line: mean within a width, width within the
    range of a match."""
    truth, spectra = broad_lines(SPECTRA, SEED + 100 + int(width), width, 8.0)
    spectra = spectra + 10.0 * NOISE_K * np.exp(-0.5 * ((X - truth[:, 1:2]) / 3.0) ** 2)
    table, hits = decompose(spectra), 0
    for i, (_, mean, true) in enumerate(truth):
        _, means, widths = table.components(i).T
        hits += bool(((np.abs(means - mean) < true) & (widths > 0.3 * true) & (widths < 2.5 * true)).any())
    return hits / SPECTRA


def false_components(channels: int, kind: str) -> float:
    rng = np.random.default_rng(SEED)
    shape = (SPECTRA, channels)
    return float(decompose(baseline(rng, shape, kind) + make_noise(rng, shape)).n_components.mean())


def false_of_wave(periods: float) -> float:
    rng = np.random.default_rng(SEED)
    wave = np.sin(2.0 * np.pi * periods * X / CHANNELS + rng.uniform(0.0, 2.0 * np.pi, (SPECTRA, 1)))
    return float(decompose(WAVE_HEIGHT * NOISE_K * wave + make_noise(rng, SHAPE)).n_components.mean())


def measure_broad() -> Row:
    """Broad lines, and false components of baselines."""
    row = {"found, S/N 8, 40 channels": found(40, 8), "found, S/N 10, 60 channels": found(60, 10)}
    for periods in WAVE_PERIODS:
        row[f"false, wave of {periods} periods"] = false_of_wave(periods)
    for channels in (CHANNELS, 2048):
        for kind in (*BASELINES, "all"):
            row[f"false, {kind}, {channels} channels"] = false_components(channels, kind)
    empty = make_noise(np.random.default_rng(SEED), (EMPTY, CHANNELS))
    return row | {"false, empty": float(decompose(empty).n_components.mean())}


def f1_of(smoothing: float) -> Row:
    made = make_spectra(PER_CATEGORY, SEED, smoothing)
    table = decompose(np.array([s.signal for s in made]))
    return f1_by_category(made, [table.components(i) for i in range(len(made))])


def measure_below() -> Row:
    """Broad lines below narrow ones, and F1."""
    row = {f"found below a narrow line, {width} channels": found_below(width) for width in (16, 24)}
    for name, smoothing in SMOOTHING.items():
        row[f"F1, {name}"] = f1_of(smoothing)["all"]
    return row


def share(spectra: Spectra, flag: Flag = NOT_FLAT) -> float:
    return float(np.mean(decompose(spectra).flags & flag != 0))


def measure_flags() -> Row:
    """Flags of disturbed spectra with noise of a correlation of .89, and of clean spectra."""
    row: Row = {}
    for name, smoothing in SMOOTHING.items():
        rng = np.random.default_rng(SEED)
        lines = np.array([s.signal for s in make_spectra(PER_CATEGORY, SEED, smoothing)])
        lines = lines[rng.permutation(len(lines))[:SPECTRA]]
        empty = make_noise(rng, SHAPE, smoothing)
        row[f"raised, {name}, empty"], row[f"raised, {name}, lines"] = share(empty), share(lines)
        disturbed = {kind: baseline(rng, SHAPE, kind) / BASELINES[kind] for kind in ("offset", "ripple")}
        disturbed["absorption"] = absorption(rng, SHAPE, 5.0, 3.0)
        for kind, flag in (("offset", Flag.OFFSET), ("ripple", Flag.RIPPLE), ("absorption", Flag.NEGATIVE)):
            row[f"found, {name}, {kind}"] = share(disturbed[kind] + empty, flag)
            row[f"found, {name}, {kind}, lines"] = share(disturbed[kind] + lines, flag)
        for width in (6.0, 10.0):
            means = CHANNELS * (np.arange(6.0) + 0.5) / 6.0
            even = 5.0 * NOISE_K * np.exp(-0.5 * ((X[:, None] - means) / width) ** 2).sum(axis=1)
            row[f"raised, {name}, six lines of {width:.0f} channels"] = share(even + empty, Flag.OFFSET)
    return row


MEASURES: dict[str, Callable[[], Row]] = {
    "broad": measure_broad,
    "below": measure_below,
    "dips": measure_flags,
    "waves": measure_flags,
    "offsets": measure_flags,
}

#: Curve -> the constant that changes along it, and its values. BASELINE_SNR 0 and 1 bound what condition 1 can do.
CURVES: dict[str, tuple[str, tuple[float, ...]]] = {
    "broad": ("WAVE_SHARE", (0.0, 0.8, 0.87, 0.9, 0.93, 0.95, 1.0)),
    "below": ("BESIDE_REACH", (3.0, 4.5, 6.0, 8.0)),
    "dips": ("DIP_SNR", (3.8, 4.2, 4.6, 5.0)),
    "waves": ("FLAG_WAVE_FALL", (11.0, 14.0, 17.5, 21.0)),
    "offsets": ("OPEN_CHANNELS", (0.0, 32.0, 45.0, 60.0, 424.0)),
}


def measure_with(constant: str, value: float, measure: str) -> Row:
    """The measurement of a kernel with another value of a constant."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "gaussline"
        skipped = shutil.ignore_patterns("_kernel*.so", "*.egg-info", "__pycache__", "build", "tests")
        shutil.copytree(PACKAGE, copy, ignore=skipped)
        changed = 0
        for header in (copy / "src" / "kernel").glob("*.h"):
            text, n = re.subn(
                rf"^#define {constant} .*$",
                f"#define {constant} {value}",
                header.read_text(encoding="utf-8"),
                flags=re.M,
            )
            header.write_text(text, encoding="utf-8")
            changed += n
        if changed != 1:
            raise ValueError(f"the kernel defines {constant} {changed} times")
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=copy, check=True, capture_output=True)
        command = [sys.executable, "-P", str(Path(__file__).resolve()), measure]
        source = copy / "src"
        ran = subprocess.run(
            command, env={"PYTHONPATH": str(source), "PATH": ""}, check=True, capture_output=True, text=True
        )
        answer: dict[str, Any] = json.loads(ran.stdout)
        if not str(answer["package"]).startswith(str(source)):
            raise RuntimeError(f"another package was measured: {answer['package']}")
        row: Row = answer["row"]
        return row


def measure_time() -> dict[str, Row]:
    """Processor time of ways to decompose, divided by the default's, and their F1."""
    ways: dict[str, tuple[Params, str]] = {
        "default": (Params(), "estimate"),
        "white noise": (Params(), "white"),
        "no second start": (Params(second_start=False), "estimate"),
        "neither": (Params(second_start=False), "white"),
    }
    made = make_spectra(PER_CATEGORY, SEED)
    signals = np.array([s.signal for s in made])
    empty = make_noise(np.random.default_rng(SEED), SHAPE)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(TIMING_ROUNDS):
        for name, (params, correlation) in ways.items():
            began = time.process_time()
            decompose(signals, params, correlation=correlation)
            middle = time.process_time()
            decompose(empty, params, correlation=correlation)
            times[name].append((middle - began, time.process_time() - middle))
    result = {}
    for name, (params, correlation) in ways.items():
        table = decompose(signals, params, correlation=correlation)
        f1 = f1_by_category(made, [table.components(i) for i in range(len(made))])
        ratios = np.array(times[name]) / np.array(times["default"])
        result[name] = {
            "time, lines": float(np.median(ratios[:, 0])),
            "time, empty": float(np.median(ratios[:, 1])),
            "F1, all": f1["all"],
            "F1, blended": f1["blended"],
        }
    return result


def trade(out: Path) -> dict[str, object]:
    """All curves, and their picture."""
    result: dict[str, object] = {"seed": SEED, "time": measure_time()}
    curves: dict[str, dict[float, Row]] = {}
    for name, (constant, values) in CURVES.items():
        curves[name] = {value: measure_with(constant, value, name) for value in values}
        result[f"{name}: {constant}"] = {str(value): row for value, row in curves[name].items()}
        print(name, json.dumps(result[f"{name}: {constant}"]), flush=True)
    _draw(curves, out / "trade.png")
    return result


#: For each curve, the column with the share of false lines or flags, and the columns with the share of found ones.
PANELS = {
    "broad": ("false, wave of 1.4 periods", ("found, S/N 10, 60 channels", "found, S/N 8, 40 channels")),
    "dips": ("raised, .89, empty", ("found, .89, absorption", "found, .89, absorption, lines")),
    "waves": ("raised, .89, empty", ("found, .89, ripple", "found, .89, ripple, lines")),
    "offsets": ("raised, .89, six lines of 10 channels", ("found, .89, offset", "found, .89, offset, lines")),
}


def _draw(curves: dict[str, dict[float, Row]], path: Path) -> None:
    import matplotlib  # noqa: PLC0415 - for the picture only

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after its backend is chosen

    figure, axes = plt.subplots(2, 2, figsize=(11, 8))
    for panel, (name, (false, wanted)) in zip(axes.ravel(), PANELS.items(), strict=True):
        rows = curves[name]
        for what in wanted:
            panel.plot([row[false] for row in rows.values()], [row[what] for row in rows.values()], "o-", label=what)
        for value, row in rows.items():
            panel.annotate(f"{value:g}", (row[false], row[wanted[0]]), fontsize=7)
        panel.set_title(CURVES[name][0], fontsize=9)
        panel.set_xlabel(false, fontsize=8)
        panel.set_ylabel("share that is found", fontsize=8)
        panel.axhline(0.95, color="0.8", linewidth=0.8)
        panel.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def main() -> None:
    """Print one measurement of the package at hand."""
    import prismline_gaussline  # noqa: PLC0415 - for the place of the package

    print(json.dumps({"package": prismline_gaussline.__file__, "row": MEASURES[sys.argv[1]]()}))


if __name__ == "__main__":
    main()
