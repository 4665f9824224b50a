"""Lines that belong together: fits a hyperfine group as one component with a common velocity and a common width.

A hyperfine group is a set of lines with known offsets and known relative strengths. A component is the sum of these
lines, each a Gaussian of the same width. :func:`fit_hyperfine` finds components one after the other: the best
match of the whole group with the residual, then a fit of all components together. The corrected Akaike criterion
decides whether the component stays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import doubles, numbers, whole_number
from .axis import SpectralAxis
from .batch import decompose
from .noise import LAGS
from .params import Params
from .table import ComponentFlag, Decomposition, Flag

Floats = NDArray[np.float64]

#: Speed of light in km/s, by definition of the metre.
_LIGHT_KM_S = 299_792.458

#: Unit of a spectral axis -> km/s, for velocities; and -> Hz, for frequencies.
_VELOCITIES = {"km/s": 1.0, "km s-1": 1.0, "m/s": 1e-3, "m s-1": 1e-3, "cm/s": 1e-5}
_FREQUENCIES = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}

#: Widths (standard deviations, channels) of the search: from the least one, each this many times the one before. The
#: match loses 1.5 % of its significance between two of them.
_WIDTH_STEP = 1.4

#: Significance of a match with the residual from which a fit is tried, as a part of the one that a component needs. The
#: fit of a blended component gains more than its match with a residual that the others have taken from.
_WORTH_A_FIT = 0.8

#: Correlations whose templates are kept: those of a batch are one, or one for each spectrum.
_KEPT = 4

#: Most steps of one fit, and the relative decrease of chi-square below which it has converged.
_MOST_STEPS, _CONVERGED = 60, 1e-6

#: Bounds of the optical depth of a group, summed over its lines. Below, the lines are thin; above, they are flat.
_LEAST_DEPTH, _MOST_DEPTH = 0.1, 100.0

#: The grid on which a component with an optical depth is integrated: points in a width, and on either side of a line.
_POINTS_IN_A_WIDTH = 4
_COVERED = 8 * _POINTS_IN_A_WIDTH


@dataclass(frozen=True)
class HyperfineGroup:
    """Lines with a common velocity and a common width: their velocity offsets and relative strengths.

    Raises ValueError if the table is not one of offsets (km/s) and positive weights of equal number.
    """

    name: str
    #: Velocity of each line minus that of the group, km/s. A line of higher frequency has a negative offset.
    offsets: tuple[float, ...]
    #: Relative strengths. They are divided by their sum.
    weights: tuple[float, ...]
    #: Frequency of the group's velocity zero, Hz. Only an axis in frequency needs it.
    rest_frequency: float | None = None
    #: Where the numbers were published.
    source: str = ""

    def __post_init__(self) -> None:
        offsets, weights = doubles(self.offsets, "offsets"), doubles(self.weights, "weights")
        if offsets.ndim != 1 or offsets.shape != weights.shape or not 1 <= len(offsets) <= 100:
            raise ValueError("a hyperfine group has 1 to 100 lines, each with an offset and a weight")
        if not (np.isfinite(offsets).all() and np.isfinite(weights).all() and (weights > 0.0).all()):
            raise ValueError("the offsets of a hyperfine group must be finite, and its weights positive")
        object.__setattr__(self, "offsets", tuple(offsets.tolist()))
        object.__setattr__(self, "weights", tuple((weights / weights.sum()).tolist()))

    def in_channels(self, axis: SpectralAxis) -> Floats:
        """The offsets on an axis, in channels. Raises ValueError if its unit is no velocity and no known frequency."""
        offsets = np.array(self.offsets)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if axis.unit in _VELOCITIES:
                channels = offsets / (axis.step * _VELOCITIES[axis.unit])
            elif axis.unit in _FREQUENCIES and self.rest_frequency is not None:
                channels = -offsets / _LIGHT_KM_S * self.rest_frequency / (axis.step * _FREQUENCIES[axis.unit])
            else:
                raise ValueError(
                    f"the lines of {self.name} have offsets in km/s; give an axis in km/s or m/s, or one in Hz and the "
                    f"group's rest frequency, not one in {axis.unit or 'no unit'}"
                )
        if not np.isfinite(channels).all():
            raise ValueError(f"the lines of {self.name} lie too many channels apart for a step of {axis.step:g}")
        return np.asarray(channels)


def _hcn_offset(megahertz: float) -> float:
    return (1.0 - megahertz / 88631.8475) * _LIGHT_KM_S


_NH3_OFFSETS = (
    *(19.8513, 19.3159, 7.88669, 7.46967, 7.35132, 0.460409, 0.322042, -0.0751680, -0.213003),
    *(0.311034, 0.192266, -0.132382, -0.250923, -7.23349, -7.37280, -7.81526, -19.4117, -19.5500),
)
_NH3_WEIGHTS = (
    *(0.0740740, 0.148148, 0.0925930, 0.166667, 0.0185190, 0.0370370, 0.0185190, 0.0185190, 0.0925930),
    *(0.0333330, 0.300000, 0.466667, 0.0333330, 0.0925930, 0.0185190, 0.166667, 0.0740740, 0.148148),
)

#: The groups that are known by name. The numbers of a name never change: a run may look them up twice.
GROUPS: Mapping[str, HyperfineGroup] = {
    group.name: group
    for group in (
        HyperfineGroup(
            "n2h+_1-0",
            (-7.9930, -0.6112, 0.0, 0.9533, 5.5371, 5.9704, 6.9238),
            (3, 3, 7, 5, 3, 5, 1),
            93.1737637e9,
            "Pagani, Daniel & Dubernet 2009, A&A 494, 719: the seven lines that JF1F = 1-0 blends into, and their "
            "statistical weights",
        ),
        HyperfineGroup(
            "hcn_1-0",
            (_hcn_offset(88630.4156), 0.0, _hcn_offset(88633.9357)),
            (3, 5, 1),
            88.6318475e9,
            "Ahrens et al. 2002, Z. Naturforsch. 57a, 669: frequencies of F = 1-1, 2-1 and 0-1, and their statistical "
            "weights",
        ),
        HyperfineGroup(
            "nh3_1-1",
            _NH3_OFFSETS,
            _NH3_WEIGHTS,
            23.6944955e9,
            "Rydbeck et al. 1977, ApJ 215, L35; Ho & Townes 1983, ARA&A 21, 239: the 18 lines of (J, K) = (1, 1)",
        ),
    )
}


def group_named(name: str) -> HyperfineGroup:
    """The group with this name. Raises ValueError, which names those that there are."""
    if not isinstance(name, str) or name not in GROUPS:
        raise ValueError(f"there is no hyperfine group {name!r}; choose one of {', '.join(GROUPS)}, or give a table")
    return GROUPS[name]


@dataclass(frozen=True, eq=False)
class HyperfineDecomposition(Decomposition):
    """The components of a batch. Each one is a hyperfine group.

    ``mean`` is the group's velocity zero, in channels, ``stddev`` the width of each line. For optically thin lines,
    ``amplitude`` is the sum of their heights, the height of line i is ``amplitude * group.weights[i]``, and ``flux`` is
    ``sqrt(2 pi)`` times amplitude times width, as for a Gaussian. With an optical depth, ``amplitude`` is what thin
    lines of the same opacity would have, and ``flux`` is the area of the component's curve, which is smaller.
    """

    #: Optical depth, summed over the lines, and its uncertainty; NaN if the lines were taken as thin.
    optical_depth: Floats = field(default_factory=lambda: np.empty(0))
    optical_depth_err: Floats = field(default_factory=lambda: np.empty(0))
    #: The group, and the offsets of its lines in channels.
    group: HyperfineGroup | None = None
    offsets_in_channels: Floats = field(default_factory=lambda: np.empty(0))

    def component_columns(self) -> dict[str, NDArray[np.float64] | NDArray[np.uint32]]:
        """Every column with one row a component, the optical depth and the physical ones included, by name."""
        depth = {"optical_depth": self.optical_depth, "optical_depth_err": self.optical_depth_err}
        return super().component_columns() | depth

    def model(self, channels: int | ArrayLike) -> Floats:
        """The model of every spectrum at ``channels``, a number of them or positions from 0."""
        at = np.arange(channels, dtype=np.float64) if isinstance(channels, int) else doubles(channels, "channels")
        weights = np.array(self.group.weights) if self.group is not None else np.ones(1)
        models, ends = np.zeros((len(self), len(at))), self.offsets
        for i, (first, last) in enumerate(pairwise(ends)):
            for k in range(first, last):
                depth = self.optical_depth[k]
                row = np.array([self.amplitude[k], self.mean[k], self.stddev[k], depth])
                models[i] += _component(row, at, self.offsets_in_channels, weights, math.isfinite(depth))[0]
        return models


def fit_hyperfine(
    spectra: ArrayLike,
    group: HyperfineGroup | str,
    axis: SpectralAxis,
    params: Params | Mapping[str, object] | None = None,
    *,
    noise: ArrayLike | None = None,
    noise_is_shape: bool = False,
    correlation: str | ArrayLike = "estimate",
    optical_depth: bool = False,
    max_groups: int = 5,
    threads: int = 1,
) -> HyperfineDecomposition:
    """Fit each spectrum of a batch (n, channels) with components that are hyperfine groups.

    ``spectra``, ``params``, ``noise``, ``noise_is_shape`` and ``correlation`` are as for
    :func:`~prismline_gaussline.decompose`, which estimates the noise. ``mf_snr_min``, ``snr_min`` and
    ``fwhm_min`` apply to a component: the significance of its match, the height of its strongest line, and its width.
    With ``optical_depth``, each component also has an optical depth ``tau``, from 0.1 to 100 and summed over its lines,
    which have a common excitation temperature:
    ``amplitude / tau * (1 - exp(-tau * profile))``. At most ``max_groups`` components are searched for.

    Raises ValueError for misuse, never because of the data.
    """
    settings = params if isinstance(params, Params) else Params.from_mapping({} if params is None else params)
    group = group_named(group) if isinstance(group, str) else group
    if not isinstance(group, HyperfineGroup) or not isinstance(axis, SpectralAxis):
        raise ValueError("give a HyperfineGroup or the name of one, and a SpectralAxis")
    if not isinstance(optical_depth, (bool, np.bool_)):
        raise ValueError(f"optical_depth must be true or false, not {optical_depth!r}")
    if settings.baseline_order is not None:
        raise ValueError("baseline_order is for decompose: subtract the baseline before a fit of hyperfine groups")
    max_groups = whole_number(max_groups, "max_groups", 1, 100)
    offsets, weights = group.in_channels(axis), np.array(group.weights)
    base = decompose(
        spectra, settings, noise=noise, noise_is_shape=noise_is_shape, correlation=correlation, threads=threads
    )
    data = doubles(numbers(spectra, "spectra"), "spectra")
    sigma = _sigma(data, noise, base, is_shape=bool(noise_is_shape))
    lags = _lags(correlation, base)
    search = _Search(data.shape[1], offsets, weights, settings)
    fits = [
        _fit_one(
            row, level, own, search, settings, max_groups, bool(optical_depth), noise is None or bool(noise_is_shape)
        )
        for row, level, own in zip(data, sigma, lags, strict=True)
    ]
    return _table(fits, data, base, axis, group, offsets)


def _sigma(data: Floats, noise: ArrayLike | None, base: Decomposition, *, is_shape: bool) -> Floats:
    """The noise of every channel, NaN where the channel is blank or the spectrum has no noise."""
    known = np.broadcast_to(base.rms[:, None] if noise is None else doubles(noise, "noise"), data.shape)
    if noise is not None and is_shape:  # the rms of a spectrum is the harmonic mean square of its noise
        weight = np.where(np.isfinite(data) & np.isfinite(known) & (known > 0.0), known, np.inf) ** -2.0
        count = np.maximum((weight > 0.0).sum(axis=1), 1)
        known = known * (base.rms * np.sqrt(weight.sum(axis=1) / count))[:, None]
    usable = np.isfinite(data) & np.isfinite(known) & (known > 0.0) & np.isfinite(base.rms)[:, None]
    return np.where(usable, known, np.nan)


def _lags(correlation: str | ArrayLike, base: Decomposition) -> Floats:
    """The correlation of each spectrum's noise at lags 0 to 7: as given, or that of smoothed white noise."""
    if not isinstance(correlation, str):
        given = doubles(correlation, "correlation")[:LAGS]
        return np.tile(np.pad(given, (0, LAGS - len(given))), (len(base), 1))
    neighbours = np.nan_to_num(np.clip(base.correlation, 0.0, 0.99))[:, None]
    return np.asarray(neighbours ** (np.arange(LAGS) ** 2.0))


