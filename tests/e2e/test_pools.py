"""Pools: groups of workers that process the runs which name them, and no others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from prismline_contracts.commands import dead_letter_queue_name, queue_name
from prismline_contracts.pools import pool_queue
from prismline_deploy.pools import deploy_pool
from prismline_emulator.permissions import LOG_VARIABLE, read_decisions
from prismline_localstack.deploying import local_target
from prismline_localstack.harness import load_state
from prismline_localstack.home import Home
from prismline_localstack.settings import REPOSITORY
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

AUTHOR = """
import os
import time
from pathlib import Path

from prismline import workload

@workload(attempts=2, timeout=60, batch=1)
def work(item: dict) -> list:
    if item.get("dies"):
        os._exit(1)
    gate = item.get("gate")
    while gate and not Path(gate).exists():
        time.sleep(0.05)
    return [item["n"]] * (100_000 if item.get("long") else 1)
"""


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system with the pools `red` and `blue`."""
    folder = tmp_path_factory.mktemp("pooled")
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(folder, patch, services=CHUNK_SERVICES, pools={"red": "", "blue": ""}) as system,
    ):
        yield system


def mapped(system: System, items: list[dict[str, object]], *options: str) -> str:
    """Begin a run over `items`. Return its id."""
    Path("author.py").write_text(AUTHOR)
    Path("items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(json.loads(system.cli("map", "author:work", "items.jsonl", "--json", *options))["run_id"])


def wait_until_begun(system: System, run_id: str) -> None:
    """Wait for the first attempt at an item."""

    def begun() -> bool:
        run = system.connection.ledger.get_run(run_id)
        return run is not None and any(task.attempts for task in system.connection.ledger.tasks(run))

    wait_for(begun, "the first item to begin")


def test_the_runs_of_a_pool_do_not_wait_for_another_pool(
    pooled: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gate = tmp_path / "gate"
    slow = mapped(pooled, [{"n": n, "gate": str(gate)} for n in range(20)], "--pool", "red")
    wait_until_begun(pooled, slow)
    quick = mapped(pooled, [{"n": n} for n in range(5)], "--pool", "blue")
    common = mapped(pooled, [{"n": n} for n in range(3)])
    for run_id, n_items in ((quick, 5), (common, 3)):
        view = pooled.wait(run_id)
        assert (view.status, view.completed, view.failed) == ("completed", n_items, 0)
    waiting = pooled.view(slow)
    assert waiting is not None
    assert (waiting.status, waiting.completed) == ("running", 0), "it ends only when its gate opens"
    gate.touch()
    view = pooled.wait(slow)
    assert (view.status, view.completed, view.failed) == ("completed", 20, 0)
    assert [run_id.partition("_")[0] for run_id in (slow, quick)] == ["red", "blue"]


def test_dead_letters_of_a_pool_are_judged_and_its_failed_items_are_repeated(
    pooled: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_id = mapped(pooled, [{"n": 1}, {"n": 2, "dies": True}], "--pool", "red")
    view = pooled.wait(run_id)
    assert (view.status, view.completed, view.failed) == ("failed", 1, 1)
    dead = dead_letter_queue_name(queue_name(pooled.connection.environment, pool_queue("red")))
    url = pooled.sqs.get_queue_url(QueueName=dead)["QueueUrl"]
    pooled.sqs.send_message(QueueUrl=url, MessageBody="this is no message")
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

    def taken() -> bool:
        found = pooled.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return not any(int(found[name]) for name in names)

    wait_for(taken, "the dead letter of the pool to be archived")
    Path("author.py").write_text(AUTHOR.replace('item.get("dies")', "False"))
    pooled.cli("retry", run_id, "--code", "latest")

    def completed() -> bool:
        now = pooled.view(run_id)
        return now is not None and (now.status, now.completed, now.failed) == ("completed", 2, 0)

    wait_for(completed, "the end of the retry")


def test_a_pool_that_does_not_exist_is_refused(pooled: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("author.py").write_text(AUTHOR)
    Path("items.jsonl").write_text('{"n": 1}\n')
    answer = pooled.cli("map", "author:work", "items.jsonl", "--pool", "green", expect=2, stream="stderr")
    assert "There is no pool green in this environment." in answer


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Path]]:
    """Functions with the rights of their roles, and the pools `red` and `blue`. Also the log of IAM's decisions."""
    folder = tmp_path_factory.mktemp("deployed")
    log = folder / "iam.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOG_VARIABLE, str(log))
        with System.running(folder, patch, functions=True) as system:
            home = Home.at(None)
            target = local_target(load_state(), home, {"DeployFunctions": "true"})
            image = target.images.build(REPOSITORY, "worker")
            for pool in ("red", "blue"):
                deploy_pool(target, REPOSITORY, pool, image, lambda _: True)
            yield system, log


def session_of_pool(pool: str) -> boto3.Session:
    """A session with the credentials of the role of a pool."""
    pages = boto3.client("iam").get_paginator("list_roles").paginate()
    (role,) = [
        role["Arn"] for page in pages for role in page["Roles"] if f"prismline-local-pool-{pool}-" in role["RoleName"]
    ]
    found = boto3.client("sts").assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    return boto3.Session(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])


def test_a_pool_can_neither_read_nor_fail_nor_slow_the_items_of_another(
    deployed: tuple[System, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a role may do with items of the ledger is tested with the template: the emulator knows no leading keys."""
    system, log = deployed
    monkeypatch.chdir(tmp_path)
    gate = tmp_path / "gate"
    slow = mapped(system, [{"n": n, "gate": str(gate)} for n in range(8)], "--pool", "red")
    wait_until_begun(system, slow)
    quick = mapped(system, [{"n": n, "long": True} for n in range(5)], "--pool", "blue")
    view = system.wait(quick)
    assert (view.status, view.completed, view.failed) == ("completed", 5, 0)
    waiting = system.view(slow)
    assert waiting is not None
    assert (waiting.status, waiting.completed) == ("running", 0), "blue ended while red was held up"
    gate.touch()
    view = system.wait(slow)
    assert (view.status, view.completed, view.failed) == ("completed", 8, 0)
    decisions = read_decisions(log)
    assert [str(each) for each in decisions if not each.allowed] == []
    assert any("-pool-blue-" in each.principal for each in decisions), "the emulator judged the pools"

    (value,) = {
        task.value.key for task in system.connection.ledger.tasks(system.item(quick)) if task.value and task.index == 0
    }
    assert value is not None
    assert value.startswith(f"results/{quick}/")
    bucket, red = system.connection.bucket, session_of_pool("red")
    s3, sqs = red.client("s3"), red.client("sqs")
    blue = f"{os.environ['AWS_ENDPOINT_URL']}/000000000000/prismline-local-pool-blue"
    sources = system.connection.s3.list_objects_v2(Bucket=bucket, Prefix="uploads/")["Contents"]
    attempts = {
        "read a value": lambda: s3.get_object(Bucket=bucket, Key=value),
        "read the list": lambda: s3.get_object(Bucket=bucket, Key=sources[0]["Key"]),
        "replace a value": lambda: s3.put_object(Bucket=bucket, Key=value, Body=b""),
        "list the objects": lambda: s3.list_objects_v2(Bucket=bucket),
        "take a message": lambda: sqs.receive_message(QueueUrl=blue),
        "send a message": lambda: sqs.send_message(QueueUrl=blue, MessageBody="{}"),
        "send a dead letter": lambda: sqs.send_message(QueueUrl=f"{blue}-dlq", MessageBody="{}"),
        "empty the queue": lambda: sqs.purge_queue(QueueUrl=blue),
        "list open runs": lambda: red.client("dynamodb").scan(TableName="prismline-local-runs"),
    }
    for what, attempt in attempts.items():
        assert refused(attempt), f"red may {what}"


def refused(attempt: Callable[[], object]) -> bool:
    """Whether IAM refuses an attempt."""
    try:
        attempt()
    except ClientError as error:
        return "AccessDenied" in error.response["Error"]["Code"]
    return False
