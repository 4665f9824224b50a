"""Jobs over HTTP, from the submission to the downloaded bodies, with every service running."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from prismline_localstack.api_keys import read_api_key
from prismline_localstack.standins.site import Site
from tests.system import System, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def api(system: System) -> httpx.Client:
    """An HTTP client with the key that `up` made."""
    key = read_api_key(Path(system.faults_file.parent) / "home" / "api-key")
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=f"{os.environ['PRISMLINE_API_URL']}/v1", headers=headers, timeout=60)


def document(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


def ended(api: httpx.Client, run_id: str) -> Any:
    """Wait for the run to end and return it."""

    def look() -> Any:
        run = document(api.get(f"/runs/{run_id}"))
        return run if run["status"] in {"completed", "failed", "cancelled"} else None

    return wait_for(look, f"the end of run {run_id}")


def bodies(api: httpx.Client, run_id: str) -> dict[str, bytes]:
    """The bodies of the completed tasks of a run by URL, read through their links."""
    tasks = document(api.get(f"/runs/{run_id}/tasks", params={"status": "completed", "limit": 1000}))["items"]
    found = {}
    for task in tasks:
        link = document(api.get(f"/tasks/{task['task_id']}/result"))
        body = httpx.get(link["url"]).content
        assert hashlib.sha256(body).hexdigest() == link["sha256"] == task["result"]["sha256"]
        found[task["url"]] = body
    return found


def test_a_short_list_is_fetched(api: httpx.Client, site: tuple[str, Site]) -> None:
    urls = [f"{site[0]}/page/{number}" for number in range(12)]
    job = api.post("/jobs", json={"workload": "urls", "name": "pages", "urls": urls})
    assert job.status_code == 201
    run = ended(api, job.json()["run"]["run_id"])
    assert (run["status"], run["counts"]) == ("completed", {"total": 12, "completed": 12, "failed": 0})
    assert bodies(api, run["run_id"]) == {url: httpx.get(url).content for url in urls}


def test_an_uploaded_list_is_fetched_and_its_bad_lines_are_counted(api: httpx.Client, site: tuple[str, Site]) -> None:
    urls = [f"{site[0]}/page/{number}" for number in range(30)]
    body = "\n".join([*urls, "this is no URL"]).encode()
    upload = document(api.post("/uploads", json={"format": "text", "size_bytes": len(body)}))
    assert httpx.put(upload["url"], content=body, headers=upload["headers"]).is_success
    job = api.post("/jobs", json={"workload": "urls", "name": "pages", "upload": upload["upload_id"]})
    assert job.status_code == 202
    run = ended(api, job.json()["run"]["run_id"])
    assert (run["status"], run["counts"]["completed"], run["n_rejected"]) == ("completed", 30, 1)
    assert "this is no URL" in httpx.get(run["rejects_url"]).text


def test_an_open_job_ends_when_it_is_closed_and_everything_is_fetched(
    api: httpx.Client, site: tuple[str, Site]
) -> None:
    job = document(api.post("/jobs", json={"workload": "urls", "name": "stream", "open": True}))
    for start in (0, 8):
        urls = [f"{site[0]}/page/{number}" for number in range(start, start + 8)]
        document(api.post(f"/jobs/{job['job_id']}/tasks", json={"urls": urls}))
    document(api.post(f"/jobs/{job['job_id']}/close"))
    run = ended(api, job["run"]["run_id"])
    assert (run["status"], run["counts"]) == ("completed", {"total": 16, "completed": 16, "failed": 0})
    again = document(api.post(f"/jobs/{job['job_id']}/rerun", json={}))
    assert ended(api, again["run_id"])["counts"]["completed"] == 16
