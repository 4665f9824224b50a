"""Settings of the splitter, from the environment."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

from pydantic import Field

from prismline_runtime import ServiceSettings


class SplitterSettings(ServiceSettings):
    """Settings of the splitter."""

    runs_table: str = Field(description="The ledger's table.")
    workdir: Path = Field(
        default=Path(gettempdir()), description="Where a cube is downloaded to; needs its size twice."
    )
