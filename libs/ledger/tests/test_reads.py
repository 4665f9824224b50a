"""The ledger's reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError
from scenes import Scene, before_request

from prismline_contracts.base import timestamp
from prismline_contracts.items import MAX_CHUNK_ERROR_BYTES, ChunkStatus
from prismline_ledger import Ledger
from prismline_runtime import PermanentError, UnavailableError

pytestmark = pytest.mark.emulator


def test_many_chunks_are_found_together_and_missing_ones_are_left_out(scene: Scene) -> None:
    scene.split(130)
    names = [(scene.run_id, scene.chunk_id(number)) for number in range(130)]
    found = scene.ledger.find([*names, *names, (scene.run_id, "chunk-9999999"), ("nobody", scene.chunk_id())])
    assert set(found) == set(names)
    assert found[names[7]] == scene.chunk(7)
    assert scene.ledger.find([]) == {}


def test_many_runs_are_found_together_and_missing_ones_are_left_out(scene: Scene) -> None:
    run = scene.open()
    assert scene.ledger.find_runs([scene.run_id, scene.run_id, "nobody"]) == {scene.run_id: run}


def test_the_latest_run_of_a_survey_comes_first(scene: Scene, new_run_id: Callable[[], str]) -> None:
    moments = iter(timestamp(datetime(2026, 3, day, tzinfo=UTC)) for day in (1, 1, 2, 2, 3, 3))
    clocked = Ledger(scene.dynamodb, scene.table.name, clock=lambda: next(moments))
    ids = [new_run_id() for _ in range(3)]
    for run_id in ids:
        Scene(clocked, scene.dynamodb, scene.table, run_id).open(survey="order")
    assert [run.run_id for run in clocked.runs_of("order")] == ids[::-1]
    assert [run.run_id for run in clocked.runs_of("order", limit=1)] == ids[-1:]
    assert [run.run_id for run in clocked.runs_of("order", not_before="2026-03-02T00:00:00.000Z")] == ids[:0:-1]


def test_chunks_can_be_filtered_by_status_over_many_pages(scene: Scene) -> None:
    scene.split(60)
    for number in range(0, 60, 20):
        scene.fail(number, "x" * 5000)
    failed = list(scene.ledger.chunks(scene.run_id, status=ChunkStatus.FAILED))
    assert [chunk.chunk_id for chunk in failed] == [scene.chunk_id(number) for number in range(0, 60, 20)]
    assert all(len((chunk.error or "").encode()) <= MAX_CHUNK_ERROR_BYTES for chunk in failed)


def test_pages_of_chunks_follow_each_other(scene: Scene) -> None:
    scene.split(5)
    first = scene.ledger.page_of_chunks(scene.run_id, limit=2)
    second = scene.ledger.page_of_chunks(scene.run_id, limit=9, after=first.after)
    assert [chunk.chunk_id for chunk in (*first.chunks, *second.chunks)] == [scene.chunk_id(n) for n in range(5)]
    assert second.after is None
    assert scene.ledger.page_of_chunks(scene.run_id, status=ChunkStatus.FAILED).chunks == []


def test_a_run_or_chunk_that_does_not_exist_is_a_permanent_error(scene: Scene) -> None:
    assert scene.ledger.get_run(scene.run_id) is None
    assert scene.ledger.count_chunks(scene.run_id) == 0
    with pytest.raises(PermanentError, match="no run"):
        scene.ledger.run(scene.run_id)
    with pytest.raises(PermanentError, match="no chunk-0000000"):
        scene.chunk()


def test_a_table_that_does_not_answer_is_an_unavailable_error(scene: Scene) -> None:
    scene.split(1)

    def refuse() -> None:
        raise ClientError({"Error": {"Code": "InternalServerError"}}, "GetItem")

    with before_request(scene.dynamodb, 0, refuse), pytest.raises(UnavailableError, match="InternalServerError"):
        scene.ledger.get_run(scene.run_id)