@dataclass
class _Fit:
    """The result for one spectrum: rows of amplitude, mean, width and optical depth, and their uncertainties."""

    rows: Floats
    errors: Floats
    #: Area of each component, and its uncertainty.
    fluxes: Floats = field(default_factory=lambda: np.empty(0))
    flux_errors: Floats = field(default_factory=lambda: np.empty(0))
    chi2: float = math.nan
    rss: float = math.nan
    n_used: int = 0
    converged: bool = True
    limit: bool = False
    work: float = 0.0
    seconds: float = 0.0


class _Search:
    """Matches a group of any position, and of several widths, with a spectrum."""

    def __init__(self, n: int, offsets: Floats, weights: Floats, settings: Params) -> None:
        self.channels, self.offsets, self.weights = np.arange(n, dtype=np.float64), offsets, weights
        least = 1.0 if settings.fwhm_min is None else max(settings.fwhm_min, 0.5)
        self.narrowest, self.widest = least / math.sqrt(8.0 * math.log(2.0)), max(n / 8.0, 1.0)
        count = 1 + max(0, math.ceil(math.log(self.widest / self.narrowest) / math.log(_WIDTH_STEP)))
        self.widths = self.narrowest * _WIDTH_STEP ** np.arange(count)
        places = np.arange(-(n - 1), n, dtype=np.float64)
        self.size = 1 << (3 * n - 2).bit_length()
        self.templates = np.stack(
            [
                (weights[:, None] * np.exp(-0.5 * ((places - offsets[:, None]) / width) ** 2)).sum(axis=0)
                for width in self.widths
            ]
        )
        self._turned = np.fft.rfft(self.templates[:, ::-1], self.size)
        self._squares: dict[bytes, NDArray[np.complex128]] = {}

    def best(self, residual: Floats, weight: Floats, lags: Floats) -> tuple[float, Floats]:
        """The significance of the best match, and its amplitude, mean and width. weight: one over the variance."""
        n = len(residual)
        matched = np.fft.irfft(self._turned * np.fft.rfft(residual * weight, self.size), self.size)
        variance = np.fft.irfft(self._power(lags) * np.fft.rfft(weight, self.size), self.size)
        white = np.fft.irfft(self._power(_WHITE) * np.fft.rfft(weight, self.size), self.size)
        # The group at channel m is element n - 1 + m of the convolution with the turned template.
        at = slice(n - 1, 2 * n - 1)
        matched, variance, white = matched[:, at], variance[:, at], white[:, at]
        full = white.max(axis=1, keepdims=True)
        inside = (white > 0.2 * full) & (variance > 0.0)  # most of the group lies within the spectrum
        significance = np.where(inside, matched / np.sqrt(np.where(inside, variance, 1.0)), -np.inf)
        width, place = np.unravel_index(int(np.argmax(significance)), significance.shape)
        amplitude = matched[width, place] / white[width, place]
        return float(significance[width, place]), np.array([amplitude, float(place), self.widths[width]])

    def _power(self, lags: Floats) -> NDArray[np.complex128]:
        """The transform of the turned squares of the templates, with the products of neighbours that correlate."""
        key = lags.tobytes()
        if key not in self._squares:
            power = self.templates**2
            for lag in np.flatnonzero(lags[1:]) + 1:
                power[:, lag:] += 2.0 * lags[lag] * self.templates[:, lag:] * self.templates[:, :-lag]
            if len(self._squares) > _KEPT:
                self._squares.clear()
            self._squares[key] = np.fft.rfft(power[:, ::-1], self.size)
        return self._squares[key]


