"""One schedule, from its choices to its finding."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

from tests.simulation.choices import Choices, Record
from tests.simulation.coverage import Coverage, Watcher
from tests.simulation.list_promises import ListSafety
from tests.simulation.liveness import complaints, longest_rest, waits_of
from tests.simulation.plan import Plan, draw_plan
from tests.simulation.safety import Safety
from tests.simulation.scheduler import START
from tests.simulation.script import Script, Step
from tests.simulation.trace import Trace
from tests.simulation.users import Users
from tests.simulation.world import Finding, World

#: Most events of a schedule; more are an endless loop. An outage of EventBridge for a day takes 400,000.
MOST_EVENTS = 1_000_000
#: Virtual seconds between two looks whether everything has ended: at first, and at most.
FIRST_STEP_SECONDS, LONGEST_STEP_SECONDS = 60.0, 300.0
#: Most complaints in a finding.
MOST_COMPLAINTS = 4


@dataclass
class Result:
    """The result of a schedule."""

    plan: Plan
    finding: Finding | None
    #: Choices that were not the default, if they were recorded.
    record: Record
    trace: Trace
    events: int
    #: Length of the schedule in virtual seconds.
    seconds: float
    transitions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    struck: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    #: Steps of the plan's script that did not happen.
    left: list[Step] = field(default_factory=list)


def simulate(
    seed: int | None = None,
    *,
    record: Record | None = None,
    plan: Plan | None = None,
    focus: str | None = None,
    trace: bool = False,
    recording: bool = False,
) -> Result:
    """Run the schedule of `seed`, or of `record`.

    `plan` replaces the drawn plan, `focus` the drawn focus.
    """
    choices = Choices(seed, record=record, recording=recording)
    chosen = plan or draw_plan(choices, focus)
    world = World(chosen, choices, Trace(on=trace))
    collecting = gc.isenabled()
    gc.disable()  # a garbage collection would unwind greenlets at an unpredictable moment
    try:
        with world.alive():
            watcher = world.scheduler.adversary = Watcher(world)
            users = Users(world)
            safety = Safety(world, users)
            if chosen.lists:
                ListSafety(world, users, safety)
            script = Script(world, users, watcher) if chosen.script else None
            if script is not None:
                world.scheduler.adversary = script
            rest = _live(world, users, safety)
            if rest is not None:
                watcher.coverage.rests[waits_of(chosen)] = rest
    finally:
        if collecting:
            gc.enable()
    return Result(
        chosen,
        world.finding,
        choices.made,
        world.trace,
        world.scheduler.events,
        world.seconds(),
        safety.transitions,
        world.faults.struck,
        watcher.finish(safety.transitions),
        script.left if script is not None else [],
    )


def _live(world: World, users: Users, safety: Safety) -> float | None:
    """Let the world live. Returns the virtual seconds from the last fault to the end of everything."""
    scheduler = world.scheduler
    world.start_services()
    users.start()
    never = lambda: scheduler.events > MOST_EVENTS  # noqa: E731
    scheduler.run(never, START + world.plan.planned_end)
    since = max(scheduler.time, START + world.plan.faults_end)
    step, deadline = FIRST_STEP_SECONDS, since + longest_rest(world.plan)
    while not scheduler.stopped and scheduler.events <= MOST_EVENTS:
        until = scheduler.time + step
        scheduler.run(never, until)
        if scheduler.stopped:
            return None
        scheduler.time = max(scheduler.time, until)
        if not any(True for _ in complaints(world, users, safety)):
            return max(0.0, scheduler.time - since)
        if scheduler.time >= deadline:
            break
        step = min(step * 1.5, LONGEST_STEP_SECONDS)
    if scheduler.stopped:
        return None
    what = "; ".join(islice(complaints(world, users, safety), MOST_COMPLAINTS))
    if scheduler.events > MOST_EVENTS:
        what = f"after {MOST_EVENTS} events: {what}"
    world.finding = Finding("everything ends", what)
    return None
