"""The ledger: all reads and writes of run, chunk and task items.

Every write is conditional, so any message may be delivered twice, late or out of order. A module for each group of
transitions:

- `splitting`: open a run, add its chunks; `attempts`: begin and end attempts at chunks; `tasks`: all writes of tasks;
- `stopping`: stop a run, record its end; `recovering`: reopen chunks, resume a run; `deleting`: delete a run;
- `sweeping`: repair and close runs; `repeated_errors`: note unexpected errors.

`base` has the reads, the end of a chunk and the drain, and `retrying` reads which chunks and tasks are being retried.
The table in the README says which service may make which transition.
"""

from __future__ import annotations

from prismline_ledger.attempts import Attempts
from prismline_ledger.deleting import Deleting
from prismline_ledger.recovering import Recovering
from prismline_ledger.repeated_errors import RepeatedErrors
from prismline_ledger.retrying import Retrying
from prismline_ledger.stopping import Stopping
from prismline_ledger.sweeping import Sweeping
from prismline_ledger.tasks import Tasks


class Ledger(Stopping, Attempts, Recovering, Sweeping, Tasks, RepeatedErrors, Retrying, Deleting):
    """Reads and conditional writes of the ledger's table.

    Raises UnavailableError if DynamoDB does not answer, TransientError if a collision outlasts the retries, and
    PermanentError if an item that must exist does not.
    """
