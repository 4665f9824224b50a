"""The two families of errors, permanent and transient. Only this module maps errors of AWS to them.

Permanent: a retry cannot succeed. The chunk or run fails with the reason, or the message becomes a dead letter.
Transient: a later retry may succeed. If a resource is down, the retry waits until it is up.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError
from urllib3.exceptions import HTTPError

#: Most characters of an error's message.
LONGEST_MESSAGE = 600


class PrismlineError(Exception):
    """Base of both families. The message is one sentence that tells a person what to do or what is wrong.

    The message is made one short line, because it may quote names from outside, such as keys and headers.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


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


#: What clients raise if a dependency does not answer.
_OUTAGES = (BotoConnectionError, HTTPClientError, HTTPError, ConnectionError, TimeoutError)
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

#: Most characters of a library's error text that a sentence of ours quotes. Libraries quote values of any length.
LONGEST_CAUSE = 200
#: Numbers of an OSError for which the input is to blame and not the disk: it named a position that no file can have.
INPUT_ERRNOS = frozenset({None, errno.EINVAL, errno.EOVERFLOW})


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


def one_line(text: str) -> str:
    """`text` with escapes in place of characters that cannot be printed, such as line ends, and without a long rest."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 3]}..."


@contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Map errors of AWS and of the network in the block to `PermanentError` or `UnavailableError`.

    `doing` names the action in the message.
    """
    try:
        yield
    except (ClientError, BotoCoreError, HTTPError, OSError) as error:
        raise classify(error, doing) from error


@contextmanager
def reader_errors(failed: str) -> Iterator[None]:
    """The boundary of a reader of bytes from outside: map whatever their parsing raises to `PermanentError`.

    `failed` begins the sentence and names what is read: "The cube cubes/c.fits cannot be split". Prismline's own
    errors, errors of the disk, the network and AWS, and a lack of memory pass through: the next try may succeed. A
    parser should check its input before it allocates memory for it, and its sentence says what to do. This boundary
    maps the errors that no check has foreseen.
    """
    try:
        yield
    except (PrismlineError, ClientError, BotoCoreError, MemoryError, *_OUTAGES):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in INPUT_ERRNOS:
            raise
        raise PermanentError(f"{failed}: {cause_of(error)}.") from error


def cause_of(error: Exception) -> str:
    """What an error of a library says, as one clause of a sentence: in one printable line of bounded length."""
    if isinstance(error, RecursionError):
        return "its parts are nested too deeply"
    text = one_line(" ".join(str(error)[: 4 * LONGEST_CAUSE].split())).rstrip(".")
    if len(text) > LONGEST_CAUSE:
        text = f"{text[:LONGEST_CAUSE]}..."
    return text or f"it is damaged ({type(error).__name__})"


def is_unexpected(error: Exception) -> bool:
    """Whether no author of a service foresaw `error`: it is of neither family, and no outage of AWS or the network."""
    if isinstance(error, ClientError):
        return isinstance(classify(error, "call AWS"), PermanentError)
    return not isinstance(error, (PrismlineError, *_OUTAGES))


def error_code(error: ClientError) -> str:
    """The error code, e.g. `ConditionalCheckFailedException`, without the prefix of SQS."""
    return error.response.get("Error", {}).get("Code", "").removeprefix(SQS_PREFIX)
