"""A short search: two hundred schedules, those that once failed, and an outage of a day of each dependency.

It also tests the simulation itself: one seed is one schedule, and a planted bug is found, shrunk and replayed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from boto3.dynamodb.conditions import Attr

from prismline_dlq_consumer import decisions, sweep_decisions
from prismline_ledger import attempts, attempts_used
from tests.simulation.aws.loader import blueprint
from tests.simulation.choices import Choices
from tests.simulation.exhaustive import TWO_BY_TWO, explore, replay
from tests.simulation.plan import (
    DAY,
    DEPENDENCIES,
    FUNCTION_SERVICE,
    LIST_SERVICES,
    SERVICES,
    VALKEY,
    ListPlan,
    Outage,
    Plan,
    RunPlan,
    draw_plan,
)
from tests.simulation.processes import declared_services, with_pool
from tests.simulation.seeds import ONCE_FAILED
from tests.simulation.shrink import shrink
from tests.simulation.simulation import Result, simulate
from tests.simulation.slots import StandInValkey

ROOT = Path(__file__).parents[2]
#: The first seed of every test run, and the numbers of seeds: all that are drawn, and those of each focus on lists. The
#: mutants that random schedules find need 21 and 14 (mutants/results.csv). `make simulate` runs any number.
FIRST, SCHEDULES, LISTS, BATCH = 1_000_000, 120, 40, 40
#: Calls of every process that waits for messages.
POLLING = frozenset({"receive_message", "delete_message_batch"})
#: Seconds after the submission at which a dependency goes down: during the split, and while workers process chunks.
MOMENTS = {"spectra": 0.06, "captions": 0.4}


def assert_nothing_found(seeds: Iterable[int], focus: str | None = None) -> None:
    """Assert that every promise is kept in the schedules of `seeds`."""
    found = {seed: str(finding) for seed in seeds if (finding := simulate(seed, focus=focus).finding)}
    option = f" --focus {focus}" if focus else ""
    assert not found, "\n".join(
        f"python -m tests.simulation --seed {seed}{option}  # {message}" for seed, message in found.items()
    )


def test_a_few_schedules_keep_every_promise() -> None:
    assert_nothing_found(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + SCHEDULES, BATCH))
def test_schedules_keep_every_promise(first: int) -> None:
    """Seeds with an outage of a day are left out: they take as long as all others, and have their own tests below."""
    seeds = range(first, first + BATCH)
    assert_nothing_found(
        seed for seed in seeds if all(outage.seconds < DAY for outage in draw_plan(Choices(seed)).outages)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "focus"), ONCE_FAILED)
def test_what_once_failed_keeps_every_promise(seed: int, focus: str | None) -> None:
    assert_nothing_found([seed], focus)


@pytest.mark.slow
@pytest.mark.parametrize("focus", ["lists", "functions"])
@pytest.mark.parametrize("first", range(FIRST, FIRST + LISTS, BATCH))
def test_schedules_with_lists_keep_every_promise(first: int, focus: str) -> None:
    assert_nothing_found(range(first, first + BATCH), focus)


# ---- what is simulated


def test_the_queues_of_the_templates_are_read_except_for_those_of_alerts() -> None:
    services = {**declared_services(), **with_pool(declared_services())}
    simulated = {queue for name in (*SERVICES, *LIST_SERVICES, FUNCTION_SERVICE) for queue in services[name].queues}
    declared = {source.queue.removeprefix("prismline-sim-") for source in blueprint("sim").event_sources}
    assert declared - simulated == {"alerts"}
    assert simulated <= declared


def test_the_handlers_of_the_templates_run_except_for_those_of_alerting_and_http() -> None:
    result = simulate(plan=_everybody(), record={})
    left = set(blueprint("sim").handlers.values()) - {handler for handler, _ in result.coverage.handlers}
    assert left == {
        "prismline_alerting.handler.handler",
        "prismline_alerting.interactions.handler",
        "prismline_api.app.handler",
    }


def test_every_simulated_service_acts_in_a_schedule() -> None:
    """Each of them makes a call that is neither a receipt nor a deletion of messages, and no promise is broken."""
    result = simulate(plan=_everybody(), record={})
    assert result.finding is None, str(result.finding)
    acting = {service for service, _, operation in result.coverage.calls if operation not in POLLING}
    assert acting >= {*SERVICES, *LIST_SERVICES, FUNCTION_SERVICE, "api"}


def _everybody() -> Plan:
    """A plan in which every simulated service has something to do."""
    runs = (RunPlan(chunks=2, slow=(1,), bad=(0,), mended_at=100.0),)
    long = ListPlan(how="manifest", tasks=9, export_at=60.0, webhook=True)
    batches = ListPlan(how="open", tasks=2, batches=(1.0,), close_at=2.0, delete_at=900.0)
    lists = (long, batches, ListPlan(how="manifest", function=True, pool=True))
    return Plan(runs=runs, lists=lists, recoveries=(200.0,))


def test_short_lists_and_their_limits_make_long_ones() -> None:
    """Nine tasks have three shards, several blocks, and a queue of their own, which is deleted at the end."""
    result = simulate(plan=Plan(runs=(), lists=(ListPlan(how="manifest", tasks=9),)), record={}, trace=True)
    assert result.finding is None, str(result.finding)
    trace = result.trace.text()
    assert all(text in trace for text in ("create_queue", "delete_queue", "list-1#0/", "list-1#1/", "list-1#2/"))
    assert len(re.findall(r"splitter\S* +dynamodb.update_item list-1/RUN SET #checkpoint", trace)) == 3
    assert result.transitions["task", "IN_PROGRESS", "COMPLETED"] == 9


def test_a_run_has_no_more_requests_at_a_time_than_it_may_though_valkey_dies() -> None:
    """Its tasks wait without an attempt while Valkey is down, and are fetched when it is back."""
    limited = ListPlan(how="manifest", tasks=9, max_concurrency=1)
    plan = Plan(runs=(), lists=(limited,), fetchers=3, outages=(Outage(VALKEY, 1.0, 150.0),))
    result = simulate(plan=plan, record={}, trace=True)
    assert result.finding is None, str(result.finding)
    assert result.transitions["task", "IN_PROGRESS", "COMPLETED"] == 9
    assert result.transitions["task", "PENDING", "IN_PROGRESS"] == 9
    assert "OUTAGE of valkey" in result.trace.text()


def test_slots_that_valkey_gives_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInValkey, "_get", lambda *_: None)
    lists = (ListPlan(how="manifest", tasks=9, max_concurrency=1),)
    finding = simulate(plan=Plan(runs=(), lists=lists, fetchers=3), record={}).finding
    assert finding is not None
    assert finding.check == "no more at a time"


def test_a_run_is_stopped_at_its_deadline_and_workers_skip_the_rest() -> None:
    late = ListPlan(how="manifest", tasks=9, deadline_at=60.0)
    plan = Plan(runs=(), lists=(late,), pauses=(("fetcher", 0.0, 600.0),))
    result = simulate(plan=plan, record={}, trace=True)
    assert result.finding is None, str(result.finding)
    assert ended(result, "run") == {"failed": 1}
    assert ended(result, "task") == {}
    assert "run_deadline_passed" in result.trace.text()


# ---- outages


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", [RunPlan(chunks=2, slow=(1,)), RunPlan("captions", chunks=2)], ids=["spectra", "captions"]
)
@pytest.mark.parametrize("dependency", DEPENDENCIES)
def test_an_outage_of_a_day_costs_no_chunk_and_no_run(dependency: str, run: RunPlan) -> None:
    """A healthy run completes with every chunk, and with the spectra that the fast lane left to the slow lane."""
    outage = Outage(dependency, MOMENTS[run.workload], DAY)
    result = simulate(plan=Plan(runs=(run,), workers=2, sweep_seconds=900.0, outages=(outage,)), record={})
    assert result.finding is None, str(result.finding)
    assert ended(result, "chunk") == {"COMPLETED": 2}
    assert ended(result, "run") == {"completed": 1}


def test_processes_that_start_while_sqs_is_down_for_a_day_ask_for_their_queues_seldom() -> None:
    """Seed 900003086 of `day` and 26 others asked a million times."""
    result = simulate(plan=Plan(outages=(Outage("sqs", 0.0, DAY),)), record={})
    assert result.finding is None, str(result.finding)
    assert ended(result, "run") == {"completed": 1}
    assert result.struck["outage", "sqs", "get_queue_url"] > 100, "the processes have not found their queues"
    assert result.events < 20_000


def ended(result: Result, what: str) -> dict[str, int]:
    """The number of chunks or runs for each terminal state."""
    ends: dict[str, int] = {}
    for (kind, _, after), count in result.transitions.items():
        if kind == what and after.lower() in {"completed", "failed", "cancelled"}:
            ends[after] = ends.get(after, 0) + count
    return ends


# ---- the simulation itself


@pytest.mark.slow
def test_one_seed_is_one_schedule_in_every_process() -> None:
    """The trace is the same byte for byte, whatever ran before in the process and whatever order sets have."""
    seeds = (3, 17, 79, 99)
    here = [simulate(seed, trace=True).trace.digest() for seed in seeds]
    assert [simulate(seed, trace=True).trace.digest() for seed in reversed(seeds)] == here[::-1]
    assert len(set(here)) == len(seeds)
    program = (
        "from tests.simulation.simulation import simulate\n"
        f"for seed in {seeds}: print(simulate(seed, trace=True).trace.digest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},  # here it is random
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == here


def test_a_record_replays_its_schedule() -> None:
    recorded = simulate(17, trace=True, recording=True)
    replayed = simulate(record=recorded.record, trace=True)
    assert replayed.trace.text() == recorded.trace.text()


@pytest.mark.slow
def test_a_planted_fault_is_found_and_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that gives a chunk up after its first attempt: only a schedule with a failed attempt shows it."""
    for module in (decisions, sweep_decisions):
        monkeypatch.setattr(module, "exhausted", lambda chunk, *_: "hasty" if attempts_used(chunk) else None)
    seed = next(seed for seed in range(200) if simulate(seed).finding)
    found = simulate(seed, recording=True)
    smallest = shrink(seed, most_seconds=20)
    assert found.finding is not None
    assert smallest.finding is not None
    assert smallest.finding.kind == found.finding.kind
    assert len(smallest.record) < len(found.record) / 2
    assert "FOUND" in smallest.trace.text()
    again = simulate(record=smallest.record, trace=True)
    assert again.trace.digest() == smallest.trace.digest()


@pytest.mark.slow
@pytest.mark.parametrize(("chunks", "faults"), [(2, 0), (1, 1)])
def test_every_order_of_the_drain_keeps_every_promise(chunks: int, faults: int) -> None:
    """Two workers end their chunks in every order, and a worker that ends the only chunk fails at each call."""
    explored = explore(replace(TWO_BY_TWO, runs=(RunPlan(chunks=chunks),)), faults=faults, seconds=300, drain=True)
    assert (explored.found, explored.left) == (None, 0)
    assert explored.schedules > 10


@pytest.mark.slow
def test_a_planted_fault_is_found_by_the_exhaustive_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated message begins a completed chunk again. This happens only if a worker dies at one certain call."""
    monkeypatch.setattr(attempts, "_MAY_START", Attr("PK").exists())
    plan = Plan(runs=(RunPlan(chunks=1),), workers=2, sweep_seconds=900.0)
    without = explore(plan, faults=0, seconds=60)
    assert (without.found, without.left) == (None, 0), "nothing goes wrong, and nothing is left"
    found = explore(plan, faults=1, seconds=60).found
    assert found is not None
    finding = replay(plan, faults=1, choices=found).finding
    assert finding is not None
    assert finding.check == "allowed transitions"
