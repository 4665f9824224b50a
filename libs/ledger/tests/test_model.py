"""The ledger's items follow the protocol after any sequence of calls, also late, repeated or interrupted ones.

Hypothesis draws a story: a random sequence of calls of every writer, some with old reads, some by processes that die
halfway. Only `ledger_model` executes the story, and its last state is written into the table. Then the test calls the
real ledger: with a read that is too old, in a process that dies before one of its writes, or with another call between
two of its requests. The items then have to equal the model's: after a call that died, those after one of its steps;
after two concurrent calls, those of one of their orders.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_model import UNENDED, ImpossibleError, Item, Model, Steps, TooEarlyError, broken_rules

from prismline_contracts.base import timestamp
from prismline_contracts.items import ChunkItem, RunItem
from prismline_ledger import COUNTERS, Finished, Ledger, NewChunk, NewRun, Outcome, Started
from prismline_runtime import PermanentError, Table, TransientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.emulator

NAMES = [f"chunk-{number:07d}" for number in range(2)]
CHUNKS = [NewChunk(name, f"in/{name}", 1) for name in NAMES]
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
READING = ("Get", "Query", "BatchGet")
#: Attributes that are the same in every item of a kind.
RUN_CONSTANTS: Item = {"GSI1_PK": "s", "survey": "s", "workload": "spectra", "job_id": "j", "shard_count": 1}
RUN_CONSTANTS |= {"unit": "chunk", "priority": 5}
CHUNK_CONSTANTS: Item = {"chunk_key": "in", "n_items": 1, "n_spectra": 1}
CONSTANT = {"PK", "SK", *RUN_CONSTANTS, "chunk_key", "n_items"}
#: The attributes of a returned run that callers use.
RUN_FIELDS = ("drained_at", "drains", "jobs_completed", "jobs_failed", "n_timed_out", "ended_at", "cancelled_at")


class DiedError(Exception):
    """Stands for the death of the process. Nothing in the ledger catches it."""


@dataclass(frozen=True)
class Op:
    """A call of the ledger: for which chunk, with how old a read (in calls), and with which number."""

    name: str
    chunk: int
    age: int
    number: int


@dataclass(frozen=True)
class Look:
    """All items at a moment, as the ledger returns them and as the model has them."""

    run: RunItem | None
    chunks: dict[str, ChunkItem]
    model: Model


@dataclass(frozen=True)
class Call:
    """An operation, ready to be carried out by the ledger or by the model."""

    real: Callable[[Ledger], Any]
    model: Callable[[Model], Steps[Any]]


def call(op: Op, run_id: str, now: str, looks: list[Look]) -> Call | None:
    """The call that `op` means after these looks. None: no process could have made such a call."""
    fresh, old = looks[-1], looks[max(0, len(looks) - 1 - op.age)]
    match op.name:
        case "open":
            return Call(
                lambda ledger: nothing(
                    ledger.open_run(NewRun(run_id=run_id, survey="s", job_id="j", workload="spectra"))
                ),
                lambda model: model.open(now),
            )
        case "stop":
            reason: Any = ("cancelled", "failed")[op.number % 2]
            read = (old.model.run or {}) if op.number // 2 % 2 else {}
            known = {name: read.get(name) for name in ("resumed_at", "uncancelled_at")}
            if reason == "cancelled" and "drains" in read:
                known["drains"] = read["drains"]
            return Call(
                lambda ledger: ledger.stop_run(run_id, reason, **known), lambda model: model.stop(now, reason, known)
            )
    if fresh.run is None:
        return None
    of_run = call_of_run(op, run_id, now, old)
    name = NAMES[op.chunk]
    if of_run is not None or name not in fresh.chunks or old.run is None or name not in old.chunks:
        return of_run
    return call_of_chunk(op, run_id, now, name, old.chunks[name], old.model.chunks[name])


def call_of_run(op: Op, run_id: str, now: str, old: Look) -> Call | None:
    match op.name:
        case "add_chunks":
            some = op.number % 2 + 1
            return Call(
                lambda ledger: ledger.add_chunks(run_id, CHUNKS[:some]),
                lambda model: model.add_chunks(now, NAMES[:some]),
            )
        case "set_total":
            return Call(
                lambda ledger: ledger.set_total(run_id, n_chunks=2, n_items=2, n_blank=0),
                lambda model: model.set_total(now, 2),
            )
        case "latch":
            return Call(lambda ledger: run_fields(ledger.latch(run_id)), lambda model: model.latch(now))
        case "drain":
            return Call(lambda ledger: run_fields(ledger.drain(run_id)), lambda model: model.drain(now))
    run, read = old.run, old.model.run
    if run is None or read is None:
        return None
    match op.name:
        case "set_plan":
            plan = f"{run.plan or ''}{op.number}"
            return Call(lambda ledger: ledger.set_plan(run, plan).plan, lambda model: model.set_plan(now, read, plan))
        case "record_end":
            status = ("completed", "cancelled")[op.number % 2]
            return Call(
                lambda ledger: ledger.record_end(run, status), lambda model: model.record_end(now, read, status)
            )
        case "resume":
            requested = (None, run.cancelled_at, run.cancelled_at, "another stop")[op.number % 4]
            return Call(
                lambda ledger: ledger.resume_run(run, cancelled_at=requested),
                lambda model: model.resume(now, read, requested),
            )
        case "claim":
            return Call(lambda ledger: ledger.claim_sweep(run) is not None, lambda model: model.claim(now, read))
        case "close":
            return Call(lambda ledger: ledger.close_run(run), lambda model: model.close(now, read))
        case "resend_split":
            return Call(lambda ledger: ledger.record_split_resend(run), lambda model: model.resend_split(now, read))
        case "check":
            return Call(lambda ledger: ledger.record_check(run), lambda model: model.check(now))
        case "correct":
            names = ("jobs_completed", "jobs_failed", "n_timed_out", "n_refit_failed")
            counted = {name: old.model.n(name) for name in names}
            fields = {field: counted[run.attribute(field)] for field in COUNTERS}
            return Call(
                lambda ledger: ledger.correct_counters(run, fields), lambda model: model.correct(now, read, counted)
            )
    return None


def call_of_chunk(op: Op, run_id: str, now: str, name: str, chunk: ChunkItem, read: Item) -> Call | None:
    error, flag = f"error of {now}", bool(op.number % 2)
    match op.name:
        case "start":
            # A worker of an earlier release has no name.
            worker = f"worker-{op.number}" if flag else None
            return Call(
                lambda ledger: (
                    "started" if isinstance(ledger.start_chunk(run_id, name, worker=worker), Started) else "skipped"
                ),
                lambda model: model.start(now, name, worker),
            )
        case "end_attempt" if read["status"] == "IN_PROGRESS":
            return Call(
                lambda ledger: ledger.end_attempt(chunk, error, interrupted=flag, duration_ms=1),
                lambda model: model.end_attempt(now, name, read, error, flag),
            )
        case "report_progress" if read["status"] == "IN_PROGRESS":
            return Call(
                lambda ledger: ledger.report_progress(chunk, op.number),
                lambda model: model.report_progress(now, name, read, op.number),
            )
        case "record_error":
            return Call(
                lambda ledger: ledger.record_error(run_id, name, error),
                lambda model: model.record_error(now, name, error),
            )
        case "complete":
            return Call(
                lambda ledger: finished(
                    ledger.complete_chunk(chunk, Outcome("o", n_bytes=9, n_timed_out=op.number), duration_ms=1)
                ),
                lambda model: model.complete(now, name, op.number),
            )
        case "fail" if read["status"] in UNENDED:
            return Call(
                lambda ledger: finished(ledger.fail_chunk(chunk, error, duration_ms=1)),
                lambda model: model.fail(now, name, read, error),
            )
        case "give_up" if read["status"] in UNENDED:
            return Call(
                lambda ledger: finished(ledger.give_up_chunk(chunk, error, announcement_pending=flag)),
                lambda model: model.give_up(now, name, read, error, flag),
            )
        case "record_refit":
            return Call(
                lambda ledger: ledger.record_refit(run_id, name, remaining=op.number),
                lambda model: model.record_refit(now, name, op.number),
            )
        case "give_up_refit":
            return Call(
                lambda ledger: ledger.give_up_refit(run_id, name, error),
                lambda model: model.give_up_refit(now, name, error),
            )
        case "defer":
            return Call(
                lambda ledger: ledger.record_deferral(run_id, name) is not None, lambda model: model.defer(now, name)
            )
        case "reopen":
            recovery = f"recovery-{op.number}"
            return Call(
                lambda ledger: ledger.reopen_chunk(chunk, recovery),
                lambda model: model.reopen(now, name, read, recovery),
            )
        case "mark_announced":
            return Call(
                lambda ledger: ledger.mark_announced(chunk), lambda model: model.mark_announced(now, name, read)
            )
        case "resend":
            return Call(
                lambda ledger: ledger.record_resend(chunk, error), lambda model: model.resend(now, name, read, error)
            )
        case "resend_refit":
            return Call(
                lambda ledger: ledger.record_refit_resend(chunk), lambda model: model.resend_refit(now, name, read)
            )
    return None


SPLIT = ["open", "add_chunks", "set_total", "latch"]
#: Calls, by how often they are drawn. Calls whose order matters more are drawn more often.
OFTEN = ["complete", "fail", "give_up", "reopen", "start", "end_attempt", "record_end"]
SOMETIMES = [
    *("drain", "latch", "open", "stop", "resume", "close", "record_refit", "give_up_refit"),
    *("resend", "resend_refit", "defer", "mark_announced", "correct", "report_progress"),
]
SELDOM = ["claim", "resend_split", "set_plan", "check", "record_error", "add_chunks", "set_total"]
#: Calls that make more than one request. Another call is made between these, or before the first one.
LONG = {
    "complete",
    "fail",
    "give_up",
    "record_refit",
    "give_up_refit",
    "open",
    "stop",
    "set_total",
    "set_plan",
    "latch",
}
LONG |= {"drain", "resume"}
WEIGHTS = [(4, OFTEN), (2, SOMETIMES), (1, SELDOM)]


def nothing(_: object) -> None:
    """Ignore what a call returns, because no caller uses it."""


def run_fields(run: RunItem | Item) -> Item:
    item = run.model_dump() if isinstance(run, RunItem) else run
    return {name: item[name] for name in RUN_FIELDS if item.get(name)}


def finished(outcome: Finished) -> tuple[bool, bool, Item]:
    return outcome.changed, outcome.late, run_fields(outcome.run)


def carried_out(steps: Steps[Any]) -> Any:
    """What the model's operation returns if no other call comes between its steps."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        match end.value:
            case (changed, late, dict() as run):
                return changed, late, run_fields(run)
            case dict() as run:
                return run_fields(run)
        return end.value
    except ImpossibleError:
        return "impossible"
    except TooEarlyError:
        return "too early"


