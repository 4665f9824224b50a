"""The command `python -m prismline.describe`: what the workloads of this environment take, and what identifies them.

A deployment that installs workloads calls it: it fails if one of them cannot be imported, or if two have one name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from prismline.loading import describe, registered


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Prints a line of JSON for each workload. Returns 1 if one of them cannot be described."""
    parser = argparse.ArgumentParser(prog="python -m prismline.describe", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="registered workloads, or module:function; without any, all registered"
    )
    names = parser.parse_args(arguments).names or registered()
    failed = False
    for name in names:
        try:
            print(describe(name).model_dump_json())  # noqa: T201
        except Exception as error:
            failed = True
            print(f"{name} cannot be described: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
    if not names:
        print("No installed package registers a workload.", file=sys.stderr)  # noqa: T201
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
