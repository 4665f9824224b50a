"""Jobs of a function over HTTP have all that other jobs have: keys, webhooks, limits, deadlines, exports, reruns."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

import prismline
from prismline_contracts.base import now, timestamp
from prismline_contracts.jobs import TenantItem, new_api_key
from prismline_localstack.demos import urls as demo
from prismline_localstack.home import Home
from prismline_runtime import Table
from tests.system import URL_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

AUTHOR = """
import os
import time
from pathlib import Path

from prismline import workload

@workload(attempts=1, timeout=60, batch=2)
def work(item: dict) -> dict:
    if item.get("fails"):
        raise ValueError(f"no value of {item['n']}")
    if folder := item.get("folder"):
        mine = Path(folder) / str(os.getpid())
        mine.touch()
        beside = len(list(Path(folder).iterdir()))
        time.sleep(0.2)
        mine.unlink()
        return {"beside": beside}
    while gate := item.get("gate"):
        if Path(gate).exists():
            break
        time.sleep(0.05)
    return {"square": item["n"] ** 2}
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system that also exports and posts webhooks, in which the function `author:work` is registered."""
    folder = tmp_path_factory.mktemp("functions")
    services = [*URL_SERVICES, "exporter", "webhooks"]
    with pytest.MonkeyPatch.context() as patch, System.running(folder, patch, services=services, **demo.SETTINGS) as up:
        (folder / "author.py").write_text(AUTHOR)
        patch.chdir(folder)
        prismline.map("author:work", [{"n": 0}]).wait(timeout=60)
        yield up


@pytest.fixture
def api(functions: System) -> Iterator[httpx.Client]:
    with demo.api_client(Home.at(None).path) as client:
        yield client


def asked(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


def submit(api: httpx.Client, items: list[dict[str, Any]], *, key: str | None = None, **fields: Any) -> Any:
    job = {"workload": "author:work", "name": "squares", "source": {"kind": "inline", "items": items}} | fields
    return asked(api.post("/v1/jobs", json=job, headers={"Idempotency-Key": key} if key else {}))


def ended(api: httpx.Client, run_id: str) -> Any:
    def look() -> Any:
        run = asked(api.get(f"/v1/runs/{run_id}"))
        return run if run["ended"] else None

    return wait_for(look, f"the end of {run_id}")


def test_a_repeated_request_is_one_run_whose_end_is_posted_and_whose_results_are_exported(api: httpx.Client) -> None:
    items: list[dict[str, Any]] = [{"n": 1}, {"n": 2, "fails": True}, {"n": 3}]
    with demo.Receiver() as receiver:
        first, again = (submit(api, items, key="once", priority=7, webhook={"url": receiver.url}) for _ in range(2))
        run_id = first["run"]["run_id"]
        assert (again["job_id"], again["run"]["run_id"]) == (first["job_id"], run_id)
        run = ended(api, run_id)
        assert (run["status"], run["counts"]) == ("failed", {"total": 3, "completed": 2, "failed": 1})
        wait_for(lambda: receiver.posts, "the webhook")
        body, headers = receiver.posts[0]
    post = Webhook(first["webhook_secret"]).verify(body, headers)
    assert (post["type"], post["data"]["run_id"], post["data"]["failed"]) == ("run.failed", run_id, 1)

    export = asked(api.post(f"/v1/runs/{run_id}/export"))
    place = f"/v1/runs/{run_id}/exports/{export['export_id']}"
    done = wait_for(lambda: (now := asked(api.get(place)))["status"] == "completed" and now, "the export")
    with zipfile.ZipFile(BytesIO(httpx.get(done["url"]).content)) as archive:
        lines = {(line := json.loads(text))["index"]: line for text in archive.read("manifest.jsonl").splitlines()}
    assert [(lines[n]["item"], lines[n]["outcome"], lines[n].get("value")) for n in sorted(lines)] == [
        ({"n": 1}, "succeeded", {"square": 1}),
        ({"n": 2, "fails": True}, "failed", None),
        ({"n": 3}, "succeeded", {"square": 9}),
    ]
    assert lines[1]["error"] == "no value of 2"

    rerun = asked(api.post(f"/v1/jobs/{first['job_id']}/rerun", json={"only": "failed"}))
    assert ended(api, rerun["run_id"])["counts"] == {"total": 1, "completed": 0, "failed": 1}


def test_a_run_works_on_no_more_items_at_a_time_than_it_may(api: httpx.Client, tmp_path: Path) -> None:
    job = submit(api, [{"n": n, "folder": str(tmp_path)} for n in range(12)], max_concurrency=1)
    run_id = job["run"]["run_id"]
    assert ended(api, run_id)["status"] == "completed"
    rows = asked(api.get(f"/v1/runs/{run_id}/tasks"))["items"]
    assert [row["value"] for row in rows] == [{"beside": 1}] * 12


def test_a_run_stops_at_its_deadline_and_the_rest_can_be_run(api: httpx.Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    items: list[dict[str, Any]] = [{"n": 0}, *({"n": n, "gate": str(gate)} for n in range(1, 40))]
    job = submit(api, items, deadline_at=timestamp(now() + timedelta(seconds=8)))
    run_id = job["run"]["run_id"]

    def stopped() -> Any:
        run = asked(api.get(f"/v1/runs/{run_id}"))
        return run if run["status"] in {"cancelled", "failed"} else None

    run = wait_for(stopped, "the deadline")
    assert "deadline" in json.dumps(run)
    gate.touch()
    rest = asked(api.post(f"/v1/jobs/{job['job_id']}/rerun", json={"only": "rest"}))
    after = ended(api, rest["run_id"])
    assert after["status"] == "completed"
    assert after["counts"]["total"] + ended(api, run_id)["counts"]["completed"] == 40


def test_a_cancelled_run_goes_on_and_the_job_can_be_deleted(
    functions: System, api: httpx.Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = submit(api, [{"n": n, "gate": str(gate)} for n in range(20)])
    run_id = job["run"]["run_id"]
    wait_for(lambda: asked(api.get(f"/v1/runs/{run_id}"))["status"] == "running", "the run to begin")
    asked(api.post(f"/v1/runs/{run_id}/cancel"))
    wait_for(lambda: asked(api.get(f"/v1/runs/{run_id}"))["status"] == "cancelled", "the cancellation")
    gate.touch()
    functions.cli("retry", run_id, "--cancelled")
    wait_for(lambda: asked(api.get(f"/v1/runs/{run_id}"))["counts"]["completed"] == 20, "the run to go on")
    assert api.delete(f"/v1/jobs/{job['job_id']}").is_success
    wait_for(lambda: api.get(f"/v1/jobs/{job['job_id']}").status_code == 404, "the deletion of the job")
    assert functions.connection.ledger.get_run(run_id) is None


def test_another_tenant_does_not_see_the_run(functions: System, api: httpx.Client) -> None:
    run_id = submit(api, [{"n": 5}])["run"]["run_id"]
    ended(api, run_id)
    key, item = new_api_key("globex", "test", ("read", "submit", "operate"), timestamp())
    jobs = Table(functions.connection.dynamodb, "prismline-local-jobs")
    for each in (item, TenantItem(SK="globex")):
        jobs.create(each.model_dump(exclude_none=True), key="PK")
    url = f"{os.environ['PRISMLINE_API_URL']}/v1"
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as other:
        assert other.get("/jobs").json()["items"] == []
        for place in (f"/runs/{run_id}", f"/runs/{run_id}/tasks"):
            assert other.get(place).status_code == 404
