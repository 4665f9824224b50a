"""The plan of a schedule: runs, processes, users, and the faults that the adversary may inject. Choices draw it.

Each plan has only some of the faults ("swarm testing"), because a schedule with all faults at once reaches little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.choices import Choices, Stream

if TYPE_CHECKING:
    from tests.simulation.script import Step

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0

#: Seconds until a call arrives; the usual value is first.
LATENCIES = (0.005, 0.02, 0.1, 0.7, 4.0, 25.0, 80.0, 400.0, 1200.0)
#: The probability of each latency, from an idle network to one that stalls.
LATENCY_PROFILES = (
    (0.90, 0.07, 0.03, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (0.60, 0.20, 0.10, 0.06, 0.03, 0.01, 0.0, 0.0, 0.0),
    (0.55, 0.15, 0.10, 0.08, 0.06, 0.03, 0.02, 0.008, 0.002),
    (0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.015, 0.005),
)

#: The dependencies that can be down: a table, a service, the model on the GPU.
DEPENDENCIES = ("ledger", "workflow-state", "s3", "sqs", "events", "stepfunctions", "ec2", "model")
#: The dependency of lists with `max_concurrency`. It is not one of DEPENDENCIES, so that their draws stay the same.
VALKEY = "valkey"
#: Possible durations of an outage, in seconds.
OUTAGES = (30.0, 150.0, 20 * MINUTE, 3 * HOUR, DAY)
#: The kinds of faults of one call.
FAULTS = (
    "crash before",
    "crash after",
    "error before",
    "error after",
    "throttle",
    "freeze",
    "partial",
    "conflict",
    "broken stream",
)
#: The services whose processes can be crashed and deployed.
#: Queues whose messages may be lost at any moment, because another process sends each of them again.
LOSABLE = ("chunks", "chunks-dlq", "refits", "refits-dlq", "status", "status-dlq")
SERVICES = ("splitter", "worker", "slow-lane", "status", "dlq-consumer", "recovery", "sweeper")
#: The services that run only if somebody submits lists of URLs.
LIST_SERVICES = ("fetcher", "exporter", "webhooks")
#: The workers of a pool.
FUNCTION_SERVICE = "pool-lab"
#: The services that faults may strike in such a schedule. The api is one of them: its requests are cut off.
STRUCK_BY_LISTS = ("api", "splitter", "fetcher", "status", "dlq-consumer", "recovery", "sweeper", "exporter")
#: Queues of lists whose messages may be lost, because the sweeper sends the tasks again.
LOSABLE_TASKS = ("tasks", "tasks-dlq")
#: Every fourth seed has lists. No draw decides that, so that the other seeds mean what they meant without lists.
LISTS_EVERY, LISTS_LAST = 4, 3
#: Every second one of them also has functions, for the same reason.
FUNCTIONS_EVERY = 2 * LISTS_EVERY


@dataclass(frozen=True)
class Outage:
    """An outage of one dependency, in seconds after the beginning."""

    dependency: str
    start: float
    seconds: float
    #: Whether calls may have their effect although their answers are errors.
    lossy: bool = False

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True)
class RunPlan:
    """One submission. Times are seconds after the beginning."""

    workload: str = "spectra"
    at: float = 0.0
    #: Spectra (two in a chunk) or windows (one in a chunk).
    chunks: int = 1
    #: Indices of spectra that take longer than the budget of the fast lane.
    slow: tuple[int, ...] = ()
    #: Indices of spectra that take longer than that budget and that the slow lane cannot fit either.
    hopeless: tuple[int, ...] = ()
    #: Indices of chunks that fail until a person removes the cause, if ever.
    bad: tuple[int, ...] = ()
    mended_at: float | None = None
    #: Whether the source has a name that other runs with this flag also use.
    same_name: bool = False
    #: Whether chunks refer to the cube instead of having their own files.
    refers: bool = False
    #: Whether the submission itself is invalid.
    invalid: bool = False
    tolerated_percent: float = 0.0
    cancel_at: float | None = None
    #: When a person makes the cancelled run continue, and when a person cancels it once more.
    go_on_at: float | None = None
    cancel_again_at: float | None = None
    #: Whether the submitter sends the manifest twice.
    twice: bool = False


@dataclass(frozen=True)
class ListPlan:
    """One list that somebody submits to the api: of URLs, or of items of a function. Times are seconds after the
    beginning.
    """

    at: float = 0.0
    #: `inline`: the api writes the tasks; `manifest`: the splitter takes them from the request; `upload`: from an
    #: uploaded list; `open`: from batches.
    how: str = "inline"
    #: Tasks of the list, or of each batch.
    tasks: int = 2
    #: Whether the tasks are items of a function, and whether they belong to a pool. Such a list is a `manifest` or an
    #: `upload`.
    function: bool = False
    pool: bool = False
    #: Indices of URLs that no site has, and of URLs whose site answers only the third request.
    gone: tuple[int, ...] = ()
    flaky: tuple[int, ...] = ()
    #: Whether the request has an Idempotency-Key, so that the client repeats it until it is answered.
    keyed: bool = True
    #: When batches of an open job are sent, and when it is closed.
    batches: tuple[float, ...] = ()
    close_at: float | None = None
    cancel_at: float | None = None
    #: When a person makes the cancelled run continue.
    go_on_at: float | None = None
    export_at: float | None = None
    rerun_at: float | None = None
    rerun_only: str = "all"
    #: When a person has the failed tasks of the run tried again.
    retry_at: float | None = None
    delete_at: float | None = None
    #: Whether the job has a target for its webhook.
    webhook: bool = False
    tolerated_percent: float = 0.0
    tolerated_failures: int | None = None
    #: Most tasks at a time, which Valkey counts.
    max_concurrency: int | None = None
    #: When the run is failed if it has not ended.
    deadline_at: float | None = None

    @property
    def moments(self) -> tuple[float, ...]:
        """The moments of all actions."""
        chosen = (self.close_at, self.cancel_at, self.go_on_at, self.export_at, self.rerun_at, self.retry_at)
        ends = (self.delete_at, self.deadline_at)
        return (self.at, *self.batches, *(each for each in (*chosen, *ends) if each is not None))


@dataclass(frozen=True)
class Plan:
    """A schedule's plan."""

    runs: tuple[RunPlan, ...] = (RunPlan(),)
    lists: tuple[ListPlan, ...] = ()
    fetchers: int = 1
    exporters: int = 1
    #: When the function has new code.
    upgraded_at: float | None = None
    #: Moments at which the queues of all runs are deleted, with their messages.
    queue_losses: tuple[float, ...] = ()
    #: Seconds for which a read of DynamoDB that is not consistent misses a write.
    read_lag: float = 0.0
    workers: int = 1
    splitters: int = 1
    status_services: int = 1
    slow_lanes: int = 1
    dead_letter_consumers: int = 1
    sweepers: int = 1
    #: Whether processes behave like Lambda functions instead of the runtime's consumers.
    functions: bool = False
    #: Index into LATENCY_PROFILES.
    network: int = 0
    #: Share of calls with a fault, by kind. There are faults until `faults_left` is used up.
    faults: tuple[tuple[str, float], ...] = ()
    most_faults: int = 0
    outages: tuple[Outage, ...] = ()
    #: (service, moment): all of its processes are stopped and started again.
    deploys: tuple[tuple[str, float], ...] = ()
    #: (service, moment, seconds): none of its processes runs.
    pauses: tuple[tuple[str, float, float], ...] = ()
    #: (queue, moment): a person purges it. Only queues of LOSABLE.
    purges: tuple[tuple[str, float], ...] = ()
    #: Seconds for which the queues of LOSABLE keep messages while there are faults; None: as deployed.
    retention: float | None = None
    #: Seconds by which a queue's approximate numbers of messages are late.
    count_lag: float = 0.0
    #: Share of deliveries by EventBridge that come twice, late, or never.
    doubled: float = 0.0
    late: float = 0.0
    dropped: float = 0.0
    #: Share of messages that SQS delivers again after they were deleted.
    repeated: float = 0.0
    #: Moments at which a person recovers the archive.
    recoveries: tuple[float, ...] = ()
    #: Moments at which a person moves all dead letters back to their queues, as with the redrive of the AWS console.
    redrives: tuple[float, ...] = ()
    #: (moment, state) of the GPU: up, down, or mute (it runs, but its model does not answer).
    gpu: tuple[tuple[float, str], ...] = ()
    #: Seconds between two sweeps while there are faults.
    sweep_seconds: float = 60.0
    #: Seconds after which there are no more faults except outages.
    chaos_seconds: float = 20 * MINUTE
    #: Seconds by which reads of an index are late.
    index_lag: float = 0.0
    #: Bytes of an object in one read: few, so that a stream can break in the middle.
    part_bytes: int | None = None
    #: Kinds of faults that strike only these services; empty: all.
    struck: tuple[str, ...] = ()
    #: The steps that act on single calls.
    script: tuple[Step, ...] = ()
    #: Seconds after the last fault within which everything has to have ended. None: as in the search.
    patience: float | None = None

    @property
    def faults_end(self) -> float:
        """Seconds from the beginning to the last fault."""
        chaos = self.most_faults or self.dropped or self.doubled or self.late or self.network or self.retention
        return max(self.chaos_seconds if chaos else 0.0, self.planned_end)

    @property
    def planned_end(self) -> float:
        """Seconds from the beginning to the last planned event."""
        moments = [outage.end for outage in self.outages]
        moments += [moment for _, moment in self.deploys]
        moments += [moment for _, moment in self.purges]
        moments += [moment + seconds for _, moment, seconds in self.pauses]
        moments += [run.mended_at for run in self.runs if run.mended_at is not None]
        moments += [moment for moment, _ in self.gpu]
        for run in self.runs:
            moments += [each for each in (run.cancel_at, run.go_on_at, run.cancel_again_at) if each is not None]
        moments += [run.at for run in self.runs]
        moments += [moment for each in self.lists for moment in each.moments]
        moments += [*self.queue_losses]
        moments += [self.upgraded_at] if self.upgraded_at is not None else []
        moments += [*self.recoveries, *self.redrives]
        return max(moments)

    @property
    def loses_messages(self) -> bool:
        """Whether unacknowledged messages may be lost, or moved by a person without an archived record."""
        return bool(self.purges or self.redrives or self.queue_losses) or self.retention is not None

    @property
    def troubled(self) -> bool:
        """Whether anything but the users can delay what happens."""
        events = self.dropped or self.doubled or self.late or self.repeated
        return bool(self.most_faults or self.outages or self.pauses or self.deploys or self.network or events)

    def with_faults(self, rate: float, most: int, seconds: float) -> Plan:
        """This plan with at least so many faults, for at least so long, of its own kinds if it has any."""
        kinds = tuple(kind for kind, _ in self.faults) or FAULTS
        return replace(
            self,
            faults=tuple((kind, rate / len(kinds)) for kind in kinds),
            most_faults=max(most, self.most_faults),
            chaos_seconds=max(seconds, self.chaos_seconds),
        )

    def describe(self) -> str:
        """A line for each value that is not the default."""
        default = Plan()
        lines = []
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value != getattr(default, entry.name) or entry.name == "runs":
                lines.append(f"  {entry.name}: {value}")
        return "\n".join(lines)