def orders(model: Model, first: Call, second: Call) -> Iterator[tuple[Any, Any, Model]]:
    """The possible outcomes of two concurrent calls: the second one takes place between two steps of the first."""
    moment, over = 0, False
    while not over:
        state = model.copy()
        steps = first.model(state)
        try:
            for _ in range(moment):
                next(steps)
        except (StopIteration, ImpossibleError, TooEarlyError):
            state, over = model.copy(), True
            one = carried_out(first.model(state))
            yield one, carried_out(second.model(state)), state
            return
        other = carried_out(second.model(state))
        yield carried_out(steps), other, state
        moment += 1


def order_matters(model: Model, first: Call, second: Call) -> bool:
    """Whether the outcome depends on when the second call takes place."""
    outcomes = [(one, two, state.items()) for one, two, state in orders(model, first, second)]
    return any(outcome != outcomes[0] for outcome in outcomes)


def has_steps(model: Model, operation: Call) -> bool:
    """Whether a process that dies may leave the operation half done."""
    states: list[dict[str, Item]] = []
    for state in stops(model, operation):
        if state.items() not in states:
            states.append(state.items())
    return len(states) > 2


def stops(model: Model, operation: Call) -> Iterator[Model]:
    """The states that a process may leave that dies during the call."""
    state = model.copy()
    yield state.copy()
    steps = operation.model(state)
    try:
        while True:
            next(steps)
            yield state.copy()
    except (StopIteration, ImpossibleError, TooEarlyError):
        yield state


