"""Runs items one after the other in a runner process, and replaces the process when an item has spoilt it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from prismline.process import MIB, PYTHON, RunnerLostError, RunnerProcess
from prismline.protocol import (
    MAX_BATCH_BYTES,
    MAX_LINE_BYTES,
    VERSION,
    BatchDone,
    Description,
    Done,
    Entry,
    Failed,
    Ready,
    Refused,
    Usage,
    read_reply,
)
from prismline.values import to_json
from prismline.workload import Limits, Retry

#: Seconds that the import of a workload may take: large libraries load for half a minute from a cold disk.
START_TIMEOUT = 120.0
#: Open files that an item may add to its runner, for instance connections that a library keeps.
FILES_KEPT = 64
#: Longest answer to a batch, in bytes.
LONGEST_BATCH = MAX_BATCH_BYTES + MAX_LINE_BYTES


class WorkloadUnavailableError(Exception):
    """The workload cannot be imported or described. No item is to blame: they wait until it can."""


class OtherCodeError(WorkloadUnavailableError):
    """The source files of the workload have another digest than the asked one."""


@dataclass(frozen=True)
class Outcome:
    """What became of one attempt of an item."""

    status: Literal["completed", "failed"]
    value: Any = None
    error: str = ""
    #: The class of the error; `prismline.` is before what the runner or its supervisor found.
    error_type: str = ""
    traceback: str = ""
    #: The item can never succeed.
    permanent: bool = False
    #: Attempts that the item has in total, and seconds before the second one.
    attempts: int = 1
    delay: float = 0.0
    duration_ms: int = 0
    #: The end of what the item printed.
    output: str = ""


@dataclass(frozen=True)
class BatchOutcome:
    """What became of one call of a vectorized function."""

    #: Of each item, in order. Empty if the call failed: then no item is to blame before it has failed alone.
    outcomes: Sequence[Outcome]
    #: Why the call failed.
    error: str = ""


class Supervisor:
    """A runner of one workload. It starts the process with the first item, and again when it has to.

    with Supervisor("seeing:measure", paths=["src"], parameters={"threshold": 4}) as supervisor:
        outcome = supervisor.run({"path": "a.fits"}, item_id="a")

    python: the interpreter of the author's environment.
    paths: folders that modules are imported from, before those of the environment.
    variables: names of environment variables that the runner gets besides the usual ones (`prismline.environment`).
    code: the digest of the code. If the files have another one, the workload counts as unavailable.

    Use one supervisor in each thread.
    """

    def __init__(
        self,
        name: str,
        *,
        python: str = PYTHON,
        paths: Sequence[str] = (),
        variables: Collection[str] = (),
        parameters: Mapping[str, Any] | None = None,
        code: str | None = None,
    ) -> None:
        self.name = name
        self._code = code
        self._options: dict[str, Any] = {"python": python, "paths": paths, "variables": variables}
        self._parameters = dict(parameters or {})
        self._runner: _Runner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the runner and what it started."""
        if self._runner is not None:
            self._runner.process.close()
            self._runner = None

    @property
    def description(self) -> Description:
        """The workload as its runner describes it. Raises WorkloadUnavailableError."""
        return self._started().description

    @property
    def pid(self) -> int | None:
        """The id of the runner process, if there is one."""
        return self._runner.process.pid if self._runner else None

    def run(self, item: Any, *, item_id: str, attempt: int = 1, timeout: float | None = None) -> Outcome:
        """One attempt of an item.

        timeout: seconds, if they are fewer than those of the workload.

        An outcome that an earlier item of the same runner may have caused does not count: the item is repeated in a new
        runner. Raises WorkloadUnavailableError and NotJsonError (the item is no JSON).
        """
        request = {"item": item, "item_id": item_id, "attempt": attempt, "parameters": self._parameters}
        runner = self._started()
        used = runner.items > 0
        outcome, blames_others = self._attempt(runner, request, timeout)
        if used and blames_others:
            outcome, _ = self._attempt(self._started(), request, timeout)
        return outcome

    def finalize(self, results: Path, *, item_id: str, attempt: int = 1, timeout: float | None = None) -> Outcome:
        """One attempt of the function of `finalize`, in a new runner. Raises WorkloadUnavailableError.

        results: a file of `prismline.results`. timeout: as in `run`.
        """
        self.close()
        request = {"results": str(results), "item_id": item_id, "attempt": attempt, "parameters": self._parameters}
        try:
            return self._attempt(self._started(), request, timeout)[0]
        finally:
            self.close()

    def run_batch(self, entries: Sequence[Entry]) -> BatchOutcome:
        """One call of a vectorized function for several items. If it fails, `run` each item alone.

        Raises WorkloadUnavailableError and NotJsonError (an item is no JSON).
        """
        runner = self._started()
        limits = runner.description.limits
        request = {"entries": [each.model_dump() for each in entries], "parameters": self._parameters}
        line = to_json({**request, "deadline": time.time() + limits.timeout}).encode() + b"\n"
        runner.items += len(entries)
        try:
            reply = runner.reply(line, entries[0].item_id, limits.timeout, limits, longest=LONGEST_BATCH)
        except RunnerLostError as lost:
            self._runner = None
            return BatchOutcome([], f"prismline.{lost.loss}: {lost}")
        if is_worn(runner.usage, reply.usage, limits) or (isinstance(reply, Failed) and reply.starved):
            self.close()
        if isinstance(reply, Failed):
            return BatchOutcome([], f"{reply.error_type}: {reply.error}")
        if not isinstance(reply, BatchDone) or len(reply.values) != len(entries):
            return BatchOutcome([], "The runner answered with other values than those of the batch.")
        mean = round(reply.duration_ms / len(entries))
        return BatchOutcome([Outcome("completed", value, duration_ms=mean) for value in reply.values])

    def _attempt(self, runner: _Runner, request: dict[str, Any], timeout: float | None) -> tuple[Outcome, bool]:
        """The outcome, and whether an earlier item may have caused it. A spoilt runner is closed."""
        limits = runner.description.limits
        seconds = min(limits.timeout, timeout or limits.timeout)
        line = to_json({**request, "deadline": time.time() + seconds}).encode() + b"\n"
        start = time.monotonic()
        runner.items += 1
        try:
            reply = runner.reply(line, request["item_id"], seconds, limits)
        except RunnerLostError as lost:
            self._runner = None
            return _lost(lost, runner, limits, time.monotonic() - start), lost.loss != "TimedOut"
        assert not isinstance(reply, BatchDone), "one item was sent"
        starved = isinstance(reply, Failed) and reply.starved
        if starved or is_worn(runner.usage, reply.usage, limits):
            self.close()
        return _outcome(reply, runner.process.output), starved

    def _started(self) -> _Runner:
        if self._runner is None:
            runner = _Runner.start(self.name, self._options)
            if self._code not in (None, runner.description.code):
                runner.process.close()
                raise OtherCodeError(
                    f"The code of {self.name} is not {self._code[:12]}, but {runner.description.code[:12]}."
                )
            self._runner = runner
        return self._runner


