"""A run as a person sees it: the answer of the API, and what the command computes from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prismline_client import ApiError, Client, Run
from prismline_contracts.workloads import is_function

#: What a workload calls the items of its chunks.
_ITEM_WORDS = {"spectra": "spectra", "captions": "windows", "urls": "URLs"}


@dataclass(frozen=True)
class RunView:
    """A run."""

    run: Run
    #: Finished items of chunks that are in progress. 0 unless `watching.follow` has counted them.
    underway: int = 0

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.run.run_id

    @property
    def total(self) -> int:
        """The number of chunks. 0 while it is unknown."""
        return (self.run.counts and self.run.counts.total) or 0

    @property
    def completed(self) -> int:
        """The number of completed chunks."""
        return self.run.counts.completed if self.run.counts else 0

    @property
    def failed(self) -> int:
        """The number of failed chunks."""
        return self.run.counts.failed if self.run.counts else 0

    @property
    def opened(self) -> bool:
        """Whether the ledger has the run."""
        return self.run.counts is not None

    @property
    def calls_function(self) -> bool:
        """Whether the run calls an author's function for each item of a list."""
        return self.run.unit == "task" and is_function(self.run.workload)

    @property
    def items_word(self) -> str:
        """What the items of the run's chunks are called, for several of them."""
        return _ITEM_WORDS.get(self.run.workload, "items")

    @property
    def ok(self) -> bool:
        """Whether nothing has failed."""
        final = self.run.finalization
        return self.failed == 0 and self.run.status != "failed" and (final is None or final.status != "failed")

    @property
    def spectra_done(self) -> int:
        """Estimated number of finished spectra, in ended chunks and in chunks in progress. The last may hold fewer."""
        if not self.run.n_items or not self.total:
            return 0
        per_chunk = math.ceil(self.run.n_items / self.total)
        return min(self.run.n_items, per_chunk * (self.completed + self.failed) + self.underway)

    @property
    def parts_done(self) -> float:
        """The work done in chunks that are in progress, as a number of whole chunks."""
        n_items = self.run.n_items or 0
        return min(self.underway * self.total / n_items, self.total - self.completed - self.failed) if n_items else 0.0

    @property
    def retried(self) -> str | None:
        """That a message of the run is retried, and after which error. None if no message repeats an error."""
        if self.run.repeated_error is None:
            return None
        return f"Being retried after an unexpected error: {self.run.repeated_error.sentence}"

    @property
    def tried_again(self) -> list[str]:
        """What of the run is tried again after an error, one sentence each."""
        return [each.sentence for each in self.run.conditions if each.name in {"retried", "repeated_error"}]

    @property
    def seconds(self) -> float:
        """Time from the submission of the run to its end, or until now."""
        if not self.run.created_at:
            return 0.0
        end = self.run.completed_at
        until = datetime.fromisoformat(end) if end else datetime.now(UTC)
        return max(0.0, (until - datetime.fromisoformat(self.run.created_at)).total_seconds())

    def as_json(self) -> dict[str, Any]:
        """The view as a JSON document. Counts are null while they are unknown."""
        run = self.run
        return {
            "run_id": run.run_id,
            "job_id": run.job_id or None,
            "survey": run.name or None,
            "status": run.status,
            "error": run.error,
            "n_spectra": run.n_items,
            "n_blank": run.n_blank,
            "n_timed_out": run.n_timed_out,
            "n_refit_failed": run.n_refit_failed,
            "chunks_total": run.counts.total if run.counts else None,
            "chunks_completed": self.completed,
            "chunks_failed": self.failed,
            "unit": run.unit,
            "n_rejected": run.n_rejected or 0,
            "finalization": run.finalization.model_dump() if run.finalization else None,
            "waiting_for": run.waiting_for,
            "repeated_error": run.repeated_error.model_dump() if run.repeated_error else None,
            "usd": run.costs.usd.model_dump() if run.costs and run.costs.usd else None,
            "params": run.params,
            "warnings": run.warnings,
            "created_at": run.created_at or None,
            "started_at": run.started_at,
            "completed_at": run.completed_at,
            "seconds": round(self.seconds, 3),
            "trace_id": run.trace_id,
        }


def load_run(client: Client, run_id: str) -> RunView | None:
    """The run with this id, or None if there is none."""
    try:
        return RunView(client.run(run_id))
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def list_runs(client: Client, survey: str | None, limit: int) -> list[RunView]:
    """The latest runs, newest first: of one survey, or of all."""
    if survey is None:
        return [RunView(run) for run in client.detailed_runs(limit)]
    of_survey = (run for run in client.detailed_runs(name=survey) if run.name == survey)
    return [RunView(run) for run, _ in zip(of_survey, range(limit), strict=False)]
