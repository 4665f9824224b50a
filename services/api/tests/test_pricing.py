"""What a run costs on AWS: a range from its time, its attempts and the bytes of its outputs."""

from __future__ import annotations

import pytest

from prismline_api import pricing


def test_a_chunk_pays_for_its_time_and_for_between_the_fewest_and_the_most_requests() -> None:
    seconds = 3600.0
    found = pricing.dollars("chunk", seconds, attempts=100, n_bytes=0)
    work = seconds * pricing.WORKER_GB * pricing.GB_SECOND
    assert found.least - work == pytest.approx(100 * pricing.CHUNK[0].usd)
    assert found.most - work == pytest.approx(100 * pricing.CHUNK[1].usd)


def test_fetches_that_share_the_time_of_a_function_cost_a_hundredth_of_it() -> None:
    found = pricing.dollars("task", 1e6, attempts=0, n_bytes=0)
    assert found.most == pytest.approx(100 * found.least)


@pytest.mark.parametrize("unit", ["chunk", "task"])
def test_the_most_is_not_less_than_the_least_and_each_use_adds_to_both(unit: str) -> None:
    nothing = pricing.dollars(unit, 0, 0, 0)
    assert (nothing.least, nothing.most) == (0, 0)
    for use in ((1.0, 0, 0), (0.0, 1, 0), (0.0, 0, 10**9)):
        found = pricing.dollars(unit, *use)
        assert 0 < found.least <= found.most


def test_a_gigabyte_of_results_costs_its_storage_for_a_month() -> None:
    found = pricing.dollars("chunk", 0, 0, 10**9)
    assert found.least == found.most == pytest.approx(pricing.S3_GB_MONTH)
