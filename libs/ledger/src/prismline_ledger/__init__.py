"""The ledger of runs and chunks. Only this package writes run and chunk items, each with a conditional write."""

from prismline_ledger.base import COUNTERS, STUCK_AFTER
from prismline_ledger.judgement import Patience, attempts_used, exhausted, leased, seconds_since
from prismline_ledger.ledger import Ledger
from prismline_ledger.operations import LeaseLostError, Operations
from prismline_ledger.splitting import NewChunk
from prismline_ledger.transitions import Finished, Skipped, Started, truncate

__all__ = [
    "COUNTERS",
    "STUCK_AFTER",
    "Finished",
    "LeaseLostError",
    "Ledger",
    "NewChunk",
    "Operations",
    "Patience",
    "Skipped",
    "Started",
    "attempts_used",
    "exhausted",
    "leased",
    "seconds_since",
    "truncate",
]
