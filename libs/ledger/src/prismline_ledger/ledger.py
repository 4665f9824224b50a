"""The ledger: the one place that writes run and chunk items.

Every write is conditional, so that any message may be delivered twice, late or out of order. One module for each of
those who write: `splitting`, `attempts` (the worker and its slow lane), `stopping` (the status service), `recovering`
and `sweeping` (the dead-letter consumer); `base` holds the reads and the end of a chunk that they share.
"""

from __future__ import annotations

from prismline_ledger.attempts import Attempts
from prismline_ledger.recovering import Recovering
from prismline_ledger.stopping import Stopping
from prismline_ledger.sweeping import Sweeping


class Ledger(Stopping, Attempts, Recovering, Sweeping):
    """Reads and guarded writes of the ledger's table.

    Raises UnavailableError when DynamoDB cannot be reached or a collision outlasts the retries, PermanentError when an
    item that a message speaks of does not exist.
    """
