"""Whatever is called, by whom, however late, twice or interrupted: the items are what the protocol says they are.

Hypothesis draws calls of every writer. A call may rest on a read that is several calls old. It may die before any of
its writes, and another call may come in between any two of its requests. After each, the items in the table are those
of `ledger_model`: after a call that died, those of one of its steps; after two that met, those of one of their orders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from ledger_model import UNENDED, ImpossibleError, Item, Model, Steps, TooEarlyError, broken_rules

from prismline_contracts import ChunkItem, RunItem, timestamp
from prismline_ledger import Finished, Ledger, NewChunk, Started
from prismline_runtime import PermanentError, Table, TransientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.emulator

NAMES = [f"chunk-{number:07d}" for number in range(2)]
CHUNKS = [NewChunk(name, f"in/{name}", 1) for name in NAMES]
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
READING = ("Get", "Query", "BatchGet")
#: Attributes that are the same in every item of their kind.
CONSTANT = {
    *("PK", "SK", "GSI1_PK", "survey", "workload", "job_id", "shard_count"),
    *("chunk_key", "n_items"),
}
#: What callers of a run that is returned go by.
TOLD = ("drained_at", "drains", "jobs_completed", "jobs_failed", "n_timed_out", "ended_at", "cancelled_at")


class DiedError(Exception):
    """The process is gone. Nothing in the ledger catches this."""


@dataclass(frozen=True)
class Op:
    """A call of the ledger: of which chunk, on how old a read (in calls), and with which number."""

    name: str
    chunk: int
    age: int
    number: int


@dataclass(frozen=True)
class Look:
    """Everything there is at a moment, as the ledger returns it and as the model has it."""

    run: RunItem | None
    chunks: dict[str, ChunkItem]
    model: Model


@dataclass(frozen=True)
class Call:
    """An operation, ready to be carried out by the ledger or by the model."""

    real: Callable[[Ledger], Any]
    model: Callable[[Model], Steps[Any]]


def call(op: Op, run_id: str, now: str, looks: list[Look]) -> Call | None:
    """What `op` means after these looks; None: nobody could have made such a call."""
    fresh, old = looks[-1], looks[max(0, len(looks) - 1 - op.age)]
    match op.name:
        case "open":
            return Call(
                lambda ledger: nothing(
                    ledger.open_run(
                        run_id=run_id, survey="s", job_id="j", workload="spectra", params=None, traceparent=None
                    )
                ),
                lambda model: model.open(now),
            )
        case "stop":
            reason: Any = ("cancelled", "failed")[op.number % 2]
            return Call(lambda ledger: ledger.stop_run(run_id, reason), lambda model: model.stop(now, reason))
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
                lambda ledger: ledger.set_total(run_id, jobs_total=2, n_spectra=2, n_blank=0),
                lambda model: model.set_total(now, 2),
            )
        case "latch":
            return Call(lambda ledger: told(ledger.latch(run_id)), lambda model: model.latch(now))
        case "drain":
            return Call(lambda ledger: told(ledger.drain(run_id)), lambda model: model.drain(now))
    run, read = old.run, old.model.run
    if run is None or read is None:
        return None
    match op.name:
        case "set_plan":
            plan = f"{run.plan or ''}{op.number}"
            return Call(lambda ledger: ledger.set_plan(run, plan).plan, lambda model: model.set_plan(now, read, plan))
        case "record_end":
            return Call(
                lambda ledger: ledger.record_end(run, "completed"),
                lambda model: model.record_end(now, read, "completed"),
            )
        case "resume":
            return Call(lambda ledger: ledger.resume_run(run), lambda model: model.resume(now, read))
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
            return Call(
                lambda ledger: ledger.correct_counters(run, counted), lambda model: model.correct(now, read, counted)
            )
    return None


def call_of_chunk(op: Op, run_id: str, now: str, name: str, chunk: ChunkItem, read: Item) -> Call | None:
    error, flag = f"error of {now}", bool(op.number % 2)
    match op.name:
        case "start":
            return Call(
                lambda ledger: "started" if isinstance(ledger.start_chunk(run_id, name), Started) else "skipped",
                lambda model: model.start(now, name),
            )
        case "end_attempt" if read["status"] == "IN_PROGRESS":
            return Call(
                lambda ledger: ledger.end_attempt(chunk, error, interrupted=flag),
                lambda model: model.end_attempt(now, name, read, error, flag),
            )
        case "record_error":
            return Call(
                lambda ledger: ledger.record_error(run_id, name, error),
                lambda model: model.record_error(now, name, error),
            )
        case "complete":
            return Call(
                lambda ledger: finished(
                    ledger.complete_chunk(chunk, output_key="o", duration_ms=1, n_timed_out=op.number)
                ),
                lambda model: model.complete(now, name, op.number),
            )
        case "fail" if read["status"] in UNENDED:
            return Call(
                lambda ledger: finished(ledger.fail_chunk(chunk, error)), lambda model: model.fail(now, name, error)
            )
        case "give_up" if read["status"] in UNENDED:
            return Call(
                lambda ledger: finished(ledger.give_up_chunk(chunk, error, unsaid=flag)),
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
        case "mark_said":
            return Call(lambda ledger: ledger.mark_said(chunk), lambda model: model.mark_said(now, name, read))
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
#: Calls, by how often they are drawn: the more depends on their order, the more often.
OFTEN = ["complete", "fail", "give_up", "reopen", "start", "end_attempt", "record_end"]
SOMETIMES = [
    *("drain", "latch", "open", "stop", "resume", "close", "record_refit", "give_up_refit"),
    *("resend", "resend_refit", "defer", "mark_said", "correct"),
]
SELDOM = ["claim", "resend_split", "set_plan", "check", "record_error", "add_chunks", "set_total"]
#: Calls that make more than one request. Another call comes in between these, or before the first one.
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
    """What a call returns and nobody goes by."""


def told(run: RunItem | Item) -> Item:
    item = run.model_dump() if isinstance(run, RunItem) else run
    return {name: item[name] for name in TOLD if item.get(name)}


def finished(outcome: Finished) -> tuple[bool, bool, Item]:
    return outcome.changed, outcome.late, told(outcome.run)


def carried_out(steps: Steps[Any]) -> Any:
    """What the model's operation returns when nothing comes in between."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        match end.value:
            case (changed, late, dict() as run):
                return changed, late, told(run)
            case dict() as run:
                return told(run)
        return end.value
    except ImpossibleError:
        return "impossible"
    except TooEarlyError:
        return "too early"


