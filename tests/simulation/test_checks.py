"""Every check can fire. Most do in the mutation test; the others fire here, after a forbidden write by the test."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import mutants, safety, simulation
from tests.simulation.plan import HOUR, Plan, RunPlan
from tests.simulation.script import Scene, Step
from tests.simulation.scripts import COMPLETES, DRAINS, ENDS
from tests.simulation.simulation import simulate

Forge = Callable[[Scene], None]


def written(key: str, **attributes: Any) -> Forge:
    """Set attributes of an item of the first run; None removes one. `state`: those of its workflow-state item."""

    def forge(now: Scene) -> None:
        world, run_id = now.world, now.users.submissions[0].run_id
        if key == "state":
            place: dict[str, Any] = {"TableName": world.states_table, "Key": {"run_id": {"S": run_id}}}
        else:
            place = {"TableName": world.runs_table, "Key": {"PK": {"S": run_id}, "SK": {"S": key}}}
        for name, value in attributes.items():
            if value is None:
                change: dict[str, Any] = {"UpdateExpression": "REMOVE #name"}
            else:
                kind = "N" if isinstance(value, int) else "S"
                change = {
                    "UpdateExpression": "SET #name = :value",
                    "ExpressionAttributeValues": {":value": {kind: str(value)}},
                }
            world.aws.dynamodb.update_item(**place, ExpressionAttributeNames={"#name": name}, **change)

    return forge


def deleted(table: str, sort: str | None) -> Forge:
    """Delete an item of the first run."""

    def forge(now: Scene) -> None:
        run_id = now.users.submissions[0].run_id
        key = {"run_id": {"S": run_id}} if sort is None else {"PK": {"S": run_id}, "SK": {"S": sort}}
        now.world.aws.dynamodb.delete_item(TableName=getattr(now.world, table), Key=key)

    return forge


def announces(kind: str, **data: Any) -> Forge:
    """Publish an event about the first run, with a new id."""

    def forge(now: Scene) -> None:
        run_id = now.users.submissions[0].run_id
        detail = {"specversion": "1.0", "id": f"forged {kind}", "runid": run_id, "data": {"run_id": run_id, **data}}
        now.world.aws.events.put_events(
            Entries=[
                {
                    "EventBusName": "prismline-sim",
                    "Source": "prismline/sim/forged",
                    "DetailType": f"prismline.{kind}.v1",
                    "Detail": json.dumps(detail),
                }
            ]
        )

    return forge


def output_deleted(now: Scene) -> None:
    """Delete the output of a chunk."""
    bucket = now.world.bucket
    (key,) = (key for key in now.world.aws.objects[bucket] if key.startswith("decompositions/"))
    now.world.aws.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})


def chunk_added(now: Scene) -> None:
    """Add a chunk to the first run."""
    table, run_id = now.world.runs_table, now.users.submissions[0].run_id
    key = {"PK": {"S": run_id}, "SK": {"S": CHUNK}}
    item = now.world.aws.dynamodb.get_item(TableName=table, Key=key)["Item"]
    now.world.aws.dynamodb.put_item(TableName=table, Item={**item, "SK": {"S": "CHUNK#chunk-0000002"}})


def lost_and_sent_again(now: Scene) -> None:
    """Delete the messages of chunks, and record that a chunk is sent again."""
    now.world.queue("chunks").messages.clear()
    written(CHUNK, resends=1)(now)


CHUNK, RUN = "CHUNK#chunk-0000000", "RUN"
WRITES_CHUNKS = r"put_object chunks/.*-0000000.npz"

#: For each check: the service, the call, and the forbidden write at that call.
FORGED: Mapping[str, tuple[str, str, Forge]] = {
    "items stay": ("worker", COMPLETES, deleted("runs_table", CHUNK)),
    "failed with a reason": ("worker", COMPLETES, written(CHUNK, status="FAILED")),
    "output before COMPLETED": ("worker", COMPLETES, output_deleted),
    "output whole before COMPLETED": ("worker", COMPLETES, written(CHUNK, n_items=5)),
    "total equals items": ("worker", r"update_item .*CHUNK", chunk_added),
    "latched with a total": ("splitter", WRITES_CHUNKS, written(RUN, latched_at="2026-03-01T12:00:00.000Z")),
    "noted once": ("worker", COMPLETES, written(RUN, jobs_total=2)),
    "completed when drained": ("worker", COMPLETES, written("state", status="completed")),
    "announced once": ("status", ENDS, announces("run.completed")),
    "announced when it is so": ("worker", COMPLETES, announces("run.completed")),
    "drains are counted": ("worker", DRAINS, written(RUN, drains=7)),
    "nothing is lost": ("worker", COMPLETES, lost_and_sent_again),
}


@pytest.mark.parametrize("check", FORGED)
def test_what_nobody_may_write_is_found(check: str) -> None:
    who, call, forge = FORGED[check]
    plan = Plan(runs=(RunPlan(chunks=1),), script=(Step(who, call, most=1.0, then=forge),))
    finding = simulate(plan=plan, record={}).finding
    assert finding is not None
    assert finding.check == check


#: Complaints at the end if a process never gets past a call: the process and the call.
UNFINISHED = {
    "run 1 has no status": ("status", "put_item"),
    "run 1 was never split": ("splitter", "put_item"),
    "run 1 is pending": ("status", "SET #status"),
    "run 1 is completed, but that was not announced": ("status", "put_events run.completed"),
    "its end in the ledger is None": ("status", ENDS),
    "the sweeper still checks run 1": ("sweeper", "REMOVE #GSI2_PK"),
    "run 1 has not drained: 0 + 0 of 1": ("worker", COMPLETES),
    "chunk-0000000 of run 1 is PENDING": ("worker", COMPLETES),
    "chunk-0000000 of run 1 is COMPLETED, but that was not announced": ("worker", "put_events chunk.completed"),
    "1 rows still wait for the slow lane": ("slow-lane", "get_object chunks/"),
    "1 unfitted rows in the ledger, 0 in its file": ("slow-lane", "transact_write_items"),
    "`wait` for run 1 does not end": ("status", "put_item"),
    "the execution": ("status", "SET #status"),
    "prismline-sim-chunks": ("worker", COMPLETES),
    "is unknown": ("recovery", "update_item"),
    "is done, but that was not announced": ("recovery", "put_events"),
    "the archive has no record of it": ("dlq-consumer", "put_object"),
}


@pytest.mark.parametrize("complaint", UNFINISHED)
def test_what_does_not_come_to_its_end_is_reported(complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MOST_COMPLAINTS", 99)
    who, call = UNFINISHED[complaint]
    run = RunPlan(
        chunks=1, slow=(0,) if who == "slow-lane" else (), bad=(0,) if who in {"recovery", "dlq-consumer"} else ()
    )
    recoveries = (60.0,) if who == "recovery" else ()
    step = Step(who, call, times=1000)
    finding = simulate(
        plan=Plan(runs=(run,), recoveries=recoveries, script=(step,), patience=2 * HOUR), record={}
    ).finding
    assert finding is not None
    assert complaint in finding.message


def test_every_check_is_known_to_fire() -> None:
    """Each check fires in this module or is in the results of the mutation test."""
    results = (Path(mutants.__file__).parent / "results.csv").read_text()
    found = {line["found by"] for line in csv.DictReader(results.splitlines())}
    checks = set(re.findall(r'_wrong\(\s*"([^"]+)"', Path(safety.__file__).read_text()))
    assert checks - found - set(FORGED) == set()
