"""The run and chunk ledger: guarded transitions, the one place that writes run and chunk items."""

from prismline_ledger.ledger import DRAINED_BY_SPLIT, STUCK_AFTER, Ledger, NewChunk
from prismline_ledger.transitions import Finished, Skipped, Started, truncate_error

__all__ = [
    "DRAINED_BY_SPLIT",
    "STUCK_AFTER",
    "Finished",
    "Ledger",
    "NewChunk",
    "Skipped",
    "Started",
    "truncate_error",
]