def orders(model: Model, first: Call, second: Call) -> Iterator[tuple[Any, Any, Model]]:
    """What may come of two calls that meet: the second one takes place at one of the moments of the first."""
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
    """Whether it makes a difference when the second call comes in between."""
    outcomes = [(one, two, state.items()) for one, two, state in orders(model, first, second)]
    return any(outcome != outcomes[0] for outcome in outcomes)


def has_steps(model: Model, operation: Call) -> bool:
    """Whether a death may leave the operation half done."""
    states: list[dict[str, Item]] = []
    for state in stops(model, operation):
        if state.items() not in states:
            states.append(state.items())
    return len(states) > 2


def stops(model: Model, operation: Call) -> Iterator[Model]:
    """What may be left of a call that died."""
    state = model.copy()
    yield state.copy()
    steps = operation.model(state)
    try:
        while True:
            next(steps)
            yield state.copy()
    except (StopIteration, ImpossibleError, TooEarlyError):
        yield state


class LedgerMachine(RuleBasedStateMachine):
    """One run, on which everybody works at once."""

    dynamodb: DynamoDBClient
    table: Table
    new_run_id: Callable[[], str]

    def __init__(self) -> None:
        super().__init__()
        self.run_id = self.new_run_id()
        self.now = START
        self.ledger = Ledger(self.dynamodb, self.table.name, clock=lambda: timestamp(self.now))
        self.stands_still = False
        self.looks = [Look(None, {}, Model())]
        #: Called before each request to DynamoDB, with the name of its operation.
        self.before_request: Callable[[str], None] = nothing
        self.dynamodb.meta.events.register("before-call.dynamodb", self.on_request)

    def teardown(self) -> None:
        self.dynamodb.meta.events.unregister("before-call.dynamodb", self.on_request)

    def on_request(self, *, model: Any, **_: Any) -> None:
        self.before_request(model.name)

    @initialize(
        steps=st.sampled_from([4, 4, 4, 4, 3, 2, 0]),
        endings=st.lists(st.sampled_from(["start", "complete", "fail"]), max_size=2),
        stands_still=st.sampled_from([False, False, True]),
    )
    def split(self, steps: int, endings: list[str], stands_still: bool) -> None:
        """A run that got so far."""
        self.stands_still = stands_still
        for name in SPLIT[:steps]:
            self.do(Op(name, 0, 0, 1))
        if steps == len(SPLIT):
            for chunk, name in enumerate(endings):
                self.do(Op(name, chunk, 0, 2))

    def do(self, op: Op) -> None:
        self.go_on()
        planned = call(op, self.run_id, timestamp(self.now), self.looks)
        assert planned is not None
        self.carry_out_and_compare(planned)

    def carry_out_and_compare(self, planned: Call) -> Model:
        expected = self.looks[-1].model.copy()
        result = carried_out(planned.model(expected))
        assert self.carry_out(planned) == result
        return self.look([expected])

    def go_on(self, seconds: int = 1) -> None:
        """Time passes, unless this is a run in which everything happens within a millisecond."""
        self.now += timedelta(seconds=0 if self.stands_still else seconds)

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        planned, op = self.draw(data)
        expected = self.carry_out_and_compare(planned)
        run = expected.run
        if op.name in ("drain", "latch", "complete", "fail", "give_up") and run and run.get("latched_at"):
            ended = expected.n("jobs_completed") + expected.n("jobs_failed") == expected.n("jobs_total")
            assert bool(run.get("drained_at")) == ended, "whoever looks at the end drains the run"

    @rule(data=st.data(), writes=st.sampled_from([0, 1, 1, 2]), comes_again=st.booleans())
    def work_and_die(self, data: st.DataObject, writes: int, comes_again: bool) -> None:
        """The process dies before its next write, after so many; its message may come again."""
        planned, _ = self.draw(data, lambda planned: has_steps(self.looks[-1].model, planned))
        left = writes

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
        self.look(list(stops(self.looks[-1].model, planned)))
        if comes_again:
            self.carry_out_and_compare(planned)

    @rule(data=st.data(), requests=st.sampled_from([0, 0, 1, 1, 2, 2, 3]))
    def work_and_meet(self, data: st.DataObject, requests: int) -> None:
        """Another call comes in between two requests, or before the first one, after what it rests on was read."""
        planned, op = self.draw(data)
        self.go_on()
        meeting, _ = self.draw(data, lambda other: order_matters(self.looks[-1].model, planned, other))
        self.go_on(-2)
        met: list[Any] = []
        left = requests if op.name in LONG else 0

        def meet(_: str = "") -> None:
            nonlocal left
            if left == 0:
                self.before_request = nothing
                self.go_on(2)
                met.append(self.carry_out(meeting))
                self.go_on(-2)
            left -= 1

        self.before_request = meet
        result = self.carry_out(planned)
        self.before_request = nothing
        if not met:
            left = 0
            meet()
        self.go_on(2)
        possible = list(orders(self.looks[-1].model, planned, meeting))
        state = self.look([model for _, _, model in possible])
        results = [(one, two) for one, two, model in possible if model == state]
        assert (result, met[0]) in results

    @rule(data=st.data(), requests=st.sampled_from([0, 1, 2]))
    def work_and_meet_again(self, data: st.DataObject, requests: int) -> None:
        """Most depends on this one."""
        self.work_and_meet(data, requests)

    def draw(self, data: st.DataObject, rather: Callable[[Call], bool] | None = None) -> tuple[Call, Op]:
        """A call that somebody could make now; `rather` one for which this holds, if there is any."""
        self.go_on()
        moment, number = timestamp(self.now), data.draw(st.integers(0, 3))
        age = data.draw(st.sampled_from([0, 0, 0, 1, 2, 4, 8]))
        possible, better = [], []
        for weight, names in WEIGHTS:
            for op in (Op(name, chunk, age, number) for name in names for chunk in (0, 1)):
                planned = call(op, self.run_id, moment, self.looks)
                if planned is None:
                    continue
                possible += [(planned, op)] * weight
                if rather is not None and rather(planned):
                    better.append((planned, op))
        return data.draw(st.sampled_from(better or possible))

    def carry_out(self, planned: Call) -> Any:
        try:
            return planned.real(self.ledger)
        except PermanentError:
            return "impossible"
        except TransientError:
            return "too early"

    def look(self, possible: list[Model]) -> Model:
        """Find out which of the possible states is the one, and that the documents allow it."""
        items = {item["SK"]: item for item in self.table.query(Key("PK").eq(self.run_id))}
        plain = {
            sk: {name: value for name, value in item.items() if value and name not in CONSTANT}
            for sk, item in items.items()
        }
        for chunk in (item for sk, item in plain.items() if sk.startswith("CHUNK#")):
            del chunk["n_spectra"]
        fitting = [model for model in possible if model.items() == plain]
        assert fitting, differences(plain, possible)
        model = fitting[0]
        assert broken_rules(model, self.looks[-1].model) == []
        chunks = {sk.removeprefix("CHUNK#"): item for sk, item in items.items() if sk.startswith("CHUNK#")}
        self.looks.append(
            Look(
                run=RunItem.model_validate(items["RUN"]) if "RUN" in items else None,
                chunks={name: ChunkItem.model_validate(item) for name, item in chunks.items()},
                model=model.copy(),
            )
        )
        return model


def differences(plain: dict[str, Item], possible: list[Model]) -> str:
    """In which attributes the items are not those of each possible state."""
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
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_items_are_what_the_protocol_says_whatever_is_called(
    dynamodb: DynamoDBClient, table: Table, new_run_id: Callable[[], str]
) -> None:
    class Machine(LedgerMachine):
        pass

    Machine.dynamodb, Machine.table, Machine.new_run_id = dynamodb, table, staticmethod(new_run_id)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=int(os.environ.get("PRISMLINE_TEST_EXAMPLES", "60")),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
