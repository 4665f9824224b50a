"""The columns of a chunk's output: one row for each spectrum of the chunk, in the chunk's order."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class SpectrumStatus(StrEnum):
    """What became of one spectrum."""

    #: At least one component was found.
    FITTED = "fitted"
    #: The spectrum was looked at and holds no significant component.
    EMPTY = "empty"
    #: No channel holds a finite value, or too few to fit anything.
    BLANK = "blank"
    #: The fit was given up for lack of time; the slow lane does it again.
    TIMED_OUT = "timed_out"


#: `n_components` of a spectrum that was not fitted for lack of time.
NOT_FITTED = -1

#: The columns of the reference pipeline's dataset. `rms` and `min_persistence` (both in the unit of the spectrum) are
#: null where nothing was estimated. Means and standard deviations are in channels, counted from 0.
REFERENCE_FIELDS = [
    ("x", pa.int32()),
    ("y", pa.int32()),
    ("beta", pa.float64()),
    ("rms", pa.float64()),
    ("min_persistence", pa.float64()),
    ("n_components", pa.int32()),
    ("component_amplitudes", pa.list_(pa.float64())),
    ("component_means", pa.list_(pa.float64())),
    ("component_stddevs", pa.list_(pa.float64())),
    ("status", pa.string()),
]

#: What gaussline tells besides; null in rows that phspectra fitted. Errors are one standard deviation, NaN where there
#: is none to be had; fluxes are in the unit of the spectrum times channels; `flags` has the bits of
#: `prismline_gaussline.Flag`.
QUALITY_FIELDS = [
    ("component_amplitude_errors", pa.list_(pa.float64())),
    ("component_mean_errors", pa.list_(pa.float64())),
    ("component_stddev_errors", pa.list_(pa.float64())),
    ("component_fluxes", pa.list_(pa.float64())),
    ("component_flux_errors", pa.list_(pa.float64())),
    ("chi2_reduced", pa.float64()),
    ("aicc", pa.float64()),
    ("flags", pa.int32()),
]

#: `decomposer` says what fitted the row: `gaussline` or `phspectra`; null where nothing did.
SCHEMA = pa.schema([*REFERENCE_FIELDS, *QUALITY_FIELDS, ("decomposer", pa.string())])
