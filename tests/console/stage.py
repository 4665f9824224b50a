"""Creates test data in a running system: completed and failed runs, dead letters, an alarm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import boto3

from prismline_contracts.base import timestamp
from prismline_contracts.commands import queue_name
from prismline_contracts.deadletters import DeadLetterRecord, dead_letter_key
from prismline_localstack.demos import synthetic
from prismline_runtime import Bucket
from tests.cubes import write_cube
from tests.system import System, wait_for

#: Number of chunks of the bad run, and the chunks that fail.
BAD_CHUNKS, FAILED_CHUNKS = 8, ("chunk-0000010", "chunk-0000050")
#: Text that a careless page would interpret as HTML.
HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>"


@dataclass(frozen=True)
class Scene:
    """The ids of the test data."""

    #: A run with only completed chunks, and one with some failed chunks.
    good_run: str
    bad_run: str
    #: Another run of the good run's survey, with other parameters.
    other_run: str
    #: The message id of a dead letter of the bad run that does not belong to a chunk.
    letter: str = "0b5c1e0e-2f5e-4d0c-8c39-9a1f3c1f7a11"


def fail_chunks(system: System, run_key: str) -> None:
    """Make the worker fail FAILED_CHUNKS of the run that will be submitted with this idempotency key."""
    run_id = system.run_id_for(run_key)
    system.set_faults(
        [
            {"point": "chunk.started", "action": "permanent", "where": {"run_id": run_id, "chunk_id": chunk_id}}
            for chunk_id in FAILED_CHUNKS
        ]
    )


def broken_run(system: System, folder: Path, key: str, survey: str) -> str:
    """A run that has ended with FAILED_CHUNKS in FAILED and their messages in the archive. A retry would succeed."""
    fail_chunks(system, key)
    cube = write_cube(folder / f"{survey}.fits", ny=8, nx=10)
    run_id = system.submit(cube, survey, chunk_size=10, idempotency_key=key)
    view = system.wait(run_id)
    assert (view.status, view.completed, view.failed) == ("failed", BAD_CHUNKS - len(FAILED_CHUNKS), len(FAILED_CHUNKS))
    wait_for(
        lambda: len(system.events(run_id, "deadletter.archived")) >= len(FAILED_CHUNKS), "the dead letters of the run"
    )
    system.set_faults([])
    return run_id


def archive_letter(system: System, run_id: str, message_id: str, error: str) -> None:
    """Put a record with this error and message into the archive."""
    moment = timestamp()
    record = DeadLetterRecord(
        body=json.dumps({"note": error}),
        error=error,
        messageId=message_id,
        run_id=run_id,
        source_queue="split",
        receive_count=5,
        archived_at=moment,
    )
    key = dead_letter_key(moment[:10], message_id)
    Bucket(system.connection.s3, system.connection.bucket).write(key, record.model_dump_json().encode())


def raise_alarm(system: System, note: str = HOSTILE) -> str:
    """Set the alarm of an empty dead-letter queue to ALARM. Returns its name. Without data, the alarm stays on."""
    name = queue_name(system.connection.environment, "exports-dlq")
    boto3.client("cloudwatch").set_alarm_state(
        AlarmName=name, StateValue="ALARM", StateReason=f"Threshold crossed: 1 datapoint > 0. {note}"
    )
    return name


def set_stage(system: System, folder: Path, note: str = HOSTILE) -> Scene:
    """Create all test data. `note`: the error of the dead letter without a chunk, and the reason of the alarm."""
    cube = folder / "galactic-ring.fits"
    synthetic.make_cube(cube)
    good = system.submit(cube, "galactic-ring", chunk_size=100)
    other = system.submit(cube, "galactic-ring", chunk_size=100, params={"snr_min": 5.0})
    bad = broken_run(system, folder, "stage", "perseus-arm")
    for run_id in (good, other):
        assert system.wait(run_id).status == "completed"
    scene = Scene(good, bad, other)
    archive_letter(system, bad, scene.letter, note)
    raise_alarm(system, note)
    return scene
