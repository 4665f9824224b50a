"""`GET /v1/estimate`: what a run would cost on AWS that nobody has submitted. The prices are those of `pricing`.

How long an item takes is known for fits (planned durations), from the caller, from the latest run of the workload, or
not at all: then it takes nothing to its timeout. Each is a range, and the answer says where it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass

from prismline_api import pricing
from prismline_api.dependencies import Dependencies
from prismline_api.models import Asked, Dollars, EstimateView, Seconds
from prismline_api.reading import RunFilter, list_runs
from prismline_api.workloads import latest_registration
from prismline_contracts.fit_costs import CHUNK_SECONDS, FINE_CHUNKS, fit_seconds
from prismline_contracts.tasks import UrlParams
from prismline_contracts.workloads import URLS, is_function, latest_workload_key, unit_of
from prismline_http.auth import Caller
from prismline_http.problems import invalid

#: The measured durations of fits are between these multiples of the planned ones (`fit_costs.COST_MS`).
FIT_SPREAD = (0.2, 2.0)
#: The same of a duration that somebody gives or an earlier run had.
KNOWN_SPREAD = (0.5, 2.0)
#: The latest runs of the workload, among which the estimate takes the first that has ended something.
LOOKED_AT = 20
EXCLUDED = (
    "It has the worker's functions and their requests. It has no splitting, logs, traffic, and no server or GPU that"
    " costs by the hour."
)
FIRST_ATTEMPT = "Everything is done at the first attempt."
STORAGE = f"The storage of the outputs comes on top: {pricing.S3_GB_MONTH} USD for a GB and month."


@dataclass(frozen=True)
class Use:
    """What all items together use, and why."""

    seconds: tuple[float, float]
    attempts: tuple[float, float]
    n_bytes: tuple[float, float]
    reasons: tuple[str, ...]


def estimate(asked: Asked, caller: Caller, deps: Dependencies) -> EstimateView:
    """What the run would cost. Raises ProblemError (422) if nothing is known of the duration of an item."""
    use = _fits(asked) if asked.workload == "spectra" else _items(asked, caller, deps)
    unit = unit_of(asked.workload)
    least, most = (
        pricing.dollars(unit, use.seconds[end], use.attempts[end], use.n_bytes[end], ranges=asked.channels or 0)
        for end in (0, 1)
    )
    return EstimateView(
        workload=asked.workload,
        items=asked.items,
        worked_seconds=Seconds(least=use.seconds[0], most=use.seconds[1]),
        usd=Dollars(least=least.least, most=most.most, prices=pricing.PRICES),
        reasons=[*use.reasons, EXCLUDED],
    )


def _fits(asked: Asked) -> Use:
    if asked.channels is None:
        raise invalid("channels: give the number of channels of a spectrum.")
    each = fit_seconds(asked.channels, asked.fit)
    planned = asked.items * each
    chunks: tuple[float, float] = (1, min(asked.items, max(FINE_CHUNKS, FIT_SPREAD[1] * planned / CHUNK_SECONDS)))
    if asked.chunk_size is not None:
        chunks = (asked.items / asked.chunk_size, asked.items / asked.chunk_size + 1)
    reason = (
        f"A fit takes {FIT_SPREAD[0]:g} to {FIT_SPREAD[1]:g} times the planned {1000 * each:.2g} ms of a core;"
        " a spectrum without data takes none."
    )
    return Use(_spread(planned, FIT_SPREAD), chunks, (0, 0), (reason, FIRST_ATTEMPT, STORAGE))


def _items(asked: Asked, caller: Caller, deps: Dependencies) -> Use:
    """The use of items whose duration is not planned."""
    n = asked.items
    if asked.seconds is not None:
        reason = f"Each {_word(asked)} takes half to twice the {asked.seconds:g} s that you gave."
        return Use(_spread(n * asked.seconds), (n, n), (0, 0), (reason, FIRST_ATTEMPT, STORAGE))
    earlier = _earlier(asked, caller, deps)
    if earlier is not None:
        return earlier
    timeout = asked.timeout or _timeout(asked.workload, deps)
    reason = (
        f"No run of {asked.workload} has ended anything: each {_word(asked)} may take up to its timeout of"
        f" {timeout:g} s."
    )
    return Use((0, n * timeout), (n, n), (0, 0), (reason, FIRST_ATTEMPT, STORAGE))


def _earlier(asked: Asked, caller: Caller, deps: Dependencies) -> Use | None:
    """The use of items that are like those of the latest run of the workload."""
    for run in list_runs(caller, RunFilter(workload=asked.workload), LOOKED_AT, None, deps).items:
        ended = run.counts.completed + run.counts.failed if run.counts else 0
        if run.costs is None or not ended:
            continue
        seconds, attempts, n_bytes = (
            each / ended for each in (run.costs.worked_seconds, run.costs.attempts, run.costs.bytes)
        )
        n = asked.items
        reason = (
            f"Each {_word(asked)} takes, and stores, half to twice what one of run {run.run_id} did:"
            f" {seconds:.2g} s, {attempts:.2g} attempts and {n_bytes:,.0f} bytes."
        )
        return Use(_spread(n * seconds), (n, max(n, 2 * n * attempts)), _spread(n * n_bytes), (reason,))
    return None


def _spread(value: float, between: tuple[float, float] = KNOWN_SPREAD) -> tuple[float, float]:
    return value * between[0], value * between[1]


def _timeout(workload: str, deps: Dependencies) -> float:
    if workload == URLS:
        return UrlParams().timeout_s
    if is_function(workload) and deps.head(latest_workload_key(workload)) is not None:
        return latest_registration(workload, deps).limits.timeout
    raise invalid(f"seconds: no run of {workload} has ended anything. Give the average duration of an item.")


def _word(asked: Asked) -> str:
    return {URLS: "URL", "captions": "window"}.get(asked.workload, "item")
