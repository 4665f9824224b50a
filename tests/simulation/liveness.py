"""The promises some time after the last fault: everything has ended, and everybody who waits was notified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from prismline_contracts.commands import Queue, dead_letter_queue_name
from prismline_contracts.delivery import LIMITS
from prismline_dlq_consumer.decisions import LONGEST_DELAY_SECONDS, LetterPatience
from prismline_dlq_consumer.sweep_decisions import SweepLimits
from prismline_ledger import Operations, Patience
from prismline_splitter.deletion import PASS_SECONDS, PASSES, PATIENCE_SECONDS
from tests.run_view import load_run
from tests.simulation.list_promises import list_complaints
from tests.simulation.plan import LIST_SERVICES, SERVICES, Plan
from tests.simulation.processes import declared_services
from tests.simulation.safety import index_of, stopped_early, unfitted
from tests.simulation.workloads import read_output

if TYPE_CHECKING:
    from tests.simulation.safety import Safety
    from tests.simulation.users import Submission, Users
    from tests.simulation.world import World

_SWEEPS, _WORKERS = SweepLimits(), Patience()
#: The longest waits that docs/reference/limits.md has for what happens in a plan, in seconds. They add up.
WAITS: Mapping[str, float] = {
    # A recovery is sent back, a run is split again, and once more after twice the time. Then a worker that is presumed
    # dead has had its time, a letter is judged again, and the sweeper looks at the run.
    "each": LONGEST_DELAY_SECONDS
    + 3 * _SWEEPS.split_seconds
    + _WORKERS.lease_seconds
    + LONGEST_DELAY_SECONDS
    + _SWEEPS.check_seconds,
    # The message of a function that has died is hidden.
    "functions": float(LIMITS[Queue.CHUNKS].visibility_seconds),
    # A message that is lost is missed only after a day, if its queue has others.
    "messages are lost": _SWEEPS.backlog_seconds,
    # A deletion that cannot end a run goes on after an hour, and is repeated.
    "deletions": PATIENCE_SECONDS + (PASSES - 1) * PASS_SECONDS,
    # A request to cancel a run that is deleted meanwhile is sent back until it is given up.
    "cancelled and deleted": LetterPatience().message_seconds,
}


def waits_of(plan: Plan) -> tuple[str, ...]:
    """The entries of :data:`WAITS` that a plan may have."""
    found = {
        "functions": plan.functions,
        "messages are lost": plan.loses_messages,
        "deletions": any(each.delete_at is not None for each in plan.lists),
        "cancelled and deleted": any(None not in {each.delete_at, each.cancel_at} for each in plan.lists),
    }
    return ("each", *(name for name, there in found.items() if there))


def longest_rest(plan: Plan) -> float:
    """Virtual seconds after the last fault within which everything has to have ended."""
    return plan.patience if plan.patience is not None else sum(WAITS[name] for name in waits_of(plan))


@cache
def _ignored(*, lists: bool) -> tuple[str, ...]:
    """Ends of the names of queues that are not checked.

    The next sweep replaces the lost message of a sweep, and some services are not part of the schedule.
    """
    running = {declared_services()[name].package for name in (*SERVICES, *(LIST_SERVICES if lists else ()))}
    others = (queue for each in declared_services().values() if each.package not in running for queue in each.queues)
    return tuple(name for queue in ("sweeps", *others) for name in (queue, dead_letter_queue_name(queue)))


def complaints(world: World, users: Users, safety: Safety) -> Iterator[str]:
    """A sentence for each thing that has not ended. It is a generator, so that a caller may read only the first."""
    connection = users.connection
    for submission in users.submissions:
        yield from _run_complaints(submission, world, users, safety)
    for name, queue in world.aws.queues.items():
        if queue.messages and not name.endswith(_ignored(lists=bool(world.plan.lists))):
            yield f"{name} holds {len(queue.messages)} messages"
    for arn, execution in world.aws.executions.items():
        if execution.status == "RUNNING":
            yield f"the execution {arn.rpartition(':')[2]} is RUNNING"
    for operation_id in users.operations:
        operation = Operations(connection.dynamodb, connection.runs_table).get(operation_id)
        if operation is None or operation.status != "COMPLETED":
            yield f"{operation_id} is {operation.status if operation else 'unknown'}"
        elif operation_id not in safety.recovered:
            yield f"{operation_id} is done, but that was not announced"
    yield from list_complaints(world, users, safety)
    for submission in users.submissions:
        view = load_run(connection, submission.run_id)
        if view is None or not view.ended:
            yield f"`wait` for run {submission.number} does not end: {_seen(view)}"


def _run_complaints(submission: Submission, world: World, users: Users, safety: Safety) -> Iterator[str]:
    name, run_id = f"run {submission.number}", submission.run_id
    ledger = world.aws.tables[world.runs_table]
    state = world.aws.tables[world.states_table].get(run_id)
    run = ledger.get(run_id, "RUN")
    if state is None:
        yield f"{name} has no status"
        return
    status = state["status"]
    if status not in {"completed", "failed", "cancelled"}:
        yield f"{name} is {status}"
    elif not safety.announced[run_id][f"run.{status}"]:
        yield f"{name} is {status}, but that was not announced"
    if status == "cancelled" and run_id not in users.cancelled:
        yield f"{name} is cancelled, but no user requested that"
    if run is None:
        if not submission.plan.invalid and run_id not in users.cancelled:
            yield f"{name} was never split; its status is {status}: {state.get('error_message')}"
        return
    stopped = run.get("cancelled_at") is not None
    if run_id in safety.went_on and status == "cancelled" and not stopped:
        yield f"{name} was made to continue and is still {status}"
    if (run_id, run.get("cancelled_at")) in users.continuations:
        yield f"{name} is still stopped, but a user made it continue"
    meddled = run_id in users.meddled
    early = stopped_early(state, submission.plan.tolerated_percent)
    if stopped and run_id not in users.cancelled and not submission.plan.invalid and not meddled and not early:
        yield f"{name} was stopped, but no user requested that; it is {status}: {state.get('error_message')}"
    if run.get("ended_status") != status or not run.get("ended_at"):
        yield f"{name} is {status}, but its end in the ledger is {run.get('ended_status')}"
    if run.get("GSI2_PK"):
        yield f"the sweeper still checks {name}"
    failed, total = run.get("jobs_failed", 0), run.get("jobs_total")
    if run.get("drained_at") and not safety.drains[run_id][run["drains"]]:
        yield f"{name} has drained {run['drains']} times, but the last time was not announced"
    if not stopped and status != "cancelled":
        if not run.get("drained_at"):
            yield f"{name} has not drained: {run.get('jobs_completed', 0)} + {failed} of {total}"
        tolerable = not total or 100 * failed / total <= submission.plan.tolerated_percent
        if status in {"completed", "failed"} and (status == "completed") != tolerable:
            yield f"{name} is {status} with {failed} of {total} chunks failed: {state.get('error_message')}"
    for (drifted, counter), by in users.drifted.items():
        if drifted == run_id and by:
            yield f"{counter} of {name} is still wrong by {by}"
    bad, archive = submission.plan.bad, records(world) if submission.plan.bad else []
    for (sort, _), version in ledger.partition(run_id):
        chunk = version.plain
        if not sort.startswith("CHUNK#"):
            continue
        if chunk["status"] not in {"COMPLETED", "FAILED"} and not stopped:
            yield f"{sort[6:]} of {name} is {chunk['status']}"
        published = (sort[6:], chunk["status"]) in safety.endings[run_id]
        # after its worker died, a chunk's message repeats its end; if the message is lost, a sweeper repeats only its
        # own ends
        announced = published or (world.plan.loses_messages and safety.ended_by.get((run_id, sort[6:])) != "sweeper")
        if chunk["status"] in {"COMPLETED", "FAILED"} and not announced:
            yield f"{sort[6:]} of {name} is {chunk['status']}, but that was not announced"
        # a sweeper that gives a chunk up has no message to archive, and `prismline retry` needs none
        letterless = safety.ended_by.get((run_id, sort[6:])) == "sweeper" and not chunk.get("recovery")
        forgiven = world.plan.loses_messages or letterless
        if chunk["status"] == "FAILED" and index_of(chunk, submission) in bad and not forgiven:
            kept = any(run_id in body and sort[6:] in body for body in archive)
            if not kept:
                yield f"{sort[6:]} of {name} failed for good, but the archive has no record of it"
        if chunk["status"] == "COMPLETED" and submission.plan.workload == "spectra" and not stopped:
            found = world.aws.objects[world.bucket].get(chunk["output_key"])
            output = read_output(found.body) if found is not None else None
            rows = output.n_timed_out if output is not None else None
            if rows != unfitted(chunk):
                yield f"{sort[6:]} of {name}: {unfitted(chunk)} unfitted rows in the ledger, {rows} in its file"
            if chunk.get("n_timed_out", 0) and not stopped:
                yield f"{sort[6:]} of {name}: {chunk['n_timed_out']} rows still wait for the slow lane"
            if rows and not submission.plan.hopeless and not submission.plan.bad:
                yield f"{sort[6:]} of {name}: {rows} rows were given up although they can be fitted"


def records(world: World) -> list[str]:
    """All records of the archive of dead letters, including those of recoveries and those that failed again."""
    found = world.aws.objects[world.bucket].items()
    return [each.body.decode(errors="replace") for key, each in found if key.startswith("dead-letter-archive/")]


def _seen(view: object) -> str:
    if view is None:
        return "it does not exist"
    waiting = getattr(getattr(view, "item", None), "n_timed_out", 0)
    return f"it is {getattr(view, 'status', '?')}, {waiting} in the slow lane"
