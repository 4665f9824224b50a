"""The two families of errors, permanent and transient. Only this module maps errors of AWS to them.

Permanent: a retry cannot succeed. The chunk or run fails with the reason, or the message becomes a dead letter.
Transient: a later retry may succeed. If a resource is down, the retry waits until it is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError


class PrismlineError(Exception):
    """Base of both families. The message is one sentence that tells a person what to do or what is wrong."""


class PermanentError(PrismlineError):
    """A retry of the same work cannot succeed."""


class TransientError(PrismlineError):
    """A later retry of the same work may succeed."""

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        #: Seconds until the message is delivered again. None: the backoff decides.
        self.retry_after = retry_after


class UnavailableError(TransientError):
    """A dependency did not answer, or refused the request. The work itself is not to blame."""


class ResourceUnavailableError(UnavailableError):
    """A resource that the work needs is down. The message waits for it in the dead-letter queue."""

    def __init__(self, message: str, *, resource: str) -> None:
        super().__init__(message)
        #: The resource's name in the settings of the dead-letter consumer.
        self.resource = resource


class NewerReleaseError(PrismlineError):
    """The message, or the item that it names, is from a newer release. It waits in the DLQ for that release."""


#: Prefix of the SQS error codes that are older than its JSON protocol. Emulators omit it.
SQS_PREFIX = "AWS.SimpleQueueService."
#: Error codes of AWS for which a retry is useless: the object does not exist, or the request is invalid.
PERMANENT_CODES = frozenset(
    {
        "NoSuchKey",
        "404",
        "NotFound",
        "InvalidRange",
        "ValidationException",
        "InvalidParameterValue",
        "InvalidObjectState",
        "KeyTooLongError",
    }
)


def classify(error: Exception, doing: str) -> PrismlineError:
    """Map `error` to one of the two families. `doing` names the action in the message: "read s3://bucket/key"."""
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
    """Map errors of AWS and of the network in the block to `PermanentError` or `UnavailableError`.

    `doing` names the action in the message.
    """
    try:
        yield
    except (ClientError, BotoCoreError, HTTPError, OSError) as error:
        raise classify(error, doing) from error


def error_code(error: ClientError) -> str:
    """The error code, e.g. `ConditionalCheckFailedException`, without the prefix of SQS."""
    return error.response.get("Error", {}).get("Code", "").removeprefix(SQS_PREFIX)
