"""A client of Prismline's HTTP interface.

from prismline_client import Client

with Client.open() as client:
    for run in client.runs(limit=10):
        print(run.run_id, run.status)
"""

from prismline_client.address import find_url
from prismline_client.client import Client, WantedDeadLetters, part
from prismline_client.errors import ApiError, outdated
from prismline_client.function_runs import FunctionRun, job_name, row_format
from prismline_client.models import (
    Action,
    Cause,
    Causes,
    Chunk,
    Condition,
    Costs,
    Counts,
    DeadLetter,
    Dollars,
    Estimate,
    Finalization,
    Mute,
    Pace,
    Recovery,
    RepeatedError,
    Retry,
    Run,
    RunSummary,
    Seconds,
    Task,
    TaskResult,
    Workload,
)

__all__ = [
    "Action",
    "ApiError",
    "Cause",
    "Causes",
    "Chunk",
    "Client",
    "Condition",
    "Costs",
    "Counts",
    "DeadLetter",
    "Dollars",
    "Estimate",
    "Finalization",
    "FunctionRun",
    "Mute",
    "Pace",
    "Recovery",
    "RepeatedError",
    "Retry",
    "Run",
    "RunSummary",
    "Seconds",
    "Task",
    "TaskResult",
    "WantedDeadLetters",
    "Workload",
    "find_url",
    "job_name",
    "outdated",
    "part",
    "row_format",
]