@dataclass
class Story:
    """The history of a run in the model: a sequence of calls, some by processes that died halfway."""

    run_id: str
    #: Everything happens within one millisecond.
    stands_still: bool
    now: datetime = START
    looks: list[Look] = field(default_factory=lambda: [look_of("", Model())])

    def go_on(self, seconds: int = 1) -> None:
        self.now += timedelta(seconds=0 if self.stands_still else seconds)

    def walk(self, begun: list[str], n_calls: int, choose: random.Random) -> None:
        for name in begun:
            self.happen(Op(name, 0, 0, 1), choose)
        names = [name for weight, group in WEIGHTS for name in group for _ in range(weight)]
        for _ in range(n_calls):
            age = choose.choice([0, 0, 0, 1, 3])
            self.happen(Op(choose.choice(names), choose.randrange(2), age, choose.randrange(4)), choose)

    def happen(self, op: Op, choose: random.Random) -> None:
        self.go_on()
        planned = call(op, self.run_id, timestamp(self.now), self.looks)
        if planned is None:
            return
        states = list(stops(self.looks[-1].model, planned))
        state = choose.choice(states) if choose.random() < 0.15 else states[-1]
        self.check(state)
        self.looks.append(look_of(self.run_id, state))

    def check(self, state: Model) -> None:
        assert broken_rules(state, self.looks[-1].model) == []

    def calls(self, number: int, *, age: int) -> list[tuple[Call, Op]]:
        """The calls that are possible now, with a read of this age."""
        moment = timestamp(self.now)
        ops = [Op(name, chunk, age, number) for _, group in WEIGHTS for name in group for chunk in range(2)]
        planned = [(call(op, self.run_id, moment, self.looks), op) for op in ops]
        return [(made, op) for made, op in planned if made is not None]


