"""Settings of the webhooks service, from the environment."""

from __future__ import annotations

from pydantic import Field

from prismline_runtime import ServiceSettings


class Settings(ServiceSettings):
    """Settings of the webhooks service."""

    runs_table: str = Field(description="The ledger's table.")
    jobs_table: str = Field(description="The table of jobs, with the targets of posts.")
    webhook_seconds: float = Field(default=15.0, gt=0, le=60, description="Time for one post, name look-up to answer.")
    webhook_allow_private: bool = Field(
        default=False, description="Post to private addresses, too: for tests and private networks."
    )
