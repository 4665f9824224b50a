"""A summary of each contract, as the catalogue has it, for programs: the file is a part of the package.

`make schemas` writes `summaries.json` from the registry and the models, as it writes the catalogue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from prismline_contracts.registry import Kind

#: The file in the package.
FILE = "summaries.json"


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
