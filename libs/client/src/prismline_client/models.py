"""Answers of the API. The models ignore fields that they do not know. The OpenAPI document explains the fields."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from prismline_client.errors import outdated


class Answer(BaseModel):
    """Base of the models. What the API leaves out is None."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Recovery(Answer):
    """A recovery: dead letters that are sent back, or failures that are tried again."""

    operation_id: str
    run_id: str | None
    status: str
    dry_run: bool
    prefix: str | None = None
    retry: bool = False
    chunk_ids: list[str] | None = None
    cancelled_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    n_records: int
    n_sent: int
    n_settled: int
    n_failed: int
    n_left: int
    n_recovered: int


class Mute(Answer):
    """Whether alerts are muted. `muted_problem`: why the mute cannot be read."""

    muted: bool
    muted_until: str | None = None
    muted_problem: str | None = None


class Counts(Answer):
    """The numbers of a run's chunks or tasks. `total` is None until it is final."""

    total: int | None = None
    completed: int
    failed: int


class Dollars(Answer):
    """What something costs on AWS in USD, between two values. `prices` has Region and date of the list prices."""

    least: float
    most: float
    prices: str


class Costs(Answer):
    """The costs of the chunks or tasks that have ended."""

    worked_seconds: float
    attempts: int
    bytes: int
    usd: Dollars | None = None


class Seconds(Answer):
    """A duration between two values."""

    least: float
    most: float


class Estimate(Answer):
    """What a run would cost. `reasons` say where the range comes from, and what it leaves out."""

    workload: str
    items: int
    worked_seconds: Seconds
    usd: Dollars
    reasons: list[str]


class RepeatedError(Answer):
    """An unexpected error that a message of the run raises again and again. `sentence` says all of it."""

    service: str
    message_type: str
    part: str | None = None
    error: str
    count: int
    first_at: str
    last_at: str
    others: int
    sentence: str


class Action(Answer):
    """What may be done to a run. If it is not allowed, `reason` says why, and what to do instead."""

    name: str
    allowed: bool
    reason: str | None = None


class Condition(Answer):
    """Something that a run does or waits for now."""

    name: str
    sentence: str


class Pace(Answer):
    """How fast the chunks or tasks of a run end, and the time that the rest takes at this rate."""

    per_second: float
    remaining_seconds: float | None = None


class RunSummary(Answer):
    """A run in a list."""

    run_id: str
    job_id: str
    name: str
    workload: str
    created_at: str
    status: str
    unit: str
    counts: Counts | None = None
    n_items: int | None = None
    costs: Costs | None = None
    dead_letters: int | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: str | None = None


class Finalization(Answer):
    """The call of a function's `finalize` after all items of a run have ended."""

    status: str
    attempts: int
    value: JsonValue = None
    value_url: str | None = None
    error: str | None = None
    error_type: str | None = None


class Run(Answer):
    """A run."""

    run_id: str
    job_id: str
    name: str
    workload: str
    status: str
    created_at: str
    unit: str
    ended: bool
    counts: Counts | None = None
    costs: Costs | None = None
    n_items: int | None = None
    n_blank: int | None = None
    n_timed_out: int | None = None
    n_refit_failed: int | None = None
    code: str | None = None
    params: dict[str, Any] = {}
    warnings: list[str] = []
    trace_id: str | None = None
    n_rejected: int | None = None
    rejects_url: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: str | None = None
    finalization: Finalization | None = None
    waiting_for: str | None = None
    repeated_error: RepeatedError | None = None
    conditions: list[Condition] = []
    pace: Pace | None = None
    going_on: str | None = None
    cancelled_at: str | None = None
    actions: list[Action] = []
    priority: int | None = None
    max_concurrency: int | None = None
    deadline_at: str | None = None

    def action(self, name: str) -> Action:
        """What the API says of this action. Raises KeyError for one that it does not know."""
        return {action.name: action for action in self.actions}[name]


class Retry(Answer):
    """How a chunk or task is tried again after an error. `sentence` says all of it."""

    attempts: int
    at_least: int | None = None
    next_at: str
    sentence: str


class Recorded(Answer):
    """What has an item in the ledger, or a record in the archive."""

    record: dict[str, JsonValue] | None = None

    @property
    def details(self) -> dict[str, Any]:
        """The fields of its item or record. Raises ApiError if the API, which was asked for them, cannot give them."""
        if self.record is None:
            raise outdated("leaves out fields")
        return self.record


class Chunk(Recorded):
    """A chunk."""

    chunk_id: str
    status: str
    n_items: int
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    duration_ms: int | None = None
    attempts: int
    n_done: int = 0
    deferrals: int
    error: str | None = None
    last_error: str | None = None
    retry: Retry | None = None
    output_key: str | None = None
    output_url: str | None = None
    why: str | None = None


class TaskResult(Answer):
    """The result of a fetch."""

    http_status: int
    content_type: str | None = None
    length: int
    sha256: str
    final_url: str
    headers: dict[str, str]


class Task(Recorded):
    """A task: a URL, or an item of a function."""

    task_id: str
    index: int
    url: str | None = None
    item: JsonValue = None
    status: str
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    duration_ms: int | None = None
    attempts: int
    not_before: str | None = None
    error: str | None = None
    error_type: str | None = None
    last_error: str | None = None
    retry: Retry | None = None
    value: JsonValue = None
    code: str | None = None
    result: TaskResult | None = None


class DeadLetter(Recorded):
    """A dead letter in the archive. The message is in the record only if one dead letter was asked for."""

    key: str
    day: str
    message_id: str
    run_id: str | None = None
    name: str | None = None
    chunk_id: str | None = None
    source_queue: str | None = None
    error: str | None = None
    receive_count: int | None = None
    archived_at: str | None = None
    recovery: str | None = None
    recovery_failed: bool
    recovering: bool = False


class EarlierCode(Answer):
    """Earlier code of a function, and the runs that still need it."""

    code: str
    run_ids: list[str]


class Workload(Answer):
    """What may be submitted. `local`: where the function is on the machine that registered it."""

    name: str
    kind: str
    code: str | None = None
    item: dict[str, JsonValue] | None = None
    parameters: dict[str, JsonValue]
    limits: dict[str, float] | None = None
    registered_at: str | None = None
    local: dict[str, JsonValue] | None = None
    earlier: list[EarlierCode] | None = None


class Cause(Answer):
    """Failures of a run with the same error, apart from numbers and ids in it."""

    count: int
    error: str
    latest_at: str
    example: str
    cell: int


class Causes(Answer):
    """Why chunks or tasks of a run failed, the latest first. If not `complete`, the counts are at least."""

    items: list[Cause]
    count: int
    complete: bool
