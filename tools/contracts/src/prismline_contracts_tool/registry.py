"""The registry: a folder for each contract and major version. `contracts/registry/README.md` says what is in it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismline_contracts.summaries import Kind

#: The folders of a checkout's `contracts`.
REGISTRY, RELEASED = "registry", "released"
#: The channel of events.
BUS = "bus"


@dataclass(frozen=True)
class Entry:
    """What the registry says about a contract."""

    kind: Kind
    owner: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    #: The queue that a command is sent to, or the bus. None: it is not a message.
    channel: str | None = None
    #: What each release changed, the earliest first.
    history: Mapping[str, str] = field(default_factory=dict)
    #: Properties that a reader may ignore, by their paths, and what the reader then does.
    ignorable: Mapping[str, str] = field(default_factory=dict)


#: What the command line prints, for scripts.
OUTPUT = Entry(Kind.OUTPUT, "cli", ("cli",), ("people",))


def read_registry(folder: Path) -> dict[str, Entry]:
    """The registry by contract name. Raises `ValueError` or `KeyError` if an entry is incomplete."""
    return {path.parent.name: read_entry(path.read_text()) for path in sorted(folder.glob("*/contract.toml"))}


def read_entry(text: str) -> Entry:
    """The entry in a `contract.toml`."""
    entry = tomllib.loads(text)
    return Entry(
        Kind(entry["kind"]),
        entry["owner"],
        tuple(entry["producers"]),
        tuple(entry["consumers"]),
        entry.get("channel"),
        entry["history"],
        entry.get("ignorable", {}),
    )


def read_example(folder: Path, name: str) -> Any:
    """The example of a contract. None: it has none, because it is not JSON."""
    path = folder / name / "example.json"
    return json.loads(path.read_text()) if path.exists() else None
