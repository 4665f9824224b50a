"""The number of dead letters of each run in the archive, counted a few records at a time."""

from __future__ import annotations

import json

import pytest
from api_world import Api, ApiWorld, refuse_reads, urls_job

from prismline_api import archive_counts
from prismline_api.archive_counts import ArchiveCounts
from prismline_contracts.deadletters import dead_letter_key
from prismline_contracts.tasks import task_id

pytestmark = pytest.mark.emulator


class Clock:
    """Advances by `step` seconds with every reading."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def archive(world: ApiWorld, day: str, run_ids: list[str | None]) -> list[str]:
    keys = []
    for number, run_id in enumerate(run_ids):
        key = dead_letter_key(day, f"{run_id}-{number}")
        world.deps.bucket.write(key, json.dumps({"run_id": run_id, "body": "{}"}).encode())
        keys.append(key)
    return keys


def test_dead_letters_are_counted_by_run_and_recovered_ones_no_longer_count(world: ApiWorld) -> None:
    keys = archive(world, "2026-03-01", ["a", "a", "b", None])
    clock = Clock(step=0.001)
    counts = ArchiveCounts(world.deps.archive, clock=clock)
    counted = counts.now()
    assert [counted.of(name, "2026-03-01T00:00:00Z") for name in "abc"] == [2, 1, 0]
    world.deps.s3.delete_object(Bucket=world.deps.bucket.name, Key=keys[0])
    clock.now += 60
    assert counts.now().of("a", "2026-03-01T00:00:00Z") == 1


def test_a_run_from_before_what_was_read_has_no_number(world: ApiWorld) -> None:
    archive(world, "2026-03-01", ["old"] * 3)
    archive(world, "2026-03-02", ["new"] * 2)
    counts = ArchiveCounts(world.deps.archive, most_records=3, clock=Clock(step=0.001))
    counted = counts.now()
    assert counted.of("new", "2026-03-02T00:00:00Z") == 2
    assert counted.of("old", "2026-03-01T23:00:00Z") is None


def test_a_large_archive_is_read_part_by_part(world: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_counts, "READERS", 2)
    archive(world, "2026-03-01", ["a"] * 5)
    counts = ArchiveCounts(world.deps.archive, clock=Clock(step=0.3))
    looks = [counts.now().of("a", "2026-03-01T00:00:00Z") for _ in range(20)]
    assert looks[0] is None, "one look reads a part"
    assert looks[-1] == 5


def test_an_archive_of_more_than_is_read_is_not_listed_all_the_time(world: ApiWorld) -> None:
    archive(world, "2026-03-01", ["old"] * 4)
    clock = Clock(step=0.001)
    counts = ArchiveCounts(world.deps.archive, most_records=3, clock=clock)
    counts.now()
    archive(world, "2026-03-02", ["new"])
    clock.now += archive_counts.LOOK_SECONDS / 2
    assert "new" not in counts.now().by_run
    clock.now += archive_counts.LOOK_SECONDS
    assert counts.now().by_run["new"] == 1


def test_a_record_that_cannot_be_read_leaves_only_its_day_and_earlier_ones_uncounted(
    world: ApiWorld, acme: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = acme.post("/jobs", urls_job())["run"]["run_id"]
    (unread,) = archive(world, "2026-03-01", ["a"])
    archive(world, "2099-03-01", [run_id])
    clock = Clock(step=0.001)
    with monkeypatch.context() as patch:
        refuse_reads(patch, unread)
        counts = ArchiveCounts(world.deps.archive, clock=clock)
        assert counts.now().of("a", "2026-03-01T00:00:00Z") is None
        assert counts.now().of("b", "2026-03-02T00:00:00Z") == 0
        (run,) = acme.get("/runs")["items"]
        assert run["dead_letters"] == 1
    clock.now += archive_counts.LOOK_SECONDS
    assert counts.now().of("a", "2026-03-01T00:00:00Z") == 1


def test_the_list_of_runs_has_the_number_of_dead_letters(world: ApiWorld, acme: Api) -> None:
    run_id = acme.post("/jobs", urls_job())["run"]["run_id"]
    archive(world, "2099-03-01", [run_id, "of-another-run"])
    (run,) = acme.get("/runs")["items"]
    assert run["dead_letters"] == 1


def test_the_list_of_runs_has_their_costs(world: ApiWorld, acme: Api) -> None:
    run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
    assert "costs" not in acme.get(f"/runs/{run_id}"), "nothing has ended"
    world.complete(run_id, task_id(run_id, 3), b"<html>")
    (run,) = acme.get("/runs")["items"]
    assert run["costs"] == acme.get(f"/runs/{run_id}")["costs"]
    assert (run["costs"]["attempts"], run["costs"]["bytes"]) == (1, 6)
    usd = run["costs"]["usd"]
    assert 0 < usd["least"] < usd["most"] < 0.001
    assert usd["prices"] == "us-east-1, 2025"
