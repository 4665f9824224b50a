"""The default deployment, functions only: a long list completes, and so does a limited run, or it is refused at once.

Rights are enforced. The limit above which a run has a queue of its own is small here, so that a short list exceeds it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import httpx
import pytest

from prismline_localstack.api_keys import read_api_key
from prismline_localstack.home import Home
from prismline_localstack.standins.site import Site
from tests.system import System

pytestmark = pytest.mark.e2e

#: Tasks above which processes would give a run a queue of its own; Lambda polls no such queue.
OWN_QUEUE_TASKS = 50
#: Enough URLs for that; PRISMLINE_TEST_LARGE_RUN=100000 for a list as long as a real one.
N_URLS = int(os.environ.get("PRISMLINE_TEST_LARGE_RUN", str(OWN_QUEUE_TASKS + 10)))


@pytest.fixture(scope="module", params=["with Valkey", "without Valkey"])
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, bool]]:
    """A system of functions, and whether it has a Valkey server."""
    with_valkey = request.param == "with Valkey"
    parameters = {} if with_valkey else {"ValkeyUrl": "none"}
    folder = tmp_path_factory.mktemp("deployed")
    with (
        pytest.MonkeyPatch.context() as patch,
        System.as_functions(folder, patch, parameters=parameters, OWN_QUEUE_TASKS=str(OWN_QUEUE_TASKS)) as system,
    ):
        yield system, with_valkey


def test_a_long_list_completes(deployed: tuple[System, bool], site: tuple[str, Site]) -> None:
    system, _ = deployed
    urls = "".join(f"{site[0]}/page/{number}\n" for number in range(N_URLS)).encode()
    system.connection.s3.put_object(Bucket=system.connection.bucket, Key="uploads/t/list", Body=urls)
    manifest = {"workload": "urls", "survey": "list", "list": {"key": "uploads/t/list", "format": "text"}}
    system.put_manifest(json.dumps(manifest | {"idempotency_key": "long"}).encode())
    view = system.wait(system.run_id_for("long"), patience=max(120.0, N_URLS / 20))
    assert (view.status, view.completed, view.failed) == ("completed", N_URLS, 0)
    assert system.item(view.run_id).task_queue is None, "all its tasks were in the queue that functions take from"


def test_a_limited_run_completes_or_is_refused(deployed: tuple[System, bool], site: tuple[str, Site]) -> None:
    system, with_valkey = deployed
    job = {
        "workload": "urls",
        "name": "limited",
        "max_concurrency": 2,
        "urls": [f"{site[0]}/page/{n}" for n in range(9)],
    }
    api = f"{os.environ['PRISMLINE_API_URL']}/v1/jobs"
    key = {"Authorization": f"Bearer {read_api_key(Home.at(None).api_key)}"}
    answer = httpx.post(api, json=job, headers=key, timeout=60)
    manifest = {"workload": "urls", "survey": "limited", "max_concurrency": 2, "urls": job["urls"]}
    system.put_manifest(json.dumps(manifest | {"idempotency_key": "limited"}).encode())
    view = system.wait(system.run_id_for("limited"))
    if with_valkey:
        assert (view.status, view.completed, view.failed) == ("completed", 9, 0)
        again = system.wait(answer.raise_for_status().json()["run"]["run_id"])
        assert (again.status, again.completed, again.failed) == ("completed", 9, 0)
    else:
        assert answer.status_code == 422
        assert "has no Valkey server" in answer.json()["detail"]
        assert view.status == "failed"
        assert view.state is not None
        assert "has no Valkey server" in (view.state.error_message or "")