T = TypeVar("T")


@dataclass
class _Drawing:
    """Draws a plan."""

    stream: Stream
    parts: dict[str, object] = field(default_factory=dict)

    def rarely(self, probability: float) -> bool:
        return self.stream.chance(probability)

    def one_of(self, weights: tuple[float, ...]) -> int:
        return self.stream.weighted(tuple(accumulate(weight / sum(weights) for weight in weights)))

    def any_of(self, values: tuple[T, ...]) -> T:
        return values[self.stream.below(len(values))]

    def moment(self) -> float:
        """A moment, early with a higher probability, because most of a healthy run takes seconds."""
        scale = (2.0, 10.0, 60.0, 10 * MINUTE, 40 * MINUTE)[self.one_of((4, 3, 2, 1, 1))]
        return scale * self.stream.below(40) / 40


def draw_plan(choices: Choices, focus: str | None = None) -> Plan:
    """Draw the plan of a schedule: from the whole space, or with a focus on a situation that is rare there.

    `focus` names one of `FOCUSES`; otherwise the focus is drawn.
    """
    draw = _Drawing(choices.stream("plan"))
    drawn = draw.one_of(tuple(weight for _, weight in FOCUSES.values()))
    plan = _anything(draw)
    focused, _ = FOCUSES[focus or list(FOCUSES)[drawn]]
    listing = _Drawing(choices.stream("lists"))
    has_lists = (choices.seed or 0) % LISTS_EVERY == LISTS_LAST
    if focused in (_lists, _functions) or (focus is None and listing.stream.decided(has_lists)):
        plan = _limits(_Drawing(choices.stream("limits")), _lists(listing, plan))
        has_functions = (choices.seed or 0) % FUNCTIONS_EVERY == FUNCTIONS_EVERY - 1
        if focused is _functions or listing.stream.decided(has_functions):
            return _functions(_Drawing(choices.stream("functions")), plan)
        return plan
    plan = focused(draw, plan)
    return replace(plan, runs=tuple(_second_thoughts(_Drawing(choices.stream("thoughts")), run) for run in plan.runs))


