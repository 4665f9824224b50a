"""Names and formats that the alerting service and the command line share: SSM parameters, mutes, slash commands."""

from __future__ import annotations

import re
from typing import Any

#: Value of the mute parameter while alerts are not muted.
NOT_MUTED = "0"
#: How long a mute lasts if the user gives no duration.
DEFAULT_MUTE = "1d"
#: Longest mute, in days. An alert that is unwanted for longer should be fixed, not muted.
MAX_MUTE_DAYS = 30

#: Names of the slash commands, and of the option of the mute command.
MUTE_COMMAND, UNMUTE_COMMAND = "mute-alerts", "unmute-alerts"
DURATION_OPTION = "duration"

_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+)([mhd])", re.ASCII)
#: A number with more digits than this (without leading zeros) is too long a mute in every unit.
_MAX_DIGITS = 9
#: Unix seconds. More than 12 digits cannot be a date that anybody means.
_MOMENT = re.compile(r"\d{1,12}", re.ASCII)
#: Type numbers of Discord's API: a slash command, an option that holds text.
_CHAT_INPUT, _STRING = 1, 3
#: Discord's context "in a server", as opposed to a direct message.
_GUILD = 0
#: Discord's permission "manage server", in the API's format. Members without it do not see the commands, unless an
#: administrator of the server allows it.
_MANAGE_SERVER = str(1 << 5)


class DurationError(ValueError):
    """The text is not a valid duration of a mute. The message is shown to the user who typed it."""


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as `30m`, `4h` or `2d`: `^(\\d+)(m|h|d)$`. Raises DurationError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise DurationError("A duration is a whole number and m, h or d, such as 30m, 4h or 2d.")
    digits = match[1].lstrip("0")
    if not digits:
        raise DurationError("A mute cannot last zero minutes. To end one, unmute the alerts.")
    if len(digits) > _MAX_DIGITS or int(digits) * _UNIT_SECONDS[match[2]] > MAX_MUTE_DAYS * _UNIT_SECONDS["d"]:
        raise DurationError(f"A mute lasts {MAX_MUTE_DAYS}d at most.")
    return int(digits) * _UNIT_SECONDS[match[2]]


def parse_muted_until(value: str) -> int:
    """Parse the mute parameter: the end of the mute, in Unix seconds. Raises ValueError for any other text."""
    if _MOMENT.fullmatch(value.strip()) is None:
        raise ValueError("The mute parameter does not hold unix seconds.")
    return int(value)


def muted_until_parameter(environment: str) -> str:
    """Name of the SSM parameter (String) that holds the end of the mute, in Unix seconds."""
    return f"/prismline/{environment}/alerts/dlq_muted_until"


def last_interaction_parameter(environment: str) -> str:
    """Name of the SSM parameter (String) that holds the id of the last slash command that was executed."""
    return f"/prismline/{environment}/alerts/last_interaction"


def webhook_url_parameter(environment: str) -> str:
    """Name of the SSM parameter (SecureString) that holds the URL of the Discord webhook."""
    return f"/prismline/{environment}/alerts/webhook_url"


def public_key_parameter(environment: str) -> str:
    """Name of the SSM parameter (String) that holds the public key of the Discord application, in hex."""
    return f"/prismline/{environment}/alerts/discord_public_key"


def slash_commands() -> list[dict[str, Any]]:
    """The slash commands in the format in which Discord's API registers them."""
    return [
        {
            "name": MUTE_COMMAND,
            "type": _CHAT_INPUT,
            "description": "Have Prismline post no alerts for a while.",
            "contexts": [_GUILD],
            "default_member_permissions": _MANAGE_SERVER,
            "options": [
                {
                    "name": DURATION_OPTION,
                    "type": _STRING,
                    "description": f"30m, 4h, 2d ...; {DEFAULT_MUTE} if left out, {MAX_MUTE_DAYS}d at most.",
                    "required": False,
                }
            ],
        },
        {
            "name": UNMUTE_COMMAND,
            "type": _CHAT_INPUT,
            "description": "Have Prismline post alerts again.",
            "contexts": [_GUILD],
            "default_member_permissions": _MANAGE_SERVER,
        },
    ]
