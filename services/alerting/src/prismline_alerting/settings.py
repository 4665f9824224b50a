"""Settings of the alerting service, from the environment."""

from __future__ import annotations

from pydantic import Field, SecretStr

from prismline_runtime import ServiceSettings


class NotifierSettings(ServiceSettings):
    """Settings of the notifier."""

    runs_table: str = Field(description="The ledger's table, with facts for alerts.")
    bucket: str = Field(description="The bucket with the record of posts.")
    discord_webhook_url: SecretStr | None = Field(
        default=None, description="The webhook's URL, in place of the parameter in SSM."
    )
    post_seconds: float = Field(
        default=20.0, gt=0, description="How long a post is tried before its message goes back."
    )
    claim_seconds: float = Field(
        default=45.0, gt=0, description="After this time a notifier that has not finished a post is presumed dead."
    )
    recheck_seconds: int = Field(
        default=900, ge=1, le=900, description="Longest time, in seconds, between two checks of a muted alarm."
    )


class InteractionSettings(ServiceSettings):
    """Settings of the endpoint of the slash commands."""

    discord_public_key: str | None = Field(
        default=None, description="The application's public key in hex, in place of the parameter in SSM."
    )
    discord_guild_id: str | None = Field(
        default=None, description="Id of the Discord server whose members may mute; nobody may if it is not set."
    )
    discord_allowed_roles: list[str] = Field(
        default_factory=list,
        description="Ids of the roles that may mute, as JSON; the server's own id means every member; empty: nobody.",
    )