_WHITE = np.array([1.0, *[0.0] * (LAGS - 1)])


def _component(row: Floats, channels: Floats, offsets: Floats, weights: Floats, thick: bool) -> tuple[Floats, Floats]:
    """A component's curve (n,), and its derivatives by amplitude, mean, width and, if thick, optical depth."""
    amplitude, mean, width = row[:3]
    distance = (channels - mean - offsets[:, None]) / width
    lines = weights[:, None] * np.exp(-0.5 * distance**2)
    profile = lines.sum(axis=0)
    by_mean, by_width = (lines * distance).sum(axis=0) / width, (lines * distance**2).sum(axis=0) / width
    if not thick:
        return amplitude * profile, np.stack((profile, amplitude * by_mean, amplitude * by_width))
    depth = row[3]
    fading = np.exp(-depth * profile)
    shape = -np.expm1(-depth * profile) / depth
    by_depth = amplitude * (profile * fading - shape) / depth
    return amplitude * shape, np.stack((shape, amplitude * fading * by_mean, amplitude * fading * by_width, by_depth))


def _fit_one(
    data: Floats,
    sigma: Floats,
    lags: Floats,
    search: _Search,
    settings: Params,
    most: int,
    thick: bool,
    estimated: bool,
) -> _Fit:
    began = time.monotonic()
    used = np.isfinite(sigma)
    n_parameters = 4 if thick else 3
    found = _Fit(np.empty((0, n_parameters)), np.empty((0, n_parameters)), n_used=int(used.sum()))
    if found.n_used < 5:
        return found
    weight, values = np.where(used, 1.0, 0.0), np.where(used, data, 0.0)
    weight[used] = sigma[used] ** -2.0
    inflation = 1.0 + 2.0 * float(np.clip(lags[1:], 0.0, None).sum())
    independent = found.n_used / inflation
    model = np.zeros_like(values)
    found.chi2, found.rss = float((weight * values**2).sum()), float((values[used] ** 2).sum())
    while len(found.rows) < most:
        significance, start = search.best(values - model, weight, lags)
        if not significance >= _WORTH_A_FIT * settings.mf_snr_min:
            break
        first = np.append(start, 1.0) if thick else start
        rows, chi2, covariance, converged, steps = _least_squares(
            np.vstack((found.rows, first)), values, weight, lags, search, thick
        )
        found.work += steps * len(rows) * found.n_used * len(search.weights)
        k = rows.size
        if independent - k - 1 <= 0:
            found.limit = True
            break
        # Many lines leave few channels without signal, so the noise from these is uncertain by a twentieth. A component
        # must stand out from the residual that it leaves too.
        excess = max(1.0, chi2 / max(found.n_used - k, 1)) if estimated else 1.0
        gain = (found.chi2 - chi2) / (inflation * excess)
        price = _penalty(k, independent) - _penalty(found.rows.size, independent)
        level = np.sqrt(1.0 / np.median(weight[used]))
        heights = rows[:, 0] * search.weights.max()
        # The gain is the square of the component's significance, also if it is blended with another one.
        if (heights < settings.snr_min * level).any() or not gain > max(price, settings.mf_snr_min**2):
            break
        found.rows, found.chi2, found.converged = rows, chi2, converged
        found.errors = np.sqrt(np.clip(np.diag(covariance), 0.0, None)).reshape(rows.shape)
        found.fluxes, found.flux_errors = _fluxes(rows, covariance, search, thick)
        model = _model(rows, search, thick)
        found.rss = float(((values - model)[used] ** 2).sum())
    found.limit |= len(found.rows) == most and search.best(values - model, weight, lags)[0] >= settings.mf_snr_min
    order = np.argsort(found.rows[:, 1], kind="stable")
    found.rows, found.errors = found.rows[order], found.errors[order]
    found.fluxes, found.flux_errors = found.fluxes[order], found.flux_errors[order]
    found.seconds = time.monotonic() - began
    return found


