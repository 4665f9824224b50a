"""Schedules written by hand, one for each bug that the simulation found in the services. Each failed before the fix.

Nothing is random here: calls are fast, and only the faults of the plan happen.
"""

from __future__ import annotations

import pytest

from tests.simulation.choices import Record
from tests.simulation.plan import HOUR, MINUTE, ListPlan, Outage, Plan, RunPlan
from tests.simulation.script import Step
from tests.simulation.scripts import BROKEN, SCRIPTS
from tests.simulation.simulation import simulate


def assert_kept(plan: Plan) -> None:
    """Assert that every promise is kept in the schedule of `plan`."""
    result = simulate(plan=plan, record={})
    assert result.finding is None, str(result.finding)
    assert not result.left, "the script goes on: " + ", ".join(map(str, result.left))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_comes_to_its_end(name: str) -> None:
    assert_kept(SCRIPTS[name])


def test_a_resumed_run_that_cannot_be_split_ends_again() -> None:
    """Its `run.split` is a dead letter when the run fails. It is recovered and fails again, without an execution."""
    assert_kept(
        Plan(
            runs=(RunPlan(invalid=True),),
            outages=(Outage("sqs", start=0.082, seconds=9), Outage("ledger", start=10, seconds=20 * MINUTE - 4)),
            recoveries=(20 * MINUTE,),
        )
    )


def test_rows_that_were_fitted_are_not_given_up_although_their_patch_was_not_recorded() -> None:
    """The ledger does not answer after the patch of one row; the other row can never be fitted."""
    assert_kept(
        Plan(
            runs=(RunPlan(chunks=1, slow=(0, 1), hopeless=(1,)),),
            outages=(Outage("ledger", start=800, seconds=200),),
        )
    )


def test_a_bad_chunk_that_kills_its_workers_is_given_up_without_a_record() -> None:
    """No worker runs when it is exhausted, so the sweeper gives it up. A message of it comes later and is skipped."""
    dies = Step("worker", r"get_object chunks/.*-0000000.npz", "crash before", times=1000)
    away = ("worker", 2 * HOUR, HOUR)
    assert_kept(Plan(runs=(RunPlan(chunks=1, bad=(0,)),), functions=True, pauses=(away,), script=(dies,)))


def test_a_run_that_is_latched_while_a_recovery_reopens_its_chunk_goes_on() -> None:
    """The recovery has reopened the chunk and not yet sent it when the splitter closes the latch."""
    assert_kept(
        Plan(
            runs=(BROKEN,),
            recoveries=(5.0,),
            script=(
                Step("splitter", r"update_item .*SET #latched_at", until=lambda now: now.has("reopened")),
                Step(
                    "recovery",
                    r"send_message_batch .*-chunks ",
                    until=lambda now: "latched_at" in now.run(),
                    name="reopened",
                ),
            ),
        )
    )


def test_two_submissions_of_one_session_are_each_captioned_from_their_own_frames() -> None:
    """The model is down when they are submitted, so both wait while the frames exist."""
    captions = RunPlan(workload="captions", same_name=True)
    later = RunPlan(workload="captions", same_name=True, at=10)
    assert_kept(Plan(runs=(captions, later), gpu=((0.0, "down"), (HOUR, "up"))))


def test_a_rerun_that_is_requested_while_its_run_is_written_has_all_tasks_or_is_refused() -> None:
    for moment in (0.1, 0.2, 0.3):
        assert_kept(Plan(runs=(), lists=(ListPlan(how="manifest", tasks=9, rerun_at=moment),)))


def test_an_open_job_is_deleted_although_nobody_has_announced_its_run() -> None:
    """A cancellation of that run would be tried for three days."""
    assert_kept(Plan(runs=(), lists=(ListPlan(how="open", batches=(3.0,), close_at=50.0, delete_at=27.0),)))


@pytest.mark.parametrize("keyed", [True, False], ids=["repeated", "not repeated"])
def test_a_short_list_whose_request_is_cut_off_at_any_write_is_processed(keyed: bool) -> None:
    """A job that was written ends, also if its client cannot repeat the request and never hears of it."""
    plan = Plan(runs=(), lists=(ListPlan(keyed=keyed),), faults=(("crash after", 0.5),), most_faults=1, struck=("api",))
    cut_off = 0
    for number in range(15):
        record: Record = {("client-1/fault", number): 1}
        result = simulate(plan=plan, record=record)
        assert result.finding is None, f"call {number}: {result.finding}"
        cut_off += sum(result.struck.values())
    assert cut_off >= 5


def test_a_request_that_is_frozen_for_longer_than_an_invocation_lasts_writes_no_job_later() -> None:
    """Lambda ends the invocation at its timeout. The splitter has thrown the manifest away by then."""
    lists = (ListPlan(keyed=False), ListPlan(at=HOUR))
    plan = Plan(runs=(), lists=lists, faults=(("freeze", 0.5),), most_faults=1, struck=("api",))
    for number in range(1, 8):
        record: Record = {("client-1/fault", number): 1, ("client-1/fault", number + 1): 3}
        result = simulate(plan=plan, record=record)
        assert result.finding is None, f"call {number}: {result.finding}"
        assert result.struck


def test_a_worker_that_is_frozen_while_it_waits_for_a_page_does_not_lengthen_the_request() -> None:
    """The site has answered long before the slot is free for another worker."""
    lists = (ListPlan(tasks=9, max_concurrency=1),)
    plan = Plan(runs=(), lists=lists, fetchers=2, faults=(("freeze", 0.5),), most_faults=1, struck=("fetcher",))
    for number in range(7, 15):
        record: Record = {("fetcher-1/2/fault", number): 1, ("fetcher-1/2/fault", number + 1): 1}
        result = simulate(plan=plan, record=record)
        assert result.finding is None, f"call {number}: {result.finding}"
        assert result.struck


def test_a_client_that_repeats_a_cancellation_cancels_a_run_that_a_person_had_continue_meanwhile() -> None:
    """Its first request is cut off after it has published the event, so the second one sees the continuation."""
    lists = (ListPlan(how="manifest", tasks=9, cancel_at=1.45, go_on_at=2.5),)
    plan = Plan(
        runs=(),
        lists=lists,
        pauses=(("fetcher", 0.0, 600.0),),
        faults=(("crash after", 0.5),),
        most_faults=1,
        struck=("api",),
    )
    again = 0
    for number in range(10):
        result = simulate(plan=plan, record={("client-1-cancel/fault", number): 1}, trace=True)
        assert result.finding is None, f"call {number}: {result.finding}"
        again += result.trace.text().count("SET #cancelled_at = :cancelled_at") == 2
    assert again
