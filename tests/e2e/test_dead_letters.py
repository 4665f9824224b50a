"""Many faults in one run: chunks that can complete do, the others are FAILED with their error, none is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismline_contracts.items import ChunkStatus
from prismline_contracts.prefixes import ARCHIVE_PREFIX
from prismline_localstack.demos import faults as demo_faults
from prismline_localstack.demos.faults import CHUNKS, GARBAGE, KILLED, PERMANENT, TRANSIENT
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

#: Every queue whose dead letters go to the archive.
QUEUES = ("split", "chunks", "refits", "status", "runs", "recoveries", "sweeps")


def records(system: System) -> list[dict[str, object]]:
    """All records in the archive."""
    pages = system.connection.s3.get_paginator("list_objects_v2").paginate(
        Bucket=system.connection.bucket, Prefix=ARCHIVE_PREFIX
    )
    return [json.loads(system.read(entry["Key"])) for page in pages for entry in page.get("Contents", [])]


@pytest.mark.timeout(600)
def test_a_run_in_which_everything_goes_wrong(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    settings = demo_faults.SETTINGS
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(tmp_path_factory.mktemp("faults"), patch, services=CHUNK_SERVICES, **settings) as system,
    ):
        cube = write_cube(tmp_path / "cube.fits", ny=8, nx=10)
        lines: list[str] = []
        before = demo_faults.suffer(system.connection, system.faults_file, cube, lines.append)
        run_id = before.run_id
        assert (before.run.status, before.completed, before.failed) == ("failed", CHUNKS - 3, 3)
        archived_of_run = [record for record in records(system) if record["run_id"] == run_id]
        recovery, after = demo_faults.recover(system.faults_file, run_id, lines.append)
        assert (after.run.status, after.completed, after.failed) == ("completed", CHUNKS, 0)
        assert (recovery.n_sent, recovery.n_recovered, recovery.n_failed) == (3, 3, 0)
        assert recovery.n_sent + recovery.n_settled == len(archived_of_run)

        chunks = {chunk.chunk_id: chunk for chunk in system.chunks(run_id)}
        assert {chunk.state for chunk in chunks.values()} == {ChunkStatus.COMPLETED}
        assert {chunks[name].last_error for name in PERMANENT} == {"Injected permanent fault at chunk.started."}
        for name in TRANSIENT:
            assert chunks[name].state is ChunkStatus.COMPLETED
            assert chunks[name].attempts == 6, "five failed attempts, and one after the dead-letter queue"
        assert max(chunk.deferrals for chunk in chunks.values()) >= 1
        assert chunks[KILLED].attempts == 2 * 5 + 1, "two dispatches of five, and the recovery"

        archived = system.events(run_id, "deadletter.archived")
        decisions = {(event["data"]["chunk_id"], event["data"]["decision"]) for event in archived}
        assert {(name, "resend") for name in (*TRANSIENT, KILLED)} <= decisions
        assert {(KILLED, "fail"), (KILLED, "settle")} & decisions, "settled, if the sweeper gave it up"
        assert {event["data"]["key"].rpartition("/")[2] for event in archived} == {
            f"{record['messageId']}.json" for record in archived_of_run
        }, "the archive held every dead letter"
        garbage = [record for record in records(system) if record["body"] == GARBAGE]
        assert all(record["error"] for record in garbage)
        assert garbage
        assert all(record["run_id"] != run_id for record in records(system)), "recovered records have left the archive"

        shown = json.loads(system.cli("deadletters", "ls", "--json"))
        assert GARBAGE in json.dumps(shown, ensure_ascii=False) or len(shown) == len(garbage)
        wait_for(
            lambda: not any(system.depth(f"{queue}-dlq") for queue in QUEUES), "the dead-letter queues to be empty"
        )
        system.wait_until_idle()
        assert_invariants(system, run_id, nx=10, recovered=True)