def _second_thoughts(draw: _Drawing, run: RunPlan) -> RunPlan:
    """Some people who cancel a run later make it continue, and some of them cancel it again."""
    if run.cancel_at is None or not draw.rarely(0.3):
        return run
    again = run.cancel_at + 1.0 + draw.moment()
    return replace(run, go_on_at=again, cancel_again_at=again + 1.0 + draw.moment() if draw.rarely(0.3) else None)


def _anything(draw: _Drawing) -> Plan:
    runs = _runs(draw)
    captions = any(run.workload == "captions" for run in runs)
    faults, most = _faults(draw)
    bus = draw.rarely(0.25)
    return Plan(
        runs=runs,
        workers=1 + draw.one_of((3, 5, 2)),
        splitters=1 + draw.one_of((4, 3)),
        status_services=1 + draw.one_of((4, 3)),
        slow_lanes=1 + draw.one_of((4, 2)),
        dead_letter_consumers=1 + draw.one_of((5, 2)),
        sweepers=1 + draw.one_of((5, 2)),
        functions=draw.rarely(0.35),
        network=draw.one_of((3, 3, 2, 1)),
        faults=faults,
        most_faults=most,
        outages=_outages(draw, captions=captions),
        deploys=tuple(
            (SERVICES[draw.stream.below(len(SERVICES))], draw.moment()) for _ in range(draw.one_of((6, 2, 1)))
        ),
        doubled=0.2 if bus and draw.rarely(0.6) else 0.0,
        late=0.2 if bus and draw.rarely(0.6) else 0.0,
        dropped=0.15 if bus and draw.rarely(0.4) else 0.0,
        repeated=0.3 if draw.rarely(0.25) else 0.0,
        recoveries=tuple(draw.moment() for _ in range(draw.one_of((6, 2, 1)))),
        redrives=(draw.moment(),) if draw.rarely(0.1) else (),
        gpu=_gpu(draw) if captions else (),
        sweep_seconds=(60.0, 300.0, 900.0)[draw.one_of((2, 2, 1))],
        index_lag=(0.0, 1.0, 30.0)[draw.one_of((4, 1, 1))],
        part_bytes=512 if draw.rarely(0.15) else None,
        struck=(SERVICES[draw.stream.below(len(SERVICES))],) if draw.rarely(0.35) else (),
    )


