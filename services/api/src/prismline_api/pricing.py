"""What a run costs on AWS, computed from what it has used: prices, and a model of the requests of an attempt.

Nothing measures the requests of one run, and a function works on several tasks at a time. So a cost is a range, of the
fewest and the most requests of an attempt, and of the most and the fewest tasks that share a function's time. It has
what the worker does, as Lambda functions, and the storage of the outputs for a month. It has no logs, no traffic, no
splitting of runs, and no server that costs by the hour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: Region and year of the list prices below, in USD, without free tiers: aws.amazon.com/<service>/pricing.
PRICES_REGION, PRICES_OF = "us-east-1", "2025"
PRICES = f"{PRICES_REGION}, {PRICES_OF}"
#: For one request, a GB-second, a unit of the table, an event, a GB of the bucket in a month.
SQS_REQUEST, LAMBDA_REQUEST, GB_SECOND = 0.40e-6, 0.20e-6, 0.0000166667
WRITE_UNIT, READ_UNIT, EVENT = 0.625e-6, 0.125e-6, 1e-6
S3_PUT, S3_GET, S3_GB_MONTH = 5e-6, 0.4e-6, 0.023
#: Memory of a function of the worker, in GB: `MemorySize` of its template.
WORKER_GB = 1769 / 1024


@dataclass(frozen=True)
class Attempt:
    """What an attempt uses besides its time. `sharing`: attempts that share the time of a function."""

    sharing: int
    write_units: float
    reads: float
    queue_requests: float
    events: float
    gets: int
    invocations: float = 1
    puts: int = 1

    @property
    def usd(self) -> float:
        """The price of its requests."""
        return (
            self.write_units * WRITE_UNIT
            + self.reads * READ_UNIT
            + self.queue_requests * SQS_REQUEST
            + self.events * EVENT
            + self.gets * S3_GET
            + self.invocations * LAMBDA_REQUEST
            + self.puts * S3_PUT
        )


#: The least and the most that an attempt at a chunk uses. Write units: two transactional writes of up to 2 KB, and one
#: write. GETs: one of the chunk's input, or of the ranges of a large cube (424 channels).
CHUNK = (
    Attempt(sharing=1, write_units=10, reads=2, queue_requests=3, events=1, gets=1),
    Attempt(sharing=1, write_units=20, reads=4, queue_requests=6, events=2, gets=424),
)
#: The same of a task. The least: a message has a hundred tasks, of which the function fetches all at a time, and their
#: items are small. The most: a task is alone in its message.
TASK = (
    Attempt(sharing=100, write_units=3, reads=1, queue_requests=0.03, events=0, gets=0, invocations=0.01),
    Attempt(sharing=1, write_units=12, reads=4, queue_requests=6, events=1, gets=1),
)


@dataclass(frozen=True)
class Dollars:
    """A cost in USD, between two values."""

    least: float
    most: float


def dollars(unit: str, worked_seconds: float, attempts: float, n_bytes: float, *, ranges: int = 0) -> Dollars:
    """The cost of the attempts of a run.

    unit: of the run, `chunk` or `task`. worked_seconds: total duration of the attempts. n_bytes: of their outputs.
    ranges: the channels of a cube, each of which may be a range of its own, if they are known.
    """
    storage = n_bytes / 1e9 * S3_GB_MONTH
    fewest, largest = TASK if unit == "task" else CHUNK
    least, most = (
        worked_seconds / each.sharing * WORKER_GB * GB_SECOND + attempts * each.usd + storage
        for each in (fewest, replace(largest, gets=max(largest.gets, ranges)))
    )
    return Dollars(least, most)