def _penalty(k: int, independent: float) -> float:
    """What the corrected Akaike criterion adds to chi-square for `k` parameters."""
    return 2 * k + 2 * k * (k + 1) / (independent - k - 1)


def _fluxes(rows: Floats, covariance: Floats, search: _Search, thick: bool) -> tuple[Floats, Floats]:
    """The area of each component, and its uncertainty."""
    n, fluxes = rows.shape[1], np.empty(len(rows))
    slopes = np.zeros((len(rows), rows.size))
    for k, row in enumerate(rows):
        fluxes[k], slopes[k, k * n : (k + 1) * n] = _area(row, search) if thick else _thin_area(row)
    variances = np.einsum("ki,ij,kj->k", slopes, covariance, slopes)
    return fluxes, np.sqrt(np.clip(variances, 0.0, None))


def _thin_area(row: Floats) -> tuple[float, Floats]:
    """The area of a component of optically thin lines, and its derivatives."""
    root = math.sqrt(2.0 * math.pi)
    return root * row[0] * row[2], root * np.array([row[2], 0.0, row[0]])


def _area(row: Floats, search: _Search) -> tuple[float, Floats]:
    """The area of a component with an optical depth, and its derivatives.

    The sum over a grid that covers each line; for functions as smooth as these it is as good as exact.
    """
    step = row[2] / _POINTS_IN_A_WIDTH
    places = np.rint(search.offsets[:, None] / step) + np.arange(-_COVERED, _COVERED + 1)
    curve, slopes = _component(row, row[1] + step * np.unique(places), search.offsets, search.weights, True)
    return step * float(curve.sum()), step * slopes.sum(axis=1)


