"""What the results of a run say about spectra that are not flat at zero beside their lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from astropy.io import fits
from numpy.typing import NDArray

from prismline_contracts.maps import FLAG_NAMES, NOT_FLAT

_BITS = {name: 1 << FLAG_NAMES.index(name) for name in NOT_FLAT}


def warning_of(files: Iterable[Path]) -> str | None:
    """A sentence about the flags of the spectra in `files`, Parquet files or maps. None if no spectrum is affected."""
    n_spectra, n_affected, counts = 0, 0, dict.fromkeys(NOT_FLAT, 0)
    for path in files:
        flags = _flags_of(path)
        n_spectra += len(flags)
        n_affected += int(np.count_nonzero(flags & sum(_BITS.values())))
        for name, bit in _BITS.items():
            counts[name] += int(np.count_nonzero(flags & bit))
    if not n_affected:
        return None
    kinds = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    return (
        f"{n_affected:,} of {n_spectra:,} spectra are not flat at zero beside their lines ({kinds}): correct their "
        "baselines, or do not trust their faint and broad components."
    )


def _flags_of(path: Path) -> NDArray[np.int32]:
    """The flags of the spectra in a file; empty if the file has none."""
    values: NDArray[np.float64] = np.empty(0)
    if path.suffix == ".parquet" and "flags" in pq.read_schema(path).names:
        values = pq.read_table(path, columns=["flags"])["flags"].drop_null().to_numpy()
    elif path.name == "flags.fits":
        values = fits.getdata(path)
    return np.asarray(values[np.isfinite(values)], dtype=np.int32).ravel()
