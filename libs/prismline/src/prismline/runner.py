"""The process that runs a function: `python -m prismline.runner NAME [--path FOLDER]`, in the author's environment.

It reads requests from its standard input and writes replies to its standard output (`prismline.protocol`). The function
gets an empty standard input, and what it prints goes to standard error. The supervisor kills this process when an item
goes beyond a limit, so nothing here has to survive the function.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prismline import usage
from prismline.loading import describe, load
from prismline.protocol import (
    MAX_BATCH_BYTES,
    BatchDone,
    BatchRequest,
    Description,
    Done,
    Entry,
    Failed,
    FinalRequest,
    Ready,
    Refused,
    Request,
    Usage,
)
from prismline.results import Results
from prismline.schemas import InvalidValueError
from prismline.values import NotJsonError, TooLargeError, WrongCountError, decode, encode
from prismline.workload import Context, Limits, Verdict, Workload

#: Seconds that the supervisor has to kill the process after the deadline. Then it ends itself: its supervisor is dead.
GRACE = 5.0
#: Address space in units of the memory limit. A library may reserve more than it uses.
DATA_PER_MEMORY = 2
#: Longest text of an error and of a traceback, in characters.
MAX_ERROR, MAX_TRACEBACK = 1000, 8000
MIB = 2**20
#: prctl(2): the descendants of this process stay its descendants when their parents end.
PR_SET_CHILD_SUBREAPER = 36


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="prismline.runner", description="Runs a workload for its supervisor.")
    parser.add_argument("name", help="a registered workload, or module:function")
    parser.add_argument("--path", action="append", default=[], help="a folder that modules are imported from")
    options = parser.parse_args(arguments)
    requests, replies = _take_streams()
    sys.path[:0] = options.path
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        work, description = load(options.name), describe(options.name)
    except BaseException as error:
        _write(replies, Refused(error=_sentence(error), error_type=_type_name(type(error))).model_dump_json())
        return 1
    _limit(work.limits)
    _write(replies, Ready(description=description, usage=usage.own()).model_dump_json())
    _serve(work, description, requests, replies)
    return 0


def _serve(work: Workload[..., Any], description: Description, requests: int, replies: int) -> None:
    pid = os.getpid()
    for line in _lines(requests):
        document = decode(line)
        if "entries" in document:
            reply = attempt_batch(work, description.limits, BatchRequest.model_validate(document))
        elif "results" in document:
            reply = attempt_final(work, description.limits, FinalRequest.model_validate(document))
        else:
            reply = attempt(work, description.limits, Request.model_validate(document))
        if os.getpid() != pid:
            os._exit(0)  # the function has forked, and this is the copy: the original answers
        _write(replies, reply)


def attempt(work: Workload[..., Any], limits: Limits, request: Request) -> str:
    """Run the function on one item. Returns the reply as JSON."""
    return _attempt(work, limits, request.item_id, lambda start: _call(work, request, start))


def attempt_batch(work: Workload[..., Any], limits: Limits, request: BatchRequest) -> str:
    """Run a vectorized function on several items. Returns the reply as JSON."""
    return _attempt(work, limits, request.entries[0].item_id, lambda start: _call_batch(work, request, start))


def attempt_final(work: Workload[..., Any], limits: Limits, request: FinalRequest) -> str:
    """Run the function of `finalize`. Returns the reply as JSON."""
    context = Context(request.item_id, request.attempt, request.deadline)

    def call(start: float) -> str:
        value = work.call_finalizer(Results(Path(request.results)), request.parameters, context)
        return _done(request.item_id, encode(value), start)

    return _attempt(work, limits, request.item_id, call)


def _attempt(work: Workload[..., Any], limits: Limits, item_id: str, call: Callable[[float], str]) -> str:
    start = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, limits.timeout + GRACE)
    try:
        reply = call(start)
    except BaseException as error:
        reply = _failure(work, item_id, error, start)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    return reply


def _call(work: Workload[..., Any], request: Request, start: float) -> str:
    if work.vectorized:
        entry = Entry(item=request.item, item_id=request.item_id, attempt=request.attempt)
        [value] = _values(work, [entry], request)
        return _done(request.item_id, encode(value), start)
    arguments = work.arguments
    item, parameters = arguments.item_of(request.item), arguments.parameters_of(request.parameters)
    if arguments.context:
        parameters[arguments.context] = Context(request.item_id, request.attempt, request.deadline)
    return _done(request.item_id, encode(work.function(item, **parameters)), start)


def _done(item_id: str, text: str, start: float) -> str:
    done = Done(item_id=item_id, value=None, duration_ms=_since(start), usage=_usage())
    return f'{done.model_dump_json(exclude={"value"})[:-1]},"value":{text}}}'


def _call_batch(work: Workload[..., Any], request: BatchRequest, start: float) -> str:
    texts = [encode(each) for each in _values(work, request.entries, request)]
    if (size := sum(map(len, texts))) > MAX_BATCH_BYTES:
        raise TooLargeError(f"The values of the batch have {size:,} bytes, more than {MAX_BATCH_BYTES:,}.")
    done = BatchDone(item_id=request.entries[0].item_id, values=[], duration_ms=_since(start), usage=_usage())
    return f'{done.model_dump_json(exclude={"values"})[:-1]},"values":[{",".join(texts)}]}}'


def _values(work: Workload[..., Any], entries: Sequence[Entry], request: Request | BatchRequest) -> Sequence[Any]:
    """The values of a vectorized function. Raises WrongCountError if there is not one for each item."""
    arguments = work.arguments
    items, parameters = [arguments.item_of(each.item) for each in entries], arguments.parameters_of(request.parameters)
    if arguments.context:
        parameters[arguments.context] = [Context(each.item_id, each.attempt, request.deadline) for each in entries]
    values = work.function(items, **parameters)
    if not isinstance(values, list | tuple) or len(values) != len(entries):
        found = (
            f"{len(values)} values" if isinstance(values, list | tuple) else f"a value of type {type(values).__name__}"
        )
        raise WrongCountError(
            f"The function returned {found} for {len(entries)} items. A vectorized function returns a list with a value"
            " for each item."
        )
    return values


def _failure(work: Workload[..., Any], item_id: str, error: BaseException, start: float) -> str:
    own = isinstance(error, InvalidValueError | NotJsonError | TooLargeError | WrongCountError)
    verdict = Verdict(permanent=True, attempts=1, delay=0.0) if own else work.judge(error)
    return Failed(
        item_id=item_id,
        error=_sentence(error),
        error_type=f"prismline.{type(error).__name__.removesuffix('Error')}" if own else _type_name(type(error)),
        traceback="" if own else _traceback(error),
        permanent=verdict.permanent,
        attempts=verdict.attempts,
        delay=verdict.delay,
        starved=_is_starved(error),
        duration_ms=_since(start),
        usage=_usage(),
    ).model_dump_json()


def _is_starved(error: BaseException | None) -> bool:
    while error is not None:
        codes = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in codes):
            return True
        error = error.__cause__ or error.__context__
    return False


def _usage() -> Usage:
    try:
        return usage.own()
    except OSError:
        return Usage(memory=0, files=resource.getrlimit(resource.RLIMIT_NOFILE)[0], children=0)


def _limit(limits: Limits) -> None:
    """Set the limits that the kernel enforces. The supervisor enforces time, memory and processes."""
    _lower(resource.RLIMIT_DATA, limits.memory * MIB * DATA_PER_MEMORY)
    _lower(resource.RLIMIT_NOFILE, limits.files)
    _lower(resource.RLIMIT_CORE, 0)
    with suppress(OSError):
        # If the machine has no memory left, the kernel ends this process and not the supervisor.
        os.write(fd := os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"1000")
        os.close(fd)


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _take_streams() -> tuple[int, int]:
    """Keep the two ends of the protocol for this module, and give the function others. A child process gets neither."""
    requests, replies = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return requests, replies


def _lines(requests: int) -> Iterator[bytes]:
    with open(requests, "rb", closefd=False) as lines:
        yield from lines


def _write(replies: int, line: str) -> None:
    data = memoryview(line.encode() + b"\n")
    while data:
        data = data[os.write(replies, data) :]


def _since(start: float) -> int:
    return round((time.monotonic() - start) * 1000)


def _sentence(error: BaseException) -> str:
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    return _printable(text or "no message")[:MAX_ERROR]


def _printable(text: str) -> str:
    """The text without halves of surrogate pairs, which names of files may have."""
    return text.encode(errors="backslashreplace").decode()


def _traceback(error: BaseException) -> str:
    with suppress(Exception):  # for instance a RecursionError while it is written
        frames = traceback.TracebackException.from_exception(error, limit=-20)
        return _printable("".join(frames.format()))[-MAX_TRACEBACK:]
    return ""


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").replace("prismline.errors.", "prismline.")


if __name__ == "__main__":
    sys.exit(main())
