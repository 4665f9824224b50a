"""The page on restoring, in the middle of runs: the tables and the bucket go back, and every run comes to its end.

An emulator restores a table as it is. So the first step of the page, which restores the tables beside the present ones,
is run at the moment to which everything goes back.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from prismline_contracts.items import ChunkStatus
from prismline_contracts.prefixes import ARCHIVE_PREFIX
from prismline_contracts.tasks import TaskStatus
from prismline_localstack import harness
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.standins.site import Site
from tests.cubes import write_cube
from tests.docs.commands import shell
from tests.invariants import assert_invariants
from tests.system import System, wait_for

pytestmark = pytest.mark.e2e

PAGE = REPOSITORY / "docs/how-to/restore-a-table.md"
#: The moment in the commands of the page.
MOMENT = "2026-03-01T12:00:00Z"
#: Tasks of the run of URLs; every other page takes some seconds.
N_URLS = 60


def blocks(heading: str) -> list[str]:
    """The shell blocks of a section of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^ *```sh\n(.*?)^ *```", section, re.DOTALL | re.MULTILINE)


def keys(system: System, prefix: str = "") -> set[str]:
    """The keys of the objects under a prefix."""
    pages = system.connection.s3.get_paginator("list_objects_v2").paginate(
        Bucket=system.connection.bucket, Prefix=prefix
    )
    return {entry["Key"] for page in pages for entry in page.get("Contents", [])}


def completed_tasks(system: System, run_id: str) -> int:
    """Tasks of the run that have ended well."""
    run = system.connection.ledger.get_run(run_id)
    if run is None or run.chunks_total is None:
        return 0
    return Counter(task.state for task in system.connection.ledger.tasks(run))[TaskStatus.COMPLETED]


def switch_all_queues(*, on: bool) -> None:
    """Pause or resume all queues. `tests/docs/test_operations.py` runs the commands of the page for one."""
    functions = harness.load_state().client("lambda")
    for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)


def submit_list(system: System, url: str) -> str:
    """Submit a run of URLs; its id."""
    urls = [f"{url}/slow/{number % 2 * 6}/{number}" for number in range(N_URLS)]
    manifest: dict[str, Any] = {"workload": "urls", "survey": "list", "urls": urls, "idempotency_key": "list"}
    system.put_manifest(json.dumps(manifest).encode())
    return system.run_id_for("list")


@pytest.mark.timeout(900)
def test_every_run_comes_to_its_end_after_everything_went_back_to_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Site]
) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=3, nx=4)
    short = {"SWEEP_IDLE_SECONDS": "2", "SWEEP_LEASE_SECONDS": "10"}
    with System.running(tmp_path, monkeypatch, functions=True, **short) as system:
        s3, bucket = system.connection.s3, system.connection.bucket
        # The template enables versions on AWS alone.
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        beside, replace = blocks("Everything goes back to one moment")
        (objects,) = blocks("Objects are wrong or gone")

        # At that moment one run has ended, one has failed with a dead letter, and two are under way.
        ended = system.submit(cube, chunk_size=4)
        failed = system.run_id_for("failed")
        fails = {"run_id": failed, "chunk_id": "chunk-0000004"}
        system.set_faults([{"point": "chunk.started", "action": "permanent", "where": fails}])
        assert system.submit(cube, chunk_size=4, idempotency_key="failed") == failed
        assert system.wait(ended).status == "completed"
        assert system.wait(failed).status == "failed"
        archived = wait_for(lambda: keys(system, ARCHIVE_PREFIX), "the dead letter in the archive")
        running = system.run_id_for("running")
        places = [("chunk.started", {"run_id": running, "chunk_id": f"chunk-{number:07}"}) for number in (10, 11)]
        places.append(("tasks.some_ended", {"run_id": system.run_id_for("list")}))
        system.set_faults([{"point": point, "action": "hang", "seconds": 600, "where": of} for point, of in places])
        assert system.submit(cube, chunk_size=1, idempotency_key="running") == running
        tasks = submit_list(system, site[0])
        wait_for(lambda: len(system.chunks(running, ChunkStatus.COMPLETED)) >= 2, "two chunks to complete")
        wait_for(lambda: completed_tasks(system, tasks) >= 2, "two tasks to complete")
        shell(beside)
        moment, before = datetime.now(UTC), keys(system)
        assert len(system.chunks(running, ChunkStatus.COMPLETED)) <= 10
        assert completed_tasks(system, tasks) < N_URLS

        # The work goes on: all runs end, the failed one is recovered, a new one begins.
        system.set_faults([])
        system.cli("deadletters", "recover", "--run", failed, "--wait")
        for run_id in (failed, running, tasks):
            assert system.wait(run_id).status == "completed"
        assert not keys(system, ARCHIVE_PREFIX), "a recovered record leaves the archive"
        later = system.run_id_for("later")
        system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 60, "where": {"run_id": later}}])
        assert system.submit(cube, chunk_size=1, idempotency_key="later") == later
        wait_for(lambda: system.chunks(later, ChunkStatus.IN_PROGRESS), "a chunk of the later run to begin")
        # By mistake an output is overwritten and another one deleted.
        wrong, gone, _ = sorted(chunk.output_key or "" for chunk in system.chunks(ended))
        right = {key: system.read(key) for key in (wrong, gone)}
        s3.put_object(Bucket=bucket, Key=wrong, Body=b"wrong")
        s3.delete_object(Bucket=bucket, Key=gone)

        back = objects.replace(MOMENT, moment.strftime("%Y-%m-%dT%H:%M:%S.999Z"))
        system.set_faults([])
        switch_all_queues(on=False)
        shell(replace)
        shell(back, BUCKET=bucket, PREFIX="")
        switch_all_queues(on=True)
        assert before <= keys(system)
        assert {key: system.read(key) for key in right} == right
        assert keys(system, ARCHIVE_PREFIX) == archived

        # Each run comes to the end that it had not reached, and counts each chunk and task once.
        for run_id, total in ((ended, 3), (running, 12), (tasks, N_URLS)):
            view = system.wait(run_id)
            assert (view.status, view.completed, view.failed, view.total) == ("completed", total, 0, total)
        view = system.wait(failed)
        assert (view.status, view.completed, view.failed, view.total) == ("failed", 2, 1, 3)
        system.cli("deadletters", "recover", "--run", failed, "--wait")
        wait_for(lambda: (view := system.view(failed)) and view.status == "completed", "the failed run to complete")
        assert completed_tasks(system, tasks) == N_URLS
        for run_id in (ended, running):
            assert_invariants(system, run_id, nx=4)
        assert_invariants(system, failed, nx=4, recovered=True)
        assert system.view(later) is None, "a run that was submitted after that moment does not exist"
        system.wait_until_idle()
