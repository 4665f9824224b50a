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
    #: No channel holds a finite value: there is nothing to look at.
    BLANK = "blank"
    #: The fit was given up for lack of time; the slow lane does it again.
    TIMED_OUT = "timed_out"


#: `n_components` of a spectrum that was not fitted for lack of time.
NOT_FITTED = -1

#: `rms` and `min_persistence` (both in the unit of the spectrum) are null where nothing was estimated: blank and
#: timed-out rows. Means and standard deviations are in channels, counted from 0.
SCHEMA = pa.schema(
    [
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
)
