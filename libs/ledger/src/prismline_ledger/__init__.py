"""The ledger of runs, chunks and tasks. Only this package writes their items, each with a conditional write."""

from prismline_ledger.base import COUNTERS, ChunkPage
from prismline_ledger.causes import Cause, Failure, causes_of, folded
from prismline_ledger.conditions import (
    Condition,
    ConditionName,
    Observed,
    Pace,
    QueueLook,
    Retries,
    Retry,
    conditions_of,
    pace,
    queue_of,
    retry_of,
    works,
)
from prismline_ledger.judgement import Patience, attempts_used, exhausted, failures, leased, seconds_since, waiting_for
from prismline_ledger.ledger import Ledger
from prismline_ledger.operations import LeaseLostError, Operations
from prismline_ledger.permitted import (
    ENDED,
    Action,
    ActionName,
    actions_of,
    goes_on,
    going_on,
    has_ended,
    shown_status,
    warnings_of,
)
from prismline_ledger.repeated_errors import RepeatedError
from prismline_ledger.splitting import NewChunk, NewRun
from prismline_ledger.tasks import AddedTasks, GivenBackTask, TaskEnding, TaskPage, TasksEnded
from prismline_ledger.tolerance import TOO_MANY_FAILURES, Tolerance, early_stop, failures_text, percent_text, too_many
from prismline_ledger.transitions import Costs, Counts, Finished, Outcome, Skipped, Started, truncate

__all__ = [
    "COUNTERS",
    "ENDED",
    "TOO_MANY_FAILURES",
    "Action",
    "ActionName",
    "AddedTasks",
    "Cause",
    "ChunkPage",
    "Condition",
    "ConditionName",
    "Costs",
    "Counts",
    "Failure",
    "Finished",
    "GivenBackTask",
    "LeaseLostError",
    "Ledger",
    "NewChunk",
    "NewRun",
    "Observed",
    "Operations",
    "Outcome",
    "Pace",
    "Patience",
    "QueueLook",
    "RepeatedError",
    "Retries",
    "Retry",
    "Skipped",
    "Started",
    "TaskEnding",
    "TaskPage",
    "TasksEnded",
    "Tolerance",
    "actions_of",
    "attempts_used",
    "causes_of",
    "conditions_of",
    "early_stop",
    "exhausted",
    "failures",
    "failures_text",
    "folded",
    "goes_on",
    "going_on",
    "has_ended",
    "leased",
    "pace",
    "percent_text",
    "queue_of",
    "retry_of",
    "seconds_since",
    "shown_status",
    "too_many",
    "truncate",
    "waiting_for",
    "warnings_of",
    "works",
]
