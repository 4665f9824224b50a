"""The result of a batch: columns of numbers, with one row for each spectrum or for each component."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntFlag
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .axis import SpectralAxis

if TYPE_CHECKING:
    import pyarrow
    from astropy.table import QTable


class Flag(IntFlag):
    """Quality of a spectrum's decomposition."""

    CONVERGED = 1
    """Every fit of the final model met the chi-square criterion, and no limit was hit."""
    AT_BOUND = 2
    """A width or a mean lies on its bound."""
    BLENDED = 4
    """Two components are closer than ``f_sep`` FWHM of the narrower."""
    LIMIT_HIT = 8
    """The component limit or the work limit ended the search; the table has the components found so far."""
    TIME_LIMIT = 16
    """The time budget ended the search; the table has the components found so far. Another run may differ."""
    BLANK = 32
    """Some channels were not finite, or had a noise that is not positive: they had weight zero."""
    NO_DATA = 64
    """Fewer than five channels with data: nothing was fitted."""
    NO_NOISE = 128
    """No noise could be estimated, for example from a constant spectrum: nothing was fitted. Give ``noise``."""
    NOT_FINITE = 256
    """A number of the fit or of the result was not finite, for example a flux beyond the largest float64: nothing is
    returned. Scale the spectrum."""
    OFFSET = 512
    """The zero of the spectrum is off. This flag and the next ones are set from 128 channels on."""
    SLOPE = 1024
    """The spectrum has a slope beside its lines."""
    RIPPLE = 2048
    """The spectrum has a ripple beside its lines, of two periods or more, and of 32 channels a period or more."""
    NEGATIVE = 4096
    """The spectrum has a feature below zero, such as an absorption line. It is not set together with RIPPLE."""


