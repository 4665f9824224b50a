"""The ledger: all reads and writes of run, chunk and task items.

Every write is conditional, so any message may be delivered twice, late or out of order. The modules hold the
transitions: `splitting` opens runs and adds chunks, `attempts` begins and ends attempts at chunks, `stopping` stops
runs and records their ends, `recovering` reopens chunks and resumes runs, `sweeping` repairs and closes runs, `tasks`
has all writes of tasks, `repeated_errors` notes errors, and `deleting` deletes runs. `base` holds the reads, the end of
a chunk, and the drain. The table in the README says which service may make which transition.
"""

from __future__ import annotations

from prismline_ledger.attempts import Attempts
from prismline_ledger.deleting import Deleting
from prismline_ledger.recovering import Recovering
from prismline_ledger.repeated_errors import RepeatedErrors
from prismline_ledger.stopping import Stopping
from prismline_ledger.sweeping import Sweeping
from prismline_ledger.tasks import Tasks


class Ledger(Stopping, Attempts, Recovering, Sweeping, Tasks, RepeatedErrors, Deleting):
    """Reads and conditional writes of the ledger's table.

    Raises UnavailableError if DynamoDB does not answer, TransientError if a collision outlasts the retries, and
    PermanentError if an item that must exist does not.
    """
