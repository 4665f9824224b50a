"""Follow a recovery."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prismline_cli.output import CommandError, ExitCode, fail, stderr
from prismline_client import ApiError, Client, Recovery

#: Seconds between two polls of a recovery.
POLL_SECONDS = 0.5


def find_operation(client: Client, operation_id: str) -> Recovery:
    """The recovery with this id, which has begun. Ends the command with the reason if there is none."""
    try:
        recovery = client.recovery(operation_id)
    except ApiError as error:
        if error.status == 404:
            fail(f"There is no recovery operation {operation_id}.")
        raise
    if recovery.status == "pending":
        fail(f"Recovery {operation_id} has not begun.")
    return recovery


def wait_for_operation(client: Client, operation_id: str) -> Recovery:
    """Wait until the recovery has ended, and return it. Its progress is shown on standard error."""
    with stderr.status("waiting for the recovery to begin") as status:
        while (recovery := client.recovery(operation_id)).status != "completed":
            if recovery.status != "pending":
                status.update(progress_of(recovery))
            time.sleep(POLL_SECONDS)
    return recovery


@contextmanager
def looking_again(operation_id: str) -> Iterator[None]:
    """If the wait ends before the recovery does, say that the recovery continues and how to check it."""
    again = f"Recovery {operation_id} continues. Check it with `prismline deadletters operation {operation_id}`."
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError(f"Stopped waiting. {again}", ExitCode.INTERRUPTED) from None
    except ApiError as error:
        raise CommandError(f"Lost the connection to Prismline: {error} {again}", ExitCode.UNREACHABLE) from error


def progress_of(operation: Recovery) -> str:
    """The progress of a recovery, in one line."""
    if not operation.n_sent:
        return f"{operation.n_records} records read"
    return (
        f"{operation.n_sent} messages sent back: {operation.n_recovered} done, {operation.n_failed} failed;"
        " waiting for the chunks of the others to end"
    )