def is_worn(start: Usage, now: Usage, limits: Limits) -> bool:
    """Has an item left so much behind in its runner that a later item would miss it?

    A process that it started may still work and print; files and memory are limited for each runner.
    """
    room = limits.memory * MIB - start.memory
    return (
        now.children > start.children or now.files - start.files > FILES_KEPT or now.memory - start.memory > room // 2
    )


@dataclass
class _Runner:
    process: RunnerProcess
    description: Description
    #: What the process held before its first item.
    usage: Usage
    #: Items that it has begun.
    items: int = 0

    @classmethod
    def start(cls, name: str, options: dict[str, Any]) -> Self:
        """Start a process and wait until it has imported the workload."""
        limits = Limits()
        try:
            process = RunnerProcess(name, **options)
        except OSError as error:
            raise WorkloadUnavailableError(f"The runner of {name} cannot be started. {error}") from error
        try:
            line = process.exchange(b"", timeout=START_TIMEOUT, memory=limits.memory, processes=limits.processes)
        except RunnerLostError as lost:
            output = process.output.strip()[-500:]
            raise WorkloadUnavailableError(f"The runner of {name} did not start. {lost} {output}".strip()) from lost
        reply = read_reply(line)
        if isinstance(reply, Ready) and reply.version == VERSION:
            return cls(process, reply.description, reply.usage)
        process.close()
        if isinstance(reply, Refused):
            raise WorkloadUnavailableError(f"The workload {name} cannot be used: {reply.error_type}: {reply.error}")
        raise WorkloadUnavailableError(
            f"The environment of {name} has a version of the package prismline that this one does not understand. "
            "Install the same version in both."
        )

    def reply(
        self, line: bytes, item_id: str, timeout: float, limits: Limits, *, longest: int = MAX_LINE_BYTES
    ) -> Done | BatchDone | Failed:
        """Exchange one item or one batch. Raises RunnerLostError."""
        found = self.process.exchange(
            line, timeout=timeout, memory=limits.memory, processes=limits.processes, longest=longest
        )
        reply = read_reply(found)
        if isinstance(reply, Done | BatchDone | Failed) and reply.item_id == item_id:
            return reply
        self.process.close()
        raise RunnerLostError("BrokenProtocol", "The runner wrote a line that is no answer to its request.")


def _outcome(reply: Done | Failed, output: str) -> Outcome:
    if isinstance(reply, Done):
        return Outcome("completed", reply.value, duration_ms=reply.duration_ms, output=output)
    return Outcome(
        "failed",
        error=reply.error,
        error_type=reply.error_type,
        traceback=reply.traceback,
        permanent=reply.permanent,
        attempts=reply.attempts,
        delay=reply.delay,
        duration_ms=reply.duration_ms,
        output=output,
    )


def _lost(lost: RunnerLostError, runner: _Runner, limits: Limits, seconds: float) -> Outcome:
    return Outcome(
        "failed",
        error=str(lost),
        error_type=f"prismline.{lost.loss}",
        attempts=limits.attempts,
        delay=Retry.delay,
        duration_ms=round(seconds * 1000),
        output=runner.process.output,
    )