def _runs(draw: _Drawing) -> tuple[RunPlan, ...]:
    runs = [_run(draw, first=True)]
    if draw.rarely(0.2):
        runs.append(_run(draw, first=False))
    return tuple(runs)


def _run(draw: _Drawing, *, first: bool) -> RunPlan:
    captions = draw.rarely(0.35)
    chunks = 1 + draw.one_of((4, 5, 2, 1))
    n = chunks * (1 if captions else 2)
    slow = tuple(i for i in range(n) if draw.rarely(0.4)) if not captions and draw.rarely(0.35) else ()
    hopeless = tuple(i for i in slow if draw.rarely(0.2)) if slow and draw.rarely(0.2) else ()
    bad = (draw.stream.below(chunks),) if draw.rarely(0.15) else ()
    return RunPlan(
        workload="captions" if captions else "spectra",
        at=0.0 if first else draw.moment(),
        chunks=chunks,
        slow=slow,
        hopeless=hopeless,
        bad=bad,
        same_name=draw.rarely(0.3),
        invalid=draw.rarely(0.03),
        tolerated_percent=(0.0, 40.0, 100.0)[draw.one_of((5, 1, 1))],
        cancel_at=draw.moment() if draw.rarely(0.12) else None,
        twice=draw.rarely(0.1),
    )


def _faults(draw: _Drawing) -> tuple[tuple[tuple[str, float], ...], int]:
    most = (0, 1, 2, 4, 12)[draw.one_of((1, 3, 3, 3, 1))]
    if not most:
        return (), 0
    kinds = [kind for kind in FAULTS if draw.rarely(0.35)] or [FAULTS[draw.stream.below(len(FAULTS))]]
    rate = (0.005, 0.02, 0.06)[draw.one_of((1, 2, 1))]
    return tuple((kind, rate / len(kinds)) for kind in kinds), most