def _model(rows: Floats, search: _Search, thick: bool) -> Floats:
    curves = [_component(row, search.channels, search.offsets, search.weights, thick)[0] for row in rows]
    return np.asarray(np.sum(curves, axis=0)) if curves else np.zeros_like(search.channels)


def _least_squares(
    rows: Floats, values: Floats, weight: Floats, lags: Floats, search: _Search, thick: bool
) -> tuple[Floats, float, Floats, bool, int]:
    """The rows with the least chi-square, from `rows` on, by Levenberg and Marquardt's method.

    Returns the rows, chi-square, the covariance of the parameters, whether it converged, and the number of steps. The
    covariance contains the correlation of the noise, which the weights of the fit do not.
    """
    low = np.tile([0.0, 0.0, search.narrowest, _LEAST_DEPTH][: rows.shape[1]], (len(rows), 1))
    high = np.tile(
        [np.inf, len(values) - 1.0, search.widest, _MOST_DEPTH][: rows.shape[1]],
        (len(rows), 1),
    )

    def look(at: Floats) -> tuple[float, Floats, Floats]:
        parts = [_component(row, search.channels, search.offsets, search.weights, thick) for row in at]
        rest = values - np.sum([curve for curve, _ in parts], axis=0)
        return float((weight * rest**2).sum()), rest, np.concatenate([slopes for _, slopes in parts])

    rows, damping, steps, converged = np.clip(rows, low, high), 1e-3, 0, False
    chi2, rest, slopes = look(rows)
    while steps < _MOST_STEPS and not converged:
        normal, gradient = (slopes * weight) @ slopes.T, (slopes * weight) @ rest
        diagonal = np.diag(normal).copy()
        diagonal[diagonal <= 0.0] = 1.0
        # Parameters that the gradient pushes against their bounds stay there, and the others find their best values.
        at = rows.ravel()
        held = ((at <= low.ravel()) & (gradient < 0.0)) | ((at >= high.ravel()) & (gradient > 0.0))
        free = np.flatnonzero(~held)
        if not len(free):
            converged = True
        while steps < _MOST_STEPS and len(free):
            steps += 1
            damped = (normal + damping * np.diag(diagonal))[np.ix_(free, free)]
            wanted = at.copy()
            wanted[free] += np.linalg.lstsq(damped, gradient[free], rcond=None)[0]
            tried = np.clip(wanted.reshape(rows.shape), low, high)
            new_chi2, new_rest, new_slopes = look(tried)
            if new_chi2 <= chi2:
                met_a_bound = not np.array_equal(tried.ravel(), wanted)
                converged = not met_a_bound and chi2 - new_chi2 <= _CONVERGED * chi2
                rows, chi2, rest, slopes = tried, new_chi2, new_rest, new_slopes
                damping = max(damping * 0.1, 1e-12)
                break
            damping *= 10.0
            if damping > 1e12:  # no step in this direction lowers chi-square any more
                converged = True
                break
    return rows, chi2, _covariance(slopes, weight, lags), converged, steps