class ComponentFlag(IntFlag):
    """Quality of one component."""

    AT_BOUND = 1
    """A width, a mean or an optical depth lies on its bound."""
    BLENDED = 2
    NO_ERROR = 4
    """The normal matrix is singular or a parameter lies on its bound: its uncertainty is NaN."""
    NARROW = 8
    """Narrower than the response that the correlation of the noise implies: more likely a spike than a line."""
    BELOW_THRESHOLD = 16
    """Below ``snr_min``, ``mf_snr_min`` or ``fwhm_min``; ``compatible`` keeps such a component if AICc falls."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Columns of a decomposed batch of n spectra with m components in all.

    The columns of the first block have one row for each spectrum. Those of the second have one row for each component,
    in the order of the spectra and by rising mean. Components of spectrum i are rows ``offsets[i]:offsets[i + 1]``.
    Amplitudes, ``rms`` and noise are in the unit of the input, means and widths in channels, fluxes in that unit times
    channels; uncertainties are one standard deviation.
    """

    n_components: NDArray[np.int32]
    rms: NDArray[np.float64]
    """Noise of the spectrum: estimated, or the harmonic mean square of the given one; NaN when nothing was fitted."""
    chi2_reduced: NDArray[np.float64]
    aicc: NDArray[np.float64]
    """N ln(RSS / N) + 2 k + (2 k^2 + 2 k) / (N - k - 1), over the channels with data; k is three per component."""
    correlation: NDArray[np.float64]
    """Assumed correlation of the noise of neighbouring channels; zero for white noise."""
    effective_channels: NDArray[np.float64]
    """Number of independent channels for a wide signal; for white noise, the number of channels with data."""
    baseline_0: NDArray[np.float64]
    """With ``baseline_order``, the baseline at channel i (from zero) is the sum of these coefficients times 1, i, i^2
    and i^3, in the unit of the input. Zero beyond the order and without ``baseline_order``; NaN when nothing was
    fitted."""
    baseline_1: NDArray[np.float64]
    baseline_2: NDArray[np.float64]
    baseline_3: NDArray[np.float64]
    flags: NDArray[np.uint32]
    """Bits of :class:`Flag`."""
    work: NDArray[np.float64]
    """Channel-by-component evaluations that the spectrum took: its cost, the same on every run."""
    seconds: NDArray[np.float64]
    """Wall-clock time that the spectrum took; the one column that differs from run to run."""

    amplitude: NDArray[np.float64]
    mean: NDArray[np.float64]
    stddev: NDArray[np.float64]
    amplitude_err: NDArray[np.float64]
    mean_err: NDArray[np.float64]
    stddev_err: NDArray[np.float64]
    flux: NDArray[np.float64]
    flux_err: NDArray[np.float64]
    component_flags: NDArray[np.uint32]
    """Bits of :class:`ComponentFlag`."""

    thread_seconds: NDArray[np.float64]
    """Processor time of each thread that fitted, in seconds: how evenly they shared the batch."""

    axis: SpectralAxis | None = None
    """The physical axis, when one was given."""

    unit: str = ""
    """Unit of the spectra, as FITS writes it; empty if it is not known."""

    shape: tuple[int, int] | None = None
    """(ny, nx) of the cube that the spectra fill row by row; None if they are not those of a cube."""

    def __len__(self) -> int:
        return len(self.n_components)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Shape (n + 1,): first row of each spectrum's components."""
        return np.concatenate(([0], np.cumsum(self.n_components, dtype=np.int64)))

    def components(self, i: int) -> NDArray[np.float64]:
        """Amplitude, mean and width of the components of spectrum i, shape (k, 3)."""
        rows = slice(int(self.n_components[:i].sum()), int(self.n_components[: i + 1].sum()))
        return np.stack((self.amplitude[rows], self.mean[rows], self.stddev[rows]), axis=1)

    def baseline(self) -> NDArray[np.float64]:
        """Coefficients of the baseline of each spectrum, by power of the channel, shape (n, 4)."""
        return np.stack([getattr(self, name) for name in BASELINE_COLUMNS], axis=1)

    def physical(self) -> dict[str, NDArray[np.float64]]:
        """Means, widths, fluxes and their uncertainties on the axis, by column name; empty without an axis.

        Widths and fluxes are positive, also on a falling axis.
        """
        if self.axis is None:
            return {}
        step = abs(self.axis.step)
        return {
            "mean_physical": self.axis.start + self.axis.step * self.mean,
            "mean_physical_err": step * self.mean_err,
            "stddev_physical": step * self.stddev,
            "stddev_physical_err": step * self.stddev_err,
            "flux_physical": step * self.flux,
            "flux_physical_err": step * self.flux_err,
        }

    def component_columns(self) -> dict[str, NDArray[np.float64] | NDArray[np.uint32]]:
        """Every column with one row a component, the physical ones included, by name."""
        return {name: getattr(self, name) for name in COMPONENT_COLUMNS} | self.physical()

    def spectrum_columns(self) -> dict[str, NDArray[np.float64] | NDArray[np.uint32] | NDArray[np.int32]]:
        """Every column with one row a spectrum, by name."""
        return {name: getattr(self, name) for name in SPECTRUM_COLUMNS}

    def to_qtable(self, unit: str | None = None) -> QTable:
        """One row for each component, with units. Needs the extra ``astropy``.

        Columns: ``spectrum`` (row of the batch), amplitude, mean, stddev, flux, their uncertainties and flags; with an
        axis also physical means, widths and fluxes. ``unit`` is the spectra's (BUNIT), as FITS writes it; default: that
        of the table. Raises ValueError for a unit that astropy does not know.
        """
        from astropy import units  # noqa: PLC0415 - optional
        from astropy.table import QTable  # noqa: PLC0415 - optional

        signal, channel = units.Unit(self.unit if unit is None else unit), units.pix
        axis = units.Unit(self.axis.unit) if self.axis is not None else channel
        of = {"amplitude": signal, "mean": channel, "stddev": channel, "flux": signal * channel}
        of |= {"mean_physical": axis, "stddev_physical": axis, "flux_physical": signal * axis}
        table = QTable({"spectrum": np.repeat(np.arange(len(self)), self.n_components)})
        for name, values in self.component_columns().items():
            quantity = of.get(name.removesuffix("_err"))
            table[name] = values if quantity is None else values * quantity
        return table

    def to_arrow(self) -> pyarrow.Table:
        """One row for each spectrum; the component columns are lists. Needs the extra ``arrow``."""
        import pyarrow as pa  # noqa: PLC0415 - optional

        offsets = pa.array(self.offsets, pa.int32())
        columns = {name: pa.array(values) for name, values in self.spectrum_columns().items()}
        for name, values in self.component_columns().items():
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
        return pa.table(columns).replace_schema_metadata(self.metadata())

    def metadata(self) -> dict[str, str]:
        """What was assumed about the noise of the batch, for the metadata of a file."""
        fitted = np.isfinite(self.correlation)
        known = {"correlation": self.correlation[fitted], "effective_channels": self.effective_channels[fitted]}
        return {f"prismline_gaussline.median_{name}": f"{np.median(v):.6g}" for name, v in known.items() if len(v)}


#: Columns of the coefficients of the baseline, by power of the channel.
BASELINE_COLUMNS = ("baseline_0", "baseline_1", "baseline_2", "baseline_3")

_NAMES = [
    field.name for field in fields(Decomposition) if field.name not in ("thread_seconds", "axis", "unit", "shape")
]

#: Columns with one row a spectrum.
SPECTRUM_COLUMNS = tuple(_NAMES[: _NAMES.index("amplitude")])

#: Columns with one row a component.
COMPONENT_COLUMNS = tuple(_NAMES[_NAMES.index("amplitude") :])
