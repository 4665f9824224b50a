"""Settings of the exporter, from the environment."""

from __future__ import annotations

from pydantic import Field

from prismline_exporter.objects import MIN_PART_BYTES
from prismline_runtime import ServiceSettings


class ExporterSettings(ServiceSettings):
    """Settings of the exporter."""

    runs_table: str = Field(description="The ledger's table.")
    bucket: str = Field(description="The bucket of the results and the exports.")
    export_part_bytes: int = Field(
        default=32 * 2**20,
        ge=MIN_PART_BYTES,
        description="Bytes in a part of the upload; an export has at most 10,000 parts.",
    )
    export_readers: int = Field(default=16, ge=1, le=64, description="Results that are read at the same time.")
    export_lease_seconds: int = Field(
        default=60, ge=5, description="After this time without a sign of life another process continues an export."
    )
    export_margin_seconds: float = Field(
        default=60.0, ge=0, description="Seconds before the end of an invocation at which an export is handed on."
    )
