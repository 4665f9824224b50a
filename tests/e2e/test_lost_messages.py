"""Messages that are lost for good: the sweeper, which the harness triggers, sends every chunk a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismline_contracts.items import ChunkStatus
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e


def test_a_run_whose_messages_are_lost_is_completed(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(
            tmp_path_factory.mktemp("lost"),
            patch,
            services=CHUNK_SERVICES,
            SWEEP_IDLE_SECONDS="2",
            SWEEP_LEASE_SECONDS="8",
        ) as system,
    ):
        system.set_faults(
            [
                {"point": "chunk.decomposed", "action": "kill", "times": 1, "where": {"chunk_id": "chunk-0000002"}},
                {"point": "chunk.started", "action": "hang", "seconds": 0.5},
            ]
        )
        run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=4, nx=5), chunk_size=1)
        wait_for(system.faults_that_struck, "a worker to die")
        run = wait_for(lambda: (item := system.item(run_id)).latched_at and item, "the latch to close")
        assert run.drained_at is None
        sqs = system.sqs
        url = sqs.get_queue_url(QueueName=f"prismline-{system.connection.environment}-chunks")["QueueUrl"]
        sqs.purge_queue(QueueUrl=url)
        system.set_faults([])
        wait_for(lambda: not system.depth("chunks"), "what is in flight to end")
        view = system.wait(run_id)
        assert (view.status, view.completed, view.total) == ("completed", 20, 20)
        resent = {chunk.chunk_id for chunk in system.chunks(run_id, ChunkStatus.COMPLETED) if chunk.resends}
        assert "chunk-0000002" in resent
        assert len(resent) > 1, "the chunks whose messages were lost; workers ended the chunks that they held"
        assert all(chunk.resends <= 1 for chunk in system.chunks(run_id))
        system.wait_until_idle()
        wait_for(lambda: run_id not in [run.run_id for run in system.connection.ledger.open_runs()], "the last sweep")
        assert_invariants(system, run_id, nx=5)
