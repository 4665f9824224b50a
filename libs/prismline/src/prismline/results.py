"""The results of a run, as the function of `finalize` gets them: from a file with one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prismline.values import decode, to_json


@dataclass(frozen=True)
class Result:
    """What became of an item."""

    #: Its position in the list, from 0.
    index: int
    item: Any
    status: Literal["completed", "failed"]
    #: What the function returned, if the item is completed.
    value: Any = None
    #: Why it failed, and the class of the error.
    error: str | None = None
    error_type: str | None = None
    attempts: int = 1
    duration_ms: int | None = None


class Results:
    """The results in the order of the list. Each iteration reads them again, one at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Result]:
        with self._path.open("rb") as lines:
            for line in lines:
                yield Result(**decode(line))


def result_line(result: Result, *, item: str | None = None, value: str | None = None) -> bytes:
    """The line of a result. item, value: JSON texts that replace those of the result."""
    fields = {name: to_json(each) for name, each in vars(result).items()}
    fields |= {name: text for name, text in (("item", item), ("value", value)) if text is not None}
    return ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}\n").encode()
