"""Fuzzes one target: child processes draw inputs and examine them; this process watches the children.

A child works on a batch. It writes each input to shared memory before it gives it to the target, so an input that ends
the process, or never ends, is known. A child reports a finding at once, the smallest input of it that hypothesis found.
"""

from __future__ import annotations

import hashlib
import importlib
import mmap
import multiprocessing
import resource
import signal
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from tests.fuzz.rule import Finding, examine, limited_memory
from tests.fuzz.target import Target

Engine = Literal["hypothesis", "atheris"]
#: Seconds of a batch, and of making a finding smaller.
BATCH_SECONDS, SHRINK_SECONDS = 60.0, 15.0
#: Processor seconds after which an input ends its process, and seconds without a new input after which a process hangs.
DEADLY_SECONDS, HANGING_SECONDS = 10, 120.0
#: A target is given up after so many inputs that ended their process, and after so many findings.
MOST_DEATHS, MOST_FINDINGS = 3, 20
#: Longest input.
MOST_INPUT_BYTES = 16 * 2**20
#: Folder of the inputs that broke the rule.
FINDINGS = Path(".fuzz")


@dataclass(frozen=True)
class Found:
    """A finding, and the file of its input."""

    finding: Finding
    path: Path


@dataclass(frozen=True)
class Report:
    """What fuzzing a target found."""

    target: str
    inputs: int
    seconds: float
    found: list[Found]


