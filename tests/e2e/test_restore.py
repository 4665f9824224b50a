"""The tables go back to an earlier moment, each to a slightly different one. The system makes runs whole again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from prismline_contracts.items import ChunkStatus
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

TABLES = ("workflow-state", "jobs", "runs")


class Copy:
    """The items of a table at a moment."""

    def __init__(self, environment: str, table: str) -> None:
        self._dynamodb: Any = boto3.client("dynamodb")
        self.name = f"prismline-{environment}-{table}"
        self.items = self._scan()

    def restore(self) -> None:
        """Give the table these items, and no others."""
        keys = [each["AttributeName"] for each in self._table()["KeySchema"]]
        for item in self._scan():
            self._dynamodb.delete_item(TableName=self.name, Key={key: item[key] for key in keys})
        for item in self.items:
            self._dynamodb.put_item(TableName=self.name, Item=item)

    def _table(self) -> dict[str, Any]:
        found: dict[str, Any] = self._dynamodb.describe_table(TableName=self.name)["Table"]
        return found

    def _scan(self) -> list[dict[str, Any]]:
        pages = self._dynamodb.get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]


def test_runs_are_whole_again_after_the_tables_went_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=3, nx=4)
    short = {"SWEEP_IDLE_SECONDS": "2", "SWEEP_LEASE_SECONDS": "10"}
    with System.running(tmp_path, monkeypatch, services=CHUNK_SERVICES, **short) as system:
        ended = system.submit(cube, chunk_size=4)
        assert system.wait(ended).status == "completed"
        system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 2.0}])
        running = system.submit(cube, chunk_size=1)

        def completed() -> int:
            return len(system.chunks(running, ChunkStatus.COMPLETED))

        copies = []
        for number, table in enumerate(TABLES, start=1):  # the ledger is the youngest: its moment is seconds later
            wait_for(lambda least=number: completed() >= least, f"{number} chunks to complete")
            copies.append(Copy(system.connection.environment, table))
        system.set_faults([])
        assert system.wait(running).status == "completed"
        later = system.submit(cube, chunk_size=4, idempotency_key="later")
        assert system.wait(later).status == "completed"
        system.wait_until_idle()

        for copy in copies:
            copy.restore()
        assert completed() < 12
        view = system.wait(running)
        assert (view.status, view.completed, view.total) == ("completed", 12, 12)
        assert_invariants(system, running, nx=4)
        view = system.wait(ended)
        assert (view.status, view.completed, view.total) == ("completed", 3, 3)
        assert system.view(later) is None, "a run that was submitted after that moment does not exist"
        # Its state machine has run, so a run with the same key would not begin.
        again = system.submit(cube, chunk_size=4, idempotency_key="later again")
        assert system.wait(again).status == "completed"
        assert_invariants(system, again, nx=4)
