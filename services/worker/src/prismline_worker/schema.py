"""The columns of a chunk's output as Arrow schemas: `prismline_contracts.decomposition` says what they mean."""

from __future__ import annotations

from prismline_contracts.decomposition import arrow_schema

#: The columns that a fit gives: those of version 1, all in the units of pixels and of the signal.
FIT_SCHEMA = arrow_schema(version=1)

#: The columns of an output: the same, and those that :func:`prismline_worker.located.located` adds.
SCHEMA = arrow_schema()
