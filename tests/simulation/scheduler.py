"""Virtual time and cooperative processes: one thread, one order of events, decided only by the choices.

A process is a greenlet. It runs until it waits: for an AWS call, for a sleep, for a message. Then the
next event in virtual time happens, of any process. Nothing else runs at the same time, so a call has its effect
at one moment, and an interleaving is the order of these moments.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from greenlet import getcurrent, greenlet

from tests.simulation.choices import Choices, ChosenRandom, Stream
from tests.simulation.trace import Trace

#: Start of the virtual clock: 2026-03-01T12:00:00Z, in seconds since the epoch.
START = 1_772_366_400.0


class CrashedError(BaseException):
    """The process was killed at this point. Not an Exception: no service may catch it."""


class StoppedError(BaseException):
    """The simulation has a finding and ends."""


class Adversary(Protocol):
    """Decides how long a call takes and how it fails."""

    def latency(self, process: Process) -> float:
        """Seconds until the call of `process` arrives."""
        ...

    def perform(
        self, process: Process, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]
    ) -> Any:
        """Perform the call, let it fail before or after its effect, or crash its process."""
        ...


class Life:
    """What the threads of a process share: they are killed together, and frozen together."""

    __slots__ = ("frozen_by", "on_end", "running", "stalled", "threads")

    def __init__(self) -> None:
        self.running = True
        self.threads: list[Process] = []
        #: The thread whose call stops the others. None: they run.
        self.frozen_by: Process | None = None
        #: The threads that were due meanwhile.
        self.stalled: list[Process] = []
        #: The loop calls it once, when the process has crashed or its first thread has finished.
        self.on_end: Callable[[], None] | None = None


class Process:
    """A concurrent actor: a user, or a service's process with one thread, or a further thread of it."""

    __slots__ = (
        "deadline",
        "due",
        "faults",
        "greenlet",
        "latencies",
        "life",
        "name",
        "service",
        "trusted",
    )

    def __init__(
        self, name: str, service: str, choices: Choices, *, trusted: bool = False, life: Life | None = None
    ) -> None:
        self.name = name
        #: The service of the process; several processes may run one service.
        self.service = service
        #: Whether its calls never fail, as those of users.
        self.trusted = trusted
        self.latencies: Stream = choices.stream(f"{name}/latency")
        self.faults: Stream = choices.stream(f"{name}/fault")
        #: Moment after which it is killed, like a Lambda function after its timeout.
        self.deadline = float("inf")
        #: Number of the event that resumes it; other events are out of date.
        self.due = -1
        self.greenlet: greenlet | None = None
        self.life = life or Life()
        self.life.threads.append(self)

    @property
    def running(self) -> bool:
        """Whether nothing has killed the process."""
        return self.life.running


