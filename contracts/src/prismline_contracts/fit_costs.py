"""How long a fit takes. The splitter plans chunks with it, and the api estimates what a run would cost. Pure."""

from __future__ import annotations

from typing import Literal

from prismline_contracts.manifest import FitParams

#: Kinds of fits that take different times.
FitKind = Literal["gaussline", "baseline", "phspectra", "hyperfine", "second_pass"]
#: Average milliseconds of one core for a spectrum of `COST_CHANNELS` channels. The cost of both decomposers grows about
#: in proportion to the channels. The values lie between those measured on synthetic spectra (0.022 and 68) and on the
#: Galactic Ring Survey's test field (0.074 and 144): benchmarks/gaussline/MEASUREMENTS.md. Hyperfine groups take 1 in
#: an empty spectrum, 3.2 to 4.2 in one with a group, and 7 to 9 in one with two. The second pass takes 1.0 to 2.5.
COST_MS: dict[FitKind, float] = {
    "gaussline": 0.05,
    "baseline": 0.15,
    "phspectra": 100.0,
    "hyperfine": 5.0,
    "second_pass": 2.5,
}
COST_CHANNELS = 424
#: Most planned work in a chunk, in seconds of one core. Much more than a chunk's overhead; little is lost if a worker
#: dies.
CHUNK_SECONDS = 20.0
#: Most chunks of a run with less work than this many such chunks: enough for this many workers.
FINE_CHUNKS = 256


def fit_kind(params: FitParams) -> FitKind:
    """The kind of the fits that these parameters ask for."""
    if params.second_pass:
        return "second_pass"
    return "baseline" if params.baseline_order is not None else params.decomposer


def fit_seconds(n_channels: int, kind: FitKind) -> float:
    """Average seconds of one core for a spectrum of `n_channels` channels."""
    return COST_MS[kind] / 1000 * n_channels / COST_CHANNELS