def _outages(draw: _Drawing, *, captions: bool) -> tuple[Outage, ...]:
    count = draw.one_of((6, 3, 1))
    possible = DEPENDENCIES if captions else DEPENDENCIES[:6]
    return tuple(
        Outage(
            possible[draw.stream.below(len(possible))],
            start=draw.moment(),
            seconds=OUTAGES[draw.one_of((6, 7, 3, 0.3, 0.005))],
            lossy=draw.rarely(0.3),
        )
        for _ in range(count)
    )


def _gpu(draw: _Drawing) -> tuple[tuple[float, str], ...]:
    changes = draw.one_of((4, 2, 3, 1))
    moment, found = 0.0, []
    for _ in range(changes):
        found.append((moment, ("up", "down", "mute")[draw.stream.below(3)]))
        moment += (30.0, 300.0, 2000.0, 2 * HOUR)[draw.one_of((2, 3, 2, 1))]
    if found:
        found.append((moment, "up"))
    return tuple(found)


# ---- focuses: plans that lead to rare situations


def _backlog(draw: _Drawing, plan: Plan) -> Plan:
    """Attempts end in errors of all kinds, and then no worker runs for longer than any lease."""
    runs = tuple(replace(run, chunks=max(run.chunks, 3)) for run in plan.runs)
    pauses = tuple(("worker", draw.moment(), draw.any_of((900.0, 1500.0, 3 * HOUR, 9 * HOUR))) for _ in range(2))
    return replace(plan, runs=runs, workers=1, pauses=pauses, sweep_seconds=60.0).with_faults(0.05, 12, HOUR)


def _exhausted(draw: _Drawing, plan: Plan) -> Plan:
    """Chunks are given up; some succeed late, some are recovered."""
    chosen = draw.any_of(
        (
            (("crash after", 0.1), ("broken stream", 0.7)),
            (("crash before", 0.5),),
            (("crash after", 0.25), ("crash before", 0.1), ("freeze", 0.03)),
            (("broken stream", 0.6), ("error after", 0.1), ("freeze", 0.05)),
        )
    )
    recoveries = tuple(2 * HOUR + 6 * HOUR * draw.stream.below(40) / 40 for _ in range(draw.one_of((1, 2, 1))))
    return replace(
        plan,
        faults=chosen,
        most_faults=400,
        struck=("worker",),
        chaos_seconds=draw.any_of((2.2, 3.0, 5.0)) * HOUR,
        recoveries=recoveries,
        part_bytes=512,
        sweep_seconds=60.0,
    )


def _recovery(draw: _Drawing, plan: Plan) -> Plan:
    """Chunks fail for good, a person removes the cause and recovers them, perhaps more than once."""
    runs = tuple(
        replace(run, bad=run.bad or (0,), mended_at=draw.any_of((None, 60.0, HOUR)), invalid=False) for run in plan.runs
    )
    recoveries = tuple(HOUR * draw.stream.below(60) / 40 for _ in range(1 + draw.one_of((1, 2, 2))))
    struck = draw.any_of(((), ("recovery",), ("dlq-consumer",), ("status",), ("worker",)))
    plan = replace(plan, runs=runs, recoveries=recoveries, dead_letter_consumers=2, struck=struck)
    return plan.with_faults(0.03, 8, 2 * HOUR)


def _deferred(draw: _Drawing, plan: Plan) -> Plan:
    """The model is down for hours while messages of its own and of other runs are lost."""
    captions = replace(plan.runs[0], workload="captions", slow=(), hopeless=(), bad=())
    spectra = RunPlan(at=draw.moment(), chunks=2, slow=(0,) if draw.rarely(0.5) else ())
    gone = draw.moment()
    back = gone + draw.any_of((600.0, 2 * HOUR, 4 * HOUR))
    purges = tuple(
        (LOSABLE[draw.stream.below(len(LOSABLE))], draw.moment() + back * draw.stream.below(4) / 4) for _ in range(2)
    )
    return replace(
        plan, runs=(captions, spectra), gpu=((gone, draw.any_of(("down", "mute"))), (back, "up")), purges=purges
    )