def look_of(run_id: str, model: Model) -> Look:
    """The look that a reader of the model's items gets."""
    items = stored(run_id, model)
    return Look(
        run=RunItem.model_validate(items["RUN"]) if "RUN" in items else None,
        chunks={
            sk.removeprefix("CHUNK#"): ChunkItem.model_validate(item)
            for sk, item in items.items()
            if sk.startswith("CHUNK#")
        },
        model=model.copy(),
    )


def stored(run_id: str, model: Model) -> dict[str, Item]:
    """The items of the model as they are in the table, by sort key."""
    constant = {"RUN": RUN_CONSTANTS, "STOP": {}}
    return {
        sk: {"PK": run_id, "SK": sk} | constant.get(sk, CHUNK_CONSTANTS) | item for sk, item in model.items().items()
    }


class Experiment:
    """A real ledger in the last state of a story, and the calls that are made there."""

    def __init__(self, dynamodb: DynamoDBClient, table: Table, story: Story, data: st.DataObject) -> None:
        self.table = table
        self.story = story
        self.data = data
        self.ledger = Ledger(dynamodb, table.name, clock=lambda: timestamp(story.now))
        self.before = story.looks[-1].model
        #: Called before each request to DynamoDB, with the name of its operation.
        self.before_request: Callable[[str], None] = nothing
        items = stored(story.run_id, self.before).values()
        if items:
            table.transact(*(table.creation(item, key="PK") for item in items))

    def on_request(self, *, model: Any, **_: Any) -> None:
        self.before_request(model.name)

    def work(self) -> list[Model]:
        """Make a call, preferably with a read that is too old. Return the states of the table."""
        planned, op = self.draw(self.is_too_old, ages=[0, 1, 2, 3, 5, 8, 13])
        expected = self.carry_out_and_compare(planned, self.before)
        if (
            op.name in ("drain", "latch", "complete", "fail", "give_up")
            and expected.run
            and expected.run.get("latched_at")
        ):
            ended = expected.n("jobs_completed") + expected.n("jobs_failed") == expected.n("jobs_total")
            assert bool(expected.run.get("drained_at")) == ended, "a call that sees the end drains the run"
        return [expected]

    def is_too_old(self, planned: Call, op: Op) -> bool:
        fresh = call(replace(op, age=0), self.story.run_id, timestamp(self.story.now), self.story.looks)
        if fresh is None or op.age == 0:
            return False
        old, new = self.before.copy(), self.before.copy()
        return (carried_out(planned.model(old)), old.items()) != (carried_out(fresh.model(new)), new.items())

    def die(self) -> list[Model]:
        """The process dies before one of its writes, preferably halfway, and its message is redelivered.

        Return the states of the table.
        """
        planned, _ = self.draw(lambda planned, _: has_steps(self.before, planned), ages=[0, 0, 1, 3])
        left = self.data.draw(st.sampled_from([0, 1, 1, 2]), label="writes that are made")

        def die(request: str) -> None:
            nonlocal left
            if not request.startswith(READING):
                if left == 0:
                    raise DiedError
                left -= 1

        self.before_request = die
        with suppress(DiedError):
            self.carry_out(planned)
        self.before_request = nothing
        state = self.found(list(stops(self.before, planned)))
        return [state, self.carry_out_and_compare(planned, state)]

    def meet(self) -> list[Model]:
        """Make another call between two requests, or before the first one but after the caller's read.

        It is preferably a call for which the order matters. Return the states of the table.
        """
        planned, op = self.draw(None, ages=[0, 0, 0, 1, 3])
        self.story.go_on()
        meeting, _ = self.draw(lambda other, _: order_matters(self.before, planned, other), ages=[0, 0, 0, 1, 3])
        self.story.go_on(-1)
        met: list[Any] = []
        left = self.data.draw(st.integers(0, 3), label="requests that are made before") if op.name in LONG else 0

        def meet(_: str = "") -> None:
            nonlocal left
            if left == 0:
                self.before_request = nothing
                self.story.go_on()
                met.append(self.carry_out(meeting))
                self.story.go_on(-1)
            left -= 1

        self.before_request = meet
        result = self.carry_out(planned)
        self.before_request = nothing
        if not met:
            left = 0
            meet()
        possible = list(orders(self.before, planned, meeting))
        state = self.found([model for _, _, model in possible])
        assert (result, met[0]) in [(one, two) for one, two, model in possible if model == state]
        return [state]

    def draw(self, rather: Callable[[Call, Op], bool] | None, *, ages: list[int]) -> tuple[Call, Op]:
        """A call that is possible now, one for which `rather` holds if there is any."""
        number, age = self.data.draw(st.integers(0, 3)), self.data.draw(st.sampled_from(ages))
        possible = self.story.calls(number, age=age)
        better = [made for made in possible if rather is not None and rather(*made)]
        planned, op = self.data.draw(st.sampled_from(better or possible).map(Shown)).call
        return planned, op

    def carry_out(self, planned: Call) -> Any:
        try:
            return planned.real(self.ledger)
        except PermanentError:
            return "impossible"
        except TransientError:
            return "too early"

    def carry_out_and_compare(self, planned: Call, before: Model) -> Model:
        expected = before.copy()
        result = carried_out(planned.model(expected))
        assert self.carry_out(planned) == result
        return self.found([expected])

    def found(self, possible: list[Model]) -> Model:
        """The one of the possible states that the table is in. Fails if there is none."""
        items = {item["SK"]: item for item in self.table.query(Key("PK").eq(self.story.run_id))}
        plain = {
            sk: {name: value for name, value in item.items() if value and name not in CONSTANT}
            for sk, item in items.items()
        }
        for chunk in (item for sk, item in plain.items() if sk.startswith("CHUNK#")):
            chunk.pop("n_spectra")
        fitting = [model for model in possible if model.items() == plain]
        assert fitting, differences(plain, possible)
        return fitting[0]


