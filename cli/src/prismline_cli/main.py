"""The entry point of `prismline`. It imports nothing that Python has not loaded before it can answer ctrl-C."""

from __future__ import annotations

import os
import sys

#: The exit code after ctrl-C. `output.ExitCode` has the others; its import takes a part of a command's start.
INTERRUPTED = 130
_SAID = "Interrupted.\n"


def main() -> None:
    """Entry point of `prismline`. Ctrl-C ends it with one line, also during the imports and while it exits.

    Only while the command runs does ctrl-C raise KeyboardInterrupt, so that the command can clean up. A library that
    is being imported, or a destructor, may catch the exception, or print it and continue.
    """
    try:
        import signal  # noqa: PLC0415  see above

        signal.signal(signal.SIGINT, _leave)
        from prismline_cli.command_line import prepare  # noqa: PLC0415

        start = prepare(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            start()
        finally:
            signal.signal(signal.SIGINT, _leave)
    except KeyboardInterrupt:
        sys.stderr.write(_SAID)
        sys.exit(INTERRUPTED)


def _leave(_number: int, _frame: object) -> None:
    """End the process at once. Nothing has been written yet that would have to be deleted, or all of it has been."""
    os.write(2, _SAID.encode())
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
