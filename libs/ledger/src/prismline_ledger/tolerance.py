"""How many failures a run tolerates, and whether it has more. Pure functions.

The status service asks at the end of a run. The sweeper asks while the run goes on, and stops a run that has more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prismline_contracts.items import RunItem, Unit
from prismline_ledger.transitions import Counts

#: Error name of a run of which too many chunks or tasks failed.
TOO_MANY_FAILURES = "TooManyFailures"


@dataclass(frozen=True)
class Tolerance:
    """The failures that a run tolerates. Each limit that is given has to hold."""

    #: Percentage of the chunks or tasks. Beside `failures`, 0 is no limit: it is the default.
    percent: float = 0.0
    failures: int | None = None

    @classmethod
    def of(cls, run: RunItem) -> Tolerance:
        """The limits that stop a run while it goes on. Without one, the run goes to its end."""
        return cls(float(run.tolerated_failure_percent or 0), run.tolerated_failures)

    @property
    def attributes(self) -> dict[str, Any]:
        """The fields of the run's item: the limits that were given."""
        percent = str(self.percent) if self.percent else None
        return {"tolerated_failure_percent": percent, "tolerated_failures": self.failures}

    @property
    def given(self) -> bool:
        """Whether there is a limit other than the default."""
        return self.percent > 0 or self.failures is not None

    @property
    def greatest_percent(self) -> float:
        """The percentage that is tolerated whatever the number."""
        return 100.0 if self.failures is not None and not self.percent else self.percent

    @property
    def text(self) -> str:
        """The limits in words: `5 %`, `3 failures`, or `5 % and 3 failures`."""
        number = None if self.failures is None else f"{self.failures} failure{'' if self.failures == 1 else 's'}"
        percent = None if number and not self.percent else percent_text(self.percent)
        return " and ".join(limit for limit in (percent, number) if limit)

    def exceeded(self, failed: int, total: int | None) -> bool:
        """Whether more have failed. total: None while it is not known: then no percentage is."""
        if self.failures is not None and failed > self.failures:
            return True
        return bool(total) and 100 * failed / (total or 1) > self.greatest_percent


#: No failure is tolerated, and the run goes to its end.
DEFAULT_TOLERANCE = Tolerance()


def percent_text(percent: float) -> str:
    """A percentage for people: `7.5 %`, `33.33 %`, `0 %`."""
    return f"{percent:.4g} %"


def failures_text(failed: int, total: int | None, unit: Unit) -> str:
    """How many failed, like `3 of 40 chunks failed (7.5 %)`, or `3 chunks failed` while the total is not known."""
    if not total:
        return f"{failed} {unit}{'' if failed == 1 else 's'} failed"
    return f"{failed} of {total} {unit}s failed ({percent_text(100 * failed / total)})"


def too_many(tolerance: Tolerance, failed: int, total: int | None, unit: Unit) -> str | None:
    """Why the run fails, as a sentence, if more have failed than it tolerates."""
    if not tolerance.exceeded(failed, total):
        return None
    verb = "is" if tolerance.text == "1 failure" else "are"
    return f"{failures_text(failed, total, unit)}, {tolerance.text} {verb} tolerated."


def early_stop(run: RunItem, counts: Counts) -> str | None:
    """Why a run is stopped before its end, as a sentence. None if it goes on.

    A run that a person continued after its failure or cancellation goes to its end: he knows of the failures.
    """
    tolerance = Tolerance.of(run)
    over = run.drained_at is not None or run.cancelled_at is not None or run.ended_at is not None
    if over or run.resumed_at is not None or not tolerance.given:
        return None
    cause = too_many(tolerance, counts.failed, counts.total, run.unit)
    return None if cause is None else f"{cause} The remaining {run.unit}s are skipped."
