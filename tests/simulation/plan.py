"""What a schedule is made of: runs, processes, users, and what the adversary may do. Drawn from the choices, printable.

Each plan has only some of the faults ("swarm testing"): where everything goes wrong at once, little is reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import accumulate

from tests.simulation.choices import Choices, Stream

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0

#: Seconds that a call takes to arrive, the usual first.
LATENCIES = (0.005, 0.02, 0.1, 0.7, 4.0, 25.0, 80.0, 400.0, 1200.0)
#: How often each of them happens, from an idle network to one that stalls.
LATENCY_PROFILES = (
    (0.90, 0.07, 0.03, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (0.60, 0.20, 0.10, 0.06, 0.03, 0.01, 0.0, 0.0, 0.0),
    (0.55, 0.15, 0.10, 0.08, 0.06, 0.03, 0.02, 0.008, 0.002),
    (0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.015, 0.005),
)

#: What can be down: a table, a service, the model behind the GPU.
DEPENDENCIES = ("ledger", "workflow-state", "s3", "sqs", "events", "stepfunctions", "ec2", "model")
#: How long it is down.
OUTAGES = (30.0, 150.0, 20 * MINUTE, 3 * HOUR, DAY)
#: What can go wrong with one call.
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
SERVICES = ("splitter", "worker", "slow-lane", "status", "dlq-consumer", "recovery", "sweeper")


@dataclass(frozen=True)
class Outage:
    """One dependency is down for a while after the beginning."""

    dependency: str
    start: float
    seconds: float
    #: Whether calls may take effect although their answers are errors.
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
    #: Indices of spectra that do not fit into the budget of the fast lane.
    slow: tuple[int, ...] = ()
    #: Indices of spectra that do not fit into it, and that the slow lane cannot fit either.
    hopeless: tuple[int, ...] = ()
    #: Indices of chunks that can never be worked on.
    bad: tuple[int, ...] = ()
    #: Whether the source has the same name as that of any other run of which this holds.
    same_name: bool = False
    #: Whether the submission itself makes no sense.
    invalid: bool = False
    tolerated_percent: float = 0.0
    cancel_at: float | None = None
    #: Whether the submitter sends the manifest twice.
    twice: bool = False


@dataclass(frozen=True)
class Plan:
    """A schedule's plan."""

    runs: tuple[RunPlan, ...] = (RunPlan(),)
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
    #: Share of calls that a fault strikes, by kind; faults are struck until `faults_left` is used up.
    faults: tuple[tuple[str, float], ...] = ()
    most_faults: int = 0
    outages: tuple[Outage, ...] = ()
    #: (service, moment): all of its processes are stopped and started again.
    deploys: tuple[tuple[str, float], ...] = ()
    #: Share of deliveries by EventBridge that come twice, late, or never.
    doubled: float = 0.0
    late: float = 0.0
    dropped: float = 0.0
    #: Share of messages that SQS delivers again after they were deleted.
    repeated: float = 0.0
    #: Moments at which somebody has the archive recovered.
    recoveries: tuple[float, ...] = ()
    #: Moments at which somebody moves all dead letters back to their queues, as the console's redrive does.
    redrives: tuple[float, ...] = ()
    #: (moment, state) of the GPU: up, down, or mute: it runs and its model does not answer.
    gpu: tuple[tuple[float, str], ...] = ()
    #: Seconds between two sweeps while there are faults.
    sweep_seconds: float = 60.0
    #: Seconds after which no more faults are struck, outages aside.
    chaos_seconds: float = 20 * MINUTE
    #: Seconds by which reads of an index lag behind.
    index_lag: float = 0.0
    #: Bytes that are read of an object at a time: few, so that streams can break in the middle.
    part_bytes: int | None = None
    #: Kinds of faults that strike only these services; empty: all.
    struck: tuple[str, ...] = ()

    @property
    def faults_end(self) -> float:
        """Seconds after the beginning when everything that goes wrong has gone wrong."""
        chaos = self.most_faults or self.dropped or self.doubled or self.late or self.network
        return max(self.chaos_seconds if chaos else 0.0, self.planned_end)

    @property
    def planned_end(self) -> float:
        """Seconds after the beginning of the last thing that will happen whatever is called."""
        moments = [outage.end for outage in self.outages]
        moments += [moment for _, moment in self.deploys]
        moments += [moment for moment, _ in self.gpu]
        moments += [run.cancel_at for run in self.runs if run.cancel_at is not None]
        moments += [run.at for run in self.runs]
        moments += [*self.recoveries, *self.redrives]
        return max(moments)

    def describe(self) -> str:
        """What is not the default, a line each."""
        default = Plan()
        lines = []
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value != getattr(default, entry.name) or entry.name == "runs":
                lines.append(f"  {entry.name}: {value}")
        return "\n".join(lines)


@dataclass
class _Drawing:
    """Draws a plan."""

    stream: Stream
    parts: dict[str, object] = field(default_factory=dict)

    def rarely(self, probability: float) -> bool:
        return self.stream.chance(probability)

    def one_of(self, weights: tuple[float, ...]) -> int:
        return self.stream.weighted(tuple(accumulate(weight / sum(weights) for weight in weights)))

    def moment(self) -> float:
        """A moment that is more likely early: most of a healthy run takes seconds."""
        scale = (2.0, 10.0, 60.0, 10 * MINUTE, 40 * MINUTE)[self.one_of((4, 3, 2, 1, 1))]
        return scale * self.stream.below(40) / 40


def draw_plan(choices: Choices) -> Plan:
    """The plan of a schedule."""
    draw = _Drawing(choices.stream("plan"))
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
    chunks = 1 + draw.one_of((2, 4, 3, 2))
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
            seconds=OUTAGES[draw.one_of((6, 7, 3, 0.3, 0.03))],
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
