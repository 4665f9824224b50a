"""The override of the compose file for a pool: an image FROM the worker's with the example of an author's package."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismline_emulator.endpoints import LOOPBACK
from prismline_localstack.settings import REPOSITORY
from tests.compose.conftest import connected
from tests.compose.stack import Stack, run
from tests.system import wait_for

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]

EXAMPLE = REPOSITORY / "libs/prismline/examples/seeing"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package: a build writes into its folder."""
    return Path(shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("author") / "seeing"))


@pytest.fixture(scope="module")
def stack(engine: None, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack with the pool `red`."""
    folder, files = tmp_path_factory.mktemp("compose"), ("docker-compose.pool.yml",)
    with Stack.running(folder, "ministack", *files, POOL="red", PACKAGE=str(package)) as running:
        yield running


def test_the_items_of_a_pool_are_processed_by_its_container(
    stack: Stack, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author registers the function from an environment that has the package, too."""
    offline = ("--no-deps", "--no-index", "--no-build-isolation")
    run(sys.executable, "-m", "pip", "install", "-q", *offline, "--target", str(tmp_path / "site"), str(package))
    monkeypatch.chdir(tmp_path / "site")
    monkeypatch.setenv("PRISMLINE_API_URL", f"http://{LOOPBACK}:{stack.environment['PRISMLINE_API_PORT']}")
    monkeypatch.setenv("PRISMLINE_API_KEY", stack.api_key())
    with connected(stack) as system:
        options = ("--param", "threshold=4", "--pool", "red", "--json")
        shown = system.cli("map", "count-sources", str(EXAMPLE / "items.jsonl"), *options)
        run_id = json.loads(shown)["run_id"]

        def drained() -> bool:
            item = system.connection.ledger.get_run(run_id)
            return item is not None and item.drained_at is not None

        wait_for(drained, "the items to end")
        item = system.item(run_id)
        assert (item.chunks_total, item.chunks_completed, item.chunks_failed) == (3, 2, 1)
        workers = {task.worker for task in system.connection.ledger.tasks(item)}
        (pool,) = stack.containers("pool")
        assert len(workers) == 1
        assert stack.inspect(pool)["Config"]["Hostname"] in workers.pop()
        assert stack.inspect(pool)["Config"]["User"] == "10001:10001"
