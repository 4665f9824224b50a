"""Why a chunk makes no progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from prismline_api.troubles import trouble
from prismline_contracts.base import timestamp
from prismline_contracts.items import ChunkItem

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
BEFORE = timestamp(NOW - timedelta(minutes=2))
LONG_AGO = timestamp(NOW - timedelta(hours=2))


def why(**fields: Any) -> str | None:
    base = {
        "PK": "run",
        "SK": "CHUNK#chunk-0000000",
        "status": "PENDING",
        "chunk_key": "k",
        "n_spectra": 1,
        "n_items": 1,
        "created_at": LONG_AGO,
    }
    return trouble(ChunkItem.model_validate(base | fields), now=NOW, after=timedelta(minutes=15))


def test_a_chunk_that_waits_or_is_being_processed_is_not_stuck() -> None:
    assert why() is None
    assert why(status="IN_PROGRESS", attempts=1, started_at=BEFORE) is None
    assert why(status="FAILED", attempts=5, resends=3, started_at=LONG_AGO) is None


def test_an_attempt_that_failed_with_an_error_is_not_stuck() -> None:
    assert why(attempts=3, started_at=LONG_AGO, attempt_ended_at=BEFORE, last_error="no memory") is None


def test_a_chunk_whose_attempt_never_ended_is_stuck() -> None:
    assert "120 min" in (why(status="IN_PROGRESS", attempts=1, started_at=LONG_AGO) or "")


def test_a_chunk_that_crashes_its_workers_is_stuck_even_if_an_attempt_has_just_begun() -> None:
    assert "4 attempts" in (why(status="IN_PROGRESS", attempts=4, started_at=BEFORE) or "")


def test_a_chunk_that_the_sweeper_sent_again_is_shown_with_its_last_error() -> None:
    output = why(attempts=1, resends=2, sent_at=BEFORE, started_at=LONG_AGO, last_error="Its worker is gone.")
    assert output is not None
    assert "sent it again 2 times" in output
    assert "Its worker is gone." in output
