"""`GET /v1/estimate`: what a run would cost, between two values that contain what it has cost afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import Api, ApiWorld, urls_job

from prismline_api import pricing
from prismline_contracts.fit_costs import fit_seconds
from prismline_contracts.tasks import task_id

pytestmark = pytest.mark.emulator

SURVEY = {"workload": "spectra", "items": 2_000_000, "channels": 424}


def estimate(acme: Api, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = acme.get("/estimate", **asked)
    assert 0 < found["usd"]["least"] < found["usd"]["most"]
    assert found["usd"]["prices"] == pricing.PRICES
    return found


def test_a_cube_costs_what_its_planned_fits_cost_and_the_answer_says_how_uncertain_that_is(acme: Api) -> None:
    found = estimate(acme, **SURVEY)
    planned = 2_000_000 * fit_seconds(424, "gaussline")
    assert found["worked_seconds"]["least"] < planned < found["worked_seconds"]["most"]
    work = planned * pricing.WORKER_GB * pricing.GB_SECOND
    assert found["usd"]["least"] < work < found["usd"]["most"] < 0.1
    assert "0.2 to 2 times the planned 0.05 ms" in " ".join(found["reasons"])
    assert "costs by the hour" in found["reasons"][-1]


def test_slower_fits_and_smaller_chunks_cost_more(acme: Api) -> None:
    usual = estimate(acme, **SURVEY)["usd"]
    assert estimate(acme, **SURVEY, fit="second_pass")["usd"]["least"] > 10 * usual["least"]
    assert estimate(acme, **SURVEY, chunk_size=10)["usd"]["least"] > 10 * usual["most"]
    assert estimate(acme, **SURVEY | {"channels": 5000})["usd"]["most"] > 10 * usual["most"]


def test_nothing_is_submitted(world: ApiWorld, acme: Api) -> None:
    estimate(acme, **SURVEY)
    estimate(acme, workload="urls", items=1000)
    assert acme.get("/runs")["items"] == []
    assert not [item for item in world.items("jobs") if item["PK"].startswith("JOB")]


def test_urls_take_up_to_their_timeout_until_a_run_has_fetched_some(
    world: ApiWorld, acme: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prismline_api.recent.SECONDS", 0.0)
    before = estimate(acme, workload="urls", items=1000)
    assert before["worked_seconds"] == {"least": 0, "most": 30_000}
    assert "may take up to its timeout of 30 s" in before["reasons"][0]
    run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
    world.complete(run_id, task_id(run_id, 3), b"<html>")
    cost = acme.get(f"/runs/{run_id}")["costs"]
    after = estimate(acme, workload="urls", items=1)
    assert run_id in after["reasons"][0]
    assert after["worked_seconds"]["most"] == pytest.approx(2 * cost["worked_seconds"])
    assert after["usd"]["least"] <= cost["usd"]["least"] < cost["usd"]["most"] <= after["usd"]["most"]


def test_a_duration_that_is_given_counts_more_than_earlier_runs(acme: Api) -> None:
    found = estimate(acme, workload="captions", items=100, seconds=3)
    assert found["worked_seconds"] == {"least": 150, "most": 600}
    assert "half to twice the 3 s that you gave" in found["reasons"][0]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"workload": "spectra", "items": 5}, "channels: give the number of channels"),
        ({"workload": "captions", "items": 5}, "seconds: no run of captions has ended anything"),
        ({"workload": "mesure", "items": 5}, "seconds: no run of mesure has ended anything"),
    ],
)
def test_without_a_basis_there_is_no_estimate(acme: Api, asked: dict[str, Any], named: str) -> None:
    assert named in acme.get("/estimate", expect=422, **asked)["detail"]


def test_the_timeout_of_a_function_bounds_it_before_it_is_registered(acme: Api) -> None:
    found = estimate(acme, workload="seeing:measure", items=10, timeout=60)
    assert found["worked_seconds"] == {"least": 0, "most": 600}
