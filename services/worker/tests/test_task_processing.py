"""Tasks from their message to their end: what is written, what is sent again, and what remains after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
import valkey
from tasks_world import RUN_ID, TasksWorld, tasks_world

from prismline_contracts.base import now, timestamp
from prismline_contracts.envelope import Envelope
from prismline_coordination import CoordinationServer, Stats
from prismline_emulator.endpoints import free_port
from prismline_ledger import GivenBackTask, Ledger, TaskEnding, waiting_for
from prismline_localstack.standins.site import Site, page_body
from prismline_localstack.testing import ValkeyServer
from prismline_localstack.waiting import wait_until
from prismline_runtime import Change, Table, UnavailableError
from prismline_worker import task_decisions, task_processing

pytestmark = pytest.mark.emulator


@pytest.fixture
def world(
    aws_env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    site: tuple[str, Site],
    valkey_server: ValkeyServer,
) -> TasksWorld:
    return tasks_world(aws_env["ENVIRONMENT"], monkeypatch, site, valkey_server)


def at_once(*calls: Callable[[], object]) -> None:
    """Call all of them at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for call in [pool.submit(call) for call in calls]:
            call.result()


def kinds(events: list[tuple[str, str]]) -> list[str]:
    return sorted(kind for kind, _ in events)


# ---- tasks without errors


@pytest.mark.parametrize("shard_count", [1, 4])
def test_all_tasks_of_a_run_are_fetched_and_counted_and_the_drain_has_one_event(
    world: TasksWorld, shard_count: int
) -> None:
    ids = world.open_run([f"/page/{n}" for n in range(30)], shard_count=shard_count)
    by_shard: dict[int, list[str]] = {}
    for name in ids:
        by_shard.setdefault(int(name[:8], 16) % shard_count, []).append(name)
    for shard, names in by_shard.items():
        assert world.process(names, shard=shard, shard_count=shard_count)
    assert set(world.statuses(ids)) == {"COMPLETED"}
    assert [world.body(task) for task in world.tasks(ids)] == [page_body(n) for n in range(30)]
    assert (world.run.chunks_total, world.run.chunks_completed, world.run.chunks_failed) == (30, 30, 0)
    assert kinds(world.announced()) == ["run.drained"]
    assert world.depth() == 0
    assert all(task.attempts == 1 and task.duration_ms is not None for task in world.tasks(ids))


def test_one_message_fails_completes_and_tries_again(world: TasksWorld) -> None:
    ids = world.open_run(["/page/1", "/status/404", "/flaky/1/2", "/status/500", "ftp://x/"])
    assert world.process(ids, params={"max_attempts": 2})
    assert world.statuses(ids) == ["COMPLETED", "FAILED", "PENDING", "PENDING", "FAILED"]
    tasks = world.tasks(ids)
    assert tasks[1].error == "The site answered 404 Not Found."
    assert "cannot be fetched" in (tasks[4].error or "")
    assert tasks[2].last_error == "The site answered 503 Service Unavailable."
    assert tasks[2].not_before is not None
    world.work_off()
    assert world.statuses(ids) == ["COMPLETED", "FAILED", "COMPLETED", "FAILED", "FAILED"]
    assert world.tasks(ids)[3].error == "The site answered 500 Internal Server Error. This was attempt 2 of 2."
    assert (world.run.chunks_completed, world.run.chunks_failed) == (2, 3)


def test_if_every_message_is_delivered_twice_every_task_counts_once(world: TasksWorld) -> None:
    ids = world.open_run([f"/page/{n}" for n in range(12)] + ["/status/404"])
    for _ in range(2):
        assert world.process(ids[:7])
        assert world.process(ids[7:])
    assert (world.run.chunks_completed, world.run.chunks_failed) == (12, 1)
    assert world.site.counts["/page/3"] == 1
    assert len(set(world.announced())) == 1, "a repeated announcement has the same id"


