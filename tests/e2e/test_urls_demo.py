"""The demonstration of a large job over HTTP: processes are killed, and all pages are still in one archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismline_contracts.items import ChunkStatus
from prismline_localstack.demos import urls as demo
from prismline_localstack.home import Home
from tests.system import URL_SERVICES, System

pytestmark = pytest.mark.e2e

#: URLs in the list. `make demo-urls` uses 20,000. This is more than the api accepts inline, so it is uploaded as well.
URLS = 1500


@pytest.mark.timeout(600)
def test_a_list_of_urls_comes_home_in_one_archive(tmp_path: Path) -> None:
    """Valkey and the fetcher are killed meanwhile."""
    output: list[str] = []
    with (
        demo.site(tmp_path) as site,
        demo.Receiver() as receiver,
        pytest.MonkeyPatch.context() as patch,
        System.running(tmp_path, patch, services=[*URL_SERVICES, "exporter", "webhooks"], **demo.SETTINGS) as system,
    ):
        home = Home.at(None).path
        with demo.api_client(home) as client:
            outcome = demo.play(home, client, site, receiver, URLS, tmp_path, output.append)
        run = system.item(outcome.run_id)
        tasks = list(system.connection.ledger.tasks(run))
    assert outcome.killed == ["valkey", "fetcher"]
    assert outcome.counts == {"total": URLS, "completed": URLS, "failed": 0}
    assert {task.state for task in tasks} == {ChunkStatus.COMPLETED}
    assert sorted(task.index for task in tasks) == list(range(URLS))
    assert outcome.webhook["type"] == "run.completed"
    assert outcome.webhook["data"]["run_id"] == outcome.run_id
    assert outcome.webhook["data"]["completed"] == URLS
    assert len({headers["webhook-id"] for _, headers in receiver.posts}) == 1
    assert outcome.outcomes == {"succeeded": URLS}
    assert outcome.right_pages == URLS
