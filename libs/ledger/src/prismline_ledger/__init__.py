"""The ledger of runs, chunks and tasks. Only this package writes their items, each with a conditional write."""

from prismline_ledger.base import COUNTERS, ChunkPage
from prismline_ledger.judgement import Patience, attempts_used, exhausted, failures, leased, seconds_since, waiting_for
from prismline_ledger.ledger import Ledger
from prismline_ledger.operations import LeaseLostError, Operations
from prismline_ledger.permitted import ENDED, Action, ActionName, actions_of, goes_on, going_on, shown_status
from prismline_ledger.repeated_errors import RepeatedError
from prismline_ledger.splitting import NewChunk, NewRun
from prismline_ledger.tasks import AddedTasks, GivenBackTask, TaskEnding, TaskPage, TasksEnded
from prismline_ledger.transitions import Costs, Counts, Finished, Outcome, Skipped, Started, truncate

__all__ = [
    "COUNTERS",
    "ENDED",
    "Action",
    "ActionName",
    "AddedTasks",
    "ChunkPage",
    "Costs",
    "Counts",
    "Finished",
    "GivenBackTask",
    "LeaseLostError",
    "Ledger",
    "NewChunk",
    "NewRun",
    "Operations",
    "Outcome",
    "Patience",
    "RepeatedError",
    "Skipped",
    "Started",
    "TaskEnding",
    "TaskPage",
    "TasksEnded",
    "actions_of",
    "attempts_used",
    "exhausted",
    "failures",
    "goes_on",
    "going_on",
    "leased",
    "seconds_since",
    "shown_status",
    "truncate",
    "waiting_for",
]
