"""The columns of a chunk's output as Arrow schemas: `prismline_contracts.decomposition` says what they mean."""

from __future__ import annotations

import pyarrow as pa

from prismline_contracts.decomposition import BASELINE_COLUMNS, arrow_schema

#: The columns of an output.
SCHEMA = arrow_schema()

#: Columns of later versions that a fit gives. :mod:`prismline_worker.physical_columns` adds the others.
_OF_A_FIT = ("component_optical_depths", "component_optical_depth_errors", *BASELINE_COLUMNS)

#: The columns that a fit gives: those of version 1, all in the units of pixels and of the signal, and later ones.
FIT_SCHEMA = pa.schema([*arrow_schema(version=1), *(SCHEMA.field(name) for name in _OF_A_FIT)])
