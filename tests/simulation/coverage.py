"""Which edges of the protocol a search has reached. A search that reaches few edges proves little.

- transitions: of a chunk, of a run's item in the ledger, of the announced status;
- crash points: a service's process killed before or after one of its calls;
- faults: each kind at each operation that it can strike;
- outages: each dependency down in each phase of a run;
- rests: the time from the last fault to the end of everything;
- handlers: a handler with messages of each of its queues, as the templates declare them.

The reachable edges come from the tables of `safety`, the phases, and all calls that the search made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise, product
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.simulation.aws.loader import blueprint
from tests.simulation.faults import applies
from tests.simulation.liveness import WAITS
from tests.simulation.plan import DEPENDENCIES, FAULTS, LIST_SERVICES, SERVICES, VALKEY
from tests.simulation.processes import declared_services
from tests.simulation.safety import CHUNK_TRANSITIONS, RUN_TRANSITIONS
from tests.simulation.scheduler import START, CrashedError, Process
from tests.simulation.world import ENVIRONMENT, World

#: The phases of a run, determined from its item in the ledger.
PHASES = ("absent", "splitting", "working", "drained", "ended", "stopped")
#: The possible next phases of each phase. A late success or a recovery moves an ended run back to drained or working.
PHASE_TRANSITIONS = frozenset(
    {
        ("absent", "splitting"),
        ("absent", "stopped"),
        ("splitting", "working"),
        ("splitting", "stopped"),
        ("working", "drained"),
        ("working", "stopped"),
        ("splitting", "drained"),
        ("drained", "working"),
        ("drained", "ended"),
        ("drained", "stopped"),
        ("ended", "working"),
        ("ended", "drained"),
        ("stopped", "ended"),
        ("stopped", "working"),
    }
)
#: Faults that have no variant "after the call", because the operation changes nothing.
_CRASHES = ("crash before", "crash after")
#: Parameters for which `applies` is true for every kind of fault that can strike the operation.
_ANY_PARAMETERS: dict[str, Any] = {"Entries": [None], "IfMatch": "", "IfNoneMatch": ""}

Edge = tuple[str, ...]


@dataclass
class Coverage:
    """How often each edge was reached, by its parts."""

    #: (what, before, after)
    transitions: Counter[Edge] = field(default_factory=Counter)
    #: (process's service, AWS service, operation, kind)
    crashes: Counter[Edge] = field(default_factory=Counter)
    #: (kind, AWS service, operation)
    faults: Counter[Edge] = field(default_factory=Counter)
    #: (dependency, phase)
    outages: Counter[Edge] = field(default_factory=Counter)
    #: (handler, queue)
    handlers: Counter[Edge] = field(default_factory=Counter)
    #: The longest time from the last fault of a schedule to the end of everything, in virtual seconds, by its waits
    #: (`liveness.WAITS`).
    rests: dict[Edge, float] = field(default_factory=dict)
    #: (process's service, AWS service, operation): all calls of the search.
    calls: Counter[Edge] = field(default_factory=Counter)

    def add(self, other: Coverage) -> None:
        """Add the counts of another search."""
        rests = {waits: max(rest, self.rests.get(waits, 0.0)) for waits, rest in other.rests.items()}
        for each in fields(self):
            getattr(self, each.name).update(getattr(other, each.name))
        self.rests |= rests

    def reached(self) -> dict[str, tuple[list[Edge], list[Edge]]]:
        """For each kind of edge: the reached edges, and the reachable edges that were not reached."""
        kinds: dict[str, tuple[Iterable[Edge], Counter[Edge]]] = {
            "transitions": (_all_transitions(), self.transitions),
            "crash points": (self._all_crashes(), self.crashes),
            "faults": (self._all_faults(), self.faults),
            "outages": (product((*DEPENDENCIES, VALKEY), PHASES), self.outages),
            "handlers": (_all_handlers(), self.handlers),
        }
        found = {}
        for kind, (possible, counted) in kinds.items():
            edges = sorted(possible)
            found[kind] = ([edge for edge in edges if counted[edge]], [edge for edge in edges if not counted[edge]])
        return found

    def show(self, console: Console) -> None:
        """How many edges of each kind were reached, and the names of the others."""
        table = Table("edges", "reached", "of", box=None)
        reached = self.reached()
        for kind, (covered, uncovered) in reached.items():
            table.add_row(kind, str(len(covered)), str(len(covered) + len(uncovered)))
        console.print(table)
        for waits, rest in sorted(self.rests.items()):
            promised = sum(WAITS[name] for name in waits)
            console.print(f"Longest rest ({', '.join(waits)}): {rest:,.0f} s of {promised:,.0f} s", markup=False)
        for kind, (_, uncovered) in reached.items():
            if uncovered:
                console.print(f"Not reached, {kind}:", *_lines(uncovered), sep="\n  ", markup=False)

    def _all_crashes(self) -> Iterable[Edge]:
        for service, aws, operation in self.calls:
            for kind in _CRASHES:
                if service != "user" and applies(kind, aws, operation, _ANY_PARAMETERS):
                    yield service, aws, operation, kind

    def _all_faults(self) -> Iterable[Edge]:
        called = {(aws, operation) for service, aws, operation in self.calls if service != "user"}
        for kind, (aws, operation) in product(FAULTS, called):
            if applies(kind, aws, operation, _ANY_PARAMETERS):
                yield kind, aws, operation


def _all_transitions() -> Iterable[Edge]:
    for what, table in (("chunk", CHUNK_TRANSITIONS), ("run", RUN_TRANSITIONS), ("ledger", PHASE_TRANSITIONS)):
        yield from ((what, str(before), after) for before, after in table)


def _all_handlers() -> Iterable[Edge]:
    """The handlers of the templates' queues, but those of services that no schedule has."""
    simulated = {declared_services()[name].package for name in (*SERVICES, *LIST_SERVICES)}
    for source in blueprint(ENVIRONMENT).event_sources:
        if source.handler.partition(".")[0] in simulated:
            yield source.handler, source.queue


