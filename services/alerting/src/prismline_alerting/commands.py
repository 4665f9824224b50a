"""Parses the slash commands that Discord sends, and decides what they ask for. Pure.

Source: Discord's developer documentation, "Receiving and Responding".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from prismline_contracts.alerts import (
    DEFAULT_MUTE,
    DURATION_OPTION,
    MUTE_COMMAND,
    UNMUTE_COMMAND,
    DurationError,
    parse_duration,
)

#: Types of interactions.
PING, APPLICATION_COMMAND = 1, 2
#: Types of answers to them.
PONG, CHANNEL_MESSAGE = 1, 4
#: Flag of a message that only the author of the command sees.
EPHEMERAL = 64

_Snowflake = Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]


class _Option(BaseModel):
    name: str
    value: Any = None


class _Data(BaseModel):
    name: str
    options: list[_Option] = []


class _Member(BaseModel):
    roles: list[str] = []


class Interaction(BaseModel):
    """The fields of Discord's interaction that this service uses."""

    id: _Snowflake
    type: int
    data: _Data | None = None
    guild_id: str | None = None
    #: Only present in a server, not in direct messages.
    member: _Member | None = None

    @property
    def number(self) -> int:
        """The id as a number. It grows with time, because ids begin with a timestamp."""
        return int(self.id)


@dataclass(frozen=True)
class Authority:
    """Who may mute alerts: members of one Discord server that have one of some roles. Nobody, unless both are set."""

    guild_id: str | None
    #: Ids of roles. The id of the server is the role that every member has.
    roles: frozenset[str]

    def refusal(self, interaction: Interaction) -> str | None:
        """Tells the author why they may not give this command. None if they may."""
        if not self.guild_id or not any(self.roles):
            return "Nobody may mute alerts here yet: DISCORD_GUILD_ID and DISCORD_ALLOWED_ROLES are not set."
        if interaction.guild_id != self.guild_id or interaction.member is None:
            return "Alerts can only be muted from the team's own Discord server."
        if self.roles.isdisjoint({*interaction.member.roles, self.guild_id}):
            return "You do not have a role that may mute alerts. Ask somebody who has one, or an administrator."
        return None


@dataclass(frozen=True)
class Mute:
    """Mute alerts until `until`, in Unix seconds."""

    until: int
    duration: str


@dataclass(frozen=True)
class Unmute:
    """Post alerts again."""


@dataclass(frozen=True)
class Refuse:
    """Do nothing, and tell the author of the command why."""

    why: str


def decide(interaction: Interaction, signed_at: datetime, authority: Authority) -> Mute | Unmute | Refuse:
    """Decide what a slash command asks for.

    A mute starts at the time at which Discord signed the command, so a repeated request does not move its end.
    """
    if (why := authority.refusal(interaction)) is not None:
        return Refuse(why)
    data = interaction.data
    options = {option.name: option.value for option in data.options} if data else {}
    if data is not None and data.name == MUTE_COMMAND and set(options) <= {DURATION_OPTION}:
        duration = options.get(DURATION_OPTION, DEFAULT_MUTE)
        try:
            seconds = parse_duration(duration if isinstance(duration, str) else "")
        except DurationError as error:
            return Refuse(str(error))
        return Mute(int(signed_at.timestamp()) + seconds, str(duration).lstrip("0"))
    if data is not None and data.name == UNMUTE_COMMAND and not options:
        return Unmute()
    return Refuse(
        f"Prismline knows /{MUTE_COMMAND} with an optional {DURATION_OPTION}, and /{UNMUTE_COMMAND}."
        " If Discord offers something else, register the commands again."
    )


def answer(text: str, *, only_to_author: bool = False) -> dict[str, Any]:
    """An answer in the channel, or only for the author of the command."""
    data: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": []}}
    return {"type": CHANNEL_MESSAGE, "data": data | ({"flags": EPHEMERAL} if only_to_author else {})}
