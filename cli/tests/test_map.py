"""`prismline map` as a client of the API: on a laptop, and where only installed functions may be registered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from cli_world import MOMENT, CliWorld

from prismline_api.app import create_app
from prismline_client import Client
from prismline_contracts.commands import queue_name
from prismline_contracts.jobs import Scope, jobs_table_name, new_api_key
from prismline_localstack.state import make_client
from prismline_localstack.testing import drained, serving
from prismline_runtime import Table

pytestmark = pytest.mark.emulator


@pytest.fixture
def author(world: CliWorld, aws_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliWorld:
    """A world whose present folder has the module of a function, which is also installed there, and a list of items."""
    sqs = make_client("sqs", aws_env)
    for queue in ("split", "tasks"):
        sqs.create_queue(QueueName=queue_name(aws_env["ENVIRONMENT"], queue))
    monkeypatch.chdir(tmp_path)
    Path("seeing.py").write_text("def measure(item: int, *, threshold: int = 1) -> int:\n    return item\n")
    info = Path("seeing-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: seeing\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[prismline.workloads]\nmeasure = seeing:measure\n")
    Path("items.jsonl").write_text("1\n2\n3\n")
    return world


@pytest.fixture
def elsewhere(author: CliWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """An API that registers no functions of this machine. Call it to use a key with these scopes."""
    monkeypatch.setenv("FUNCTIONS_LOCAL", "false")

    def with_key(*scopes: Scope) -> None:
        key, item = new_api_key("acme", "test", scopes, MOMENT)
        table = Table(author.connection.dynamodb, jobs_table_name(author.connection.environment))
        table.create(item.model_dump(exclude_none=True), key="PK")
        monkeypatch.setenv("PRISMLINE_API_KEY", key)

    with serving(create_app()) as url:
        monkeypatch.setenv("PRISMLINE_API_URL", url)
        yield with_key


def test_a_function_is_registered_and_its_list_is_submitted_once(author: CliWorld, aws_env: dict[str, str]) -> None:
    options = ("--param", "threshold=2", "--idempotency-key", "night-1", "--max-items", "2", "--survey", "night")
    runs = {author.json("map", "seeing:measure", "items.jsonl", *options)["run_id"] for _ in range(2)}
    assert len(runs) == 1
    (found,) = [each for each in Client.open().workloads() if each.kind == "function"]
    assert (found.name, found.local is not None) == ("seeing:measure", True)
    sqs = make_client("sqs", aws_env)
    url = sqs.get_queue_url(QueueName=queue_name(aws_env["ENVIRONMENT"], "split"))["QueueUrl"]
    manifests = {message["data"]["manifest_key"] for message in drained(sqs, url)}
    (key,) = manifests
    body = author.connection.s3.get_object(Bucket=author.connection.bucket, Key=key)["Body"].read()
    manifest = json.loads(body)
    assert (manifest["survey"], manifest["code"], manifest["params"]) == ("night", found.code, {"threshold": 2})
    assert manifest["source"]["max_items"] == 2
    Path("items.jsonl").write_text("4\n")
    refused = author.run("map", "seeing:measure", "items.jsonl", *options, expect=2).stderr
    assert "idempotency" in refused.lower()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("seeing:measure", "none.jsonl"), "none.jsonl is empty, or no file"),
        (("seeing:measure", "items.jsonl", "--param", "depth=1"), "seeing:measure has no parameter depth"),
        (("seeing:measure", "items.jsonl", "--pool", "green"), "There is no pool green in this environment"),
        (("urls", "items.jsonl"), "urls cannot be the name of a function"),
        (("seeing:missing", "items.jsonl"), "missing"),
    ],
)
def test_wrong_use_is_refused(author: CliWorld, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in author.run("map", *arguments, expect=2).stderr


def test_elsewhere_new_code_needs_the_scope_all_and_an_installed_function(
    author: CliWorld, elsewhere: Callable[..., None]
) -> None:
    elsewhere("read", "submit")
    assert "a key with the scope all" in author.run("map", "measure", "items.jsonl", expect=2).stderr
    elsewhere(*get_args(Scope))
    assert "no worker finds seeing:measure" in author.run("map", "seeing:measure", "items.jsonl", expect=2).stderr
    assert [each.name for each in Client.open().workloads() if each.kind == "function"] == []
    assert author.json("map", "measure", "items.jsonl")["run_id"]
    (found,) = [each for each in Client.open().workloads() if each.kind == "function"]
    assert (found.name, found.local) == ("measure", None)
    elsewhere("read", "submit")
    assert author.json("map", "measure", "items.jsonl")["run_id"], "the code is registered"
    Path("seeing.py").write_text("def measure(item: int) -> int:\n    return -item\n")
    assert "a key with the scope all" in author.run("map", "measure", "items.jsonl", expect=2).stderr