def _lines(edges: list[Edge]) -> list[str]:
    """One line for all edges that differ only in their last part."""
    groups: dict[Edge, list[str]] = {}
    for *first, last in edges:
        groups.setdefault(tuple(first), []).append(last)
    return [f"{' '.join(first)}: {', '.join(lasts)}" for first, lasts in groups.items()]


class Watcher:
    """Records the edges that one world reaches. Use it as the scheduler's adversary, in front of the world's own."""

    def __init__(self, world: World) -> None:
        self.coverage = Coverage()
        self._world = world
        self._faults = world.faults
        self._perform = world.faults.perform
        self._calls = self.coverage.calls
        self.latency = world.faults.latency
        #: The changes of phase of each run: (moment, phase).
        self._phases: dict[str, list[tuple[float, str]]] = {}
        world.aws.on_commit.append(self._on_commit)

    def perform(
        self, process: Process, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]
    ) -> Any:
        """One call."""
        called = (process.service, service, operation)
        self._calls[called] = self._calls.get(called, 0) + 1
        try:
            return self._perform(process, service, operation, parameters, perform)
        except CrashedError:
            if not process.running:
                self.coverage.crashes[*called, self._faults.crash or _CRASHES[1]] += 1
            raise

    def _on_commit(self, changes: list[Any]) -> None:
        for change in changes:
            if change.table != self._world.runs_table or change.key[1] != "RUN":
                continue
            was, now = phase(change.before), phase(change.after)
            if was != now:
                self.coverage.transitions["ledger", was, now] += 1
                moments = self._phases.setdefault(change.key[0], [(START, "absent")])
                moments.append((self._world.scheduler.time, now))

    def finish(self, transitions: Counter[tuple[str, str, str]]) -> Coverage:
        """All reached edges, with the transitions that `Safety` has seen."""
        found = self.coverage
        found.transitions.update(transitions)
        found.handlers.update(self._world.handled)
        for (kind, service, operation), count in self._faults.struck.items():
            if count and kind in FAULTS:
                found.faults[kind, service, operation] += count
        for outage in self._world.plan.outages:
            start, end = START + outage.start, START + outage.end
            met = set() if self._phases else {"absent"}
            for moments in self._phases.values():
                for (since, name), (until, _) in pairwise([*moments, (float("inf"), "")]):
                    if since < end and start < until:
                        met.add(name)
            for name in met:
                found.outages[outage.dependency, name] += 1
        return found


def phase(run: Mapping[str, Any] | None) -> str:
    """The phase, one of :data:`PHASES`, of a run's item in the ledger."""
    if run is None:
        return "absent"
    if run.get("ended_at"):
        return "ended"
    if run.get("cancelled_at"):
        return "stopped"
    if run.get("drained_at"):
        return "drained"
    return "working" if run.get("latched_at") else "splitting"
