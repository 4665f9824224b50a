"""Interleavings written by hand, each around one place where a condition, an order or a repetition is needed.

`test_directed.py` plays them, and every promise is kept. The mutation test plays them with the mutant of that place,
and then a promise is broken.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.plan import HOUR, Plan, RunPlan
from tests.simulation.script import STATE_MACHINE, Scene, Step

#: Patterns of calls in the trace.
ATTEMPT, GIVES_BACK = r"update_item .*CHUNK#.*:status=IN_PROGRESS", r"update_item .*CHUNK#.*#last_error"
COMPLETES, FAILS = r"transact_write_items .*:status=COMPLETED", r"transact_write_items .*:status=FAILED"
DRAINS, ENDS = r"update_item .*/RUN SET #drained_at", r"update_item .*/RUN SET #ended_at"
STOPS = r"update_item .*/RUN SET #cancelled_at"
WAITS_FOR_DRAIN = r"update_item .* (ADD|SET) #waiting_tokens"
FAILS_RUN = r"update_item .*SET #status.*:status=failed"
SAYS = r"events.put_events "
WRITES_OUTPUT, READS_CHUNKS = r"put_object decompositions/", r"dynamodb.query .*CHUNK#"

ONE = RunPlan(chunks=1)
#: A run whose chunk fails until a person removes the cause.
BROKEN = RunPlan(chunks=1, bad=(0,), mended_at=50.0)


def _reopened(now: Scene) -> bool:
    return now.is_("PENDING") and "recovery" in now.chunk()


SCRIPTS: Mapping[str, Plan] = {
    # A person makes a cancelled run continue and cancels it again. The status service pauses before it stops the run.
    # Meanwhile the run drains and fails, and a recovery reopens its chunk.
    "a run that is cancelled again fails and is recovered": Plan(
        runs=(RunPlan(chunks=1, bad=(0,), mended_at=600.0, cancel_at=2.0, go_on_at=300.0, cancel_again_at=350.0),),
        pauses=(("worker", 0.0, 390.0),),
        status_services=2,
        recoveries=(700.0,),
        script=(
            Step(
                "status",
                STOPS,
                given=lambda now: "uncancelled_at" in now.run(),
                until=lambda now: now.state().get("status") == "failed" and _reopened(now),
            ),
        ),
    ),
    # Workers die until the chunk is exhausted. The dead-letter consumer reads the chunk. Before it gives the chunk up,
    # a person redrives the message and a worker begins an attempt.
    "a chunk that is given up is begun": Plan(
        runs=(ONE,),
        pauses=(("sweeper", 0.0, 5 * HOUR),),
        script=(
            Step("worker", WRITES_OUTPUT, "crash before", times=1000, given=lambda now: not now.has("given up")),
            Step(
                "dlq-consumer",
                FAILS,
                until=lambda now: now.has("begun"),
                then=lambda now: now.later(90.0, now.users.redrive),
                name="given up",
            ),
            Step("worker", WRITES_OUTPUT, most=60.0, given=lambda now: now.has("given up"), name="begun"),
        ),
    ),
    # Workers die until the chunk is exhausted. Its dead letter comes while the last attempt may still run, and waits.
    "a letter comes before its lease is over": Plan(
        runs=(ONE,),
        pauses=(("sweeper", 0.0, 5 * HOUR),),
        script=(Step("worker", WRITES_OUTPUT, "crash before", times=1000),),
    ),
    # The same, but the sweeper reads the chunk, when one more attempt has just begun.
    "a sweep comes when an attempt begins": Plan(
        runs=(ONE,),
        script=(
            Step("worker", ATTEMPT, most=0.0, given=lambda now: now.world.seconds() > 7210.0, name="begins"),
            Step("worker", WRITES_OUTPUT, "crash before", times=1000),
            Step(
                "sweeper",
                r"receive_message .*-sweeps",
                "hold after",
                until=lambda now: now.has("begins"),
                given=lambda now: now.world.seconds() > 5000.0,
            ),
        ),
    ),
    # The worker reads that all chunks have ended. Before it drains the run, the sweeper drains it, and a recovery
    # reopens the chunk.
    "a run that drains is reopened": Plan(
        runs=(BROKEN,),
        recoveries=(100.0,),
        script=(Step("worker", DRAINS, until=lambda now: now.run().get("drains") == 1 and _reopened(now)),),
    ),
    # One worker has the output and freezes, the others die. It continues when the chunk has been given up and the run
    # has ended.
    "a chunk that was given up completes": Plan(
        runs=(ONE,),
        workers=2,
        script=(
            Step("worker", COMPLETES, until=lambda now: "ended_at" in now.run()),
            Step("worker", COMPLETES, "crash before", nth=2, times=1000, given=lambda now: "ended_at" not in now.run()),
        ),
    ),
    # The same, but it dies before the announcement, and no message is left.
    "a chunk that was given up completes in silence": Plan(
        runs=(ONE,),
        workers=2,
        script=(
            Step("worker", COMPLETES, until=lambda now: "ended_at" in now.run()),
            Step("worker", COMPLETES, "crash before", nth=2, times=1000, given=lambda now: "ended_at" not in now.run()),
            Step("worker", SAYS, "crash before", given=lambda now: now.is_("COMPLETED")),
        ),
    ),
    # A worker processes a chunk when its run is cancelled, and completes it after the end of the run has been recorded.
    "a cancelled run drains": Plan(
        runs=(RunPlan(chunks=1, cancel_at=0.3),),
        script=(Step("worker", COMPLETES, until=lambda now: "ended_at" in now.run()),),
    ),
    # Two workers have the same chunk and complete it at the same time.
    "two workers complete a chunk": Plan(
        runs=(ONE,), workers=2, script=(Step("worker", COMPLETES, until=lambda now: now.is_("COMPLETED")),)
    ),
    # The last chunk ends before the splitter closes the latch.
    "a chunk ends before the latch": Plan(
        runs=(ONE,),
        script=(Step("splitter", r"update_item .*SET #latched_at", most=30.0),),
    ),
    # A worker cannot write its output for a while.
    "an output cannot be written": Plan(runs=(ONE,), script=(Step("worker", WRITES_OUTPUT, "error before", times=8),)),
    # A worker has its output and freezes; another one writes it, and the slow lane patches it.
    "an output comes late": Plan(
        runs=(RunPlan(chunks=1, slow=(0,)),),
        workers=2,
        script=(
            Step(
                "worker", WRITES_OUTPUT, until=lambda now: now.is_("COMPLETED") and not now.chunk().get("n_timed_out")
            ),
        ),
    ),
    # A worker cannot write its output, and freezes before it gives the chunk back. Another one completes it.
    "an attempt ends after another one": Plan(
        runs=(ONE,),
        workers=2,
        script=(
            Step("worker", WRITES_OUTPUT, "error before", times=20, given=lambda now: not now.has("gives back")),
            Step("worker", GIVES_BACK, until=lambda now: now.is_("COMPLETED"), name="gives back"),
        ),
    ),
    # Each slow lane has time for one of the two rows. One has read the file and freezes; the other patches both rows.
    "two patches meet": Plan(
        runs=(RunPlan(chunks=1, slow=(0, 1)),),
        slow_lanes=2,
        script=(Step("slow-lane", WRITES_OUTPUT, until=lambda now: now.chunk().get("n_timed_out", 0) == 0),),
    ),
    # One has patched a row and freezes before it records that; the other patches the other row and records that.
    "a patch is recorded late": Plan(
        runs=(RunPlan(chunks=1, slow=(0, 1)),),
        slow_lanes=2,
        script=(Step("slow-lane", WRITES_OUTPUT, "hold after", until=lambda now: now.chunk().get("n_timed_out") == 0),),
    ),
    # The same, but the first one has already read the chunk.
    "a patch is recorded on an old reading": Plan(
        runs=(RunPlan(chunks=1, slow=(0, 1)),),
        slow_lanes=2,
        script=(
            Step(
                "slow-lane",
                r"transact_write_items .*SET #n_timed_out",
                until=lambda now: now.chunk().get("n_timed_out") == 0,
            ),
        ),
    ),
    # The splitter dies between two chunk files, and a person replaces the cube by another one.
    "a cube is replaced while it is split": Plan(
        runs=(RunPlan(chunks=2),),
        script=(
            Step(
                "splitter",
                r"put_object chunks/.*-0000002.npz",
                "crash before",
                then=lambda now: now.users.replace_source(1),
            ),
        ),
    ),
    # The last worker dies before it announces the drain. The status service sees the drain in the ledger, because the
    # state machine asks at that moment. There is no sweep before the run has ended.
    "an end is checked before the drain is announced": Plan(
        runs=(ONE,),
        sweep_seconds=900.0,
        script=(
            Step("worker", DRAINS, "crash after"),
            Step("status", WAITS_FOR_DRAIN, until=lambda now: "drained_at" in now.run()),
        ),
    ),
    # The status service has announced that the run failed. Before it records that, the run is recovered and completed.
    "an end is recorded late": Plan(
        runs=(BROKEN,),
        status_services=2,
        recoveries=(100.0,),
        script=(Step("status", ENDS, until=lambda now: now.run().get("ended_status") == "completed"),),
    ),
    # The state machine asks twice, and its older token is written last.
    "two tokens meet": Plan(
        runs=(ONE,),
        status_services=2,
        patience=8 * HOUR,
        script=(
            Step(STATE_MACHINE, "AwaitChunks", "error after"),
            Step("status", WAITS_FOR_DRAIN, until=lambda now: "waiting_tokens" in now.state()),
        ),
    ),
    # The last worker dies before it announces the drain, and its message is lost.
    "a drain is announced by nobody else": Plan(
        runs=(ONE,), purges=(("chunks", 10.0),), patience=8 * HOUR, script=(Step("worker", DRAINS, "crash after"),)
    ),
    # The sweeper is about to remove an ended run from the open index, when a recovery reopens the run.
    "a run is closed when it is reopened": Plan(
        runs=(BROKEN,), recoveries=(200.0,), script=(Step("sweeper", r"REMOVE #GSI2_PK", until=_reopened),)
    ),
    # A recovery is done, and its consumer dies before it announces that.
    "a recovery is done and not announced": Plan(
        runs=(BROKEN,),
        recoveries=(100.0,),
        script=(Step("recovery", r"put_events deadletters.recovered", "crash before"),),
    ),
    # One status service has received the cleanup request and freezes. When it continues, the run has been recovered.
    "a cleanup comes late": Plan(
        runs=(BROKEN,),
        status_services=2,
        recoveries=(100.0,),
        script=(
            Step(
                "status",
                r"receive_message .*-runs",
                "hold after",
                until=_reopened,
                given=lambda now: now.holds("runs", "run.cleanup.requested"),
            ),
        ),
    ),
    # The same, but it freezes just before it stops the run.
    "a cleanup is carried out late": Plan(
        runs=(BROKEN,),
        status_services=2,
        recoveries=(100.0,),
        script=(
            Step("status", FAILS_RUN, until=lambda now: now.has("cleans up")),
            Step("status", STOPS, until=_reopened, name="cleans up"),
        ),
    ),
    # Workers die until the chunk is exhausted, and its messages are lost. The sweeper gives it up, and dies.
    "a sweeper gives up and dies": Plan(
        runs=(ONE,),
        purges=(("chunks", 2.2 * HOUR), ("chunks-dlq", 2.2 * HOUR)),
        script=(
            Step("worker", WRITES_OUTPUT, "crash before", times=1000),
            Step("sweeper", FAILS, "crash after"),
        ),
    ),
    # The sweeper reads the run, whose chunk has failed. It counts while the chunk is reopened, and reads the run again
    # when the chunk has failed again.
    "a sweep counts while a chunk is tried again": Plan(
        runs=(RunPlan(chunks=1, bad=(0,)),),
        recoveries=(300.0,),
        script=(
            Step("sweeper", r"update_item .*SET #GSI2_SK", "hold after", until=_reopened),
            Step("sweeper", READS_CHUNKS, "hold after", until=lambda now: now.is_("FAILED"), name="counted"),
            Step("worker", ATTEMPT, nth=2, until=lambda now: now.has("counted")),
        ),
    ),
    # A counter is wrong. The sweeper has counted, and before it corrects the counter another chunk completes.
    "a wrong counter moves": Plan(
        runs=(RunPlan(chunks=4),),
        script=(
            Step(
                "worker",
                COMPLETES,
                nth=2,
                until=lambda now: now.has("corrects"),
                then=lambda now: now.users.drift(1, "jobs_completed", 1),
            ),
            Step("sweeper", r"SET #jobs_completed", until=lambda now: now.has("third"), name="corrects"),
            Step("worker", ATTEMPT, nth=3, until=lambda now: now.run().get("jobs_completed") == 2, name="third"),
        ),
    ),
    # A dead-letter consumer has a dead letter with an error and freezes. The chunk fails, a recovery reopens it, and a
    # worker is about to process it again.
    "an old letter comes after a recovery": Plan(
        runs=(BROKEN,),
        dead_letter_consumers=2,
        recoveries=(200.0,),
        script=(
            Step("dlq-consumer", r"batch_get_item .*CHUNK#", until=_reopened, name="reads"),
            Step("worker", ATTEMPT, nth=2, most=60.0),
        ),
    ),
    # Two workers find a permanent error in the chunk, and one of them freezes before it writes that. A recovery reopens
    # the chunk.
    "an old attempt fails after a recovery": Plan(
        runs=(BROKEN,),
        workers=3,
        recoveries=(200.0,),
        script=(
            Step("worker", FAILS, until=_reopened),
            Step("worker", ATTEMPT, nth=3, most=60.0),
        ),
    ),
    # A person stops the execution while one chunk has failed and another is being processed. One status service is
    # about to stop the run and freezes. The other one stops the run, and then the run is recovered.
    "a stop comes late": Plan(
        runs=(RunPlan(chunks=2, bad=(1,), mended_at=50.0),),
        status_services=2,
        recoveries=(200.0,),
        script=(
            Step(
                "worker",
                ATTEMPT,
                nth=2,
                until=lambda now: "resumed_at" in now.run(),
                then=lambda now: now.users.stop_execution(1),
            ),
            Step("status", STOPS, until=lambda now: "resumed_at" in now.run()),
        ),
    ),
    # A person makes a cancelled run continue. A status service is about to stop the run, because its status is still
    # cancelled, and freezes. The run completes.
    "a cancelled run is stopped late": Plan(
        runs=(RunPlan(chunks=2, cancel_at=2.0, go_on_at=300.0),),
        status_services=2,
        pauses=(("worker", 1.0, 4 * HOUR),),
        script=(Step("status", STOPS, nth=2, until=lambda now: now.run().get("ended_status") == "completed"),),
    ),
    # The execution is gone when the last chunk ends.
    "a drained run loses its execution": Plan(
        runs=(ONE,),
        script=(Step("worker", COMPLETES, most=5.0, then=lambda now: now.users.lose_execution(1)),),
    ),
    # The submission is invalid, and the state machine reports that. At the same time a person stops the execution, and
    # that reason is written second.
    "a run fails for two reasons": Plan(
        runs=(RunPlan(invalid=True),),
        status_services=2,
        script=(
            Step(
                "status",
                FAILS_RUN,
                until=lambda now: now.has("second"),
                then=lambda now: now.users.stop_execution(1),
            ),
            Step("status", FAILS_RUN, nth=2, until=lambda now: now.state().get("status") == "failed", name="second"),
        ),
    ),
}