def _covariance(slopes: Floats, weight: Floats, lags: Floats) -> Floats:
    """Covariance of the parameters of a fit with `weight` if the noise has the correlation `lags`."""
    root = np.sqrt(weight)
    scaled = slopes * root
    normal = scaled @ scaled.T
    try:
        inverse = np.linalg.inv(normal)
    except np.linalg.LinAlgError:
        return np.full(normal.shape, np.nan)
    middle = normal.copy()
    for lag in np.flatnonzero(lags[1:]) + 1:
        product = scaled[:, lag:] @ scaled[:, :-lag].T
        middle += lags[lag] * (product + product.T)
    return np.asarray(inverse @ middle @ inverse)


def _table(
    fits: Sequence[_Fit],
    data: Floats,
    base: Decomposition,
    axis: SpectralAxis,
    group: HyperfineGroup,
    offsets: Floats,
) -> HyperfineDecomposition:
    thick = bool(fits) and fits[0].rows.shape[1] == 4
    width = 4 if thick else 3
    rows = np.concatenate([fit.rows for fit in fits] or [np.empty((0, width))])
    errors = np.concatenate([fit.errors for fit in fits] or [np.empty((0, width))])
    counts = np.array([len(fit.rows) for fit in fits], np.int32)
    n_used, chi2 = np.array([float(fit.n_used) for fit in fits]), np.array([fit.chi2 for fit in fits])
    free = n_used - width * counts
    with np.errstate(all="ignore"):
        k = float(width) * counts
        rss = np.array([fit.rss for fit in fits])
        aicc = n_used * np.log(rss / n_used) + 2 * k + (2 * k**2 + 2 * k) / (n_used - k - 1)
    at_bound = (rows[:, 1] <= 0.0) | (rows[:, 1] >= data.shape[1] - 1.0) if len(rows) else np.empty(0, bool)
    if thick:
        at_bound |= (rows[:, 3] <= _LEAST_DEPTH) | (rows[:, 3] >= _MOST_DEPTH)
    flags = np.full(len(rows), 0, np.uint32)
    flags[at_bound] |= np.uint32(ComponentFlag.AT_BOUND)
    flags[~np.isfinite(errors).all(axis=1)] |= np.uint32(ComponentFlag.NO_ERROR)
    kept = Flag.BLANK | Flag.NO_DATA | Flag.NO_NOISE | Flag.NOT_FINITE
    of_spectrum = base.flags & np.uint32(kept)
    nothing = np.array([fit.n_used < 5 for fit in fits], bool)
    of_spectrum |= np.where(nothing, 0, [Flag.CONVERGED if f.converged and not f.limit else 0 for f in fits]).astype(
        np.uint32
    )
    of_spectrum |= np.array([Flag.LIMIT_HIT if fit.limit else 0 for fit in fits], np.uint32)
    unknown = np.full(len(rows), np.nan)
    return HyperfineDecomposition(
        n_components=counts,
        rms=base.rms,
        chi2_reduced=np.where(free > 0, chi2 / np.where(free > 0, free, 1.0), np.nan),
        aicc=np.where(nothing, np.nan, aicc),
        correlation=base.correlation,
        effective_channels=base.effective_channels,
        baseline_0=base.baseline_0,
        baseline_1=base.baseline_1,
        baseline_2=base.baseline_2,
        baseline_3=base.baseline_3,
        flags=of_spectrum.astype(np.uint32),
        work=np.array([fit.work for fit in fits]),
        seconds=base.seconds + np.array([fit.seconds for fit in fits]),
        amplitude=rows[:, 0],
        mean=rows[:, 1],
        stddev=rows[:, 2],
        amplitude_err=errors[:, 0],
        mean_err=errors[:, 1],
        stddev_err=errors[:, 2],
        flux=np.concatenate([fit.fluxes for fit in fits] or [np.empty(0)]),
        flux_err=np.concatenate([fit.flux_errors for fit in fits] or [np.empty(0)]),
        component_flags=flags,
        thread_seconds=base.thread_seconds,
        axis=axis,
        optical_depth=rows[:, 3] if thick else unknown,
        optical_depth_err=errors[:, 3] if thick else unknown.copy(),
        group=group,
        offsets_in_channels=offsets,
    )
