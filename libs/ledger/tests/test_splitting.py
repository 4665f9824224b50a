"""What the ledger guarantees to the splitter: any step may be repeated, and the total equals the items."""

from __future__ import annotations

import pytest
from scenes import Scene, before_request, new_chunks

from prismline_contracts.items import ChunkStatus
from prismline_runtime import PermanentError

pytestmark = pytest.mark.emulator


def test_a_redelivered_split_leaves_chunks_that_progressed_alone(scene: Scene) -> None:
    scene.split(120)
    scene.complete(0)
    scene.start(1)
    before = scene.run
    scene.split(120)
    assert scene.chunk(0).state is ChunkStatus.COMPLETED
    assert scene.chunk(1).state is ChunkStatus.IN_PROGRESS
    assert scene.run == before
    assert scene.ledger.count_chunks(scene.run_id) == 120


def test_a_half_written_split_is_completed(scene: Scene) -> None:
    scene.open()
    scene.ledger.add_chunks(scene.run_id, new_chunks(13)[3:4])
    assert scene.run.chunks_total is None
    scene.split(13)
    assert [chunk.chunk_id for chunk in scene.ledger.chunks(scene.run_id)] == [c.chunk_id for c in new_chunks(13)]


def test_the_plan_of_the_first_delivery_stays(scene: Scene) -> None:
    first = scene.open(manifest_key="m", split_token="t")
    assert scene.open(manifest_key="n", split_token="u") == first == scene.run
    assert (first.manifest_key, first.split_token) == ("m", "t")


def test_a_plan_grows_in_steps_and_the_first_of_two_counts(scene: Scene) -> None:
    opened = scene.open()
    first = scene.ledger.set_plan(opened, '{"etag": "1"}')
    assert first.plan == scene.run.plan == '{"etag": "1"}'
    assert scene.ledger.set_plan(opened, '{"etag": "2"}') == first, "a later call returns the first plan"
    with before_request(scene.dynamodb, 0, lambda: scene.ledger.set_plan(first, '{"etag": "1", "chunk_size": 7}')):
        planned = scene.ledger.set_plan(first, '{"etag": "1", "chunk_size": 9}')
    assert planned.plan == scene.run.plan == '{"etag": "1", "chunk_size": 7}'


def test_a_run_carries_the_trace_of_its_submission(scene: Scene) -> None:
    run = scene.open(traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    assert run.trace_id == "a" * 32


@pytest.mark.parametrize("total", [2, 4])
def test_a_total_that_is_not_the_number_of_items_is_refused(scene: Scene, total: int) -> None:
    scene.open()
    scene.ledger.add_chunks(scene.run_id, new_chunks(3))
    with pytest.raises(PermanentError, match=f"cut into {total} chunks, but the ledger holds 3: submit it again"):
        scene.ledger.set_total(scene.run_id, n_chunks=total, n_items=3, n_blank=0)
    assert scene.run.chunks_total is None


def test_a_latched_total_cannot_be_changed(scene: Scene) -> None:
    scene.split(2)
    scene.ledger.set_total(scene.run_id, n_chunks=2, n_items=2, n_blank=0)
    scene.ledger.add_chunks(scene.run_id, new_chunks(3))
    with pytest.raises(PermanentError, match="a total other than 3 chunks"):
        scene.ledger.set_total(scene.run_id, n_chunks=3, n_items=3, n_blank=0)
    assert scene.run.chunks_total == 2


def test_a_run_without_a_total_is_not_latched(scene: Scene) -> None:
    scene.open()
    run = scene.ledger.latch(scene.run_id)
    assert (run.latched_at, run.drained_at) == (None, None)


def test_a_latch_closes_once(scene: Scene) -> None:
    scene.split(1)
    closed_at = scene.run.latched_at
    assert closed_at is not None
    assert scene.ledger.latch(scene.run_id).latched_at == closed_at


def test_a_run_whose_chunks_all_ended_before_the_latch_drains_with_it(scene: Scene) -> None:
    scene.split(1, latch=False)
    assert scene.complete().run.drained_at is None
    run = scene.ledger.latch(scene.run_id)
    assert run.drained_at is not None
    assert scene.ledger.latch(scene.run_id) == run, "a splitter that died before its announcement gets the same again"


def test_a_run_without_chunks_drains_with_its_latch(scene: Scene) -> None:
    scene.split(0)
    assert (scene.run.drained_at is not None, scene.run.drains) == (True, 1)


def test_chunks_that_two_splitters_write_at_once_are_there_once(scene: Scene) -> None:
    scene.open()
    with before_request(scene.dynamodb, 1, lambda: scene.ledger.add_chunks(scene.run_id, new_chunks(25))):
        scene.ledger.add_chunks(scene.run_id, new_chunks(25))
    scene.split(25)
    assert scene.run.chunks_total == 25


def test_a_message_about_an_unknown_run_is_a_permanent_error(scene: Scene) -> None:
    with pytest.raises(PermanentError, match="no run"):
        scene.ledger.latch(scene.run_id)
    with pytest.raises(PermanentError, match="does not exist"):
        scene.ledger.set_total(scene.run_id, n_chunks=0, n_items=0, n_blank=0)
    assert scene.ledger.get_run(scene.run_id) is None