@dataclass(frozen=True)
class Shown:
    """A call that hypothesis prints by its `Op`."""

    call: tuple[Call, Op]

    def __repr__(self) -> str:
        return repr(self.call[1])


def differences(plain: dict[str, Item], possible: list[Model]) -> str:
    """The attributes in which the items differ from each possible state."""
    lines = []
    for number, model in enumerate(possible):
        expected = model.items()
        for sk in sorted({*plain, *expected}):
            there, wanted = plain.get(sk, {}), expected.get(sk, {})
            lines += [
                f"{number}: {sk} {name} is {there.get(name)!r} and not {wanted.get(name)!r}"
                for name in sorted({*there, *wanted})
                if there.get(name) != wanted.get(name)
            ]
    lines.append("The ledger writes something else than its model in ledger_model.py.")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(
    max_examples=int(os.environ.get("PRISMLINE_TEST_EXAMPLES", "500")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    begun=st.sampled_from([SPLIT, SPLIT, SPLIT, SPLIT, SPLIT[:3], [], ["stop"], ["stop", *SPLIT]]),
    n_calls=st.integers(0, 40),
    seed=st.integers(0, 2**32),
    stands_still=st.sampled_from([False, False, True]),
    what=st.sampled_from(["work", "work", "die", "meet", "meet", "meet"]),
    data=st.data(),
)
def test_the_items_are_what_the_protocol_says_whatever_is_called(
    dynamodb: DynamoDBClient,
    table: Table,
    new_run_id: Callable[[], str],
    begun: list[str],
    n_calls: int,
    seed: int,
    stands_still: bool,
    what: str,
    data: st.DataObject,
) -> None:
    story = Story(new_run_id(), stands_still)
    story.walk(begun, n_calls, random.Random(seed))
    story.go_on()
    experiment = Experiment(dynamodb, table, story, data)
    dynamodb.meta.events.register("before-call.dynamodb", experiment.on_request)
    try:
        states = getattr(experiment, what)()
    finally:
        dynamodb.meta.events.unregister("before-call.dynamodb", experiment.on_request)
    assert [rule for state in states for rule in broken_rules(state, experiment.before)] == []
