"""A function over a list: how items become a source, and the run as its caller sees it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismline_client.errors import ApiError
from prismline_client.models import Recovery, Run, Task

if TYPE_CHECKING:
    from prismline_client.client import Client

#: Most items, and most characters of them, in the request itself. A longer list is uploaded.
INLINE_ITEMS, INLINE_CHARACTERS = 1000, 2**20
#: Formats of files by the end of their names. Any other file has one JSON value a line.
FORMATS = {".csv": "csv", ".parquet": "parquet"}


class FunctionRun:
    """The run of a function over a list.

    run = client.map("measure", [{"path": "a.fits"}, {"path": "b.fits"}])
    run.wait()
    values = [row.value for row in run.rows()]
    """

    def __init__(self, client: Client, run_id: str) -> None:
        self.client = client
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"FunctionRun({self.run_id!r})"

    def state(self) -> Run:
        """The run as it is now, with its progress."""
        return self.client.run(self.run_id)

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has ended, and return it. Raises TimeoutError after `timeout` seconds."""
        return self.client.wait(self.run_id, timeout=timeout)

    def rows(self) -> Iterator[Task]:
        """A row for each item, in the order of the list. A row has `item`, `status`, `value` and `error`."""
        yield from sorted(self.client.tasks(self.run_id), key=lambda row: row.index)

    def failures(self) -> Iterator[Task]:
        """The rows of items that failed, in no particular order."""
        return self.client.tasks(self.run_id, status="failed")

    def retry(self, *, code: str | None = None) -> Recovery:
        """Send the failed items to be tried again. Then `wait` waits for their end. code: `latest` for the newest."""
        return self.client.wait_for_recovery(self.client.retry(self.run_id, code=code))

    def cancel(self) -> None:
        """Cancel the run. Items that have not started are skipped."""
        self.client.cancel(self.run_id)


def job_name(function: str) -> str:
    """The name of a function's jobs: that of the function, with the characters that a name may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", function.rpartition(":")[2]).strip("-._")[:64] or "map"


def row_format(file: Path) -> str:
    """How the rows of a file are written, by its name."""
    return FORMATS.get(Path(file.name.removesuffix(".gz")).suffix.lower(), "jsonl")


@contextmanager
def source_of(items: Iterable[Any] | Path | str) -> Iterator[dict[str, Any] | Path]:
    """The source of a job with a few items, or the file of a longer list. Raises ApiError for an empty one."""
    if isinstance(items, Path | str):
        file = Path(items)
        if not file.is_file() or not file.stat().st_size:
            raise ApiError(f"{file} is empty, or no file.", 422)
        yield file
        return
    left = iter(items)
    first = list(islice(left, INLINE_ITEMS + 1))
    if not first:
        raise ApiError("The list has no items.", 422)
    lines = [_line(item) for item in first]
    if len(first) <= INLINE_ITEMS and sum(map(len, lines)) <= INLINE_CHARACTERS:
        yield {"kind": "inline", "items": first}
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "items.jsonl"
        with file.open("w", encoding="utf-8") as writer:
            writer.writelines(chain(lines, map(_line, left)))
        yield file


def _line(item: Any) -> str:
    try:
        return json.dumps(item, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ApiError(f"The item {item!r:.80} is not a value that JSON has: {error}.", 422) from error
