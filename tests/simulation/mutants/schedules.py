"""Plans that lead a search to the situation of a mutant. Each is run with several seeds, which choose interleavings.

The random search comes afterwards. A plan here is not easier for the code: it has more faults of one kind than
`draw_plan` would ever draw.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.plan import HOUR, MINUTE, ListPlan, Outage, Plan, RunPlan
from tests.simulation.scripts import SCRIPTS

#: Random plans, as the search draws them.
RANDOM = "random"
#: Random plans with lists.
LISTS = "lists"


def _crashes(share: float) -> tuple[tuple[str, float], ...]:
    return (("crash before", share / 2), ("crash after", share / 2))


SCHEDULES: Mapping[str, Plan] = {
    **SCRIPTS,
    "recovered once the cause is mended": Plan(runs=(RunPlan(chunks=2, bad=(0,), mended_at=50.0),), recoveries=(60.0,)),
    "workers die": Plan(
        runs=(RunPlan(chunks=2),),
        faults=_crashes(0.5),
        most_faults=80,
        struck=("worker",),
        chaos_seconds=4 * HOUR,
    ),
    "workers and sweepers die": Plan(
        runs=(RunPlan(chunks=1),),
        faults=_crashes(0.7),
        most_faults=4000,
        struck=("worker", "sweeper"),
        chaos_seconds=6 * HOUR,
        sweepers=2,
    ),
    "workers die, freeze and come back": Plan(
        runs=(RunPlan(chunks=2),),
        workers=3,
        sweepers=2,
        dead_letter_consumers=2,
        faults=(("freeze", 0.15), ("crash before", 0.3), ("crash after", 0.3)),
        most_faults=4000,
        struck=("worker",),
        repeated=0.5,
        chaos_seconds=2.4 * HOUR,
    ),
    "everybody dies": Plan(
        runs=(RunPlan(chunks=3, bad=(1,)),),
        workers=2,
        splitters=2,
        status_services=2,
        faults=_crashes(0.12),
        most_faults=40,
        repeated=0.3,
        recoveries=(300.0, 1500.0),
    ),
    "the status service dies": Plan(
        runs=(RunPlan(chunks=1, bad=(0,)), RunPlan(chunks=1)),
        status_services=2,
        faults=_crashes(0.2),
        most_faults=30,
        struck=("status",),
        dropped=0.3,
    ),
    "answers are lost": Plan(
        runs=(RunPlan(chunks=3), RunPlan(workload="captions", chunks=2)),
        workers=3,
        splitters=2,
        status_services=2,
        faults=(("error after", 0.06), ("partial", 0.1), ("conflict", 0.1)),
        most_faults=40,
    ),
    "two of everything, slowly": Plan(
        runs=(RunPlan(chunks=3, same_name=True), RunPlan(chunks=2, same_name=True, at=2.0)),
        workers=3,
        splitters=2,
        status_services=2,
        dead_letter_consumers=2,
        sweepers=2,
        network=3,
        repeated=0.6,
        sweep_seconds=60.0,
    ),
    "two slow lanes": Plan(
        runs=(RunPlan(chunks=2, slow=(0, 1, 2, 3)),),
        workers=2,
        slow_lanes=3,
        network=2,
        repeated=0.9,
        chaos_seconds=4 * HOUR,
    ),
    "two slow lanes, frozen": Plan(
        runs=(RunPlan(chunks=1, slow=(0, 1)),),
        slow_lanes=3,
        network=3,
        faults=(("freeze", 0.35),),
        most_faults=60,
        struck=("slow-lane",),
        repeated=1.0,
        chaos_seconds=4 * HOUR,
    ),
    "workers freeze over slow rows": Plan(
        runs=(RunPlan(chunks=1, slow=(0,)),),
        workers=3,
        slow_lanes=1,
        faults=(("freeze", 0.5),),
        most_faults=20,
        struck=("worker",),
        repeated=1.0,
        chaos_seconds=4 * HOUR,
    ),
    "hopeless rows": Plan(
        runs=(RunPlan(chunks=2, slow=(0, 1, 3), hopeless=(0,)),), slow_lanes=2, network=1, repeated=0.5
    ),
    "recovered again and again": Plan(
        runs=(RunPlan(chunks=3, bad=(0,), tolerated_percent=40.0), RunPlan(chunks=2, bad=(1,))),
        workers=2,
        dead_letter_consumers=2,
        network=2,
        recoveries=(20.0, 60.0, 130.0, 300.0, 700.0, 1500.0, 3000.0),
        sweep_seconds=60.0,
    ),
    "recovered while consumers die": Plan(
        runs=(RunPlan(chunks=3, bad=(0, 2)),),
        workers=2,
        dead_letter_consumers=2,
        faults=_crashes(0.15),
        most_faults=30,
        struck=("dlq-consumer", "recovery"),
        recoveries=(60.0, 300.0, 700.0, 1500.0),
    ),
    "S3 is down": Plan(
        runs=(RunPlan(chunks=2),), workers=2, outages=(Outage("s3", 1.0, 3 * HOUR), Outage("s3", 4 * HOUR, HOUR))
    ),
    "S3 comes and goes": Plan(
        runs=(RunPlan(chunks=3),),
        workers=2,
        # no process runs in between, when S3 is up and dead letters could be archived
        pauses=tuple(("worker", 300.0 * number, 50.0) for number in range(27)),
        outages=tuple(Outage("s3", 45.0 + 300.0 * number, 260.0) for number in range(84)),
    ),
    "S3 is down for dead letters": Plan(
        runs=(RunPlan(workload="captions", chunks=3),),
        gpu=((0.0, "down"), (HOUR, "up")),
        outages=(Outage("s3", 10.0, 20 * MINUTE),),
    ),
    "the ledger is down for dead letters": Plan(
        runs=(RunPlan(workload="captions", chunks=3),),
        gpu=((0.0, "down"), (HOUR, "up")),
        outages=(Outage("ledger", 1000.0, 20 * MINUTE), Outage("ledger", 60.0, MINUTE)),
    ),
    "S3 is down before the split": Plan(runs=(RunPlan(chunks=1),), outages=(Outage("s3", 0.5, 5 * HOUR),), late=0.5),
    "the GPU comes and goes": Plan(
        runs=(RunPlan(workload="captions", chunks=3),),
        workers=2,
        gpu=((0.0, "down"), (40 * MINUTE, "mute"), (3 * HOUR, "down"), (5 * HOUR, "up")),
    ),
    "the bus loses events": Plan(
        runs=(RunPlan(chunks=2), RunPlan(chunks=1, bad=(0,))),
        workers=2,
        status_services=2,
        dropped=0.6,
        doubled=0.4,
        late=0.4,
        patience=6 * HOUR,
    ),
    "cancelled at once": Plan(
        runs=(RunPlan(chunks=3, cancel_at=0.3), RunPlan(chunks=3, cancel_at=1.0), RunPlan(chunks=2, cancel_at=3.0)),
        splitters=2,
        status_services=2,
        network=2,
        recoveries=(100.0, 900.0),
    ),
    "cancelled, and goes on after all": Plan(
        runs=(RunPlan(chunks=3, cancel_at=2.0, go_on_at=300.0),),
        workers=1,
        status_services=2,
        pauses=(("worker", 1.0, 4 * HOUR),),
    ),
    "cancelled while no worker runs": Plan(
        runs=(RunPlan(chunks=3, cancel_at=60.0),), pauses=(("worker", 0.0, 4 * HOUR),)
    ),
    "cancelled with dead letters": Plan(
        runs=(RunPlan(workload="captions", chunks=3, cancel_at=30 * MINUTE),),
        gpu=((0.0, "down"), (2 * HOUR, "up")),
        recoveries=(600.0, 1200.0, 1700.0, 4000.0),
    ),
    "a worker dies while the status service is away": Plan(
        runs=(RunPlan(chunks=1),),
        faults=(("crash after", 0.2),),
        most_faults=2,
        struck=("worker",),
        pauses=(("status", 1.0, 25.0),),
        sweep_seconds=900.0,
    ),
    "recovered while the status service freezes": Plan(
        runs=(RunPlan(chunks=2, bad=(0,), mended_at=50.0),),
        status_services=2,
        faults=(("freeze", 0.2),),
        most_faults=60,
        struck=("status",),
        recoveries=(60.0, 200.0, 500.0, 1000.0, 2000.0),
        chaos_seconds=3 * HOUR,
    ),
    "recovered while events are late": Plan(
        runs=(RunPlan(chunks=2, bad=(0,)),),
        doubled=0.7,
        late=0.5,
        pauses=(("worker", 40.0, 3 * HOUR),),
        recoveries=(60.0, 400.0),
        chaos_seconds=2 * HOUR,
    ),
    "messages are lost": Plan(
        runs=(RunPlan(chunks=3),),
        pauses=(("worker", 0.0, 30.0),),
        purges=(("chunks", 20.0), ("chunks", 60.0)),
    ),
    "a worker dies and its message is lost": Plan(
        runs=(RunPlan(chunks=1),),
        faults=(("crash after", 0.3),),
        most_faults=1,
        struck=("worker",),
        purges=tuple(("chunks", 5.0 * number) for number in range(2, 20)),
        patience=8 * HOUR,
    ),
    "sweepers give up": Plan(
        runs=(RunPlan(chunks=2),),
        faults=_crashes(0.6),
        most_faults=4000,
        struck=("worker", "sweeper"),
        sweepers=2,
        pauses=(("dlq-consumer", 0.0, 5 * HOUR),),
        purges=(("chunks-dlq", 4.5 * HOUR),),
        chaos_seconds=4 * HOUR,
    ),
    "tokens meet": Plan(
        runs=(RunPlan(workload="captions", chunks=2),),
        gpu=((0.0, "down"), (HOUR, "up")),
        status_services=2,
        network=1,
        outages=tuple(Outage("sqs", 1.0 + 5.0 * number, 3.0, lossy=True) for number in range(40)),
        repeated=0.5,
        chaos_seconds=HOUR,
        patience=8 * HOUR,
    ),
    # ---- lists of URLs
    "workers of a list die": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=5, flaky=(0, 3)),),
        fetchers=2,
        faults=_crashes(0.3),
        most_faults=60,
        struck=("fetcher",),
        repeated=0.5,
    ),
    "workers of a list freeze": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=5, gone=(1,), flaky=(0, 3), retry_at=1000.0),),
        fetchers=3,
        faults=(("freeze", 0.2), ("error after", 0.1)),
        most_faults=20,
        struck=("fetcher",),
        repeated=0.8,
        chaos_seconds=3 * HOUR,
    ),
    "requests are cut off": Plan(
        runs=(),
        lists=(
            ListPlan(tasks=3),
            ListPlan(tasks=3, keyed=False),
            ListPlan(how="open", tasks=2, batches=(0.5, 0.7, 1.0), close_at=1.0),
        ),
        faults=(("crash after", 0.1), ("error after", 0.1), ("crash before", 0.05)),
        most_faults=8,
        struck=("api",),
    ),
    "ingestions meet": Plan(
        runs=(),
        lists=(ListPlan(how="upload", tasks=9), ListPlan(how="manifest", tasks=9)),
        splitters=3,
        faults=(("crash after", 0.05), ("freeze", 0.05), ("error after", 0.05)),
        most_faults=8,
        struck=("splitter",),
        repeated=0.8,
    ),
    "splitters of a list freeze": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=5),),
        fetchers=3,
        faults=(("freeze", 0.1),),
        most_faults=6,
        struck=("splitter",),
    ),
    "queues of runs are gone": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=9), ListPlan(how="manifest", tasks=2, at=5.0)),
        faults=_crashes(0.05),
        most_faults=4,
        queue_losses=(0.3, 1.5),
        sweep_seconds=60.0,
    ),
    "the queue of a run that waits is gone": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=9),),
        pauses=(("fetcher", 0.0, 60.0),),
        queue_losses=(30.0,),
        sweep_seconds=60.0,
    ),
    "failed tasks are tried again": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=9, gone=(0, 1, 2, 3, 4, 5, 7), retry_at=20.0),),
        fetchers=2,
        network=1,
        repeated=0.3,
        recoveries=(60.0,),
    ),
    "a list is stopped and continues": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=9, cancel_at=0.3, go_on_at=30.0, webhook=True),),
        fetchers=2,
        network=1,
    ),
    "a list is deleted while it is written": Plan(
        runs=(),
        lists=(
            ListPlan(how="manifest", tasks=9, export_at=0.4, delete_at=0.5),
            ListPlan(how="open", tasks=2, batches=(0.1,), close_at=900.0, delete_at=1.0),
        ),
        splitters=2,
        fetchers=2,
        network=2,
        faults=(("freeze", 0.04),),
        most_faults=4,
    ),
    "a list is deleted after its end": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=9, delete_at=100.0),),
        faults=(("partial", 0.3),),
        most_faults=40,
        struck=("splitter",),
    ),
    "reads are stale and batches partial": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=9, flaky=(2,), delete_at=300.0), ListPlan(tasks=3, gone=(1,))),
        fetchers=2,
        read_lag=5.0,
        faults=(("partial", 0.3), ("throttle", 0.05)),
        most_faults=40,
    ),
    "a pool": Plan(
        runs=(),
        lists=(
            ListPlan(how="manifest", tasks=5, function=True, pool=True, gone=(1,), flaky=(2,), rerun_at=120.0),
            ListPlan(how="upload", tasks=5, function=True, flaky=(0,)),
        ),
        fetchers=2,
    ),
    "a function has new code": Plan(
        runs=(),
        lists=(
            ListPlan(how="manifest", tasks=9, function=True, pool=True, flaky=(0, 3)),
            ListPlan(how="upload", tasks=5, function=True, flaky=(1,)),
        ),
        fetchers=2,
        upgraded_at=0.9,
    ),
    "too many failures, and then new code": Plan(
        runs=(),
        lists=(
            ListPlan(how="manifest", tasks=27, function=True, gone=tuple(range(20)), tolerated_failures=1),
            ListPlan(how="manifest", tasks=3, function=True, gone=(0,), tolerated_failures=1),
        ),
        upgraded_at=14.0,
    ),
    "one failure too many": Plan(
        runs=(),
        lists=(ListPlan(how="manifest", tasks=5, function=True, gone=(0, 2), tolerated_failures=1),),
    ),
}
