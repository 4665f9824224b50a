"""The entry point of `prismline`. It imports nothing of the package before it can answer ctrl-C."""

from __future__ import annotations

import sys

#: The exit code after ctrl-C. `output.ExitCode` has the others; its import takes a part of a command's start.
INTERRUPTED = 130


def main() -> None:
    """Entry point of `prismline`. Ctrl-C during the imports ends it like ctrl-C in a command."""
    try:
        from prismline_cli.command_line import start  # noqa: PLC0415  see above

        start()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
