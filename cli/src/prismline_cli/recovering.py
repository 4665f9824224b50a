"""Request a recovery of archived dead letters, and follow it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from prismline_cli.connection import Connection
from prismline_cli.finding import match
from prismline_cli.output import CommandError, ExitCode, stderr
from prismline_client import ApiError, Recovery
from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.deadletters import OPERATION_SK, DeadlettersRecover, RecoveryOperationItem
from prismline_contracts.envelope import Envelope
from prismline_ledger import Operations
from prismline_runtime import TransientError

#: A recovery as the ledger has it, or as the API shows it.
AnyRecovery = TypeVar("AnyRecovery", RecoveryOperationItem, Recovery)

#: Seconds between two polls of a recovery.
POLL_SECONDS = 0.5


def request_recovery(connection: Connection, *, prefix: str, run_id: str | None, dry_run: bool) -> str:
    """Send the command. Return the id of the operation."""
    operation_id = f"recovery-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    request = DeadlettersRecover(
        operation_id=operation_id, prefix=prefix, only_run=run_id, dry_run=dry_run, requested_at=timestamp()
    )
    transport = connection.transport
    message = Envelope.wrap(request, source=transport.source, traceparent=None, key=(operation_id,))
    transport.send(Queue.RECOVERIES, [message])
    return operation_id


def load_operation(connection: Connection, operation_id: str) -> RecoveryOperationItem | None:
    """The item of the operation. None until a consumer has begun it."""
    return Operations(connection.dynamodb, connection.runs_table).get(operation_id)


def operation_ids(connection: Connection) -> Iterator[str]:
    """The ids of all recoveries, by a scan of the ledger. It is only used to complete an abbreviated id."""
    pages = connection.dynamodb.get_paginator("scan").paginate(
        TableName=connection.runs_table,
        FilterExpression="SK = :operation",
        ExpressionAttributeValues={":operation": {"S": OPERATION_SK}},
        ProjectionExpression="PK",
    )
    for page in pages:
        for item in page["Items"]:
            yield item["PK"]["S"]


def find_operation(connection: Connection, given: str) -> str:
    """The id of the recovery that `given` names."""
    if given and load_operation(connection, given) is not None:
        return given
    return match(given, operation_ids(connection), what="recovery operation")


def begun(recovery: Recovery) -> Recovery | None:
    """The recovery, or None if no consumer has begun it."""
    return None if recovery.status == "pending" else recovery


def wait_for_operation(load: Callable[[], AnyRecovery | None]) -> AnyRecovery:
    """Wait until the operation has ended, and return it. Its progress is shown on standard error."""
    with stderr.status("waiting for the recovery to begin") as status:
        while True:
            operation = load()
            if operation is not None:
                if operation.status.upper() == "COMPLETED":
                    return operation
                status.update(progress_of(operation))
            time.sleep(POLL_SECONDS)


@contextmanager
def looking_again(operation_id: str) -> Iterator[None]:
    """If the wait ends before the recovery does, say that the recovery continues and how to check it."""
    again = f"Recovery {operation_id} continues. Check it with `prismline deadletters operation {operation_id}`."
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError(f"Stopped waiting. {again}", ExitCode.INTERRUPTED) from None
    except (ApiError, TransientError, ClientError, BotoCoreError, HTTPError) as error:
        raise CommandError(f"Lost the connection to Prismline: {error} {again}", ExitCode.UNREACHABLE) from error


def progress_of(operation: RecoveryOperationItem | Recovery) -> str:
    """The progress of a recovery, in one line."""
    if not operation.n_sent:
        return f"{operation.n_records} records read"
    return (
        f"{operation.n_sent} messages sent back: {operation.n_recovered} done, {operation.n_failed} failed;"
        " waiting for the chunks of the others to end"
    )
