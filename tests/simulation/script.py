"""Schedules written by hand: which process is held before which call and until when, or dies there, and what users do.

The steps of a plan's `script` name calls in the form of the trace. The rest of the plan decides everything else, so a
script is only as long as the interleaving that it describes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import httpx
from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.faults import unreachable
from tests.simulation.scheduler import Adversary, CrashedError, Process
from tests.simulation.trace import describe
from tests.simulation.workloads import SPECTRA_PER_CHUNK

if TYPE_CHECKING:
    from tests.simulation.users import Users
    from tests.simulation.world import World

#: What happens at a call. `hold`: its process stops before or after the call, as if its machine had stopped.
Does = Literal["hold", "hold after", "crash before", "crash after", "error before", "error after"]
#: Seconds between two checks of a condition while nothing is written.
LOOK_SECONDS = 10.0
#: The caller of the state machine's calls: its tasks, by the names of their states. They can only fail.
STATE_MACHINE = "states"


@dataclass(frozen=True)
class Step:
    """What happens when a process of `who` is about to make the `nth` call that matches `call`."""

    #: A service, one of its processes, or `STATE_MACHINE`.
    who: str
    #: A regular expression to search in the call as the trace shows it: `dynamodb.update_item run/RUN SET ...`.
    call: str
    does: Does = "hold"
    #: The process is held until this condition is true, and for at most so many seconds.
    until: Callable[[Scene], bool] = lambda now: False
    most: float = 12 * 3600.0
    nth: int = 1
    #: Number of consecutive calls.
    times: int = 1
    #: Only calls that are made while this condition is true count.
    given: Callable[[Scene], bool] = lambda now: True
    #: What a user does at that moment.
    then: Callable[[Scene], None] | None = None
    #: The name of the step for other steps: `now.has("...")`.
    name: str = ""

    def __str__(self) -> str:
        return f"{self.who}: {self.does} {self.call} ({self.nth}.)"


@dataclass
class Scene:
    """The visible state at a moment, and the actions of users."""

    world: World
    users: Users
    #: Names of the steps that have happened.
    came: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Whether the step with this name has happened."""
        return name in self.came

    def run(self, number: int = 1) -> Mapping[str, Any]:
        """The item of a run in the ledger; empty if there is none."""
        return self.world.aws.tables[self.world.runs_table].get(self._run_id(number), "RUN") or {}

    def chunk(self, index: int = 0, number: int = 1) -> Mapping[str, Any]:
        """The item of a chunk of spectra; empty if there is none."""
        key = f"CHUNK#chunk-{index * SPECTRA_PER_CHUNK:07d}"
        return self.world.aws.tables[self.world.runs_table].get(self._run_id(number), key) or {}

    def is_(self, status: str, index: int = 0) -> bool:
        """Whether a chunk of the first run has this status."""
        return self.chunk(index).get("status") == status

    def state(self, number: int = 1) -> Mapping[str, Any]:
        """The workflow-state item of a run; empty if there is none."""
        return self.world.aws.tables[self.world.states_table].get(self._run_id(number)) or {}

    def holds(self, queue: str, kind: str) -> bool:
        """Whether a queue holds a message of that type."""
        return any(kind in message.body for message in self.world.queue(queue).messages.values())

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Let a user do something after a while."""
        scheduler = self.world.scheduler
        scheduler.at(scheduler.time + seconds, act, "somebody acts")

    def _run_id(self, number: int) -> str:
        return self.users.submissions[number - 1].run_id


@dataclass
class _Held:
    process: Process
    until: Callable[[Scene], bool]
    over: bool = False


class Script:
    """Plays the script of a world's plan. Use it as the scheduler's adversary, in front of the existing one."""

    def __init__(self, world: World, users: Users, behind: Adversary) -> None:
        self._world, self._behind = world, behind
        self._steps = world.plan.script
        self._counts: Counter[int] = Counter()
        self._held: list[_Held] = []
        self.latency = behind.latency
        self.scene = Scene(world, users)
        world.aws.on_commit.append(lambda _: self._look())
        self._task_fault: Any = world.aws.stepfunctions.task_fault
        world.aws.stepfunctions.task_fault = self._task

    @property
    def left(self) -> list[Step]:
        """The steps that did not happen."""
        return [step for number, step in enumerate(self._steps) if self._counts[number] < step.nth]

    def perform(
        self, process: Process, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]
    ) -> Any:
        """One call, with the script's step for it."""

        def go_on() -> Any:
            return self._behind.perform(process, service, operation, parameters, perform)

        mine = [number for number, step in enumerate(self._steps) if step.who in (process.service, process.name)]
        if not mine:
            return go_on()
        step = self._due(mine, f"{service}.{operation} {describe(service, operation, parameters)}")
        if step is None:
            return go_on()
        self._come(step, process.name)
        match step.does:
            case "hold":
                self._hold(process, step)
                return go_on()
            case "hold after":
                answer = go_on()
                self._hold(process, step)
                return answer
            case "error before":
                raise unreachable(service)
        if step.does != "crash before":
            with suppress(ClientError, BotoCoreError, httpx.HTTPError):
                go_on()
        if step.does == "error after":
            raise unreachable(service, lost=True)
        process.life.running = False
        raise CrashedError

    def _due(self, mine: list[int], call: str) -> Step | None:
        """The step that happens at this call. All steps that match the call count it."""
        due = None
        for number in mine:
            step = self._steps[number]
            if re.search(step.call, call) and step.given(self.scene):
                self._counts[number] += 1
                if due is None and step.nth <= self._counts[number] < step.nth + step.times:
                    due = step
        return due

    def _come(self, step: Step, who: str) -> None:
        world = self._world
        world.faults.harm += 1
        world.trace.note(world.scheduler.time, who, f"SCRIPT {step}")
        self.scene.came.add(step.name)
        if step.then is not None:
            with world.looking():
                step.then(self.scene)
        self._look()

    def _hold(self, process: Process, step: Step) -> None:
        scheduler = self._world.scheduler
        held, end = _Held(process, step.until), scheduler.time + step.most
        self._held.append(held)
        with scheduler.freezing(process):
            while not held.over and scheduler.time < end:
                held.over = held.over or step.until(self.scene)
                if not held.over:
                    scheduler.wake_at(process, scheduler.time + LOOK_SECONDS)
                    scheduler.park(process)
        self._held.remove(held)
        self._world.trace.note(scheduler.time, process.name, "goes on")

    def _look(self) -> None:
        """Release the processes whose condition is true at this moment, even if it is false when they continue."""
        for held in self._held:
            if not held.over and held.until(self.scene):
                held.over = True
                self._world.scheduler.wake_at(held.process, self._world.scheduler.time)

    def _task(self, execution: Any, state: str) -> tuple[str, str] | None:
        """The error of a task of the state machine."""
        mine = [number for number, step in enumerate(self._steps) if step.who == STATE_MACHINE]
        step = self._due(mine, state)
        if step is None:
            fault: tuple[str, str] | None = self._task_fault(execution, state)
            return fault
        self._come(step, STATE_MACHINE)
        return self._world.faults.fail_task(execution, state, done=step.does == "error after")
