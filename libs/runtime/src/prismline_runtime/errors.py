"""The two families of errors, and the one place where what AWS throws is sorted into them.

Permanent: this will never work, so the chunk or run fails with the reason, or the message becomes a dead letter.
Transient: try again later; when a resource that is needed is down, once it is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError


class PrismlineError(Exception):
    """Base of both families. The message is one sentence that a person can act on."""


class PermanentError(PrismlineError):
    """Repeating the same work can only end the same way."""


class TransientError(PrismlineError):
    """Repeating the same work later may succeed."""

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        #: Seconds to wait before the message is delivered again; None leaves it to the backoff.
        self.retry_after = retry_after


class UnavailableError(TransientError):
    """Something that the work depends on did not answer, or refused: this says nothing about the work."""


class ResourceUnavailableError(UnavailableError):
    """A resource that the work needs is down: the message waits for it in the dead-letter queue."""

    def __init__(self, message: str, *, resource: str) -> None:
        super().__init__(message)
        #: Name of the resource, as the dead-letter consumer knows it.
        self.resource = resource


#: Error codes of AWS that no repetition mends: the thing is gone, or the request is wrong in itself.
PERMANENT_CODES = frozenset(
    {
        "NoSuchKey",
        "404",
        "NotFound",
        "InvalidRange",
        "ValidationException",
        "InvalidParameterValue",
        "InvalidObjectState",
    }
)


def classify(error: Exception, doing: str) -> PrismlineError:
    """The error of our own that `error` stands for; `doing` says what was attempted, as in "read s3://bucket/key"."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "Unknown")
        if code in {"NoSuchKey", "404", "NotFound"}:
            return PermanentError(f"Could not {doing}: it does not exist.")
        if code in PERMANENT_CODES:
            return PermanentError(f"Could not {doing}: {error.response['Error'].get('Message', code)}")
        return UnavailableError(f"Could not {doing}: {code}.")
    return UnavailableError(f"Could not {doing}: {error}")


@contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Turn what AWS and the way to it throw in the block into a `PermanentError` or `UnavailableError` that says what
    was attempted.
    """
    try:
        yield
    except (ClientError, BotoCoreError, HTTPError, OSError) as error:
        raise classify(error, doing) from error


def error_code(error: ClientError) -> str:
    """The code that AWS gave the error, e.g. `ConditionalCheckFailedException`."""
    return error.response.get("Error", {}).get("Code", "")
