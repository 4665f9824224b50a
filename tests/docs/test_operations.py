"""The commands of the pages on pausing, restoring and removing work on the emulator, in the order of the pages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismline_localstack import harness
from prismline_localstack.settings import REPOSITORY
from tests.cubes import write_cube
from tests.docs.commands import commands, shell
from tests.system import System, wait_for

pytestmark = pytest.mark.e2e

HOW_TO = REPOSITORY / "docs/how-to"
PAUSE, RESTORE, REMOVE = (
    HOW_TO / f"{name}.md" for name in ("pause-a-queue", "restore-a-table", "remove-an-environment")
)
TABLES = ("jobs", "runs", "workflow-state")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system whose services are Lambda functions with event source mappings. The last test removes it."""
    folder = tmp_path_factory.mktemp("operations")
    with pytest.MonkeyPatch.context() as patch, System.running(folder, patch, functions=True) as running:
        yield running


def client(service: str) -> Any:
    """A client of the emulator."""
    return harness.load_state().client(service)


def tables() -> list[str]:
    """The tables of the environment by their short names."""
    names: list[str] = client("dynamodb").list_tables()["TableNames"]
    return sorted(name.removeprefix("prismline-local-") for name in names)


def items(run_id: str) -> list[dict[str, Any]]:
    """The items of the run's partition."""
    found: list[dict[str, Any]] = client("dynamodb").query(
        TableName="prismline-local-runs",
        KeyConditionExpression="PK = :pk",
        ExpressionAttributeValues={":pk": {"S": run_id}},
    )["Items"]
    return found


def end_recorded(system: System, cube: Path, **fields: Any) -> str:
    """Submit a run and wait until its end is recorded. Its items do not change afterwards."""
    run_id = system.submit(cube, **fields)
    system.wait(run_id)
    ledger = system.connection.ledger
    wait_for(lambda: (run := ledger.run(run_id)).ended_at and not run.GSI2_PK, "the end of the run to be recorded")
    return run_id


def test_a_paused_queue_keeps_its_messages_until_it_is_resumed(system: System, tmp_path: Path) -> None:
    uuid, pause, resume, *_ = commands(PAUSE)
    shell(uuid, pause)
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=4), chunk_size=4)
    wait_for(lambda: system.depth("chunks") == 2, "the messages of both chunks")
    wait_for(lambda: (view := system.view(run_id)) and view.status == "running", "the run to be split")
    assert [chunk.attempts for chunk in system.chunks(run_id)] == [0, 0]
    shell(uuid, resume)
    assert system.wait(run_id).status == "completed"


def test_damaged_items_are_restored_from_a_table_beside_theirs(system: System, tmp_path: Path) -> None:
    run_id = end_recorded(system, write_cube(tmp_path / "cube.fits", ny=2, nx=4), chunk_size=4)
    restore, wait, copy, delete = commands(RESTORE, "Some items are wrong")
    before = items(run_id)
    shell(restore, wait)
    for item in before:
        client("dynamodb").delete_item(TableName="prismline-local-runs", Key={"PK": item["PK"], "SK": item["SK"]})
    assert items(run_id) == []
    shell(copy, RUN=run_id)
    assert items(run_id) == before
    assert system.cli("run", run_id, "--json")
    shell(delete)
    wait_for(lambda: tables() == sorted(TABLES), "the restored table to be deleted")


def test_objects_are_restored_as_they_were_at_a_moment(system: System) -> None:
    s3, bucket = system.connection.s3, system.connection.bucket
    # The template enables versions on AWS alone.
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for key in ("restored/a b", "restored/c", "restored/same", "restored/deleted before"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"right")
    s3.delete_object(Bucket=bucket, Key="restored/deleted before")
    # S3 says when in whole seconds.
    written = s3.head_object(Bucket=bucket, Key="restored/same")["LastModified"]
    time.sleep(max(0.0, written.timestamp() + 1.1 - time.time()))
    s3.put_object(Bucket=bucket, Key="restored/a b", Body=b"wrong")
    s3.put_object(Bucket=bucket, Key="restored/new", Body=b"new")
    s3.delete_object(Bucket=bucket, Key="restored/c")
    restore = "\n".join(commands(RESTORE, "Objects are wrong or gone"))
    version = s3.head_object(Bucket=bucket, Key="restored/same")["VersionId"]
    moment = written.strftime("%Y-%m-%dT%H:%M:%S.999Z")  # as the command line writes it
    shell(restore.replace("2026-03-01T12:00:00Z", moment), BUCKET=bucket, PREFIX="restored/")
    found = s3.list_objects_v2(Bucket=bucket, Prefix="restored/")["Contents"]
    bodies = {each["Key"]: system.read(each["Key"]) for each in found}
    right = dict.fromkeys(("restored/a b", "restored/c", "restored/same"), b"right")
    assert bodies == right | {"restored/new": b"new"}, "neither deleted objects come back nor new ones go"
    same = s3.head_object(Bucket=bucket, Key="restored/same")["VersionId"]
    assert same == version, "a copy of a large object has another ETag, so its run would fail"


def test_a_lost_table_is_restored_under_its_name(system: System, tmp_path: Path) -> None:
    run_id = end_recorded(system, write_cube(tmp_path / "cube.fits", ny=2, nx=4), chunk_size=8)
    before = items(run_id)
    dynamodb = client("dynamodb")
    # The emulator makes no backup of its own when a table is deleted.
    backup = dynamodb.create_backup(TableName="prismline-local-runs", BackupName="made-by-the-test")
    dynamodb.update_table(TableName="prismline-local-runs", DeletionProtectionEnabled=False)
    dynamodb.delete_table(TableName="prismline-local-runs")
    wait_for(lambda: "runs" not in tables(), "the table to be gone")
    listed, restore = commands(RESTORE, "The whole table is lost")
    assert "BackupSummaries" in shell(listed)
    shell(restore.replace("<arn>", backup["BackupDetails"]["BackupArn"]))
    assert items(run_id) == before
    assert run_id in system.cli("runs", "--json")


def test_an_environment_is_removed_and_its_data_with_it_on_request(system: System) -> None:
    stacks, data = re.findall(r"```sh\n(.*?)```", REMOVE.read_text(), re.DOTALL)
    shell(stacks)
    assert client("cloudformation").describe_stacks()["Stacks"] == []
    assert client("lambda").list_functions()["Functions"] == []
    assert tables() == sorted(TABLES), "the tables survive their stacks"
    buckets = [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]]
    assert sorted(re.sub(r"-\d{12}-.*", "", name) for name in buckets) == ["prismline-local", "prismline-local-deploy"]
    with pytest.raises(client("dynamodb").exceptions.ClientError, match="deletion protection"):
        client("dynamodb").delete_table(TableName="prismline-local-jobs")
    shell(data)
    wait_for(lambda: tables() == [], "the tables to be deleted")
