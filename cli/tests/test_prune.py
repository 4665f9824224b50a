"""`prismline prune`: which objects and items it deletes, which stay, and when it asks for confirmation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_world import CliWorld

from prismline_contracts.manifest import run_id_of

pytestmark = pytest.mark.emulator

ENDED = "2026-03-10T12:05:00.000Z"


def submitted(world: CliWorld, name: str, *, source: str | None = None, over: bool = True, **fields: Any) -> str:
    """Add a run with a manifest, a source, a chunk's input and an output. Returns its id."""
    run_id = run_id_of(world.connection.bucket, name)
    source = source or f"cubes/s/{run_id}/cube.fits"
    manifest = {"workload": "spectra", "survey": "s", "cube_key": source, "idempotency_key": name}
    end = {"ended_at": ENDED, "ended_status": "completed", "drained_at": ENDED} if over else {}
    world.add_run(
        run_id, **({"jobs_total": 1, "jobs_completed": 1, "manifest_key": f"manifests/{name}.json"} | end | fields)
    )
    output = f"decompositions/survey=s/run={run_id}/chunk-0000000.parquet"
    world.add_chunk(run_id, 0, output_key=output)
    for key, body in {
        f"manifests/{name}.json": json.dumps(manifest).encode(),
        f"chunks/{run_id}/manifest.json": json.dumps(manifest).encode(),
        f"chunks/{run_id}/chunk-0000000.npz": b"x" * 1000,
        output: b"y" * 500,
        source: b"z" * 2000,
    }.items():
        world.connection.s3.put_object(Bucket=world.connection.bucket, Key=key, Body=body)
    return run_id


def keys(world: CliWorld, run_id: str) -> set[str]:
    found = world.connection.s3.list_objects_v2(Bucket=world.connection.bucket).get("Contents", [])
    return {entry["Key"] for entry in found if run_id in entry["Key"]}


def test_a_dry_run_says_what_would_be_freed_and_frees_nothing(world: CliWorld) -> None:
    run_id = submitted(world, "one")
    document = world.json("prune", run_id, "--dry-run")
    [run] = document["runs"]
    assert (document["dry_run"], run["run_id"], run["objects"]) == (True, run_id, 5)
    assert document["bytes"] == run["bytes"] > 3500
    assert len(keys(world, run_id)) == 4
    assert world.json("run", run_id)["status"] == "completed"


def test_a_pruned_run_leaves_nothing_and_other_runs_keep_everything(world: CliWorld) -> None:
    run_id, other = submitted(world, "one"), submitted(world, "two")
    world.run("prune", run_id, "--yes")
    assert keys(world, run_id) == set()
    manifests = world.connection.s3.list_objects_v2(Bucket=world.connection.bucket, Prefix="manifests/")["Contents"]
    assert [entry["Key"] for entry in manifests] == ["manifests/two.json"]
    assert [run["run_id"] for run in world.json("runs")] == [other]
    assert list(world.connection.ledger.chunks(run_id)) == []
    assert len(keys(world, other)) == 4
    world.run("run", run_id, expect=2)


def test_a_source_that_another_run_uses_stays(world: CliWorld) -> None:
    first = submitted(world, "one")
    source = f"cubes/s/{first}/cube.fits"
    submitted(world, "two", source=source)
    world.run("prune", first, "--yes")
    assert keys(world, first) == {source}


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("running", {}),
        ("completed", {"ended_at": None, "ended_status": None}),
        ("completed", {"n_timed_out": 3}),
        ("completed", {"ended_status": "failed"}),
    ],
)
def test_a_run_that_has_not_ended_is_never_pruned(world: CliWorld, status: str, fields: dict[str, Any]) -> None:
    given = {name: value for name, value in fields.items() if value is not None}
    run_id = submitted(world, "one", status=status, over="ended_at" not in fields, **given)
    assert "has not ended" in world.run("prune", run_id, "--yes", expect=2).stderr
    assert world.json("prune", "--older-than", "1h", "--yes")["runs"] == []
    assert len(keys(world, run_id)) == 4


def test_runs_are_chosen_by_age_and_deleted_only_after_a_yes(world: CliWorld) -> None:
    run_id = submitted(world, "one")
    assert world.json("prune", "--older-than", "52000w", "--dry-run")["runs"] == []
    world.run("prune", "--older-than", "1d", expect=130)  # nobody answers
    assert "--yes" in world.run("prune", run_id, "--json", expect=2).stderr
    assert len(keys(world, run_id)) == 4
    world.run("prune", "--older-than", "1d", "--yes")
    assert keys(world, run_id) == set()


@pytest.mark.parametrize("arguments", [(), ("nope",), ("--older-than", "soon"), ("nope", "--older-than", "1d")])
def test_wrong_use_is_refused_with_a_sentence(world: CliWorld, arguments: tuple[str, ...]) -> None:
    assert len(world.run("prune", *arguments, "--dry-run", expect=2).stderr.splitlines()) == 1
