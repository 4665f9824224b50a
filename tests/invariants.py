"""A helper that asserts the invariants of docs/explanation/architecture.md for one run."""

from __future__ import annotations

import io
from collections import Counter

import pyarrow.parquet as pq

from prismline_contracts.base import chunk_id
from prismline_contracts.captions import Caption
from prismline_contracts.decomposition import SpectrumStatus, arrow_schema
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_contracts.prefixes import CAPTIONS_PREFIX
from tests.system import System, wait_for

#: Types of the events that end a run.
ENDINGS = frozenset(f"prismline.run.{ending}.v1" for ending in ("completed", "failed", "cancelled"))


def assert_invariants(
    system: System, run_id: str, *, nx: int | None = None, recovered: bool = False, cancelled: bool = False
) -> None:
    """Assert all invariants of a run that has ended.

    nx: width of its cube, to check which spectra a chunk holds.
    recovered: the run failed first, and completed after its chunks were recovered.
    cancelled: the run was cancelled first, and a person made it continue.
    """
    view = system.view(run_id)
    assert view is not None
    assert view.state is not None, "every run has a status"
    chunks = system.chunks(run_id)
    states = Counter(chunk.state for chunk in chunks)
    if view.item is not None and view.item.chunks_total is not None:
        run = view.item
        assert run.chunks_total == len(chunks)
        assert run.chunks_completed == states[ChunkStatus.COMPLETED]
        assert run.chunks_failed == states[ChunkStatus.FAILED]
        if run.drained_at:
            assert run.chunks_completed + run.chunks_failed == run.chunks_total
        assert run.n_timed_out == sum(chunk.n_timed_out for chunk in chunks)
        assert run.n_refit_failed == sum(chunk.n_refit_failed for chunk in chunks)
    for chunk in chunks:
        if chunk.state is ChunkStatus.COMPLETED:
            _assert_whole_output(system, chunk, nx)
        if chunk.state is ChunkStatus.FAILED:
            assert chunk.error, f"{chunk.chunk_id} failed without a reason"
    if view.status == "completed":
        assert view.item is not None
        assert view.item.drained_at is not None
    if view.status == "failed":
        assert view.state.error_message
        assert states[ChunkStatus.FAILED] or "chunks failed" not in view.state.error_message
    if view.item is not None and view.item.drained_at:
        _assert_announced(system, view.item)
    before = {"failed"} if recovered else {"cancelled"} if cancelled else set()
    _assert_endings(system, run_id, before | {view.status})


def _assert_announced(system: System, run: RunItem) -> None:
    """Assert that every drain of the run was announced, and that the status service recorded the run's end."""
    announced = {event["data"]["drains"]: event["id"] for event in system.events(run.run_id, "run.drained")}
    assert sorted(announced) == list(range(1, run.drains + 1)), "each drain is announced, and nothing else"
    assert len(set(announced.values())) == run.drains
    recorded = wait_for(lambda: system.connection.ledger.run(run.run_id).ended_status, "the run's end to be recorded")
    view = system.view(run.run_id)
    assert view is not None
    assert recorded == view.status


def _assert_whole_output(system: System, chunk: ChunkItem, nx: int | None) -> None:
    assert chunk.output_key is not None
    if chunk.output_key.startswith(CAPTIONS_PREFIX):
        caption = Caption.model_validate_json(system.read(chunk.output_key))
        assert chunk.chunk_id == chunk_id(caption.window_index)
        assert caption.caption.startswith(chunk.summary or "-")
        return
    table = pq.read_table(io.BytesIO(system.read(chunk.output_key)))
    assert table.schema.equals(arrow_schema())
    assert len(table) == chunk.n_items
    statuses = Counter(table["status"].to_pylist())
    assert set(statuses) <= set(SpectrumStatus)
    assert statuses[SpectrumStatus.TIMED_OUT] == chunk.n_timed_out + chunk.n_refit_failed
    if nx is not None:
        start = int(chunk.chunk_id.removeprefix("chunk-"))
        index = [y * nx + x for x, y in zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True)]
        assert index == list(range(start, start + chunk.n_items))


def _assert_endings(system: System, run_id: str, statuses: set[str]) -> None:
    """Assert that each end of the run was announced with one event id, and that its status was announced."""

    def endings() -> set[tuple[str, str]]:
        announced = system.events(run_id)
        return {(event["type"], event["id"]) for event in announced if event["type"] in ENDINGS}

    wait_for(lambda: len(endings()) >= len(statuses), f"the end of run {run_id} to be announced")
    assert sorted(kind for kind, _ in endings()) == sorted(f"prismline.run.{status}.v1" for status in statuses)
