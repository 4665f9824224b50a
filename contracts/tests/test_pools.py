"""Pools: the id of a run says which pool it belongs to, and its tasks go to the queue of this pool."""

from __future__ import annotations

import re

import pytest

from prismline_contracts.base import RunId
from prismline_contracts.commands import MAX_QUEUE_NAME, Queue, dead_letter_queue_name, queue_name, task_queue_of
from prismline_contracts.delivery import LIMITS, limits_of
from prismline_contracts.items import RunItem
from prismline_contracts.manifest import run_id_of
from prismline_contracts.pools import POOL_PATTERN, in_pool, pool_of, pool_queue

LONGEST = "a" * 24


def run(run_id: str, **fields: object) -> RunItem:
    at = "2026-03-01T12:00:00.000Z"
    document = {
        "PK": run_id,
        "GSI1_PK": "s",
        "GSI1_SK": at,
        "job_id": "j",
        "created_at": at,
        "workload": "f",
        "survey": "s",
    }
    return RunItem.model_validate(document | fields)


def test_the_tasks_of_a_run_go_to_the_queue_of_its_pool() -> None:
    run_id = run_id_of("bucket", "key", "red")
    assert pool_of(run_id) == "red"
    assert task_queue_of(run(run_id), "dev") == "pool-red"
    assert task_queue_of(run(run_id_of("bucket", "key")), "dev") == Queue.TASKS
    assert task_queue_of(run("r", task_queue="prismline-dev-tasks-r"), "dev") == "tasks-r"


def test_the_queue_of_a_pool_has_the_limits_of_the_shared_queue_of_tasks() -> None:
    assert limits_of(pool_queue("red")) == LIMITS[Queue.TASKS] == limits_of("tasks")
    assert limits_of("tasks-r") is None


@pytest.mark.parametrize("name", ["red", "a1", "night-shift", LONGEST])
def test_a_name_of_a_pool_leads_to_valid_ids_and_names(name: str) -> None:
    assert re.match(POOL_PATTERN, name)
    run_id = run_id_of("bucket", "key", name)
    (constraint,) = RunId.__metadata__  # type: ignore[attr-defined]
    assert re.match(constraint.pattern, run_id)
    longest = dead_letter_queue_name(queue_name("e" * 20, pool_queue(name)))
    assert len(longest) <= MAX_QUEUE_NAME
    # AWS: names of functions have at most 64 characters.
    assert len(queue_name("e" * 20, pool_queue(name))) <= 64


@pytest.mark.parametrize("name", ["", "a", "A1", "a_b", "a.b", "-a", "a-", "1a", "a" * 25, "a\n"])
def test_other_names_are_refused(name: str) -> None:
    assert not re.fullmatch(POOL_PATTERN, name)


def test_no_run_of_one_pool_begins_like_those_of_another() -> None:
    """A policy names the runs of a pool by their beginning."""
    assert not in_pool("r", "red-2").startswith(in_pool("", "red"))
