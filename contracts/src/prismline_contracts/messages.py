"""All messages: the model of `data` by message type."""

from __future__ import annotations

from pydantic import BaseModel

from prismline_contracts.commands import COMMANDS
from prismline_contracts.events import EVENTS

#: The model of `data`, by message type.
MESSAGES: dict[str, type[BaseModel]] = {message.TYPE: message for message in (*COMMANDS, *EVENTS)}
