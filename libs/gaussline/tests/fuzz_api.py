"""Calls every public function with arguments of any kind, valid and not, and checks what comes back.

    python libs/gaussline/tests/fuzz_api.py ROUNDS [SEED]

A call returns a result that keeps its promises, or raises ValueError (or MemoryError) with a message of this package.
Anything else ends the run with the round and seed, which repeat it.
"""

from __future__ import annotations

import random
import resource
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import prismline_gaussline as gaussline
from prismline_gaussline import ComponentFlag, Decomposition, Flag, Params, Preset, SpectralAxis

#: Address space of the process while it fuzzes, bytes. Larger requests have to fail as MemoryError.
MEMORY_BYTES = 4 << 30

#: Values that no argument takes.
NONSENSE: tuple[Any, ...] = (None, float("nan"), -1, "x", b"x", [[1.0], [1.0, 2.0]], {}, object(), 1j, (), 10**400)

#: Parts of messages of Python and numpy that no message of this package has.
FOREIGN = ("object is not", "unsupported operand", "inhomogeneous shape is", "cannot convert", "ambiguous", "could not")


class Fuzzer:
    """Draws arguments from one seeded source."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)

    def maybe(self, usual: Callable[[], Any], share: float = 0.04) -> Any:
        """The usual value, or in a share of draws one that is none."""
        return self.random.choice(NONSENSE) if self.random.random() < share else usual()

    def array(self, shape: tuple[int, ...], scale: float = 1.0) -> Any:
        """Numbers of a shape in any memory layout, byte order and precision, writable or not, masked or not."""
        values = np.array(self.numpy.normal(0.0, scale, shape) + 20.0 * scale * (self.numpy.random(shape) < 0.03))
        kind = self.random.randrange(8)
        if kind == 0:
            values[self.numpy.random(shape) < 0.2] = self.random.choice([np.nan, np.inf, -np.inf, 0.0])
        elif kind == 1:
            values = np.array(self.numpy.integers(0, 2**63, shape)).view(np.float64) * self.random.choice([1.0, -1.0])
        elif kind == 2:
            values[...] = self.random.choice([0.0, 1.0, 1e300, 5e-324, -3.0])
        elif kind == 3 and values.ndim:  # a baseline
            values += self.random.uniform(-5.0, 5.0) * scale * np.linspace(self.random.randrange(-1, 2), 1.0, shape[-1])
        with np.errstate(all="ignore"):
            values = np.array(values, dtype=self.random.choice(["<f8", "<f8", ">f8", "<f4", ">f4", "<f2", "<i4"]))
        return self.layout(values)

    def layout(self, values: Any) -> Any:
        """The same values in another memory layout."""
        kind = self.random.randrange(9)
        if kind == 0 and values.ndim:
            padded = np.zeros([2 * n + 1 for n in values.shape], values.dtype)
            view = padded[tuple(slice(0, 2 * n, 2) for n in values.shape)]
            view[...] = values
            return view
        if kind == 1:
            return np.asfortranarray(values)
        if kind == 2 and values.ndim:
            return values[::-1]
        if kind == 3:
            values.flags.writeable = False
        if kind == 4:
            return np.ma.MaskedArray(values, self.numpy.random(values.shape) < 0.2)
        if kind == 5:
            return values.tolist()
        if kind == 6:
            return np.frombuffer(b"\0" + values.tobytes(), values.dtype, offset=1).reshape(values.shape)  # not aligned
        return values

    def shape(self) -> tuple[int, int]:
        return self.random.randrange(5), self.random.choice([0, 1, 2, 4, 5, 8, 9, 31, 64, 150, 400])

    def params(self) -> Any:
        names = ["beta", "snr_min", "mf_snr_min", "f_sep", "neg_thresh", "fwhm_min", "time_budget_s"]
        values: dict[str, Any] = {
            name: self.maybe(lambda: self.random.choice([0.0, 1e-300, 1.0, 5.0, 1e300]))
            for name in self.random.sample(names, self.random.randrange(3))
        }
        draws: dict[str, Callable[[], Any]] = {
            "preset": lambda: self.random.choice(list(Preset)),
            "max_refine_iter": lambda: self.random.randrange(6),
            "max_components": lambda: self.random.choice([1, 2, 64, 512]),
            "baseline_order": lambda: self.random.choice([None, 0, 1, 2, 3, 4]),
            "second_start": lambda: bool(self.random.randrange(2)),
            "unknown": lambda: 1,
        }
        for name in self.random.sample(list(draws), self.random.randrange(3)):
            if name != "unknown" or self.random.random() < 0.1:
                values[name] = self.maybe(draws[name])
        return self.random.choice([Params.from_mapping, dict])(values)

    def noise(self, n: int, channels: int) -> Any:
        shape = self.random.choice([(), (channels,), (n, 1), (n, channels), (1, channels), (channels + 1,)])
        return self.array(shape) if self.random.random() < 0.2 else np.abs(self.numpy.normal(1.0, 0.3, shape))

    def correlation(self) -> Any:
        kind = self.random.randrange(5)
        if kind == 0:
            return self.random.choice(["estimate", "white"])
        if kind == 1:
            return 0.8 ** np.arange(self.random.randrange(12))
        if kind == 2:
            return np.exp(-(np.arange(9) ** 2) / self.random.uniform(0.1, 9.0))
        if kind == 3:
            return [1.0, *self.numpy.uniform(-1.0, 1.0, self.random.randrange(4))]
        return self.array((self.random.randrange(10),))

    def starts(self, n: int, channels: int) -> Any:
        def one() -> Any:
            rows = self.numpy.uniform(-0.2, 1.2, (self.random.randrange(4), 3)) * max(channels, 1)
            if len(rows) and self.random.random() < 0.2:
                rows[0, self.random.randrange(3)] = self.random.choice([np.nan, np.inf, 1e160, 1e308, 0.0, -1.0])
            return self.layout(rows)

        return [self.maybe(one, 0.02) for _ in range(n + (self.random.random() < 0.05))]

    def axis(self) -> Any:
        return SpectralAxis(self.random.choice([0.0, -1e5, 1e300]), self.random.choice([1.0, -2e3, 1e-300]), "m/s")

    def keywords(self, n: int, channels: int) -> dict[str, Any]:
        """Some keywords of decompose()."""
        draws: dict[str, Callable[[], Any]] = {
            "noise": lambda: self.noise(n, channels),
            "noise_is_shape": lambda: bool(self.random.randrange(2)),
            "correlation": self.correlation,
            "threads": lambda: self.random.choice([1, 2, 5]),
            "axis": self.axis,
            "instruction_set": lambda: self.random.choice(["auto", "baseline", "avx2", "avx512"]),
        }
        return {name: self.maybe(draws[name]) for name in self.random.sample(list(draws), self.random.randrange(4))}


def check_table(table: Decomposition, n: int, channels: int) -> None:
    """Fails if the table breaks a promise of the README."""
    assert len(table) == n
    nothing = table.flags & (Flag.NO_DATA | Flag.NO_NOISE | Flag.NOT_FINITE) != 0
    assert (table.n_components[nothing] == 0).all()
    is_flat = table.flags & (Flag.OFFSET | Flag.SLOPE | Flag.RIPPLE | Flag.NEGATIVE) == 0
    assert is_flat[nothing].all()
    assert channels >= 128 or is_flat.all()
    for name in ("rms", "chi2_reduced", "aicc"):
        np.testing.assert_array_equal(np.isfinite(getattr(table, name)), ~nothing)
    for name in ("amplitude", "mean", "stddev", "flux"):
        assert np.isfinite(getattr(table, name)).all()
    assert (table.stddev >= 0.3).all()
    assert (table.stddev <= 0.5 * channels).all()
    assert ((table.mean >= 0.0) & (table.mean <= channels)).all()
    sure = table.component_flags & ComponentFlag.NO_ERROR == 0
    for name in ("amplitude_err", "mean_err", "stddev_err", "flux_err"):
        assert np.isfinite(getattr(table, name)[sure]).all()


def fuzz_decompose(fuzzer: Fuzzer) -> None:
    n, channels = fuzzer.shape()
    spectra = fuzzer.maybe(lambda: fuzzer.array((n, channels)), 0.02)
    keywords = fuzzer.keywords(n, channels)
    if fuzzer.random.random() < 0.2:
        keywords["starts"] = fuzzer.maybe(lambda: fuzzer.starts(n, channels))
    table = gaussline.decompose(spectra, fuzzer.maybe(fuzzer.params), **keywords)
    check_table(table, len(spectra), np.shape(spectra)[1])
    table.physical()
    table.metadata()
    at = fuzzer.maybe(lambda: fuzzer.random.choice([channels, fuzzer.array((3,))]))
    assert len(gaussline.evaluate(table, at)) == len(table)


def fuzz_second_pass(fuzzer: Fuzzer) -> None:
    ny, nx = fuzzer.random.randrange(1, 4), fuzzer.random.randrange(1, 4)
    spectra = fuzzer.array((ny * nx, 64))
    keywords = fuzzer.keywords(ny * nx, 64)
    table = gaussline.decompose(spectra, **keywords)
    shape = fuzzer.maybe(lambda: (ny, nx))
    rounds = fuzzer.maybe(lambda: fuzzer.random.randrange(3))
    check_table(gaussline.refit_from_neighbours(spectra, table, shape, rounds=rounds, **keywords), ny * nx, 64)


def fuzz_noise(fuzzer: Fuzzer) -> None:
    n, channels = fuzzer.shape()
    spectra = fuzzer.maybe(lambda: fuzzer.array((n, channels)), 0.02)
    if fuzzer.random.random() < 0.5:
        gaussline.estimate_noise_shape(spectra)
        return
    noise = fuzzer.maybe(lambda: fuzzer.random.choice([None, fuzzer.noise(n, channels)]))
    lags = gaussline.estimate_correlation(spectra, noise)
    assert lags[0] == 1.0
    assert np.isfinite(lags).all()


def fuzz_cube(fuzzer: Fuzzer) -> None:
    axes = fuzzer.random.randrange(1, 6)
    data = fuzzer.maybe(lambda: fuzzer.array(tuple(fuzzer.random.randrange(1, 5) for _ in range(axes))))
    header: dict[str, Any] = {"BUNIT": fuzzer.maybe(lambda: "K")}
    for number in range(1, axes + 1):
        header[f"CTYPE{number}"] = fuzzer.maybe(lambda: fuzzer.random.choice(["VRAD", "FREQ-LSR", "GLON", "STOKES"]))
        for key in ("CRVAL", "CDELT", "CRPIX", "CUNIT", "NAXIS"):
            if fuzzer.random.random() < 0.7:
                header[f"{key}{number}"] = fuzzer.maybe(lambda: fuzzer.random.choice([1.0, -2.5, "3", 0]))
    cube = gaussline.cube_spectra(data, header)
    assert len(cube.spectra) == cube.shape[0] * cube.shape[1]


def fuzz_axis(fuzzer: Fuzzer) -> None:
    SpectralAxis(fuzzer.maybe(lambda: 1.0, 0.5), fuzzer.maybe(lambda: 2.0, 0.5))


FUNCTIONS = (*(fuzz_decompose,) * 12, fuzz_second_pass, fuzz_noise, fuzz_noise, fuzz_cube, fuzz_cube, fuzz_axis)


def run_round(seed: int) -> bool:
    """Whether the arguments of this seed were valid. Raises what the package should not."""
    fuzzer = Fuzzer(seed)
    try:
        fuzzer.random.choice(FUNCTIONS)(fuzzer)
    except MemoryError:
        return False
    except ValueError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        if "prismline_gaussline" not in frame.filename or any(part in str(error) for part in FOREIGN):
            raise
        return False
    return True


def main(arguments: list[str]) -> int:
    rounds, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("ignore")
    valid = 0
    for seed in range(first, first + rounds):
        try:
            valid += run_round(seed)
        except Exception:
            traceback.print_exc()
            sys.stderr.write(f"seed {seed}\n")
            return 1
    sys.stdout.write(f"{rounds} rounds from seed {first}, {valid} of them with valid arguments\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
