"""A summary of each contract: what it says, who writes it, who reads it, and what each release changed.

`make schemas` writes `summaries.json`, which is a part of the package, from the registry and the models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

#: The file in the package.
FILE = "summaries.json"


#: The key in a history for the changes since the last release.
NEXT = "next"


class Kind(StrEnum):
    """Which releases have to understand each other. `contracts/registry/README.md` explains each kind."""

    MESSAGE = "message"
    ITEM = "item"
    OBJECT = "object"
    MANIFEST = "manifest"
    OUTPUT = "output"

    @property
    def read_by_old(self) -> bool:
        """Whether a reader of the last release reads what is written now."""
        return self is not Kind.MANIFEST

    @property
    def reads_old(self) -> bool:
        """Whether a current reader reads what the last release wrote."""
        return self is not Kind.OUTPUT


class Summary(BaseModel):
    """A contract: what it says, who writes and who reads it."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Kind
    says: str
    owner: str
    producers: list[str]
    consumers: list[str]
    #: The queue that a command is sent to, or `bus`. None: it is not a message.
    channel: str | None = None
    #: What each release changed, by its version, the earliest first; the changes since the last release under `next`.
    history: Mapping[str, str]


def read_summaries() -> list[Summary]:
    """The contracts of this version of the package, by name."""
    text = files("prismline_contracts").joinpath(FILE).read_text()
    return [Summary.model_validate(each) for each in json.loads(text)]
