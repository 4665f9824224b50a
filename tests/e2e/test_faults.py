"""Duplicates, kills and damaged inputs: every chunk still ends once, and the counters stay exact."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from prismline_contracts.items import ChunkStatus
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.redelivery import RedeliveringProxy
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

#: The fault points of the splitter, one between each two of its steps. The splitter's own tests have the same list:
#: they also run in a checkout of that service alone.
SPLIT_POINTS = (
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
#: The fault points of the worker.
CHUNK_POINTS = ("chunk.started", "chunk.block_fitted", "chunk.decomposed", "chunk.output_written", "chunk.recorded")


def test_a_splitter_that_dies_between_any_two_steps_is_taken_over(faults: System, tmp_path: Path) -> None:
    """One run at a time: a splitter handles several at once, and a death for one could keep another from its point."""
    system = faults
    cube = write_cube(tmp_path / "cube.fits", ny=3, nx=4)
    for point, chunk_input in zip(SPLIT_POINTS, cycle(("reference", "copy"))):
        key = f"killed-at-{point}"
        rule = {"point": point, "action": "kill", "times": 1, "where": {"run_id": system.run_id_for(key)}}
        system.set_faults([rule])
        run_id = system.submit(cube, chunk_size=5, idempotency_key=key, chunk_input=chunk_input)
        view = system.wait(run_id, patience=240)
        assert (view.status, view.completed, view.total) == ("completed", 3, 3)
        wait_for(
            system.faults_that_struck, f"the splitter to die at {point}"
        )  # a run may complete before its last points
        assert_invariants(system, run_id, nx=4)
    system.wait_until_idle()


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
def test_a_worker_that_dies_in_mid_chunk_is_taken_over(faults: System, tmp_path: Path, chunk_input: str) -> None:
    system = faults
    system.set_faults(
        [
            {"point": point, "action": "kill", "times": 1, "where": {"chunk_id": f"chunk-{2 * n:07d}"}}
            for n, point in enumerate(CHUNK_POINTS)
        ]
    )
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=3, nx=4), chunk_size=2, chunk_input=chunk_input)
    view = system.wait(run_id, patience=240)
    assert (view.status, view.completed, view.total) == ("completed", 6, 6)
    assert system.faults_that_struck() == len(CHUNK_POINTS)
    system.wait_until_idle()
    attempts = {chunk.chunk_id: chunk.attempts for chunk in system.chunks(run_id)}
    assert attempts["chunk-0000000"] == 2, "a killed start counts as an attempt"
    assert attempts["chunk-0000008"] == 1, "a chunk that was recorded is not processed again"
    assert_invariants(system, run_id, nx=4)


def test_every_message_delivered_twice_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.mktemp("twice")
    with (
        pytest.MonkeyPatch.context() as patch,
        RedeliveringProxy.before_emulator(folder) as proxy,
        System.running(folder, patch, services=CHUNK_SERVICES, endpoint=proxy.endpoint) as system,
    ):
        run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=3, nx=4), chunk_size=2)
        view = system.wait(run_id)
        assert (view.status, view.completed, view.total) == ("completed", 6, 6)
        system.wait_until_idle()
        assert_invariants(system, run_id, nx=4)
        assert proxy.redelivered >= 6 + 5, "six chunks, and the messages of split, status and run events"
        assert all(chunk.attempts == 1 for chunk in system.chunks(run_id))


def poison() -> dict[str, tuple[Callable[[bytes], bytes | None], str]]:
    """Ways to damage a chunk's input, with the expected error."""

    def npz(**arrays: object) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    pickled = np.array([{"a": 1}], dtype=object)
    floats, ints = np.ones((2, 60), np.float32), np.arange(2)
    return {
        "chunk-0000000": (lambda _: b"this is not a chunk", "not a complete .npz file"),
        "chunk-0000002": (lambda _: npz(spectra=pickled, x=ints, y=ints), "it holds Python objects"),
        "chunk-0000004": (lambda _: npz(spectra=floats[0], x=ints, y=ints), "shape"),
        "chunk-0000006": (lambda whole: whole[: len(whole) // 2], "not a complete .npz file"),
        "chunk-0000008": (lambda _: None, "does not exist"),
        "chunk-0000010": (lambda _: npz(spectra=floats[:1], x=ints[:1], y=ints[:1]), "holds 1 spectra"),
    }


def test_poisoned_chunks_fail_with_their_cause_and_no_other_suffers(faults: System, tmp_path: Path) -> None:
    system = faults
    key = "poisoned"
    run_id = system.run_id_for(key)
    system.set_faults([{"point": "split.total_set", "action": "hang", "seconds": 3, "where": {"run_id": run_id}}])
    system.submit(write_cube(tmp_path / "cube.fits", ny=4, nx=10), chunk_size=2, idempotency_key=key)
    wait_for(lambda: (run := system.connection.ledger.get_run(run_id)) and run.chunks_total, "the chunks to be written")
    s3, bucket = system.connection.s3, system.connection.bucket
    for chunk_id, (spoil, _) in poison().items():
        object_key = f"chunks/{run_id}/{chunk_id}.npz"
        spoiled = spoil(system.read(object_key))
        if spoiled is None:
            s3.delete_object(Bucket=bucket, Key=object_key)
        else:
            s3.put_object(Bucket=bucket, Key=object_key, Body=spoiled)
    view = system.wait(run_id)
    assert (view.status, view.completed, view.failed) == ("failed", 14, 6)
    assert view.state is not None
    assert "6 of 20 chunks failed" in (view.state.error_message or "")
    shown = system.cli("failures", run_id, expect=1)
    for chunk in system.chunks(run_id, ChunkStatus.FAILED):
        output = poison()[chunk.chunk_id][1]
        assert output in (chunk.error or "")
        assert output in shown
        assert chunk.attempts == 1, "a permanent error is not retried"
    assert_invariants(system, run_id, nx=10)


def test_tolerated_failures_let_a_run_complete(faults: System, tmp_path: Path) -> None:
    system = faults
    where = {"chunk_id": "chunk-0000000"}
    system.set_faults([{"point": "chunk.started", "action": "permanent", "where": where}])
    cube = write_cube(tmp_path / "cube.fits", ny=2, nx=5)
    tolerant = system.submit(cube, chunk_size=2, tolerated_failure_percent=20.0)
    strict = system.submit(cube, chunk_size=2, tolerated_failure_percent=19.0)
    assert system.wait(tolerant).status == "completed"
    assert system.wait(strict).status == "failed"
    for run_id in (tolerant, strict):
        assert_invariants(system, run_id, nx=5)


def test_a_transient_failure_is_tried_again(faults: System, tmp_path: Path) -> None:
    system = faults
    where = {"chunk_id": "chunk-0000002"}
    system.set_faults([{"point": "chunk.started", "action": "transient", "times": 2, "where": where}])
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=2), chunk_size=2)
    assert system.wait(run_id).status == "completed"
    retried = {chunk.chunk_id: (chunk.attempts, chunk.last_error) for chunk in system.chunks(run_id)}
    assert retried["chunk-0000002"] == (3, "Injected transient fault at chunk.started.")
    assert_invariants(system, run_id, nx=2)


def test_what_is_no_contract_message_is_archived_whole(system: System) -> None:
    sqs = system.sqs
    bodies = {"not json at all \u2603": "not JSON", '{"specversion": "1.0"}': "not a valid envelope"}
    queues = ("split", "chunks", "refits", "status", "runs")
    for queue in queues:
        url = sqs.get_queue_url(QueueName=f"prismline-{system.connection.environment}-{queue}")["QueueUrl"]
        for body in bodies:
            sqs.send_message(QueueUrl=url, MessageBody=body)

    def archived() -> dict[tuple[str, str], str]:
        listing = system.connection.s3.list_objects_v2(Bucket=system.connection.bucket, Prefix=DEAD_LETTERS_PREFIX)
        records = [json.loads(system.read(entry["Key"])) for entry in listing.get("Contents", [])]
        return {(record["source_queue"], record["body"]): record["error"] for record in records}

    expected = {(queue, body) for queue in queues for body in bodies}
    wait_for(lambda: expected <= set(archived()), "a record of each dead letter")
    for (queue, body), error in archived().items():
        if (queue, body) in expected:
            assert bodies[body] in error
