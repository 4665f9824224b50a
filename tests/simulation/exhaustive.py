"""Every interleaving of two workers and the sweeper over two chunks, with up to two faults, instead of random ones.

`python -m tests.simulation.exhaustive --seconds 300`

The whole system runs, with the real handlers. The space of schedules is reduced in these ways:

- Calls take no time. A timer (visibility, a restart, a sweep) fires only when no process has anything left to do.
- The exploration begins when the run is latched. Until then there are no faults, and all events have one order.
- Only calls of workers and of the sweeper have choices: whose next call comes first, and a crash before it, a crash
  after it, an error before it, or an error after it. Every other process acts as soon as it can, and takes the messages
  of its queue in one order. A sweep may also come at any time; one that is not due counts as a fault.
- With `--drain`, a worker has choices only while it ends its chunk: from the transaction that ends it, over the drain
  and the announcements of both, to the deletion of the message. Until then it acts as soon as it can, so that both
  workers are before that transaction when the choices begin.
- If no other process can tell when a call came, the call has only one place in the order: `_concerns_nobody` lists such
  calls. Each may still fail. Whatever another process does at that moment is the same before and after the call. So
  every order that is left out has the same calls, answers and end state as an order that is explored.

The search is depth-first, by replay. A schedule is a list of choices. Each run follows the given choices, then makes
the harmless ones, and records the alternatives for later runs. If a run comes to a known state, everything after it is
already known and the run ends. A state consists of tables, queues, objects, published events, timers, and the knowledge
of each process. Time is part of it, so no state follows itself. So each schedule that meets no known state comes to its
end, where the promises of `liveness` are checked; those of `safety` are checked after every write.

A state leaves out the following, for these reasons:

- Random ids and the names of the two workers: services only compare ids, and the workers are identical.
- The history of a process with finished messages. Between two messages its loop is at the same place, with the
  same variables. It counts failed receives, but waits equally long after one and after two. The memory of its handler
  is part of the state: addresses, parameters, and the runs that a worker has read recently, until it would read them
  again.
- The memory of a crashed process: its successor starts without it.
- Timers that renew the visibility of finished messages: they do nothing.
- The order of messages in a queue: SQS does not guarantee one.
"""

from __future__ import annotations

import gc
import heapq
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import httpx
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

from prismline_worker.run_state_cache import SEEN_SECONDS, RunStateCache
from tests.simulation.choices import Choices
from tests.simulation.faults import applies, unreachable
from tests.simulation.liveness import complaints, longest_rest
from tests.simulation.plan import Plan, RunPlan
from tests.simulation.safety import Safety
from tests.simulation.scheduler import START, CrashedError, Process, StoppedError
from tests.simulation.trace import Trace
from tests.simulation.users import Users
from tests.simulation.virtual import replaced
from tests.simulation.workloads import StandInFitter
from tests.simulation.world import Finding, World

#: The services whose calls are explored.
EXPLORED = frozenset({"worker", "sweeper"})
#: The faults of one call; 0: none.
KINDS = ("", "crash before", "crash after", "error before", "error after")
#: Virtual seconds between two checks of whether everything has ended.
STEP_SECONDS = 60.0
#: Calls by which a worker begins to end a chunk, or to announce its end again.
_ENDINGS = frozenset({"transact_write_items", "put_events"})
#: Operations whose answers a process keeps longer than its messages.
_KEPT = frozenset({"get_queue_url", "describe_instances", "models"})
_DRAWN = re.compile(
    r" at 0x[0-9a-f]+|"
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]"
    r"|\b[0-9a-f]{32}\b|(?<=ReceiptHandle': ')[^']*"
)
#: Events for which `safety` checks only whether they were published, and not when.
_OF_CHUNKS = frozenset({"prismline.chunk.completed.v1", "prismline.chunk.failed.v1"})
console = Console(soft_wrap=True, highlight=False)
app = typer.Typer(add_completion=False)