class Scheduler:
    """The event loop of a simulation, and the hub of its AWS account."""

    def __init__(self, choices: Choices, trace: Trace) -> None:
        self.choices = choices
        self.trace = trace
        self.time = START
        #: The running process. None: the loop itself, a timer or a check.
        self.current: Process | None = None
        self.adversary: Adversary | None = None
        #: Decides the latency and the faults of calls. None: calls take no time and do not fail.
        self.stopped = False
        #: Gets those timers of the fakes that are deliveries. It may delay, repeat or drop them.
        self.on_delivery: Callable[[float, Callable[[], None], str], None] | None = None
        self.events = 0
        self.heap: list[tuple[float, int, Any, str]] = []
        self._number = 0
        self._loop: greenlet = getcurrent()
        self._random = ChosenRandom(choices.stream("aws"))

    # ---- the hub

    def now(self) -> float:
        """The virtual wall clock, seconds since the epoch."""
        return self.time

    def random(self) -> ChosenRandom:
        """For the choices of the AWS fakes."""
        return self._random

    def call_later(self, seconds: float, action: Callable[[], None], label: str) -> None:
        """A timer of the AWS fakes."""
        if self.on_delivery is not None and label.startswith("deliver:"):
            self.on_delivery(seconds, action, label)
        else:
            self.at(self.time + seconds, action, label)

    def gate(self, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]) -> Any:
        """A client's call. Outside of a process it is a check that reads the state, and takes no time."""
        process = self.current
        if process is None:
            return perform()
        if not process.running:
            raise CrashedError
        adversary = self.adversary
        if adversary is None:
            return perform()
        self.wait(adversary.latency(process))
        self.expire(process)
        return adversary.perform(process, service, operation, parameters, perform)

    def expire(self, process: Process) -> None:
        """Kill the running process if its invocation has taken too long. Then this raises CrashedError."""
        if self.time > process.deadline:
            self.trace.note(self.time, process.name, "killed: its invocation took too long")
            process.life.running = False
            raise CrashedError

    # ---- time

    def at(self, moment: float, action: Callable[[], None], label: str) -> None:
        """Call `action` at `moment`, in the loop."""
        self._number += 1
        heapq.heappush(self.heap, (moment, self._number, action, label))

    def wait(self, seconds: float) -> None:
        """Let the current process wait. Other processes run meanwhile, if any is due."""
        process = self.running_thread()
        moment = self.time + seconds
        if not self.heap or self.heap[0][0] > moment:
            self.time = moment
            self.events += 1
            return
        self.wake_at(process, moment)
        self.park(process)

    def running_thread(self) -> Process:
        """The thread that runs. There must be one."""
        assert self.current is not None, "only a process can wait"
        return self.current

    def park(self, process: Process) -> None:
        """Yield until an event resumes the process. Raises CrashedError if it was killed before or meanwhile."""
        if process.life.running:
            self._loop.switch()
        if not process.life.running:
            raise CrashedError

    def wake_at(self, process: Process, moment: float) -> None:
        """Resume a process at `moment`. This replaces an earlier call."""
        self._number += 1
        process.due = self._number
        heapq.heappush(self.heap, (moment, self._number, process, ""))

    # ---- processes

    def spawn(
        self,
        name: str,
        service: str,
        body: Callable[[Process], None],
        *,
        at: float | None = None,
        trusted: bool = False,
        ended: Callable[[Process], None] | None = None,
    ) -> Process:
        """Start a process now, or `at` a moment. The loop calls `ended` when it has crashed or finished."""
        process = Process(name, service, self.choices, trusted=trusted)
        if ended is not None:
            process.life.on_end = lambda: ended(process)
        self._begin(process, body, self.time if at is None else at)
        return process

    def spawn_thread(self, of: Process, name: str, body: Callable[[Process], None]) -> Process:
        """Start another thread of a process."""
        thread = Process(f"{of.name}/{name}", of.service, self.choices, life=of.life)
        self._begin(thread, body, self.time)
        return thread

    def _begin(self, process: Process, body: Callable[[Process], None], moment: float) -> None:
        life, first = process.life, process is process.life.threads[0]

        def run() -> None:
            try:
                if life.running:  # it may have been killed before it began
                    body(process)
            except CrashedError:
                life.running = False
            except StoppedError:
                self.stopped = True
            if not first:
                life.threads.remove(process)
            if life.on_end is not None and (first or not life.running) and not self.stopped:
                on_end, life.on_end = life.on_end, None
                self.at(self.time, on_end, "ended")

        process.greenlet = greenlet(run, self._loop)
        self.wake_at(process, moment)

    def kill(self, process: Process) -> None:
        """Kill a waiting process: its threads are resumed at once and unwind without another effect."""
        life = process.life
        if life.running:
            life.running, life.frozen_by = False, None
            for thread in life.threads:
                if not (thread.greenlet and thread.greenlet.dead):
                    self.wake_at(thread, self.time)

    @contextmanager
    def freezing(self, process: Process) -> Iterator[None]:
        """No other thread of the process runs within the block."""
        life = process.life
        life.frozen_by = process
        try:
            yield
        finally:
            life.frozen_by = None
            stalled, life.stalled = life.stalled, []
            for thread in stalled:
                self.wake_at(thread, self.time)

    def run(self, until: Callable[[], bool], deadline: float = float("inf")) -> bool:
        """Let events happen until `until`, called after every event, is true. Return False if `deadline` came first."""
        heap, trace = self.heap, self.trace
        while not self.stopped:
            if until():
                return True
            if not heap or heap[0][0] > deadline:
                return False
            moment, number, target, label = heapq.heappop(heap)
            if isinstance(target, Process):
                if target.due == number:
                    if target.life.frozen_by not in (None, target):
                        target.life.stalled.append(target)
                        continue
                    self.time = max(self.time, moment)
                    self.events += 1
                    self.resume(target)
                continue
            self.time = max(self.time, moment)
            self.events += 1
            if label and trace.on:
                trace.timer(self.time, label)
            try:
                target()
            except StoppedError:
                self.stopped = True
        return False

    def resume(self, process: Process) -> None:
        self.current = process
        try:
            assert process.greenlet is not None
            process.greenlet.switch()
        finally:
            self.current = None

    def close(self, processes: list[Process]) -> None:
        """Unwind all waiting processes, so that no temporary file is left."""
        self.stopped = True
        for process in processes:
            process.life.running = False
            for thread in list(process.life.threads):
                if thread.greenlet:  # it has begun and not ended
                    self.current = thread
                    thread.greenlet.throw(CrashedError())
                    self.current = None
