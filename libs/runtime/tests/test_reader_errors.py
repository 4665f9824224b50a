"""The boundary of a reader: whatever parsing raises is a permanent error with one sentence, except errors of I/O and a
lack of memory.
"""

from __future__ import annotations

import builtins
import errno

import pytest
from botocore.exceptions import EndpointConnectionError

from prismline_runtime import PermanentError, UnavailableError, reader_errors

FAILED = "The cube cubes/c.fits cannot be split"
#: Exceptions of the standard library that take one text and are neither an outage of the network nor a lack of memory.
STANDARD = sorted(
    {
        kind
        for kind in vars(builtins).values()
        if isinstance(kind, type)
        and issubclass(kind, Exception)
        and not issubclass(kind, UnicodeError | BaseExceptionGroup | ConnectionError | TimeoutError | MemoryError)
    }
    | {UnicodeError},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", STANDARD)
def test_no_exception_of_the_standard_library_leaves_a_reader(kind: type[Exception]) -> None:
    with pytest.raises(PermanentError) as caught, reader_errors(FAILED):
        raise kind("bad\nbytes\x1b[2J \ud800 here.")
    output = str(caught.value)
    assert output.startswith(f"{FAILED}: ")
    assert output.endswith(".")
    assert not output.endswith("..")
    assert output.isprintable()


def test_a_long_or_empty_text_of_a_library_becomes_a_short_clause() -> None:
    with pytest.raises(PermanentError) as caught, reader_errors(FAILED):
        raise ValueError("x" * 100_000)
    assert len(str(caught.value)) < 300
    unnamed = pytest.raises(PermanentError, match=r"cannot be split: it is damaged \(AssertionError\)\.$")
    with unnamed, reader_errors(FAILED):
        raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("S3 is down."),
        OSError(errno.ENOSPC, "full"),
        ConnectionResetError(errno.ECONNRESET, ""),
        TimeoutError("timed out"),  # a socket's has no number
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        MemoryError("Unable to allocate 7.28 GiB"),
    ],
)
def test_errors_of_storage_and_network_and_a_lack_of_memory_pass_through(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, reader_errors(FAILED):
        raise error
    assert caught.value is error


def test_a_position_that_no_file_can_have_is_the_inputs_fault() -> None:
    with pytest.raises(PermanentError), reader_errors(FAILED):
        raise OSError(errno.EINVAL, "Invalid argument")
