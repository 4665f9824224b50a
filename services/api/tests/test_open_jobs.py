"""Open jobs: batches, repeats, batches at the same time, and the close."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from api_world import Api, ApiWorld, urls

from prismline_api import open_jobs
from prismline_contracts.commands import Queue
from prismline_contracts.tasks import UrlsManifest

pytestmark = pytest.mark.emulator


@pytest.fixture
def job_id(acme: Api) -> str:
    job = acme.post("/jobs", {"workload": "urls", "name": "pages", "open": True, "params": {"timeout_s": 7.5}}, 202)
    assert job["state"] == "open"
    return str(job["job_id"])


def tasks_of(acme: Api, job_id: str) -> list[tuple[int, str]]:
    run_id = acme.get(f"/jobs/{job_id}")["run"]["run_id"]
    return sorted((task["index"], task["url"]) for task in acme.walk(f"/runs/{run_id}/tasks", limit=100))


def ingested(world: ApiWorld) -> list[UrlsManifest]:
    """The manifests of the runs that the splitter was asked to start."""
    commands = world.received(Queue.SPLIT)
    return [UrlsManifest.model_validate_json(world.deps.bucket.read(each["data"]["manifest_key"])) for each in commands]


def test_nothing_starts_before_the_first_batch(world: ApiWorld, acme: Api, job_id: str) -> None:
    assert ingested(world) == []
    assert world.announced() == []
    assert "counts" not in acme.get(f"/jobs/{job_id}")["run"]


def test_the_tasks_of_a_batch_are_seen_and_sent_at_once(world: ApiWorld, acme: Api, job_id: str) -> None:
    first = acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(40)})
    second = acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(60, 40)})
    assert (first["first_index"], second["first_index"], second["n_tasks"]) == (0, 40, 100)
    assert tasks_of(acme, job_id) == list(enumerate(urls(100)))
    messages = world.received("tasks")
    assert len({name for message in messages for name in message["data"]["task_ids"]}) == 100
    assert {message["data"]["params"]["timeout_s"] for message in messages} == {7.5}
    assert all(len({message["data"]["shard"]}) == 1 for message in messages)
    assert world.announced() == []


def test_a_repeated_batch_adds_nothing(acme: Api, job_id: str) -> None:
    first = acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(3)}, key="k")
    assert acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(3)}, key="k") == first
    acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(4)}, expect=409, key="k")
    assert len(tasks_of(acme, job_id)) == 3


def test_batches_at_the_same_time_share_no_index(acme: Api, job_id: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(5, 5 * n)}, key=str(n)), range(8)))
    tasks = tasks_of(acme, job_id)
    assert [index for index, _ in tasks] == list(range(40))
    assert sorted(url for _, url in tasks) == sorted(urls(40))


def test_a_closed_job_is_ingested_from_its_batches(world: ApiWorld, acme: Api, job_id: str) -> None:
    for start in (0, 10):
        acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(10, start)})
    assert acme.post(f"/jobs/{job_id}/close", expect=202)["state"] == "closed"
    (manifest,) = ingested(world)
    assert manifest.batches is not None
    assert manifest.batches.count == 20
    assert manifest.params.timeout_s == 7.5
    keys = world.keys(manifest.batches.prefix)
    lines = [json.loads(line) for key in keys for line in world.deps.bucket.read(key).splitlines()]
    assert [line["url"] for line in lines] == urls(20)
    assert "closed" in acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(1)}, expect=409)["detail"]


def test_a_batch_that_arrives_during_the_close_belongs_to_the_job(
    world: ApiWorld, acme: Api, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(2)})
    arriving = [urls(3, 2)]

    def arrive(name: str, **_: str) -> None:
        if name == "api.close_manifest_written" and arriving:
            acme.post(f"/jobs/{job_id}/tasks", {"urls": arriving.pop()})

    monkeypatch.setattr(open_jobs, "fault_point", arrive)
    acme.post(f"/jobs/{job_id}/close", expect=202)
    assert [manifest.batches and manifest.batches.count for manifest in ingested(world)] == [5]


def test_a_job_that_was_never_open_cannot_be_closed(acme: Api) -> None:
    job = acme.post("/jobs", {"workload": "urls", "name": "pages", "urls": urls(1)})
    acme.post(f"/jobs/{job['job_id']}/close", expect=409)
    acme.post(f"/jobs/{job['job_id']}/tasks", {"urls": urls(1)}, expect=409)


@pytest.mark.parametrize("point", ["api.batch_reserved", "api.batch_stored", "api.tasks_added"])
def test_a_batch_that_was_cut_off_is_completed_by_its_repeat(
    world: ApiWorld, acme: Api, job_id: str, fail_at: Callable[[str], None], point: str
) -> None:
    fail_at(point)
    acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(9)}, expect=503, key="k")
    acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(1, 9)})
    if point == "api.batch_reserved":
        assert "Idempotency-Key k" in acme.post(f"/jobs/{job_id}/close", expect=409)["detail"]
    assert acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(9)}, key="k")["first_index"] == 0
    assert tasks_of(acme, job_id) == list(enumerate(urls(10)))
    acme.post(f"/jobs/{job_id}/close", expect=202)
    assert [manifest.batches and manifest.batches.count for manifest in ingested(world)] == [10]


@pytest.mark.parametrize("point", ["api.close_manifest_written", "api.job_closed"])
def test_a_close_that_was_cut_off_is_completed_by_its_repeat(
    world: ApiWorld, acme: Api, job_id: str, fail_at: Callable[[str], None], point: str
) -> None:
    acme.post(f"/jobs/{job_id}/tasks", {"urls": urls(2)})
    fail_at(point)
    acme.post(f"/jobs/{job_id}/close", expect=503)
    acme.post(f"/jobs/{job_id}/close", expect=202)
    assert [manifest.batches and manifest.batches.count for manifest in ingested(world)] == [2]