@lru_cache(maxsize=200_000)
def canonical(text: str) -> int:
    """A number that is the same for texts that differ only in random ids."""
    return hash(_DRAWN.sub("?", text))


@dataclass(frozen=True)
class Explored:
    """The result of a search."""

    states: int
    #: Schedules that ran to their end.
    schedules: int
    #: All schedules that were run, most of them to a known state.
    runs: int
    #: Branches that were not explored at the end of the time. 0: the space is exhausted.
    left: int
    #: The choices of the first schedule that broke a promise.
    found: bytes | None


class Exploration:
    """One schedule: the given choices, then harmless ones until a known state."""

    def __init__(
        self,
        plan: Plan,
        *,
        faults: int,
        given: bytes,
        known: set[int] | None,
        drain: bool = False,
        trace: bool = False,
    ) -> None:
        self._given, self._known, self._drain = given, known, drain
        self._faults_left = faults
        self.taken = bytearray()
        #: Lists of choices that are still to be explored.
        self.others: list[bytes] = []
        #: Whether it ran to its end, and not to a known state.
        self.ended = False
        self.world = World(plan, Choices(record={}), Trace(on=trace))
        #: The answers that each process got since it received its messages, and the answers that it keeps longer.
        self._seen: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        #: Runs that a worker has read recently, by process and run: the moment, and what it read.
        self._run_states: dict[str, dict[str, tuple[float, int]]] = {}
        self._latched = False
        #: Processes whose next call is explored, and workers that end a chunk.
        self._at_step: set[str] = set()
        #: Processes whose next call may fail.
        self._at_risk: set[str] = set()
        self._ending: set[str] = set()
        #: The last time that a message was deleted from a queue while another process could have counted its messages.
        self._deleted_from: dict[str, float] = {}
        #: Whether the state was checked since the last change.
        self._fresh = False

    # ---- the adversary

    def latency(self, process: Process) -> float:
        """Calls take no time, but calls of other processes may come first."""
        return 0.0

    def perform(
        self, process: Process, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]
    ) -> Any:
        """One call, with its fault."""
        kind = ""
        at_risk = process.name in self._at_risk
        self._at_step.discard(process.name)
        self._at_risk.discard(process.name)
        if at_risk and self._faults_left:
            kinds = [kind for kind in KINDS if not kind or applies(kind, service, operation, parameters)]
            kind = kinds[self._choose(len(kinds))]
        self._fresh = False
        if operation == "get_queue_attributes" and parameters["AttributeNames"] != ["QueueArn"]:
            name = parameters["QueueUrl"].rpartition("/")[2]
            assert self._deleted_from.get(name) != self.world.scheduler.time, f"{name} was counted while it changed"
        if kind:
            self._faults_left -= 1
            self.world.faults.harm += 1
        trace, moment = self.world.trace, self.world.scheduler.time
        trace.call(moment, process.name, service, operation, parameters, kind and f"FAULT {kind}")
        if kind == "error before":
            self._remember(process, operation, f"{operation} {kind}")
            raise unreachable(service)
        if kind == "crash before":
            self._crash(process)
        try:
            answer = perform()
        except (ClientError, BotoCoreError, httpx.HTTPError) as error:
            self._remember(process, operation, f"{operation} {error}")
            if kind != "crash after":
                raise
        else:
            self._remember(process, operation, f"{operation} {parameters} {answer}{kind}")
        if kind == "crash after":
            self._crash(process)
        if kind == "error after":
            raise unreachable(service, lost=True)
        return answer

    def _remember(self, process: Process, operation: str, what: str) -> None:
        name, number = process.name, canonical(what)
        if operation in _KEPT:
            self._kept[name] = hash((self._kept.get(name), number))
        elif operation == "delete_message_batch":
            self._seen.pop(name, None)  # the consumer's loop continues as before
        else:
            self._seen[name] = hash((self._seen.get(name), number))

    def _crash(self, process: Process) -> None:
        """The process ends; the next one with its name has no memory of it."""
        process.life.running = False
        for memory in (self._seen, self._kept, self._run_states):
            memory.pop(process.name, None)
        self._ending.discard(process.name)
        raise CrashedError

    def _gate(self, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]) -> Any:
        """A client's call: records whether it is explored, before its process waits for its turn."""
        process = self.world.scheduler.current
        renews = operation == "change_message_visibility_batch"  # the renewals are not explored
        if process is not None and self._latched and process.service in EXPLORED and not renews:
            name = process.name
            if operation == "receive_message":
                self._ending.discard(name)
                self._seen.pop(name, None)
            elif operation in _ENDINGS or "drained_at" in parameters.get("UpdateExpression", ""):
                self._ending.add(name)
            if not self._drain or name in self._ending or process.service != "worker":
                self._at_risk.add(name)
                if not self._concerns_nobody(process, operation, parameters):
                    self._at_step.add(name)
        return self._call(service, operation, parameters, perform)

    def _concerns_nobody(self, process: Process, operation: str, parameters: Mapping[str, Any]) -> bool:
        """Whether no process can tell if a call comes before or after the other calls at this moment."""
        if operation == "list_queues":
            return True  # no process makes queues
        if operation == "put_events":
            return not any(self._has_target(entry) for entry in parameters["Entries"])
        if operation in {"receive_message", "delete_message_batch"} and process.service == "sweeper":
            return True  # no other process reads the queue of sweeps
        if operation == "delete_message_batch":  # no process can receive a hidden message
            name = parameters["QueueUrl"].rpartition("/")[2]
            self._deleted_from[name] = self.world.scheduler.time
            hidden = {each.receipt for each in self.world.aws.queues[name].messages.values() if self._is_hidden(each)}
            return {entry["ReceiptHandle"] for entry in parameters["Entries"]} <= hidden
        return False

    def _has_target(self, entry: Mapping[str, Any]) -> bool:
        """Whether an event has a target."""
        event = {
            "source": entry["Source"],
            "detail-type": entry["DetailType"],
            "detail": json.loads(entry["Detail"]),
        }
        rules = self.world.aws.rules.values()
        has_target = any(rule.matches is not None and rule.matches(event) for rule in rules)
        return has_target or entry["DetailType"] not in _OF_CHUNKS

    def _is_hidden(self, message: Any) -> bool:
        return bool(message.visible_at > self.world.scheduler.time)

    def _wait(self, seconds: float) -> None:
        """Every wait gives other processes a turn, even if none is due, because a sweep may come."""
        scheduler = self.world.scheduler
        process = scheduler.current
        assert process is not None
        scheduler.wake_at(process, scheduler.time + seconds)
        scheduler.park(process)

    # ---- choices

    def _choose(self, n: int) -> int:
        """Choose one of n alternatives; the first is the harmless one. Raises StoppedError if the state is known."""
        way = 0
        if len(self.taken) < len(self._given):
            way = self._given[len(self.taken)]
        elif self._known is not None:
            if not self._fresh:
                state = self._state()
                if state in self._known:
                    raise StoppedError
                self._known.add(state)
            self.others += [bytes([*self.taken, other]) for other in range(1, n)]
        self._fresh = True
        self.taken.append(way)
        return way

    def _state(self) -> int:
        scheduler, aws = self.world.scheduler, self.world.aws
        tables = [
            frozenset((key, canonical(repr(version.plain))) for key, version in table.versions.items())
            for table in aws.tables.values()
        ]
        queues = [
            sorted(
                (canonical(each.body), canonical(repr(each.attributes)), each.receive_count, each.visible_at)
                for each in queue.messages.values()
            )
            for queue in aws.queues.values()
        ]
        objects = [
            (canonical(key), canonical(found.body.decode()) if key.startswith("dead-letter") else found.etag)
            for bucket in aws.objects.values()
            for key in bucket
            if (found := bucket.get(key)) is not None
        ]
        executions = [(each.status, each.state) for each in aws.executions.values()]
        announced = [
            (run, kind, len(ids)) for run, of_run in self._safety.announced.items() for kind, ids in of_run.items()
        ]
        timers = [
            (moment, canonical(label))
            for moment, number, target, label in scheduler.heap
            if label and not isinstance(target, Process)
        ]
        due = {
            target.name: moment
            for moment, number, target, label in scheduler.heap
            if isinstance(target, Process) and target.due == number
        }
        waits = [wait for consumer in self.world.consumers for wait in consumer.waits]
        waiting = {wait.process.name for wait in waits if wait.looks_at is not None}
        processes = [
            (
                name.rstrip("-0123456789"),
                0 if name in waiting else self._seen.get(name, 0),
                self._kept.get(name, 0),
                self._still_going(name),
                due.get(name, -1.0),
            )
            for name in self._seen.keys() | self._kept.keys() | due.keys()
        ]
        return hash(
            (
                scheduler.time,
                self._faults_left,
                tuple(tables),
                tuple(map(tuple, queues)),
                frozenset(objects),
                tuple(executions),
                frozenset(announced),
                tuple(sorted(processes)),
                tuple(sorted(timers)),
                self._users.sweep_seconds,
            )
        )

    def _still_going(self, name: str) -> tuple[tuple[str, float, int], ...]:
        """What a worker still remembers about runs that it read recently."""
        since = self.world.scheduler.time - SEEN_SECONDS
        return tuple(sorted((run, *seen) for run, seen in self._run_states.get(name, {}).items() if seen[0] > since))

    # ---- the schedule

    def run(self) -> None:
        """Run the schedule to its end, or to a known state. `world.finding` is the broken promise."""
        world = self.world
        with world.alive(), replaced([(RunStateCache, "seen", self._noting(RunStateCache.seen))]):
            scheduler = world.scheduler
            scheduler.adversary = self
            self._call = scheduler.gate
            vars(scheduler).update(gate=self._gate, wait=self._wait)
            StandInFitter.work = lambda seconds: None
            users = self._users = Users(world)
            self._safety = Safety(world, users)
            world.aws.on_commit.append(self._on_commit)
            world.start_services()
            users.start()
            self._live(users)

    def _noting(self, seen: Callable[..., None]) -> Callable[..., None]:
        """`RunStateCache.seen`, whose memory is part of the state."""
        scheduler = self.world.scheduler

        def noted(run_states: RunStateCache, run: Any, moment: float | None = None) -> None:
            seen(run_states, run, moment)
            process = scheduler.current
            if process is not None:
                read_at = scheduler.time if moment is None else START + moment
                self._run_states.setdefault(process.name, {})[run.run_id] = (read_at, canonical(repr(run)))

        return noted

    def _on_commit(self, changes: list[Any]) -> None:
        self._latched = self._latched or any((change.after or {}).get("latched_at") for change in changes)

    def _live(self, users: Users) -> None:
        scheduler = self.world.scheduler
        looks_at = START + STEP_SECONDS
        while not scheduler.stopped:
            if scheduler.heap[0][0] > looks_at:
                scheduler.time = looks_at
                what = next(complaints(self.world, users, self._safety), None)
                if what is None:
                    self.ended = True
                    return
                if looks_at > START + longest_rest(self.world.plan):
                    self.world.finding = Finding("everything ends", what)
                    return
                looks_at += max(STEP_SECONDS, (looks_at - START) / 4)
                continue
            self._step(users)

    def _step(self, users: Users) -> None:
        """Let one due event happen: any one of the explored processes, or the first one of the others."""
        scheduler = self.world.scheduler
        heap = scheduler.heap
        moment = max(heap[0][0], scheduler.time)
        due = []
        while heap and heap[0][0] <= moment:
            event = heapq.heappop(heap)
            if not isinstance(event[2], Process) or event[2].due == event[1]:
                due.append(event)
        if not due:
            return
        scheduler.time = moment
        chosen = next((event for event in due if not self._is_explored(event)), None)
        for event in due:
            if event is not chosen:
                heapq.heappush(heap, event)
        if chosen is None:
            due.sort(key=lambda event: str(event[2].name))
            ways = len(due) + (1 if self._faults_left else 0)
            try:
                way = self._choose(ways) if ways > 1 else 0
            except StoppedError:
                scheduler.stopped = True
                return
            if way == len(due):
                self._faults_left -= 1
                self._fresh = False
                users.sweep()
                return
            chosen = due[way]
            heap.remove(chosen)
            heapq.heapify(heap)
        else:
            self._fresh = False
        scheduler.events += 1
        target = chosen[2]
        if isinstance(target, Process):
            scheduler.resume(target)
            return
        try:
            target()
        except StoppedError:
            scheduler.stopped = True

    def _is_explored(self, event: Any) -> bool:
        return isinstance(event[2], Process) and event[2].name in self._at_step