class Current:
    """Shared memory: the number of inputs that a child began, and the last one."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, MOST_INPUT_BYTES + 16)

    def begin(self, data: bytes) -> None:
        """Record the next input."""
        self._memory[16 : 16 + len(data)] = data
        self._memory[:16] = struct.pack("QQ", self.number + 1, len(data))

    @property
    def number(self) -> int:
        return int(struct.unpack("Q", self._memory[:8])[0])

    @property
    def data(self) -> bytes:
        return self._memory[16 : 16 + struct.unpack("Q", self._memory[8:16])[0]]


class EnoughError(BaseException):
    """The time of a batch, or of making a finding smaller, is over. Hypothesis does not catch it."""


class Batch:
    """Some inputs of a target, drawn and examined in a child process. `known`: kinds that are not reported again."""

    def __init__(self, target: Target, current: Current, reports: Connection, known: frozenset[str]) -> None:
        self._target = target
        self._current = current
        self._reports = reports
        self._known = set(known)
        self._smallest: tuple[Finding, bytes] | None = None
        self._end = 0.0

    def with_hypothesis(self, seed: int, seconds: float) -> None:
        """Draw inputs until the first new finding, and make it smaller."""
        self._end = time.monotonic() + seconds
        try:
            hypothesis.seed(seed)(self._test(self._find))()
        except EnoughError:
            pass
        except Exception:
            if self._smallest is None:
                raise
        if self._smallest is not None:
            self._reports.send(self._smallest)

    def with_atheris(self, seed: int, seconds: float) -> None:
        """Let coverage choose the bytes from which hypothesis draws the inputs. libFuzzer ends the process."""
        atheris = importlib.import_module("atheris")
        draw: Any = self._test(self._report)
        lengths = ["-max_len=8192", "-len_control=0"]  # hypothesis discards bytes that are too short for its draws
        options = [*lengths, f"-max_total_time={seconds:.0f}", f"-seed={seed}", "-rss_limit_mb=0", "-verbosity=0"]
        atheris.Setup(["fuzz", *options], draw.hypothesis.fuzz_one_input)
        atheris.Fuzz()

    def _test(self, take: Callable[[bytes], None]) -> Callable[[], None]:
        forever = settings(
            max_examples=10**9,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            print_blob=False,
        )
        test: Callable[[], None] = forever(given(self._target.inputs)(take))
        return test

    def _find(self, data: bytes) -> None:
        if time.monotonic() > self._end:
            raise EnoughError
        finding = self.examine(data)
        if finding is None or finding.kind in self._known:
            return
        if self._smallest is None:
            self._end = time.monotonic() + SHRINK_SECONDS
        if self._smallest is None or len(data) < len(self._smallest[1]):
            self._smallest = finding, data
        raise AssertionError(finding.kind)

    def _report(self, data: bytes) -> None:
        finding = self.examine(data)
        if finding is not None and finding.kind not in self._known:
            self._known.add(finding.kind)
            self._reports.send((finding, data))

    def examine(self, data: bytes) -> Finding | None:
        """Examine one input in this process, which ends if that takes much too long."""
        data = data[:MOST_INPUT_BYTES]
        self._current.begin(data)
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + 1 + DEADLY_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        return examine(self._target, data)


def fuzz(
    target: Target, seconds: float, seed: int, engine: Engine = "hypothesis", *, most: int = MOST_FINDINGS
) -> Report:
    """Fuzz a target for some seconds, or until there are `most` findings."""
    began = time.monotonic()
    inputs, deaths, found = 0, 0, dict[str, Found]()
    while (left := began + seconds - time.monotonic()) > 0 and deaths < MOST_DEATHS and len(found) < most:
        current = Current()
        findings, death = _run_batch(target, current, seed, min(left, BATCH_SECONDS), engine, frozenset(found))
        inputs, seed = inputs + current.number, seed + 1
        if death is not None:
            deaths += 1
            findings.append((Finding(f"death {deaths}", death), current.data))
        for finding, data in findings:
            found[finding.kind] = Found(finding, _kept(target, data))
    return Report(target.name, inputs, time.monotonic() - began, list(found.values()))


def _run_batch(
    target: Target, current: Current, seed: int, seconds: float, engine: Engine, known: frozenset[str]
) -> tuple[list[tuple[Finding, bytes]], str | None]:
    """Run a batch in a child process. Returns its findings, and how the process died if it did."""

    def work(reports: Connection) -> None:
        batch = Batch(target, current, reports, known)
        (batch.with_atheris if engine == "atheris" else batch.with_hypothesis)(seed, seconds)

    return in_child(target, current, work)


def examine_all(target: Target, inputs: Mapping[str, bytes]) -> dict[str, str]:
    """Examine some inputs in a child process. Returns what was found, by the name of the input."""
    current = Current()

    def work(reports: Connection) -> None:
        batch = Batch(target, current, reports, frozenset())
        for name, data in inputs.items():
            if finding := batch.examine(data):
                reports.send((name, finding.text))

    found, death = in_child(target, current, work)
    return dict(found) | ({list(inputs)[current.number - 1]: death} if death else {})


def in_child(target: Target, current: Current, work: Callable[[Connection], None]) -> tuple[list[Any], str | None]:
    """Call `work` in a child process with limits. Returns what it sent, and how the process died if it did."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        target.prepare()
        with limited_memory():
            work(theirs)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    theirs.close()
    sent: list[Any] = []
    number, since, hangs = -1, time.monotonic(), False
    with suppress(EOFError):  # the child has closed its end
        while not hangs:
            if ours.poll(1):
                sent.append(ours.recv())
            if current.number != number:
                number, since = current.number, time.monotonic()
            hangs = time.monotonic() - since > HANGING_SECONDS
    if hangs:
        child.kill()
    child.join()
    return sent, f"The process examined no new input for {HANGING_SECONDS:.0f} s." if hangs else _death(child.exitcode)


def _death(code: int | None) -> str | None:
    """How a process died that ended with `code`. None if it ended its work."""
    if not code:
        return None
    return f"The process died: {signal.Signals(-code).name}." if code < 0 else f"The process ended with {code}."


def _kept(target: Target, data: bytes) -> Path:
    """Write an input to the folder of findings."""
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / f"{target.name}-{hashlib.sha256(data).hexdigest()[:8]}"
    path.write_bytes(data)
    return path
