"""Chunks that refer to the cube: what is read from it, and what happens to the chunks if a read fails."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody
from worker_world import CUBE, FIRST, GOOD, HOPELESS, RUN_ID, SLOW, WorkerWorld

from prismline_contracts.base import chunk_id
from prismline_contracts.items import ChunkStatus
from prismline_contracts.references import CubeReference
from prismline_runtime import Bucket
from prismline_worker.handler import build_handler

pytestmark = pytest.mark.emulator

BLANK = float("nan")
LAST = chunk_id(3)


def referring(world: WorkerWorld, chunk: str = FIRST) -> dict[str, Any]:
    """The fields of the chunk's message as the splitter sends it."""
    reference = world.chunk(chunk).cube_reference
    assert reference is not None
    return {"chunk_key": reference.key, "reference": reference}


def test_the_spectra_of_a_chunk_are_read_from_the_cube(world: WorkerWorld) -> None:
    world.open_run_of_cube([GOOD, BLANK, GOOD, BLANK, BLANK], size=3)
    assert world.process(FIRST, **referring(world))
    assert world.rows(FIRST) == ["fitted", "blank", "fitted"]
    assert (world.chunk(FIRST).n_blank, world.run().n_blank) == (1, 1)
    assert world.process(LAST, **referring(world, LAST))
    assert world.rows(LAST) == ["blank", "blank"]
    assert world.run().n_blank == 3
    assert world.process(LAST, **referring(world, LAST)), "a redelivery"
    assert world.run().n_blank == 3
    assert world.run().drained_at is not None


def test_a_message_without_the_reference_gets_it_from_the_ledger(world: WorkerWorld) -> None:
    world.open_run_of_cube([GOOD, GOOD], size=2)
    assert world.process(FIRST, chunk_key=CUBE)
    assert world.rows(FIRST) == ["fitted"] * 2


def test_rows_that_ran_out_of_time_are_refitted_from_the_cube(world: WorkerWorld) -> None:
    world.open_run_of_cube([GOOD, GOOD, GOOD, SLOW, GOOD, SLOW], size=3)
    assert world.process(LAST, **referring(world, LAST))
    assert world.rows(LAST) == ["timed_out", "fitted", "timed_out"]
    assert world.refit()
    assert world.rows(LAST) == ["fitted"] * 3
    assert (world.run().n_timed_out, world.run().n_blank) == (0, 0)


def test_a_cube_that_was_replaced_in_mid_run_fails_its_chunks_and_the_reason_says_what_to_do(
    world: WorkerWorld,
) -> None:
    world.open_run_of_cube([GOOD] * 6, size=3)
    assert world.process(FIRST, **referring(world))
    body = boto3.client("s3").get_object(Bucket=world.bucket, Key=CUBE)["Body"].read()
    world.put(CUBE, body[:-1] + b"x")
    assert world.process(LAST, **referring(world, LAST))
    assert world.chunk(FIRST).state is ChunkStatus.COMPLETED
    assert world.chunk(LAST).state is ChunkStatus.FAILED
    assert world.chunk(LAST).error == (
        f"s3://{world.bucket}/{CUBE} was replaced after the run had been submitted; submit it again."
    )
    ((_, attributes),) = world.take("chunks-dlq")
    assert attributes["error"] == world.chunk(LAST).error


def test_a_cube_that_is_gone_fails_its_chunks(world: WorkerWorld) -> None:
    world.open_run_of_cube([GOOD], size=3)
    boto3.client("s3").delete_object(Bucket=world.bucket, Key=CUBE)
    assert world.process(FIRST, **referring(world))
    assert world.chunk().error == f"Could not read s3://{world.bucket}/{CUBE}: it does not exist."


@pytest.mark.parametrize("changes", [{"bitpix": 12}, {"spectral_axis": 4}, {"first": 7}, {"layout": "zarr"}])
def test_an_invalid_reference_fails_its_chunk(world: WorkerWorld, changes: dict[str, Any]) -> None:
    world.open_run_of_cube([GOOD] * 3, size=3)
    wrong = CubeReference.model_validate(referring(world)["reference"].model_dump() | changes)
    assert world.process(FIRST, chunk_key=CUBE, reference=wrong)
    assert world.chunk().state is ChunkStatus.FAILED
    assert CUBE in (world.chunk().error or "")


def test_a_spectrum_that_cannot_be_fitted_fails_its_chunk(world: WorkerWorld) -> None:
    world.open_run_of_cube([GOOD, HOPELESS], size=2)
    assert world.process(FIRST, **referring(world))
    assert world.refit(), "the slow lane gives the row up"
    assert world.chunk().n_refit_failed == 1


def throttled(answer: dict[str, Any]) -> dict[str, Any]:
    raise ClientError({"Error": {"Code": "SlowDown", "Message": "Please reduce your request rate."}}, "GetObject")


def cut_short(answer: dict[str, Any]) -> dict[str, Any]:
    """The connection ends before the last byte."""
    body = answer["Body"].read()
    return answer | {"Body": StreamingBody(io.BytesIO(body[:-1]), len(body))}


def too_little(answer: dict[str, Any]) -> dict[str, Any]:
    body = answer["Body"].read()[:-1]
    return answer | {"Body": StreamingBody(io.BytesIO(body), len(body))}


@pytest.mark.parametrize(
    ("spoil", "message"), [(throttled, "SlowDown"), (cut_short, "Could not read"), (too_little, "bytes arrived")]
)
def test_a_range_that_fails_gives_the_chunk_back(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch, spoil: Callable[..., dict[str, Any]], message: str
) -> None:
    world.open_run_of_cube([GOOD, BLANK], size=2)
    s3 = boto3.client("s3")

    class SpoiledRanges:
        def get_object(self, **request: Any) -> Any:
            answer: Any = s3.get_object(**request)
            return spoil(answer) if "Range" in request else answer

        def __getattr__(self, name: str) -> Any:
            return getattr(s3, name)

    spoiled: Any = SpoiledRanges()
    deps = dataclasses.replace(world.deps, open_bucket=lambda name: Bucket(spoiled, name))
    with monkeypatch.context() as patch:
        patch.setattr(world, "handler", build_handler(deps))
        assert not world.process(FIRST, **referring(world)), "SQS delivers the message again"
    chunk = world.chunk()
    assert chunk.state is ChunkStatus.PENDING
    assert message in (chunk.last_error or "")
    assert (chunk.attempts, chunk.interruptions) == (1, 1), "the attempt does not count against the chunk"
    assert world.process(FIRST, **referring(world))
    assert world.rows() == ["fitted", "blank"]
    assert world.ledger.run(RUN_ID).n_blank == 1


def test_a_worker_that_once_has_no_memory_for_a_range_tries_the_chunk_again(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open_run_of_cube([GOOD, BLANK], size=2)

    def lacking(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7.28 GiB")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "read_range", lacking)
        assert not world.process(FIRST, **referring(world)), "SQS delivers the message again"
    chunk = world.chunk()
    assert chunk.state is ChunkStatus.PENDING
    assert chunk.last_error == "MemoryError: Unable to allocate 7.28 GiB"
    assert world.process(FIRST, **referring(world))
    assert world.rows() == ["fitted", "blank"]
