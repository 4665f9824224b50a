"""The model of scaling out (benchmarks/scale_out.py): its limits, and its simulation compared with its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks import scale_out
from benchmarks.scale_out import (
    CASES,
    MARGIN,
    MARGIN_WHERE_LIMITS_MEET,
    Case,
    Plan,
    Setting,
    Simulation,
    estimate,
    plan_of,
)
from tests.templates.reading import read_stacks

INPUTS = ("copy", "reference")
SPLIT_ROUNDS = math.ceil(scale_out.TILES / scale_out.SPLITTERS)


def named(case: Case) -> str:
    return case.title


@pytest.mark.parametrize("chunk_input", INPUTS)
def test_one_worker_takes_the_sum_of_the_parts(chunk_input: str) -> None:
    plan = plan_of(chunk_input)
    work = sum(scale_out.chunk_seconds(chunk) for chunk in plan.chunks)
    parts = scale_out.SUBMISSION_SECONDS + plan.split_seconds + scale_out.TILES * work
    assert estimate(plan, Setting(workers=1)) == pytest.approx(parts, rel=1e-3), "the last chunk is slightly smaller"


@pytest.mark.parametrize("chunk_input", INPUTS)
def test_without_end_of_workers_and_requests_the_serial_part_is_left(chunk_input: str) -> None:
    plan = plan_of(chunk_input)
    setting = Setting(workers=100_000, gets_per_second=math.inf, puts_per_second=math.inf)
    largest = max(scale_out.chunk_seconds(chunk) for chunk in plan.chunks)
    serial = scale_out.SUBMISSION_SECONDS + SPLIT_ROUNDS * plan.split_seconds + largest
    assert estimate(plan, setting) == pytest.approx(serial)


def simulated(plan: Plan, setting: Setting) -> float:
    return Simulation(plan, setting).run()


@pytest.mark.parametrize("compute", [estimate, simulated])
def test_no_number_of_workers_goes_beyond_the_requests_of_s3(compute: Callable[[Plan, Setting], float]) -> None:
    plan = plan_of("reference")
    requests = scale_out.TILES * sum(chunk.n_requests for chunk in plan.chunks)
    assert compute(plan, Setting(workers=1000)) > requests / scale_out.GETS_PER_SECOND
    assert compute(plan, Setting(workers=1000, gets_per_second=1000.0)) > requests / 1000.0


@pytest.mark.parametrize("functions", [False, True])
@pytest.mark.parametrize("chunk_input", INPUTS)
def test_more_workers_never_take_longer(chunk_input: str, functions: bool) -> None:
    times = [estimate(plan_of(chunk_input), Setting(n, functions)) for n in (1, 2, 5, 10, 20, 50, 100, 500, 1000)]
    assert times == sorted(times, reverse=True)


def test_functions_are_started_a_few_at_a_time() -> None:
    setting = Setting(workers=1000, functions=True)
    starts = setting.starts(1000, cold_seconds=0.0)
    assert [int((starts <= second).sum()) for second in (0, 1, 60)] == [5, 10, 305]
    assert estimate(plan_of("copy"), setting) > estimate(plan_of("copy"), replace(setting, functions=False))


@pytest.mark.parametrize("workers", [1, 10, 100, 1000])
@pytest.mark.parametrize("chunk_input", INPUTS)
@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_simulation_agrees_with_the_arithmetic(case: Case, chunk_input: str, workers: int) -> None:
    plan, setting = plan_of(chunk_input, case.side), Setting(workers, case.functions, tiles=case.tiles)
    simulation = Simulation(plan, setting)
    one_chunk_each = chunk_input == "reference" and len(plan.chunks) * case.tiles <= workers and case.tiles == 1
    margin = MARGIN_WHERE_LIMITS_MEET if one_chunk_each else MARGIN
    assert simulation.run() == pytest.approx(estimate(plan, setting), rel=margin)
    assert simulation.completed == case.tiles * len(plan.chunks)


@pytest.mark.parametrize("chunk_input", INPUTS)
@pytest.mark.parametrize("case", CASES, ids=named)
def test_they_agree_less_well_where_two_limits_meet(case: Case, chunk_input: str) -> None:
    plan, setting = plan_of(chunk_input, case.side), Setting(30, case.functions, tiles=case.tiles)
    assert Simulation(plan, setting).run() == pytest.approx(estimate(plan, setting), rel=MARGIN_WHERE_LIMITS_MEET)


def test_a_seed_decides_what_happens_in_the_simulation() -> None:
    plan, setting = plan_of("copy"), Setting(workers=10)
    first, again, other = (Simulation(plan, setting, seed).run() for seed in (1, 1, 2))
    assert first == again != other


def test_what_bounds_is_what_would_help_most() -> None:
    assert scale_out.bound_of(plan_of("copy"), Setting(workers=1))[0] == "workers"
    assert scale_out.bound_of(plan_of("copy"), Setting(workers=1000))[0] == "splitter"
    assert scale_out.bound_of(plan_of("reference"), Setting(workers=1000))[0] == "S3 requests"
    assert scale_out.bound_of(plan_of("reference"), Setting(workers=1000, functions=True))[0] == "start of functions"


def test_the_model_has_as_many_splitters_as_the_template() -> None:
    mapping = read_stacks()["splitter"]["Resources"]["EventSource"]["Properties"]
    assert mapping["ScalingConfig"]["MaximumConcurrency"] == scale_out.SPLITTERS
