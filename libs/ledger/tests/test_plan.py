"""A run's plan: the first delivery of `run.split` records it, and all later ones use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prismline_ledger import Ledger, NewRun

pytestmark = pytest.mark.emulator


def test_of_two_plans_that_were_made_at_once_the_first_counts(ledger: Ledger, new_run_id: Callable[[], str]) -> None:
    run = ledger.open_run(NewRun(run_id=new_run_id(), survey="s", job_id="j", workload="spectra"))
    assert ledger.set_plan(run, '{"etag": "a"}').plan == '{"etag": "a"}'
    late = ledger.set_plan(run, '{"etag": "b"}')
    assert late.plan == '{"etag": "a"}', "the second of two splitters had read the run before the first one wrote"
    assert ledger.set_plan(late, '{"etag": "a", "size": 5}').plan == '{"etag": "a", "size": 5}'
    assert ledger.run(run.run_id).plan == '{"etag": "a", "size": 5}'
