"""A job over HTTP in containers: an uploaded list, whose ingestion is killed halfway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from prismline_contracts.base import timestamp
from prismline_contracts.items import ChunkStatus
from prismline_contracts.jobs import new_api_key
from prismline_emulator.endpoints import LOOPBACK
from prismline_runtime import Table
from tests.compose.stack import Stack
from tests.system import System, wait_for

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

#: The default emulator. Its DynamoDB may accept only 10 writes in a transaction.
EMULATOR = "localstack"

#: URLs in the list: several blocks of an ingestion.
URLS = 3000


@pytest.fixture
def client(stack: Stack, system: System) -> Iterator[httpx.Client]:
    """A client of the api, with a key."""
    key, item = new_api_key("acme", "test", ("read", "submit", "operate"), timestamp())
    jobs = Table(system.connection.dynamodb, "prismline-local-jobs")
    assert jobs.create(item.model_dump(exclude_none=True), key="PK")
    url = f"http://{LOOPBACK}:{stack.environment['PRISMLINE_API_PORT']}"
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30.0) as client:
        yield client


def asked(answer: httpx.Response) -> dict[str, Any]:
    """Send a request to the api. Return the answer."""
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json()
    return document


def upload(client: httpx.Client, body: bytes) -> str:
    """Upload a list and return its id. The link works outside of the containers."""
    place = asked(client.post("/v1/uploads", json={"format": "text", "size_bytes": len(body)}))
    httpx.put(place["url"], content=body, headers=place["headers"]).raise_for_status()
    return str(place["upload_id"])


def test_a_splitter_killed_in_mid_ingestion_loses_no_url(stack: Stack, system: System, client: httpx.Client) -> None:
    system.set_faults([{"point": "ingest.messages_sent", "action": "kill", "times": 1}])
    pages = "".join(f"http://site:8000/page/{number}\n" for number in range(URLS)).encode()
    request = {"workload": "urls", "name": "pages", "upload": upload(client, pages)}
    job = asked(client.post("/v1/jobs", json=request, headers={"Idempotency-Key": "compose"}))
    run_id = job["run"]["run_id"]

    def ended() -> dict[str, Any] | None:
        run = asked(client.get(f"/v1/runs/{run_id}"))
        return run if run["status"] in {"completed", "failed", "cancelled"} else None

    run = wait_for(ended, "the run to end", 600.0)
    assert system.faults_that_struck() == 1, "the splitter was killed"
    assert (run["status"], run["counts"]) == ("completed", {"total": URLS, "completed": URLS, "failed": 0})
    tasks = list(system.connection.ledger.tasks(system.item(run_id)))
    assert sorted(task.index for task in tasks) == list(range(URLS)), "each URL is one task"
    assert {task.state for task in tasks} == {ChunkStatus.COMPLETED}
    (splitter,) = stack.containers("splitter")
    assert stack.inspect(splitter)["RestartCount"] == 1