def _cancelled(draw: _Drawing, plan: Plan) -> Plan:
    """A person cancels the run at once, while it is split, or while it ends."""
    runs = tuple(replace(run, cancel_at=run.at + 4.0 * draw.stream.below(80) / 80) for run in plan.runs)
    return replace(plan, runs=runs, splitters=2, late=0.2, doubled=0.2).with_faults(0.03, 6, 20 * MINUTE)


def _split_again(draw: _Drawing, plan: Plan) -> Plan:
    """`run.split` and all other messages are delivered repeatedly, before and after the latch."""
    outages = (Outage(draw.any_of(("stepfunctions", "events", "ledger")), draw.moment(), 1200.0, lossy=True),)
    return replace(plan, splitters=2, repeated=0.6, outages=outages, network=2).with_faults(0.03, 6, HOUR)


def _refits(draw: _Drawing, plan: Plan) -> Plan:
    """Refits overlap, are repeated, lost, or can never succeed, and the time budget is short."""
    runs = tuple(
        replace(
            run,
            workload="spectra",
            slow=tuple(range(2 * run.chunks)),
            hopeless=tuple(i for i in range(2 * run.chunks) if draw.rarely(0.25)),
        )
        for run in plan.runs
    )
    purges = (("refits", draw.moment()),) if draw.rarely(0.5) else ()
    recoveries = (2 * HOUR,) if draw.rarely(0.5) else ()
    plan = replace(plan, runs=runs, gpu=(), slow_lanes=2, repeated=0.6, purges=purges, recoveries=recoveries)
    return replace(plan, functions=draw.rarely(0.6)).with_faults(0.03, 8, HOUR)


def _references(draw: _Drawing, plan: Plan) -> Plan:
    """Chunks refer to their cube, whose ranges fail, end early, and are read again in the slow lane."""
    runs = tuple(replace(run, workload="spectra", refers=True) for run in plan.runs)
    return replace(plan, runs=runs, gpu=(), struck=draw.any_of(((), ("worker",), ("splitter",), ("slow-lane",))))


def _lost(draw: _Drawing, plan: Plan) -> Plan:
    """Messages expire or are purged, and the numbers of messages in queues are late."""
    purges = tuple((LOSABLE[draw.stream.below(len(LOSABLE))], draw.moment()) for _ in range(draw.one_of((1, 1, 1, 1))))
    retention = None if purges and draw.rarely(0.5) else draw.any_of((60.0, 600.0, 1800.0))
    pauses = (("worker", draw.moment(), draw.any_of((300.0, 1200.0, 3 * HOUR))),)
    return replace(plan, purges=purges, retention=retention, pauses=pauses, count_lag=60.0, chaos_seconds=4 * HOUR)


def _day(draw: _Drawing, plan: Plan) -> Plan:
    """A dependency does not answer for a day."""
    dependency = DEPENDENCIES[draw.stream.below(len(DEPENDENCIES))]
    outage = Outage(dependency, draw.moment(), DAY, lossy=draw.rarely(0.3))
    return replace(plan, outages=(outage, *plan.outages[:1]))


def _away(draw: _Drawing, plan: Plan) -> Plan:
    """Services do not run for a while, for instance because of a failed deployment or a concurrency of zero."""
    pauses = tuple(
        (SERVICES[draw.stream.below(len(SERVICES))], draw.moment(), draw.any_of((60.0, 1200.0, 3 * HOUR, DAY)))
        for _ in range(2)
    )
    return replace(plan, pauses=pauses)


def _lists(draw: _Drawing, plan: Plan) -> Plan:
    """People submit lists of URLs, close, cancel, continue, export, run again and delete them."""
    lists = tuple(_list(draw, first=number == 0) for number in range(1 + draw.one_of((4, 1))))
    return replace(
        plan,
        runs=plan.runs if draw.rarely(0.1) else (),
        lists=lists,
        gpu=(),
        fetchers=1 + draw.one_of((3, 3, 1)),
        exporters=1 + draw.one_of((4, 1)),
        queue_losses=(draw.moment(),) if draw.rarely(0.15) else (),
        read_lag=(0.0, 2.0)[draw.one_of((1, 1))],
        purges=((draw.any_of(LOSABLE_TASKS), draw.moment()),) if draw.rarely(0.1) else (),
        struck=(draw.any_of(STRUCK_BY_LISTS),) if draw.rarely(0.4) else (),
        deploys=tuple((draw.any_of((*SERVICES, *LIST_SERVICES)), draw.moment()) for _ in range(draw.one_of((6, 2, 1)))),
    )


