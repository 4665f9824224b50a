"""The command `python -m prismline.check NAME ITEMS`: can this function be run over this list?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from prismline.sources import Row, read_jsonl
from prismline.testing import Report, examine
from prismline.values import NotJsonError, decode

#: Items that are checked unless more are asked for.
ITEMS = 100
#: Findings and rejected rows that are printed.
PRINTED = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns 0 if nothing was found, 1 if something was, 2 if the arguments cannot be used."""
    options = _options().parse_args(arguments)
    if not options.items.is_file():
        print(f"{options.items} is not a file.", file=sys.stderr)  # noqa: T201
        return 2
    rows = _first(options.items, options.max_items)
    items = [row for row in rows if not row.rejected]
    report = examine(
        options.name,
        [row.item for row in items],
        params=dict(options.param),
        python=options.python,
        paths=[os.getcwd()],  # noqa: PTH109  as `python -m` does
        variables=options.env,
    )
    lines = _summary(report, rows, items)
    print("\n".join(lines))  # noqa: T201
    return 1 if report.findings or len(items) < len(rows) or not items else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m prismline.check", description=__doc__)
    parser.add_argument("name", help="a registered workload, or module:function of the present folder")
    parser.add_argument("items", type=Path, help="a file with one JSON value a line")
    parser.add_argument("--param", action="append", default=[], type=_param, metavar="NAME=VALUE", help="a parameter")
    parser.add_argument("--max-items", type=int, default=ITEMS, help=f"rows to check, from the first (default {ITEMS})")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of another environment")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME", help="an environment variable that the function gets"
    )
    return parser


def _param(text: str) -> tuple[str, Any]:
    """A parameter as JSON, or as text if it is none."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    try:
        return name, decode(value)
    except NotJsonError:
        return name, value


def _first(path: Path, count: int) -> list[Row]:
    return list(islice(read_jsonl(path), count))


def _summary(report: Report, rows: Sequence[Row], items: Sequence[Row]) -> list[str]:
    rejected = [f"row {row.index}: {row.rejected}" for row in rows if row.rejected]
    found = [
        str(each) if each.item is None else f"row {items[each.item].index}: {each.text}" for each in report.findings
    ]
    lines = [*rejected[:PRINTED], *found[:PRINTED]]
    if (more := len(rejected) + len(found) - len(lines)) > 0:
        lines.append(f"... and {more} more")
    if not items:
        return [*lines, "There is no item to check."]
    completed = [each for each in report.outcomes if each.status == "completed"]
    failed = len(report.outcomes) - len(completed)
    if report.description is not None:
        times = sorted(each.duration_ms for each in report.outcomes)
        lines.append(
            f"{report.description.name} (code {report.description.code[:12]}): {len(items)} items, {failed} failed, "
            f"{len(rejected)} rows rejected; median {times[len(times) // 2]} ms, longest {times[-1]} ms"
        )
    count = len(rejected) + len(found)
    return [*lines, f"{count} {'finding' if count == 1 else 'findings'}." if count else "Nothing was found."]


if __name__ == "__main__":
    sys.exit(main())
