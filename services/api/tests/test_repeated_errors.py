"""A run whose message raises again and again shows the error while the message is tried again."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import Api, ApiWorld, urls_job

from prismline_contracts.commands import RunSplit
from prismline_runtime import Work

pytestmark = pytest.mark.emulator


@pytest.fixture
def acme(world: ApiWorld) -> Api:
    return world.caller()


@pytest.fixture
def job(acme: Api) -> dict[str, Any]:
    made: dict[str, Any] = acme.post("/jobs", urls_job())
    return made


def test_a_run_that_is_not_open_yet_shows_the_error_of_its_split_until_the_split_succeeds(
    world: ApiWorld, acme: Api, job: dict[str, Any]
) -> None:
    run_id = job["run"]["run_id"]
    world.raise_errors(run_id, 2)
    assert "repeated_error" not in acme.get(f"/runs/{run_id}")
    world.raise_errors(run_id, 1)
    shown = acme.get(f"/runs/{run_id}")
    assert (shown["status"], shown.get("error")) == ("pending", None), "it may still succeed"
    error = shown["repeated_error"]
    assert (error["service"], error["message_type"], error["count"]) == ("splitter", "prismline.run.split.v1", 3)
    assert error["error"] == "ZeroDivisionError: division by zero"
    assert error["first_at"] < error["last_at"]
    assert "part" not in error
    assert error["sentence"].startswith("ZeroDivisionError: division by zero (splitter, run.split, 3 times from ")
    world.deps.ledger.forget_error(Work(run_id, RunSplit.TYPE))
    assert "repeated_error" not in acme.get(f"/runs/{run_id}")


def test_an_open_run_shows_the_error_and_another_tenant_does_not_see_it(
    world: ApiWorld, acme: Api, job: dict[str, Any]
) -> None:
    run_id = job["run"]["run_id"]
    world.open_run(job)
    world.raise_errors(run_id, 3)
    assert acme.get(f"/runs/{run_id}")["repeated_error"]["count"] == 3
    assert acme.get(f"/jobs/{job['job_id']}")["run"]["repeated_error"]["count"] == 3
    world.caller("other").get(f"/runs/{run_id}", expect=404)


def test_a_run_that_has_ended_no_longer_shows_the_errors_from_before(
    world: ApiWorld, acme: Api, job: dict[str, Any]
) -> None:
    run_id = job["run"]["run_id"]
    world.raise_errors(run_id, 3)
    world.state(run_id, status="cancelled", completed_at="2999-01-01T00:00:00.000Z")
    assert "repeated_error" not in acme.get(f"/runs/{run_id}")