def test_two_workers_with_the_same_message_at_once_count_every_task_once(world: TasksWorld) -> None:
    ids = world.open_run([f"/slow/0.2/{n}" for n in range(20)])
    workers = [world.worker(), world.worker()]
    at_once(*(partial(worker.process, ids) for worker in workers))
    world.work_off()
    assert world.run.chunks_completed == 20
    assert [world.body(task) for task in world.tasks(ids)] == [page_body(n) for n in range(20)]


# ---- waits


def test_one_error_after_an_outage_of_the_ledger_is_not_the_last_attempt(
    world: TasksWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each delivery begins an attempt and cannot record how it ended."""
    ids = world.open_run(["/status/503"])

    def throttled(*_: Any, **__: Any) -> None:
        raise UnavailableError("Could not write to the ledger: ThrottlingError.")

    with monkeypatch.context() as outage:
        outage.setattr(Ledger, "give_back_tasks", throttled)
        for _ in range(4):
            assert not world.process(ids)
    assert world.process(ids)
    (task,) = world.tasks(ids)
    assert (task.status, task.attempts) == ("PENDING", 5)


def test_a_retry_after_of_a_site_is_obeyed_and_uses_up_no_attempt(world: TasksWorld) -> None:
    ids = world.open_run(["/busy/1/3/1", "/page/2"])
    assert world.process(ids[:1], params={"max_attempts": 1})
    (busy,) = world.tasks(ids[:1])
    assert (busy.status, busy.interruptions, busy.attempts) == ("PENDING", 1, 1)
    assert world.process(ids[1:]), "the host wants fewer requests, so this task waits too"
    assert world.site.counts["/page/2"] == 0
    world.work_off()
    assert world.statuses(ids) == ["COMPLETED", "COMPLETED"]
    assert world.site.counts["/busy/1/3/1"] == 2


def test_tasks_that_a_recovery_reopens_during_their_attempt_are_sent_again(
    world: TasksWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt's error is from before the recovery, so it is not recorded."""
    ids = world.open_run(["/status/404", "/page/1"])

    def reopen(name: str, **_: str) -> None:
        if name == "tasks.worked":
            world.ledger.reopen_tasks(world.run, world.tasks(ids), "recovery")

    with monkeypatch.context() as recovering:
        recovering.setattr(task_processing, "fault_point", reopen)
        assert world.process(ids)
    assert world.statuses(ids) == ["IN_PROGRESS", "COMPLETED"]
    (again,) = world.take()
    assert again.task_ids == ids[:1]
    assert world.process(again.task_ids)
    assert world.statuses(ids) == ["FAILED", "COMPLETED"]


def test_a_task_that_has_to_wait_is_sent_again_without_an_attempt(world: TasksWorld) -> None:
    ids = world.open_run(["/page/1"])
    (task,) = world.ledger.start_tasks(world.run, world.tasks(ids))
    world.ledger.give_back_tasks(
        world.run, [GivenBackTask(task, "busy", True, timestamp(now() + timedelta(minutes=20)))]
    )
    assert world.process(ids)
    assert world.site.counts == {}
    assert world.tasks(ids)[0].attempts == 1
    assert world.depth() == 1
    assert world.take() == [], "it is delayed"


def test_a_parameter_of_a_newer_release_waits_for_a_newer_worker(world: TasksWorld) -> None:
    ids = world.open_run(["/page/1"])
    assert not world.process(ids, params={"follow_robots": True})
    assert world.statuses(ids) == ["PENDING"]
    assert [task.attempts for task in world.tasks(ids)] == [0]


@pytest.fixture
def gateway() -> Iterator[tuple[str, list[str]]]:
    """An HTTP proxy on loopback that serves all pages, and the URLs that were requested from it."""
    asked: list[str] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            kind, number = self.path.split("/")[-2:]
            self.send_response({"page": 200, "moved": 302, "gone": 404}[kind])
            body = page_body(int(number)) if kind == "page" else b""
            self.send_header("content-length", str(len(body)))
            self.send_header("location", f"http://elsewhere.invalid/page/{number}")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_a_gateway_makes_all_requests_and_decides_which_addresses_are_reached(
    world: TasksWorld, gateway: tuple[str, list[str]]
) -> None:
    """Without a gateway, these hosts do not exist or are forbidden."""
    url, asked = gateway
    worker = world.worker(urls_gateway=url, urls_allow_private=False)
    urls = [f"http://{name}" for name in ("a.invalid/page/1", "b.invalid/moved/2", "169.254.169.254/page/3")]
    ids = world.open_run([*urls, "http://a.invalid/gone/4"])
    assert worker.process(ids)
    assert worker.statuses(ids) == ["COMPLETED"] * 3 + ["FAILED"]
    assert [worker.body(task) for task in worker.tasks(ids)[:3]] == [page_body(n) for n in (1, 2, 3)]
    assert sorted(asked) == sorted([*urls, "http://elsewhere.invalid/page/2", "http://a.invalid/gone/4"])


def test_while_the_gateway_is_down_tasks_are_tried_again(world: TasksWorld) -> None:
    ids = world.open_run(["http://pages.invalid/page/1"])
    down = world.worker(urls_gateway=f"http://127.0.0.1:{free_port()}")
    assert down.process(ids)
    assert down.statuses(ids) == ["PENDING"]
    assert world.depth() == 1


@pytest.mark.parametrize("shard_count", [1, 4])
def test_a_success_after_the_end_of_the_run_is_announced_and_removes_the_recorded_end(
    world: TasksWorld, monkeypatch: pytest.MonkeyPatch, shard_count: int
) -> None:
    """The task's worker was presumed dead, so the task was given up, and the run has ended as failed."""
    (name,) = world.open_run(["/page/1"], shard_count=shard_count)
    shard = int(name[:8], 16) % shard_count

    def give_up(point: str, **_: str) -> None:
        if point == "tasks.worked":
            (task,) = world.tasks([name])
            assert world.ledger.end_tasks(world.run, [TaskEnding(task, error="Given up.")]).drained
            world.ledger.record_end(world.run, "failed")
            assert world.run.ended_status == "failed"

    monkeypatch.setattr(task_processing, "fault_point", give_up)
    assert world.process([name], shard=shard, shard_count=shard_count)
    assert world.statuses([name]) == ["COMPLETED"]
    run = world.run
    assert (run.chunks_completed, run.chunks_failed, run.ended_status) == (1, 0, None)
    events = world.announced()
    assert kinds(events) == ["run.drained", "run.tasks.recovered"]
    assert world.process([name], shard=shard, shard_count=shard_count)
    assert kinds(world.announced()) == ["run.drained"], "only the drain is repeated, until the end is recorded"


def test_tasks_of_a_stopped_run_stay_unchanged(world: TasksWorld) -> None:
    ids = world.open_run(["/page/1", "/page/2"])
    world.ledger.stop_run(RUN_ID, "cancelled")
    assert world.process(ids)
    assert world.site.counts == {}
    assert (world.statuses(ids), world.depth()) == (["PENDING", "PENDING"], 0)


def test_a_stop_during_the_work_leaves_the_tasks_that_wait_for_their_turn(world: TasksWorld) -> None:
    ids = world.open_run([f"/slow/1/{n}" for n in range(40)])
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(partial(world.worker(urls_host_concurrency=2).process, ids))
        assert wait_until(lambda: len(world.site.counts) >= 2, 30.0)
        world.ledger.stop_run(RUN_ID, "cancelled")
        assert done.result()
    tasks = world.tasks(ids)
    fetched = [task for task in tasks if task.status == "COMPLETED"]
    left = [task for task in tasks if task.status == "PENDING"]
    assert len(fetched) == len(world.site.counts) < 20
    assert len(fetched) + len(left) == 40
    assert all(task.attempts == task.interruptions for task in left), "no attempt was used"
    assert world.depth() == 1, "a run that is resumed at once continues"
    assert world.process([task.task_id for task in left])
    assert len(world.site.counts) == len(fetched)


def test_tasks_for_which_an_invocation_has_no_time_are_sent_again(world: TasksWorld) -> None:
    ids = world.open_run(["/page/1"])
    assert world.process(ids, seconds=61)
    assert world.site.counts == {}
    (task,) = world.tasks(ids)
    assert (task.status, task.attempts - task.interruptions) == ("PENDING", 0)
    world.work_off()


# ---- limits


def test_a_run_never_uses_more_slots_than_it_has(world: TasksWorld) -> None:
    ids = world.open_run([f"/slow/0.05/{n}" for n in range(20)])
    workers = [world.worker(), world.worker()]
    halves = zip(workers, (ids[:10], ids[10:]), strict=True)
    at_once(*(partial(worker.process, half, max_concurrency=3) for worker, half in halves))
    world.work_off()
    assert world.run.chunks_completed == 20
    assert 1 <= world.site.most <= 3
    assert len(world.leases.take(f"run:{RUN_ID}", 3, 3)) == 3, "all slots were given back"


def test_a_host_gets_no_more_concurrent_requests_than_its_limit(world: TasksWorld) -> None:
    ids = world.open_run([f"/slow/0.05/{n}" for n in range(20)])
    assert world.worker(urls_host_concurrency=4).process(ids)
    assert world.run.chunks_completed == 20
    assert world.site.most == 4


def test_without_a_free_slot_the_message_waits_and_no_attempt_is_used(world: TasksWorld) -> None:
    held = world.leases.take(f"run:{RUN_ID}", 2, 2)
    ids = world.open_run(["/page/1", "/page/2"])
    assert world.process(ids, max_concurrency=2)
    assert [task.attempts for task in world.tasks(ids)] == [0, 0]
    assert world.depth() == 1
    assert waiting_for(world.run, now()) == "No slot of the run is free: it has 2."
    written = world.run.waiting_at
    assert world.process(ids, max_concurrency=2)
    assert world.run.waiting_at == written, "the reason is not recorded for every message"
    world.leases.release(held)
    world.work_off()
    assert world.run.chunks_completed == 2
    assert waiting_for(world.run, now()) is None


def test_a_rate_limit_spreads_the_requests(world: TasksWorld) -> None:
    ids = world.open_run([f"/page/{n}" for n in range(12)])
    began = now()
    assert world.worker(urls_host_per_second=10.0, urls_host_burst=2).process(ids)
    assert world.run.chunks_completed == 12
    assert (now() - began).total_seconds() >= 0.95


# ---- Valkey


def test_while_valkey_is_down_tasks_wait_and_then_continue(world: TasksWorld) -> None:
    ids = world.open_run([f"/page/{n}" for n in range(5)])
    world.valkey.kill()
    assert world.process(ids, max_concurrency=2)
    assert [task.attempts for task in world.tasks(ids)] == [0] * 5
    assert world.depth() == 1
    assert "Valkey does not answer" in (waiting_for(world.run, now()) or "")
    world.valkey.start()
    world.work_off()
    assert world.run.chunks_completed == 5


def test_a_crash_of_valkey_in_mid_run_loses_no_task(world: TasksWorld) -> None:
    ids = world.open_run([f"/slow/0.3/{n}" for n in range(40)])
    thread = threading.Thread(target=world.process, args=(ids,), kwargs={"max_concurrency": 4})
    thread.start()
    assert wait_until(lambda: world.site.counts.total() >= 8, 20)
    world.valkey.kill()
    assert wait_until(lambda: world.site.counts.total() >= 16, 20), "leases stay valid for some time"
    world.valkey.start()
    thread.join()
    world.work_off()
    assert world.run.chunks_completed == 40
    assert {task.attempts for task in world.tasks(ids)} == {1}


def test_a_lease_that_was_lost_stops_its_work_and_uses_up_no_attempt(
    world: TasksWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prismline_worker.concurrency.RENEWALS", 300)
    ids = world.open_run(["/slow/20/1"])
    thread = threading.Thread(target=world.process, args=(ids,), kwargs={"max_concurrency": 1, "params": {}})
    thread.start()
    assert wait_until(lambda: world.site.counts.total() == 1, 20)
    client = valkey.Valkey.from_url(world.valkey.url, decode_responses=True)
    (slot,) = [name for name in client.scan_iter("*lease*run:*") if "fence" not in name]
    client.set(slot, "1")  # another process has the slot, as may happen after a flush of the server
    thread.join(10)
    assert not thread.is_alive()
    (task,) = world.tasks(ids)
    assert (task.status, task.interruptions) == ("PENDING", 1)
    assert "lease" in (task.last_error or "")
    assert world.depth() == 1


def test_fetches_are_counted_in_valkey(world: TasksWorld) -> None:
    ids = world.open_run(["/page/1", "/page/2", "/status/404"])
    world.process(ids)
    counts = Stats(CoordinationServer.at(world.valkey.url)).read(f"run:{RUN_ID}")
    assert counts == {"completed": 2, "failed": 1, "bytes": len(page_body(1)) + len(page_body(2))}


# ---- a worker that dies

POINTS = ["tasks.read", "tasks.started", "tasks.worked", "tasks.some_ended", "tasks.given_back", "tasks.ended",
          "tasks.rest_sent"]  # fmt: skip

DELIVER = """
import sys
from prismline_worker.handler import handler
from prismline_ledger.testing import Context, lambda_event_of
handler(lambda_event_of(sys.argv[1], sys.argv[2], "tasks"), Context())
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_any_step_loses_and_doubles_nothing(world: TasksWorld, point: str, tmp_path: Path) -> None:
    ids = world.open_run([f"/page/{n}" for n in range(12)] + ["/status/404", "/flaky/1/1"])
    faults = tmp_path / "faults.json"
    faults.write_text(json.dumps([{"point": point, "action": "kill", "times": 1}]))
    body = Envelope.wrap(world.command(ids), source="test", traceparent=None).to_json()
    environment = os.environ | {"PRISMLINE_FAULTS_FILE": str(faults)}
    died = subprocess.run(
        [sys.executable, "-c", DELIVER, body, world.environment], env=environment, check=False, timeout=120
    )
    assert died.returncode == -9
    assert world.process(ids), "SQS delivers the message again"
    world.work_off()
    assert (world.run.chunks_completed, world.run.chunks_failed) == (13, 1)
    assert [world.body(task) for task in world.tasks(ids)[:12]] == [page_body(n) for n in range(12)]
    assert set(kinds(world.announced())) == {"run.drained"}


# ---- decisions


def test_tasks_with_similar_waits_share_a_message() -> None:
    waits = [("a", 0.0), ("b", 3.0), ("c", 5.0), ("d", 61.0), ("e", 5000.0)]
    assert task_decisions.by_delay(waits) == {0: ["a"], 5: ["b", "c"], 180: ["d"], 900: ["e"]}


def test_a_message_that_finds_no_slot_waits_longer_each_time() -> None:
    assert [task_decisions.slot_wait(n, None) for n in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    assert task_decisions.slot_wait(10**9, 10**6) == 60


def test_the_few_messages_of_a_small_run_soon_ask_for_a_slot_again() -> None:
    assert [task_decisions.slot_wait(n, 30) for n in range(4)] == [2, 4, 8, 10]
    assert task_decisions.slot_wait(9, 1) == 2
    assert task_decisions.slot_wait(15, 1) == 60, "the slots are held for long, or the function is missing"


def test_a_task_with_a_status_of_a_newer_release_is_sent_again_for_a_newer_worker(world: TasksWorld) -> None:
    ids = world.open_run(["/page/0", "/page/1"])
    newer = world.tasks(ids)[0]
    runs = Table(boto3.client("dynamodb"), f"runs-{world.environment}")
    runs.update({"PK": newer.PK, "SK": newer.SK}, Change({"status": "ARCHIVED"}))
    assert world.process(ids)
    assert world.statuses(ids) == ["ARCHIVED", "COMPLETED"]
    assert world.run.drained_at is None
    assert world.depth() == 1
