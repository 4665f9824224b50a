"""The columns of a chunk's output as Arrow schemas: `prismline_contracts.decomposition` says what they mean."""

from __future__ import annotations

from prismline_contracts.decomposition import arrow_schema

#: What fitting a block of spectra gives: the columns of version 1, all in the units of pixels and of the signal.
FIT_SCHEMA = arrow_schema(version=1)

#: A whole output: the same, and what :func:`prismline_worker.located.located` adds.
SCHEMA = arrow_schema()
