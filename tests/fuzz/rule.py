"""The rule: every input gives a result or a refusal of one sentence, within limits of processor time and memory."""

from __future__ import annotations

import resource
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import Target

#: Most processor seconds, and most bytes of additional memory, that an input may take.
MOST_SECONDS, MOST_BYTES = 2.0, 300 * 10**6
#: Bytes of additional memory at which an allocation fails, so that a finding does not take the machine's memory.
HARD_BYTES = 2**30
#: Longest text of a refusal, in characters.
LONGEST_SENTENCE = 600
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Finding:
    """An input that broke the rule. Findings of one kind have the same cause; `text` says what happened."""

    kind: str
    text: str


def examine(target: Target, data: bytes) -> Finding | None:
    """Give one input to a target. An input that took too long is given a second time, because machines pause."""
    finding = _examine_once(target, data)
    return _examine_once(target, data) if finding and finding.kind == "time" else finding


def _examine_once(target: Target, data: bytes) -> Finding | None:
    before = _start_of_peak()
    began = time.process_time()
    finding = _outcome(target, data)
    seconds, grown = time.process_time() - began, _status("VmHWM") - before
    if grown > MOST_BYTES:
        return Finding("memory", f"It took {grown // 10**6} MB of additional memory.")
    if seconds > MOST_SECONDS:
        return Finding("time", f"It took {seconds:.1f} s of processor time.")
    return finding


def _outcome(target: Target, data: bytes) -> Finding | None:
    try:
        refusal = target.run(data)
    except target.refuses_with as error:
        refusal = str(error)
    except Exception as error:
        place = _place(error)
        text = "".join(traceback.format_exception_only(error)).strip()
        return Finding(f"{type(error).__name__} at {place}", f"{text[:LONGEST_SENTENCE]} (at {place})")
    problem = None if refusal is None else sentence_problem(refusal)
    return Finding(problem, f"{problem}: {refusal!r:.2000}") if problem else None


def sentence_problem(text: str) -> str | None:
    """Why `text` is not a sentence for a person. None if it is one."""
    if not text.strip():
        return "an empty refusal"
    if len(text) > LONGEST_SENTENCE:
        return "a refusal that is too long"
    if not text.isprintable():
        return "a refusal with control characters or several lines"
    if "Traceback" in text:
        return "a refusal with a traceback"
    return None


def _place(error: Exception) -> str:
    """The innermost line of this repository that `error` passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(str(_ROOT)) and "/.venv/" not in frame.filename]
    last = (own or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let allocations fail in the block once the process has `HARD_BYTES` more than now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + HARD_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _start_of_peak() -> int:
    """Let the kernel measure the peak of resident memory anew. Returns the resident memory now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
