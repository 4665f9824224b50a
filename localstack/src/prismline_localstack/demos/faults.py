"""The demonstration of faults: many faults hit one run at once, and every chunk still ends as it should.

The run has forty chunks. Three chunks fail at every receive, so that their messages become dead letters. Two chunks
fail permanently. One chunk kills its worker at every attempt. One message does not parse. Meanwhile the resource of the
workload goes down and comes back. Then the faults end, and the dead letters in the archive are recovered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from prismline_cli.commands import deadletters
from prismline_cli.connection import Connection
from prismline_cli.output import console
from prismline_cli.recovering import wait_for_operation
from prismline_cli.runs import RunView, load_run
from prismline_cli.submission import submit
from prismline_client import Client, Recovery
from prismline_contracts.base import chunk_id
from prismline_contracts.commands import Queue, queue_name
from prismline_contracts.delivery import LIMITS
from prismline_contracts.items import ChunkStatus
from prismline_contracts.resources import GPU
from prismline_localstack.demos import DemoResult, synthetic
from prismline_localstack.demos.own_system import own_system
from prismline_localstack.demos.waiting import wait_for
from prismline_localstack.gpu import start_gpu, stop_gpu
from prismline_runtime import clients

#: Number of chunks of the run, and of spectra in each.
CHUNKS, CHUNK_SIZE = 40, 2
#: The resource that the workload needs in this demonstration.
RESOURCE = GPU
#: Percentage of chunks that may fail: two of forty, but not three.
TOLERATED_PERCENT = 5.0
#: The queue's maxReceiveCount.
RECEIVES = LIMITS[Queue.CHUNKS].max_receives
#: A message that does not parse.
GARBAGE = "\u2603 this is no message"

TRANSIENT = [chunk_id(CHUNK_SIZE * n) for n in (3, 4, 5)]
PERMANENT = [chunk_id(CHUNK_SIZE * n) for n in (10, 11)]
KILLED = chunk_id(CHUNK_SIZE * 20)

#: Settings of the services. They shorten hours to minutes.
SETTINGS = {
    "PRISMLINE_VISIBILITY_SECONDS": "4",
    "PRISMLINE_WAIT_SECONDS": "1",
    "PRISMLINE_SWEEP_SECONDS": "5",
    "PRISMLINE_RESTART_SECONDS": "2",
    "MAX_ATTEMPTS": "10",
    "PATIENCE_SECONDS": "0",
    "RESEND_SECONDS": "1",
    "SWEEP_LEASE_SECONDS": "10",
    "DEFERRAL_SECONDS": "3",
    "RECOVERY_LEASE_SECONDS": "5",
    "WORKLOAD_RESOURCES": json.dumps({"spectra": RESOURCE}),
}

FAULTS: list[dict[str, Any]] = [
    *(
        {"point": "chunk.started", "action": "transient", "times": RECEIVES, "where": {"chunk_id": name}}
        for name in TRANSIENT
    ),
    *({"point": "chunk.started", "action": "permanent", "where": {"chunk_id": name}} for name in PERMANENT),
    {"point": "chunk.started", "action": "kill", "where": {"chunk_id": KILLED}},
]


def suffer(connection: Connection, faults_file: Path, cube: Path, say: Callable[[str], None]) -> RunView:
    """Inject the faults into a system that runs with `SETTINGS` and `faults_file`. Return the run at its end."""
    start_gpu(connection)
    faults_file.write_text(json.dumps(FAULTS))
    fields = {"survey": "faults", "chunk_size": CHUNK_SIZE, "tolerated_failure_percent": TOLERATED_PERCENT}
    run_id = submit(connection, str(cube), fields)
    say(f"Run {run_id}: {len(TRANSIENT)} chunks fail transiently, {len(PERMANENT)} permanently, one kills its worker.")
    _send_garbage(connection)
    say("Sent garbage to the queue of chunks.")
    stop_gpu(connection)
    say(f"The resource {RESOURCE} went down.")
    wait_for(lambda: _deferred(connection, run_id), "a dead letter to be deferred")
    say(f"Deferred dead letters: {', '.join(_deferred(connection, run_id))}.")
    start_gpu(connection)
    say(f"The resource {RESOURCE} is back.")
    view = wait_for(lambda: _with_status(run_id, "failed", "completed"), "the run to end")
    say(f"The run {view.run.status}: {view.completed} chunks completed, {view.failed} failed.")
    return view


def recover(faults_file: Path, run_id: str, say: Callable[[str], None]) -> tuple[Recovery, RunView]:
    """Remove the faults and recover the run's dead letters. Return the recovery, and the run after it."""
    faults_file.write_text("[]")
    say("The faults are gone. Recovering from the archive.")
    client = Client.open()
    recovery = wait_for_operation(client, client.recover(run_id))
    say(f"{recovery.n_records} records: {recovery.n_recovered} recovered, {recovery.n_settled} already done.")
    view = wait_for(lambda: _with_status(run_id, "completed"), "the recovered run to complete")
    say(f"The run {view.run.status}: {view.completed} chunks completed, {view.failed} failed.")
    return recovery, view


def demo_faults(to: Path) -> DemoResult:
    """Run the demonstration on its own system. It succeeds if every chunk completes in the end."""
    to.mkdir(parents=True, exist_ok=True)
    home, faults_file, cube = to / "faults-home", to.absolute() / "faults.json", to / "faults-cube.fits"
    synthetic.make_cube(cube, ny=8, nx=CHUNKS * CHUNK_SIZE // 8)
    settings = {**SETTINGS, "PRISMLINE_FAULTS_FILE": str(faults_file)}
    with own_system(home, workers=2, settings=settings) as (state, say):
        connection = Connection(state.environment)
        run_id = suffer(connection, faults_file, cube, say).run_id
        _show_trouble(connection, run_id)
        console.print("prismline deadletters stats", style="bold")
        deadletters.stats()
        _, view = recover(faults_file, run_id, say)
        _show_trouble(connection, run_id)
    return DemoResult(view.completed == CHUNKS, run_id)


def _show_trouble(connection: Connection, run_id: str) -> None:
    table = Table("chunk", "status", "attempts", "deferrals", "error, or last error", box=None)
    for chunk in connection.ledger.chunks(run_id):
        if chunk.attempts > 1 or chunk.state is ChunkStatus.FAILED:
            error = chunk.error or chunk.last_error or "-"
            table.add_row(chunk.chunk_id, chunk.status, str(chunk.attempts), str(chunk.deferrals), error)
    console.print(table)


def _send_garbage(connection: Connection) -> None:
    sqs = clients.sqs()
    url = sqs.get_queue_url(QueueName=queue_name(connection.environment, Queue.CHUNKS))["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=GARBAGE)


def _deferred(connection: Connection, run_id: str) -> list[str]:
    if connection.ledger.get_run(run_id) is None:
        return []
    return [chunk.chunk_id for chunk in connection.ledger.chunks(run_id) if chunk.deferrals]


def _with_status(run_id: str, *statuses: str) -> RunView | None:
    view = load_run(Client.open(), run_id)
    return view if view is not None and view.run.status in statuses else None