def explore(plan: Plan, *, faults: int, seconds: float, drain: bool = False) -> Explored:
    """All schedules of `plan` with at most so many faults, until the time is over. `drain`: explore only the drain."""
    end = time.monotonic() + seconds
    known: set[int] = set()
    left, schedules, runs = [b""], 0, 0
    while left and time.monotonic() < end:
        exploration = Exploration(plan, faults=faults, given=left.pop(), known=known, drain=drain)
        exploration.run()
        left += exploration.others
        schedules += exploration.ended
        runs += 1
        if exploration.world.finding is not None:
            return Explored(len(known), schedules, runs, len(left), bytes(exploration.taken))
        if runs % 20 == 0:
            gc.collect()
            gc.freeze()
    return Explored(len(known), schedules, runs, len(left), None)


def replay(plan: Plan, *, faults: int, choices: bytes, drain: bool = False) -> World:
    """Run the schedule of these choices, with its trace."""
    exploration = Exploration(plan, faults=faults, given=choices, known=None, drain=drain, trace=True)
    exploration.run()
    return exploration.world


#: Two chunks of one run, two workers, and one process of every other service.
TWO_BY_TWO = Plan(runs=(RunPlan(chunks=2),), workers=2, sweep_seconds=900.0)


@app.command()
def main(
    seconds: Annotated[float, typer.Option(help="Longest time for the whole exploration.")] = 300.0,
    faults: Annotated[int, typer.Option(min=0, max=2, help="Most faults in a schedule.")] = 2,
    chunks: Annotated[int, typer.Option(min=1, max=2, help="Chunks of the run.")] = 2,
    drain: Annotated[bool, typer.Option("--drain", help="Explore workers only while they end their chunks.")] = False,
) -> None:
    """Explore with no fault, then with one, then with two. Exit code 1: a promise was broken."""
    plan = replace(TWO_BY_TWO, runs=(RunPlan(chunks=chunks),))
    end = time.monotonic() + seconds
    table = Table("faults", "states", "runs", "to their end", "seconds", "space", box=None)
    found: tuple[int, bytes] | None = None
    gc.disable()
    for most in range(faults + 1):
        began = time.monotonic()
        result = explore(plan, faults=most, seconds=end - began, drain=drain)
        took = f"{time.monotonic() - began:.0f}"
        space = f"{result.left} ways are left" if result.left else "exhausted"
        table.add_row(str(most), str(result.states), str(result.runs), str(result.schedules), took, space)
        if result.found is not None:
            found = most, result.found
        if found or result.left:
            break
    console.print(table)
    if found:
        world = replay(plan, faults=found[0], choices=found[1], drain=drain)
        console.print(world.trace.text(), markup=False)
        console.print(f"FOUND {world.finding}", markup=False)
    raise typer.Exit(1 if found else 0)


if __name__ == "__main__":
    app()
