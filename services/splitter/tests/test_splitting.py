"""Splitters that die or run twice, sources that are replaced: a run is split once, and as it was submitted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from splitter_world import SplitterWorld, cube_file, die

from prismline_contracts import fit_costs
from prismline_contracts.manifest import FitParams, run_id_of
from prismline_cube.testing import forged_member, grid, no_groups, zarr_file
from prismline_splitter import chunking
from prismline_splitter.workloads import spectra

pytestmark = pytest.mark.emulator

#: The splitter's fault points in their order, one between each pair of its steps.
POINTS = (
    "split.run_opened",
    "split.input_chosen",
    "split.inputs_written",
    "split.divided",
    "split.items_written",
    "split.total_set",
    "split.messages_sent",
    "split.latched",
    "split.answered",
    "split.announced",
)
RUN, KEY = "run-1", "manifests/job.json"


def assert_split(world: SplitterWorld, run_id: str, data: np.ndarray, size: int) -> None:
    """The run is split into chunks of `size` spectra that together are `data`, and the waiting task was answered."""
    run, chunks = world.ledger.run(run_id), list(world.ledger.chunks(run_id))
    assert run.latched_at is not None
    assert run.chunks_total == len(chunks) == -(-len(data) // size)
    assert run.n_items == sum(chunk.n_items for chunk in chunks) == len(data)
    np.testing.assert_array_equal(world.spectra(run_id), data)
    assert world.state_machine.refusals == []
    assert {answer["jobs_total"] for answer in world.state_machine.answers} == {len(chunks)}


# ---- sources that are replaced


def test_two_submissions_with_one_file_name_are_each_split_from_their_own_cube(
    world: SplitterWorld, tmp_path: Path
) -> None:
    """The first splitter dies between items and total; then somebody submits another cube of the same name."""
    files = {}
    for folder, n in (("a", 8), ("b", 16)):
        body, data = cube_file(n, seed=n)
        path = tmp_path / folder / "cube.fits"
        path.parent.mkdir()
        path.write_bytes(body)
        files[folder] = path, data
    first = world.submit_file(files["a"][0], chunk_size=2, idempotency_key="a")
    world.die_at("split.items_written")
    assert not world.split(first, "manifests/a.json")
    second = world.submit_file(files["b"][0], chunk_size=2, idempotency_key="b")
    assert world.split(first, "manifests/a.json")
    assert_split(world, first, files["a"][1], size=2)
    assert sum(world.messages().values()) == 4
    world.state_machine.answers.clear()
    assert world.split(second, "manifests/b.json")
    assert_split(world, second, files["b"][1], size=2)
    for run_id in (first, second):
        world.work_off(run_id)
        run = world.ledger.run(run_id)
        assert run.drained_at is not None
        assert run.chunks_completed == run.chunks_total == world.ledger.count_chunks(run_id)


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
@pytest.mark.parametrize("point", ["split.input_chosen", "split.inputs_written", "split.items_written"])
@pytest.mark.parametrize("n", [8, 16], ids=["of the same shape", "of another shape"])
def test_a_run_whose_cube_was_replaced_meanwhile_fails_and_the_reason_says_what_to_do(
    world: SplitterWorld, point: str, n: int, chunk_input: str
) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2, chunk_input=chunk_input)
    world.die_at(point)
    assert not world.split(RUN, KEY)
    world.put_cube("cubes/c.fits", n=n, seed=1)
    assert world.split(RUN, KEY)
    ((error, cause),) = world.state_machine.refusals
    assert error == "ValidationFailed"
    assert cause == f"s3://{world.bucket}/cubes/c.fits was replaced after the run had been submitted; submit it again."
    assert world.ledger.run(RUN).chunks_total is None
    assert world.messages() == {}


def test_a_cube_that_was_replaced_before_the_splitter_first_read_it_is_split_as_it_is_now(world: SplitterWorld) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    world.die_at("split.run_opened")
    assert not world.split(RUN, KEY)
    data = world.put_cube("cubes/c.fits", n=16, seed=1)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)


def test_a_cube_that_is_replaced_while_the_messages_are_sent_changes_nothing(world: SplitterWorld) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    world.die_at("split.total_set")
    assert not world.split(RUN, KEY)
    world.put_cube("cubes/c.fits", n=16, seed=1)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)


def test_a_message_carries_only_the_parameters_that_were_given(world: SplitterWorld) -> None:
    world.put_cube("cubes/c.fits", n=2)
    world.put_manifest(KEY, params={"beta": 4.0})
    assert world.split(RUN, KEY)
    assert [data["params"] for data in world.sent()] == [{"beta": 4.0}]
    assert json.loads(world.ledger.run(RUN).params or "") == FitParams(beta=4.0).model_dump(exclude_none=True)


@pytest.mark.parametrize("point", ["split.inputs_written", "split.items_written"])
def test_a_newer_release_with_other_costs_keeps_the_chunk_size_of_the_older_one(
    world: SplitterWorld, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = world.put_cube("cubes/c.fits", n=48)
    world.put_manifest(KEY)
    monkeypatch.setitem(fit_costs.COST_MS, "gaussline", 2_000.0)
    world.die_at(point)
    assert not world.split(RUN, KEY)
    before = world.objects(f"chunks/{RUN}/chunk-")
    assert len(before) == 5
    monkeypatch.setitem(fit_costs.COST_MS, "gaussline", 10_000.0)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=10)
    assert world.objects(f"chunks/{RUN}/chunk-") == before


def test_a_splitter_that_refers_to_the_cube_copies_nothing(world: SplitterWorld) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=3, chunk_input="reference")
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=3)
    assert world.objects(f"chunks/{RUN}/") == [f"chunks/{RUN}/geometry.json", f"chunks/{RUN}/manifest.json"]
    assert world.ledger.run(RUN).n_blank is None, "the workers count blank spectra"
    first = next(iter(world.ledger.chunks(RUN)))
    assert first.cube_reference is not None
    assert (first.cube_reference.first, first.cube_reference.count) == (0, 3)


@pytest.mark.parametrize("large", [True, False])
def test_a_later_release_keeps_the_input_that_was_chosen(
    world: SplitterWorld, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    monkeypatch.setattr(spectra, "SMALL_CUBE_BYTES", 0 if large else 10**6)
    world.die_at("split.input_chosen")
    assert not world.split(RUN, KEY)
    monkeypatch.setattr(spectra, "SMALL_CUBE_BYTES", 10**6 if large else 0)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)
    assert {chunk.reference is not None for chunk in world.ledger.chunks(RUN)} == {large}


def test_a_cube_in_another_bucket_is_split_where_it_is(world: SplitterWorld) -> None:
    other = f"{world.bucket}-survey"
    world.s3.create_bucket(Bucket=other)
    body, data = cube_file(8)
    world.s3.put_object(Bucket=other, Key="tile.fits", Body=body)
    for n, chunk_input in enumerate(("copy", "reference")):
        key = f"manifests/{n}.json"
        world.put_manifest(key, cube_key="tile.fits", cube_bucket=other, chunk_size=2, chunk_input=chunk_input)
        assert world.split(f"run-{n}", key)
        np.testing.assert_array_equal(world.spectra(f"run-{n}"), data)
    assert world.objects("cubes/") == []


@pytest.mark.parametrize("point", ["split.inputs_written", "split.divided", "split.items_written", "split.total_set"])
def test_the_chunks_of_a_large_run_are_counted_by_shards_whichever_release_continues(
    world: SplitterWorld, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "CHUNKS_OF_ONE_SHARD", 3)
    data = world.put_cube("cubes/c.fits", n=40)
    world.put_manifest(KEY, chunk_size=2)
    world.die_at(point)
    assert not world.split(RUN, KEY)
    if point != "split.inputs_written":  # a newer release, which would choose one shard
        monkeypatch.setattr(chunking, "CHUNKS_OF_ONE_SHARD", 100)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)
    run = world.ledger.run(RUN)
    assert run.shard_count == chunking.SHARDS
    assert sum(shard.total or 0 for shard in world.ledger.shards(run)) == 20
    world.work_off(RUN)
    run = world.ledger.run(RUN)
    assert (run.drained_at is not None, run.chunks_completed) == (True, 20)


@pytest.mark.parametrize("point", ["split.run_opened", "split.items_written", "split.total_set"])
@pytest.mark.parametrize("replaced", [True, False], ids=["overwritten", "deleted"])
def test_a_manifest_that_is_gone_after_the_run_was_announced_changes_nothing(
    world: SplitterWorld, point: str, replaced: bool
) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_cube("cubes/other.fits", n=16)
    run_id = world.notify(world.put_manifest(KEY, chunk_size=2))
    world.die_at(point)
    assert not world.split(run_id, KEY)
    if replaced:
        world.put_manifest(KEY, cube_key="cubes/other.fits", chunk_size=3, survey="other")
    else:
        world.s3.delete_object(Bucket=world.bucket, Key=KEY)
    assert world.split(run_id, KEY)
    assert_split(world, run_id, data, size=2)
    assert world.ledger.run(run_id).survey == "grs"


HOSTILE = {
    "no groups": (no_groups(), "the header's GCOUNT is 0 and must be 1 in an image"),
    "a forged member": (forged_member(), "its member c/0/0/0 claims 1,000,000,000,000,000 bytes"),
    "a chunk shape of 0": (zarr_file(chunk_grid=grid([6, 0, 5])), "its chunk shape has the length 0"),
    "an empty file": (b"", ""),
}


@pytest.mark.parametrize("chunk_input", ["copy", "reference", "auto"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_cube_fails_its_run_at_the_first_delivery_with_one_sentence(
    world: SplitterWorld, name: str, chunk_input: str
) -> None:
    body, message = HOSTILE[name]
    world.s3.put_object(Bucket=world.bucket, Key="cubes/c.fits", Body=body)
    world.put_manifest(KEY, chunk_input=chunk_input)
    assert world.split(RUN, KEY), "the message is acknowledged, so that it is not delivered again"
    ((error, cause),) = world.state_machine.refusals
    assert error == "ValidationFailed"
    assert cause.startswith("The cube cubes/c.fits cannot be split: ")
    assert message in cause
    assert cause.isprintable()
    assert world.dead_letters() == []


def test_two_runs_that_were_submitted_under_one_manifest_key_are_each_split_from_their_own(
    world: SplitterWorld,
) -> None:
    first_data, second_data = world.put_cube("cubes/a.fits", n=8), world.put_cube("cubes/b.fits", n=16, seed=1)
    first = world.notify(world.put_manifest(KEY, cube_key="cubes/a.fits", chunk_size=2))
    second = world.notify(world.put_manifest(KEY, cube_key="cubes/b.fits", chunk_size=4))
    assert first != second
    for run_id, data, size in ((first, first_data, 2), (second, second_data, 4)):
        world.state_machine.answers.clear()
        assert world.split(run_id, KEY)
        assert_split(world, run_id, data, size)


def test_a_submission_that_is_notified_twice_is_announced_as_it_was_first_read(world: SplitterWorld) -> None:
    """Its idempotency key makes a second upload the same run, whatever else the second manifest says."""
    first = world.put_manifest(KEY, idempotency_key="once", tolerated_failure_percent=10.0)
    assert world.notify(first) == run_id_of(world.bucket, "once")
    second = world.put_manifest(KEY, idempotency_key="once", tolerated_failure_percent=90.0)
    assert world.deliver_notification(second)
    (event,) = world.events("run.submitted")
    assert event["runid"] == run_id_of(world.bucket, "once")
    assert event["data"]["tolerated_failure_percent"] == 10.0


def test_a_run_that_somebody_else_announced_is_split_too(world: SplitterWorld) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)


def test_a_missing_manifest_fails_its_run(world: SplitterWorld) -> None:
    assert world.split(RUN, KEY)
    ((error, cause),) = world.state_machine.refusals
    assert error == "ValidationFailed"
    assert "manifests/job.json: it does not exist" in cause


# ---- repeated deliveries


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
@pytest.mark.parametrize("point", POINTS)
def test_a_splitter_that_dies_is_taken_over_by_the_next_delivery(
    world: SplitterWorld, point: str, chunk_input: str
) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2, chunk_input=chunk_input)
    world.die_at(point)
    assert not world.split(RUN, KEY)
    assert (world.state_machine.answers == []) == (point not in {"split.answered", "split.announced"})
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)
    assert sorted(world.messages()) == [chunk.chunk_id for chunk in world.ledger.chunks(RUN)]
    events = world.events("run.split.completed")
    assert events
    assert len({event["id"] for event in events}) == 1
    assert events[0]["data"]["jobs_total"] == 4


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
@pytest.mark.parametrize("point", POINTS)
def test_two_splitters_at_once_split_the_run_once(world: SplitterWorld, point: str, chunk_input: str) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2, chunk_input=chunk_input)
    world.hooks[point] = lambda: world.assert_split_by_another(RUN, KEY)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)
    assert len({event["id"] for event in world.events("run.split.completed")}) == 1


@pytest.mark.parametrize("source", ["cubes/c.fits", KEY, f"chunks/{RUN}/manifest.json"])
def test_a_latched_run_does_not_fail_because_its_source_is_gone(world: SplitterWorld, source: str) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    assert world.split(RUN, KEY)
    world.s3.delete_object(Bucket=world.bucket, Key=source)
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)


def test_a_latched_run_is_announced_as_split_while_the_bucket_does_not_answer(world: SplitterWorld) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    world.die_at("split.latched")
    assert not world.split(RUN, KEY)
    with world.bucket_out_of_order():
        assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)


def test_a_splitter_that_lost_the_source_does_not_fail_the_run_that_another_has_latched(world: SplitterWorld) -> None:
    data = world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)

    def another_was_faster() -> None:
        world.assert_split_by_another(RUN, KEY)
        world.s3.delete_object(Bucket=world.bucket, Key="cubes/c.fits")

    world.hooks["split.run_opened"] = another_was_faster
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)
    assert world.dead_letters() == []


def test_a_long_outage_of_the_state_machine_causes_no_second_message(world: SplitterWorld) -> None:
    data = world.put_cube("cubes/c.fits", n=80)
    world.put_manifest(KEY, chunk_size=2)
    world.state_machine.out_of_order = True
    for _ in range(30):
        assert not world.split(RUN, KEY)
    assert world.messages() == {f"chunk-{start:07d}": 1 for start in range(0, 80, 2)}
    world.state_machine.out_of_order = False
    assert world.split(RUN, KEY)
    assert_split(world, RUN, data, size=2)
    assert world.messages() == {}
    assert world.dead_letters() == []


def test_the_next_delivery_publishes_an_event_that_was_not_published(world: SplitterWorld) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    world.die_at("split.latched")
    assert not world.split(RUN, KEY)
    assert world.events("run.split.completed") == []
    assert world.split(RUN, KEY)
    assert len(world.events("run.split.completed")) == 1


def test_a_run_whose_chunks_ended_before_the_latch_is_announced_as_drained_until_its_end_is_recorded(
    world: SplitterWorld,
) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    world.hooks["split.messages_sent"] = lambda: world.work_off(RUN)
    world.die_at("split.latched")
    assert not world.split(RUN, KEY)
    run = world.ledger.run(RUN)
    assert run.drained_at is not None
    assert world.events("run.drained") == []
    for _ in range(2):
        assert world.split(RUN, KEY)
        (event,) = world.events("run.drained")
        assert (event["data"]["jobs_total"], event["data"]["jobs_completed"]) == (4, 4)
    assert world.ledger.record_end(run, "completed")
    assert world.split(RUN, KEY)
    assert world.events("run.drained") == []


# ---- runs that were stopped


@pytest.mark.parametrize("token", ["token", None])
def test_a_run_that_was_cancelled_before_it_was_opened_is_not_split(world: SplitterWorld, token: str | None) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    world.ledger.stop_run(RUN, "cancelled")
    assert world.split(RUN, KEY, token=token)
    assert_stopped(world, refused=token is not None)
    assert world.objects(f"chunks/{RUN}/chunk-") == []
    assert world.ledger.count_chunks(RUN) == 0


@pytest.mark.parametrize(
    ("point", "inputs", "items"),
    [("split.run_opened", 0, 0), ("split.inputs_written", 4, 0), ("split.items_written", 4, 4)],
)
@pytest.mark.parametrize("reason", ["cancelled", "failed"])
def test_a_run_that_is_stopped_while_it_is_split_gets_no_messages(
    world: SplitterWorld, point: str, inputs: int, items: int, reason: str
) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)

    def stop_and_die() -> None:
        world.ledger.stop_run(RUN, reason)
        die()

    world.hooks[point] = stop_and_die
    assert not world.split(RUN, KEY)
    assert world.split(RUN, KEY)
    assert_stopped(world)
    assert len(world.objects(f"chunks/{RUN}/chunk-")) == inputs
    assert world.ledger.count_chunks(RUN) == items


@pytest.mark.parametrize(
    ("point", "items"), [("split.inputs_written", 0), ("split.items_written", 4), ("split.total_set", 4)]
)
def test_a_splitter_notices_that_its_run_is_stopped(world: SplitterWorld, point: str, items: int) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    world.hooks[point] = lambda: world.ledger.stop_run(RUN, "cancelled")
    assert world.split(RUN, KEY)
    assert_stopped(world)
    assert world.ledger.count_chunks(RUN) == items


def test_a_stopped_run_whose_source_is_gone_is_refused_as_ended_and_not_as_invalid(world: SplitterWorld) -> None:
    world.put_manifest(KEY, cube_key="cubes/nowhere.fits")
    world.hooks["split.run_opened"] = lambda: world.ledger.stop_run(RUN, "cancelled")
    assert world.split(RUN, KEY)
    assert_stopped(world)


def test_a_run_that_a_recovery_resumed_and_that_cannot_be_split_is_stopped_again(world: SplitterWorld) -> None:
    world.put_manifest(KEY, cube_key="cubes/nowhere.fits")
    assert world.split(RUN, KEY)
    assert world.ledger.run(RUN).cancelled_at is None, "the state machine fails the run, and that stops it"
    world.ledger.stop_run(RUN, "failed")
    assert world.ledger.resume_run(world.ledger.run(RUN))
    assert world.split(RUN, KEY)
    assert world.ledger.run(RUN).stop_reason == "failed"
    assert [error for error, _ in world.state_machine.refusals] == ["ValidationFailed"] * 2


def assert_stopped(world: SplitterWorld, *, refused: bool = True) -> None:
    """The run is not split any further, and nothing announces that it was split."""
    assert world.messages() == {}
    assert world.state_machine.answers == []
    assert [error for error, _ in world.state_machine.refusals] == (["RunEnded"] if refused else [])
    assert world.events("run.split.completed", "run.drained") == []
    assert world.dead_letters() == []
    assert world.ledger.run(RUN).latched_at is None
