"""The run and chunk ledger: guarded transitions, the one place that writes run and chunk items."""

from prismline_ledger.ledger import COUNTERS, DRAINED_BY_SPLIT, DRAINED_BY_SWEEPER, STUCK_AFTER, Ledger, NewChunk
from prismline_ledger.operations import LeaseLostError, Operations
from prismline_ledger.transitions import Finished, Skipped, Started, truncate

__all__ = [
    "COUNTERS",
    "DRAINED_BY_SPLIT",
    "DRAINED_BY_SWEEPER",
    "STUCK_AFTER",
    "Finished",
    "LeaseLostError",
    "Ledger",
    "NewChunk",
    "Operations",
    "Skipped",
    "Started",
    "truncate",
]
