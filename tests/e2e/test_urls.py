"""A run of URLs through the whole system, while its worker and Valkey are killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from prismline_contracts.commands import run_queue_name
from prismline_contracts.tasks import TaskStatus
from prismline_localstack.harness import load_state
from prismline_localstack.standins.site import Site, page_body
from tests.system import PATIENCE, URL_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

PAGES = 240


def kill(process: str) -> None:
    running = load_state().processes[process].process
    assert running is not None
    running.signal(signal.SIGKILL)


def test_no_url_is_lost_or_counted_twice_when_a_worker_and_valkey_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Site]
) -> None:
    url, pages = site
    paths = [f"/slow/0.1/{n}" for n in range(PAGES)] + ["/flaky/1/1", "/redirect/3/2", "/status/404", "/huge/2000000"]
    manifest = {
        "workload": "urls",
        "survey": "list",
        "urls": [url + path for path in paths],
        "idempotency_key": "urls",
        "max_concurrency": 16,
        "tolerated_failure_percent": 5,
    }
    with System.running(tmp_path, monkeypatch, services=URL_SERVICES) as system:
        system.put_manifest(json.dumps(manifest).encode())
        run_id = system.run_id_for("urls")
        wait_for(lambda: pages.counts.total() >= 60, "the first pages to be fetched")
        kill("fetcher")
        kill("valkey")
        wait_for(lambda: pages.counts.total() >= PAGES, "fetching to go on")
        kill("valkey")
        wait_for(lambda: system.item(run_id).drained_at, "the run to drain", 240)
        wait_for(lambda: system.events(run_id, "run.completed"), "the run's end to be announced")

        run, ledger = system.item(run_id), system.connection.ledger
        assert (run.chunks_total, run.chunks_completed, run.chunks_failed) == (len(paths), len(paths) - 1, 1)
        tasks = sorted(ledger.tasks(run), key=lambda task: task.index)
        assert [task.source for task in tasks] == [url + path for path in paths]
        assert [task.error for task in tasks if task.state is TaskStatus.FAILED] == ["The site answered 404 Not Found."]
        for task in tasks:
            if task.result is not None:
                body = system.read(task.result.key)
                assert (len(body), hashlib.sha256(body).hexdigest()) == (task.result.length, task.result.sha256)
                if task.index < PAGES:
                    assert body == page_body(task.index)
        assert len({event["id"] for event in system.events(run_id, "run.drained")}) == 1
        assert pages.most <= 2 * 16, "even though a worker and Valkey were killed"


def test_a_run_is_stopped_early_and_a_rerun_of_the_rest_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Site]
) -> None:
    url, _ = site
    missing = [f"{url}/status/404/{n}" for n in range(3)]
    slow = [f"{url}/slow/2/{n}" for n in range(60)]
    common = {"workload": "urls", "survey": "list", "max_concurrency": 2}
    with System.running(tmp_path, monkeypatch, services=URL_SERVICES) as system:
        first = common | {"urls": missing + slow, "tolerated_failures": 2, "idempotency_key": "early"}
        system.put_manifest(json.dumps(first).encode())
        run_id = system.run_id_for("early")
        view = system.wait(run_id)
        wait_for(lambda: system.item(run_id).ended_at, "the run's end to be recorded")
        run, ledger = system.item(run_id), system.connection.ledger
        assert (view.status, run.stop_reason, run.drained_at) == ("failed", "failed", None)
        reason = "TooManyFailures: 3 of 63 tasks failed (4.762 %), 2 failures are tolerated. The remaining tasks are"
        assert view.state is not None
        assert (view.state.error_message or "").startswith(reason)
        (event,) = wait_for(lambda: system.events(run_id, "run.failed"), "the failure to be announced")
        assert reason in json.dumps(event)
        wait_for(
            lambda: all(task.state is not TaskStatus.IN_PROGRESS for task in ledger.tasks(run)),
            "the tasks that were being fetched to end",
        )
        left = {task.source for task in ledger.tasks(run) if task.state is not TaskStatus.COMPLETED}
        assert len(left) > 30, "most tasks are skipped"

        rest = common | {"rerun": {"run_id": run_id, "only": "rest"}, "idempotency_key": "rest", "max_concurrency": 32}
        system.put_manifest(json.dumps(rest).encode())
        again = system.run_id_for("rest")
        assert system.wait(again).status == "failed", "three pages are still missing, and no failure is tolerated"
        tasks = list(ledger.tasks(system.item(again)))
        assert {task.source for task in tasks} == left
        assert {task.source for task in tasks if task.state is not TaskStatus.COMPLETED} == set(missing)


def test_a_large_run_has_a_queue_of_its_own_as_long_as_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Site]
) -> None:
    """The splitter creates it, the fetcher finds it in the ledger, and the sweeper deletes it."""
    n_urls = int(os.environ.get("PRISMLINE_TEST_LARGE_RUN", "300"))
    urls = "".join(f"{site[0]}/page/{number}\n" for number in range(n_urls)).encode()
    with System.running(tmp_path, monkeypatch, services=URL_SERVICES, OWN_QUEUE_TASKS=str(n_urls - 1)) as system:
        bucket = system.connection.bucket
        system.connection.s3.put_object(Bucket=bucket, Key="uploads/t/list", Body=urls)
        manifest = {"workload": "urls", "survey": "list", "list": {"key": "uploads/t/list", "format": "text"}}
        system.put_manifest(json.dumps(manifest | {"idempotency_key": "large"}).encode())
        run_id = system.run_id_for("large")
        name = run_queue_name(system.connection.environment, run_id)

        def queues() -> list[str]:
            found = system.sqs.list_queues(QueueNamePrefix=name).get("QueueUrls", [])
            return [url.rpartition("/")[2] for url in found]

        wait_for(queues, "the queue of the run")
        view = system.wait(run_id, patience=max(PATIENCE, n_urls / 20))
        assert (view.status, view.completed, view.failed) == ("completed", n_urls, 0)
        wait_for(lambda: not queues(), "the queue to be deleted")
        wait_for(lambda: system.item(run_id).GSI2_PK is None, "the run to be closed")
        assert system.item(run_id).task_queue is None
        assert system.depth("tasks") == 0
