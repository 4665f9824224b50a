"""Decides what the answer of a site means for a task: completed, failed, or when to try again. Pure: no client."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from prismline_contracts.tasks import TaskItem
from prismline_ledger import failures
from prismline_runtime import PermanentError, TransientError

#: Statuses besides 5xx after which the same request may succeed later: 408 Request Timeout and 425 Too Early.
AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY})
#: Wait, in seconds, after a 429 without `Retry-After`.
DEFAULT_WAIT_SECONDS = 30.0
#: Longest wait, in seconds, that a site may ask for. If it asks for more, the worker tries again after this time.
LONGEST_WAIT_SECONDS = 3600.0
#: Waits, in seconds, after the first and after the last failed attempt at a task. They double, with jitter.
FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS = 2.0, 300.0
#: A task whose site has answered 429 for this long is given up, although such answers use up no attempt.
THROTTLED_PATIENCE = timedelta(hours=24)


class ThrottledError(TransientError):
    """The site wants fewer requests. The attempt does not count against the task."""

    def __init__(self, message: str, *, wait: float) -> None:
        super().__init__(message, retry_after=round(wait))
        #: Seconds before the next request to this host.
        self.wait = wait


def check_status(status: int, retry_after: str | None, now: datetime) -> None:
    """Return if a response with this status is a result. Otherwise raise an error.

    Raises ThrottledError for a 429, and for a 503 with `Retry-After`; TransientError if a later try may succeed;
    PermanentError if the site refuses the request.
    """
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    message = f"The site answered {_name(status)}."
    wait = asked_wait(retry_after, now)
    if status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.SERVICE_UNAVAILABLE and wait is not None):
        raise ThrottledError(message, wait=DEFAULT_WAIT_SECONDS if wait is None else wait)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in AGAIN:
        raise TransientError(message)
    raise PermanentError(message)


def _name(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def asked_wait(retry_after: str | None, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header asks for, a number or a date; at most an hour. None if it is not valid."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        seconds = float(text[:12])
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return min(max(0.0, seconds), LONGEST_WAIT_SECONDS)


def backoff(failed_attempts: int) -> float:
    """Seconds until the next attempt at a task that had so many failed attempts, at least one."""
    longest = min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failed_attempts - 1, 30))
    return random.uniform(longest / 2, longest)


def given_up(task: TaskItem, error: TransientError, max_attempts: int, now: datetime) -> str | None:
    """Why a task that just failed with `error` gets no further attempt. None if it does.

    task: the task as it was at the start of the attempt.

    Only errors that the site caused count, this one included. Attempts that an outage, a dead worker or a second copy
    of the message used up do not: the dead-letter consumer gives such a task up, with the patience of a chunk.
    """
    if isinstance(error, ThrottledError):
        began = datetime.fromisoformat(task.first_started_at or task.created_at)
        if now - began < THROTTLED_PATIENCE:
            return None
        return f"{error} It has done so for {THROTTLED_PATIENCE.total_seconds() / 3600:.0f} hours."
    used = failures(task) + 1
    return f"{error} This was attempt {used} of {max_attempts}." if used >= max_attempts else None
