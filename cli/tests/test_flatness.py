from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.io import fits

from prismline_cli import flatness
from prismline_gaussline import Flag

OFFSET_AND_SLOPE = int(Flag.CONVERGED | Flag.OFFSET | Flag.SLOPE)


def parquet(path, flags):
    pq.write_table(pa.table({"flags": pa.array(flags, pa.int32())}), path)
    return path


def test_the_warning_counts_the_spectra_and_each_of_their_flags(tmp_path):
    files = [
        parquet(tmp_path / "a.parquet", [int(Flag.CONVERGED), OFFSET_AND_SLOPE, None]),
        parquet(tmp_path / "b.parquet", [int(Flag.NEGATIVE)]),
    ]
    warning = flatness.warning_of(files)
    assert warning is not None
    assert warning.startswith("2 of 3 spectra are not flat at zero beside their lines (OFFSET 1, SLOPE 1, NEGATIVE 1)")


def test_the_map_of_the_flags_gives_the_same_warning(tmp_path):
    fits.writeto(tmp_path / "flags.fits", np.array([[1.0, OFFSET_AND_SLOPE], [np.nan, 4096.0]]))
    fits.writeto(tmp_path / "rms.fits", np.array([[512.0]]))
    warning = flatness.warning_of([tmp_path / "flags.fits", tmp_path / "rms.fits"])
    assert warning is not None
    assert "2 of 3 spectra" in warning


def test_there_is_no_warning_for_flat_spectra_nor_for_files_without_flags(tmp_path):
    pq.write_table(pa.table({"words": ["a"]}), tmp_path / "captions.parquet")
    files = [parquet(tmp_path / "a.parquet", [1, 33]), tmp_path / "captions.parquet", tmp_path / "pages.zip"]
    assert flatness.warning_of(files) is None