def _limits(draw: _Drawing, plan: Plan) -> Plan:
    """Some lists have `max_concurrency`, while Valkey may be down, and some have a deadline."""
    lists = tuple(
        replace(
            each,
            max_concurrency=1 + draw.one_of((2, 1)) if draw.rarely(0.25) else None,
            deadline_at=each.at + 5.0 + draw.moment() if draw.rarely(0.1) else None,
        )
        for each in plan.lists
    )
    if any(each.max_concurrency for each in lists) and draw.rarely(0.5):
        outage = Outage(VALKEY, draw.moment(), draw.any_of(OUTAGES[:-1]))
        plan = replace(plan, outages=(*plan.outages, outage))
    return replace(plan, lists=lists)


def _functions(draw: _Drawing, plan: Plan) -> Plan:
    """Some lists are items of a function, in a pool or not, whose code is replaced. Some tolerate a few failures."""
    lists = tuple(_list_of_function(draw, each) if draw.rarely(0.8) else each for each in plan.lists)
    upgraded = any(each.function for each in lists) and draw.rarely(0.4)
    return replace(
        plan,
        lists=lists,
        upgraded_at=draw.moment() if upgraded else None,
        struck=(draw.any_of((FUNCTION_SERVICE, "fetcher", "recovery", "sweeper")),)
        if draw.rarely(0.3)
        else plan.struck,
    )


def _list_of_function(draw: _Drawing, each: ListPlan) -> ListPlan:
    if each.how == "open":
        n = each.tasks * max(1, len(each.batches))
        each = replace(each, tasks=n, batches=(), close_at=None)
    return replace(
        each,
        how=("manifest", "upload")[draw.one_of((1, 1))],
        function=True,
        pool=draw.rarely(0.6),
        max_concurrency=None,
        tolerated_failures=draw.one_of((1, 1)) if draw.rarely(0.3) else None,
    )


def _list(draw: _Drawing, *, first: bool) -> ListPlan:
    how = ("inline", "manifest", "upload", "open")[draw.one_of((3, 3, 2, 3))]
    at, n = 0.0 if first else draw.moment(), draw.any_of((1, 2, 3, 5, 9))
    batches = tuple(at + draw.moment() for _ in range(1 + draw.one_of((3, 2, 1)))) if how == "open" else ()
    total = n * max(1, len(batches))

    def later(probability: float) -> float | None:
        return at + draw.moment() + draw.moment() if draw.rarely(probability) else None

    cancel_at = later(0.15)
    return ListPlan(
        at=at,
        how=how,
        tasks=n,
        gone=tuple(index for index in range(total) if draw.rarely(0.15)) if draw.rarely(0.4) else (),
        flaky=tuple(index for index in range(total) if draw.rarely(0.2)) if draw.rarely(0.4) else (),
        keyed=draw.rarely(0.8),
        batches=batches,
        close_at=max(batches) + draw.moment() if batches else None,
        cancel_at=cancel_at,
        go_on_at=cancel_at + 1.0 + draw.moment() if cancel_at is not None and draw.rarely(0.4) else None,
        export_at=later(0.3),
        rerun_at=later(0.2),
        rerun_only=("all", "failed")[draw.one_of((1, 1))],
        delete_at=later(0.15),
        webhook=draw.rarely(0.4),
        tolerated_percent=(0.0, 40.0, 100.0)[draw.one_of((3, 1, 2))],
        retry_at=later(0.2),
    )


#: The focuses of plans and their probabilities. A schedule of a day costs as much as a hundred others, so it is rare
#: here; `--focus day` searches only such schedules.
FOCUSES: dict[str, tuple[Callable[[_Drawing, Plan], Plan], float]] = {
    "anything": (lambda _, plan: plan, 22.0),
    "references": (_references, 2.0),
    "backlog": (_backlog, 2.0),
    "exhausted": (_exhausted, 1.0),
    "recovery": (_recovery, 2.0),
    "deferred": (_deferred, 2.0),
    "cancelled": (_cancelled, 2.0),
    "split-again": (_split_again, 2.0),
    "refits": (_refits, 2.0),
    "lost": (_lost, 2.0),
    "day": (_day, 0.05),
    "away": (_away, 2.0),
    "lists": (_lists, 0.0),  # LISTS_EVERY says which seeds have it
    "functions": (_functions, 0.0),
}
