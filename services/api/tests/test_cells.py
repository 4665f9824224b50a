"""Cells: the data of a run's picture, how it is kept current, and how much of the ledger is read for that."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import random
import socket
import time
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack
from datetime import datetime, timedelta
from threading import Barrier, Event
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from api_world import Api, ApiWorld, urls_job

from prismline_api.cells import watching
from prismline_api.cells.columns import STATES, Columns, columns_of, packed
from prismline_api.cells.following import Look
from prismline_api.cells.watching import RunCells
from prismline_api.events import follow
from prismline_api.reading import find_run
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import task_id
from prismline_ledger import Counts, GivenBackTask, TaskEnding
from prismline_localstack.waiting import wait_until
from prismline_runtime import Page, UnavailableError

emulator = pytest.mark.emulator

OPENED_AT = "2026-03-01T12:00:00.000Z"


def unpacked(text: str, width: int) -> list[int]:
    """The values of a column, as a client reads them."""
    raw = base64.b64decode(text)
    if width == 1:
        return list(raw)
    differences = np.frombuffer(raw, np.uint8).reshape(4, -1).T.copy().view("<i4").ravel()
    return [int(value) for value in np.cumsum(differences, dtype=np.int32)]


def shown(document: dict[str, Any]) -> dict[int, str]:
    """The state of each cell, in the order of the answer."""
    columns = document["columns"]
    states = [document["states"][code] for code in unpacked(columns["state"], 1)]
    return dict(zip(unpacked(columns["cell"], 4), states, strict=True))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class PaperLedger:
    """A ledger in memory with one run of chunks. It counts the items that are read."""

    def __init__(self, chunks: dict[int, dict[str, Any]], total: int | None = None) -> None:
        self.chunks = chunks
        self.total = total
        self.requests = 0
        self.read = 0
        self.run = RunItem(
            PK="r", GSI1_PK="s", GSI1_SK=OPENED_AT, survey="s", workload="spectra", job_id="j", created_at=OPENED_AT
        )

    def get_run(self, _run_id: str) -> RunItem:
        return self.run

    def counts(self, _run: RunItem) -> Counts:
        ended = [sum(chunk["status"] == name for chunk in self.chunks.values()) for name in ("COMPLETED", "FAILED")]
        return Counts(self.total, *ended)

    def page_of_cells(self, _run: RunItem, _shard: int, *, after: str | None, until: str | None, limit: int) -> Page:
        prefix = "CHUNK#chunk-"
        first = int(after.removeprefix(prefix)) + 1 if after else 0
        last = int(until.removeprefix(prefix)) if until else 2**31
        cells = sorted(cell for cell in self.chunks if first <= cell <= last)
        found = [{"SK": f"{prefix}{cell:07d}", **self.chunks[cell]} for cell in cells[:limit]]
        self.requests += 1
        self.read += len(found)
        return Page(found, {"PK": "r", "SK": found[-1]["SK"]} if len(cells) > limit else None)


def paper(number: int, status: str = "PENDING", step: int = 10) -> dict[int, dict[str, Any]]:
    return {n * step: {"status": status, "attempts": 0} for n in range(number)}


def watch(ledger: PaperLedger, clock: Clock) -> RunCells:
    return RunCells(ledger, "r", clock)  # type: ignore[arg-type]


def picture(cells: RunCells) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(cells.picture().body)
    return document


def since(cells: RunCells, version: str = "") -> tuple[str, Columns | None]:
    """The present version, and the cells that changed since `version`."""
    now, changes = cells.since_each([version])
    return now, changes[version]


class TestColumns:
    def test_a_column_comes_back_as_it_was(self) -> None:
        values = np.array([-1, 0, 5, 4, 2**31 - 1, -1, 70_000], np.int32)
        assert unpacked(packed(values), 4) == values.tolist()
        states = np.array([0, 4, 3, 255], np.uint8)
        assert unpacked(packed(states), 1) == states.tolist()

    @pytest.mark.parametrize(
        ("item", "state"),
        [
            ({"status": "PENDING"}, "pending"),
            ({"status": "IN_PROGRESS", "started_at": "2026-03-01T12:00:01.000Z"}, "in_progress"),
            ({"status": "PENDING", "deferred_at": "2026-03-01T12:00:01.000Z"}, "deferred"),
            (
                {
                    "status": "IN_PROGRESS",
                    "started_at": "2026-03-01T12:00:02.000Z",
                    "deferred_at": "2026-03-01T12:00:01.000Z",
                },
                "in_progress",
            ),
            ({"status": "PENDING", "not_before": "2026-03-01T12:00:09.000Z"}, "deferred"),
            ({"status": "PENDING", "attempts": 1}, "deferred"),
            ({"status": "IN_PROGRESS", "attempts": 2}, "in_progress"),
            ({"status": "PENDING", "not_before": "2026-03-01T12:00:03.000Z"}, "pending"),
            ({"status": "COMPLETED", "deferred_at": "2026-03-01T12:00:01.000Z"}, "completed"),
            ({"status": "A_STATUS_OF_LATER"}, "pending"),
        ],
    )
    def test_a_cell_that_waits_is_told_from_one_whose_turn_has_not_come(self, item: dict[str, Any], state: str) -> None:
        opened = datetime.fromisoformat(OPENED_AT)
        columns = columns_of([{"SK": "CHUNK#chunk-0000010", **item}], opened, "2026-03-01T12:00:05.000Z")
        assert STATES[int(columns.state[0])] == state

    @pytest.mark.parametrize(
        ("status", "ended"), [("COMPLETED", 4500), ("FAILED", 4500), ("IN_PROGRESS", -1), ("PENDING", -1)]
    )
    def test_a_cell_has_the_time_at_which_its_end_was_recorded(self, status: str, ended: int) -> None:
        """An attempt of a task ends before the ledger knows: `started` and `duration` would end it too early."""
        item = {
            "started_at": "2026-03-01T12:00:01.000Z",
            "duration_ms": 200,
            "completed_at": "2026-03-01T12:00:04.500Z",
        }
        opened = datetime.fromisoformat(OPENED_AT)
        columns = columns_of([{"SK": "CHUNK#chunk-0000010", "status": status, **item}], opened, OPENED_AT)
        assert columns.ended.tolist() == [ended]


class TestReading:
    def test_all_cells_are_shown_in_their_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "STRETCH_CELLS", 7)
        ledger = PaperLedger(paper(100), 100)
        document = picture(watch(ledger, Clock()))
        assert list(shown(document)) == [n * 10 for n in range(100)]
        assert (document["complete"], document["count"], document["total"]) == (True, 100, 100)

    def test_cells_that_are_added_later_appear_wherever_they_belong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "STRETCH_CELLS", 5)
        ledger, clock = PaperLedger(paper(20)), Clock()
        cells = watch(ledger, clock)
        cells.picture()
        ledger.chunks |= {7: {"status": "PENDING"}, 155: {"status": "PENDING"}} | {
            n: {"status": "PENDING"} for n in range(1000, 1020)
        }
        for _ in range(3):
            clock.now += 10
            document = picture(cells)
        assert list(shown(document)) == sorted(ledger.chunks)

    def test_many_requests_at_once_read_the_ledger_once_a_second(self) -> None:
        ledger, clock = PaperLedger(paper(5), 5), Clock()
        cells = watch(ledger, clock)
        for _ in range(50):
            cells.picture()
            since(cells)
        assert ledger.requests == 1
        clock.now += watching.LOOK_SECONDS
        cells.picture()
        assert ledger.requests == 2

    def test_cells_that_have_ended_are_not_read_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "STRETCH_CELLS", 10)
        ledger, clock = PaperLedger(paper(100, "COMPLETED"), 100), Clock()
        ledger.chunks[500]["status"] = "IN_PROGRESS"
        cells = watch(ledger, clock)
        cells.picture()
        ledger.read = 0
        clock.now += 1
        cells.picture()
        assert ledger.read == 20  # the stretch that is being worked on, and the last one, which may grow
        ledger.chunks[500]["status"] = "COMPLETED"
        clock.now += 1
        assert shown(picture(cells))[500] == "completed"
        ledger.read = 0
        clock.now += 1
        cells.picture()
        assert ledger.read == 0

    def test_cells_that_a_recovery_reopens_are_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "STRETCH_CELLS", 10)
        ledger, clock = PaperLedger(paper(100, "COMPLETED"), 100), Clock()
        ledger.chunks[30]["status"] = "FAILED"
        cells = watch(ledger, clock)
        assert shown(picture(cells))[30] == "failed"
        ledger.chunks[30]["status"] = "PENDING"
        for _ in range(2):
            clock.now += 1
            document = picture(cells)
        assert shown(document)[30] == "pending"

    def test_one_look_at_a_large_run_is_short_and_the_next_continues(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "STRETCH_CELLS", 10)
        ledger, clock = PaperLedger(paper(1000), 1000), Clock()
        real = ledger.page_of_cells

        def slow(*arguments: Any, **options: Any) -> Page:
            clock.now += watching.FIRST_SECONDS / 20
            return real(*arguments, **options)

        monkeypatch.setattr(ledger, "page_of_cells", slow)
        cells = watch(ledger, clock)
        first = picture(cells)
        assert (first["complete"], first["count"]) == (False, 200)
        for _ in range(4):
            clock.now += watching.LOOK_SECONDS
            document = picture(cells)
        assert (document["complete"], document["count"]) == (True, 1000)

    def test_a_large_run_is_read_in_several_places_at_the_same_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "STRETCH_CELLS", 10)
        ledger, clock = PaperLedger(paper(1000, "COMPLETED"), 1000), Clock()
        latched = {"chunks_total": 1000, "n_items": 10_000, "latched_at": OPENED_AT}
        ledger.run = ledger.run.model_copy(update=latched)
        real, together = ledger.page_of_cells, Barrier(watching.READERS, timeout=30)

        def page_of_cells(*arguments: Any, **options: Any) -> Page:
            if not ledger.requests:
                together.wait()
            return real(*arguments, **options)

        monkeypatch.setattr(ledger, "page_of_cells", page_of_cells)
        document = picture(watch(ledger, clock))
        assert (document["complete"], document["count"]) == (True, 1000)
        assert list(shown(document)) == list(range(0, 10_000, 10)), "each once, in their order"

    def test_an_answer_with_100_000_cells_is_smaller_than_a_megabyte(self) -> None:
        """Times as after four workers: chunks of 20 to 40 s, in the order of the run."""
        chance, ends = random.Random(1), [0.0] * 4
        chunks = {}
        for number in range(100_000):
            worker = min(range(4), key=ends.__getitem__)
            started, took = ends[worker] + chance.uniform(0, 0.1), chance.uniform(20, 40)
            ends[worker] = started + took
            moment = datetime.fromisoformat(OPENED_AT) + timedelta(seconds=started)
            recorded = moment + timedelta(seconds=took + chance.uniform(0.01, 0.2))
            chunks[number * 50] = {
                "status": "COMPLETED" if chance.random() < 0.99 else "FAILED",
                "attempts": 1 if chance.random() < 0.95 else 2,
                "started_at": moment.isoformat(timespec="milliseconds"),
                "duration_ms": round(took * 1000),
                "completed_at": recorded.isoformat(timespec="milliseconds"),
            }
        cells = watch(PaperLedger(chunks, 100_000), Clock())
        answer = cells.picture()
        document = json.loads(gzip.decompress(answer.compressed))
        assert document["count"] == 100_000
        assert len(answer.compressed) < 1_000_000


class TestFollowing:
    def test_exactly_the_changes_since_a_version_are_returned(self) -> None:
        ledger, clock = PaperLedger(paper(50), 50), Clock()
        cells = watch(ledger, clock)
        version, missed = since(cells)
        assert missed is None
        ledger.chunks[30]["status"] = "IN_PROGRESS"
        clock.now += 1
        second, changed = since(cells, version)
        assert changed is not None
        assert changed.cell.tolist() == [30]
        assert since(cells, second)[1] is not None
        assert len(since(cells, second)[1] or ()) == 0
        ledger.chunks[40]["status"] = "COMPLETED"
        clock.now += 1
        both = since(cells, version)[1]
        assert both is not None
        assert both.cell.tolist() == [30, 40]

    @pytest.mark.parametrize("version", ["", "x", "00000000-1", "00000000-", "é-1"])
    def test_a_version_of_another_process_leads_to_a_reset(self, version: str) -> None:
        assert since(watch(PaperLedger(paper(5), 5), Clock()), version)[1] is None

    def test_forgotten_changes_lead_to_a_reset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "MOST_CHANGES", 3)
        ledger, clock = PaperLedger(paper(50), 50), Clock()
        cells = watch(ledger, clock)
        versions = [since(cells)[0]]
        for cell in (0, 10, 20, 30, 40):
            ledger.chunks[cell]["status"] = "IN_PROGRESS"
            clock.now += 1
            versions.append(since(cells)[0])
        assert since(cells, versions[0])[1] is None
        recent = since(cells, versions[-2])[1]
        assert recent is not None
        assert recent.cell.tolist() == [40]


def events_of(text: str) -> list[tuple[str, str | None, Any]]:
    """Kind, id and data of the events in a part of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
    return found


async def until(stream: AsyncIterator[str], kind: str) -> tuple[str | None, Any]:
    """The id and the data of the next event of this kind."""
    async for text in stream:
        for name, version, data in events_of(text):
            if name == kind:
                return version, data
    raise AssertionError(f"the stream ended without {kind}")


@emulator
class TestPaths:
    def test_a_run_of_tasks_is_shown_by_index(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
        world.complete(run_id, task_id(run_id, 3), b"<html>")
        document = acme.get(f"/runs/{run_id}/cells")
        assert shown(document) == {0: "pending", 1: "pending", 2: "pending", 3: "completed", 4: "pending"}
        assert (document["unit"], document["bytes"], document["total"]) == ("task", 6, 5)

    def test_an_unchanged_picture_is_not_sent_again(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
        headers = {"Authorization": f"Bearer {acme.api_key}"}
        first = world.client.get(f"/v1/runs/{run_id}/cells", headers=headers)
        assert first.headers["Content-Encoding"] == "gzip"
        again = {**headers, "If-None-Match": first.headers["ETag"]}
        assert world.client.get(f"/v1/runs/{run_id}/cells", headers=again).status_code == 304
        plain = world.client.get(f"/v1/runs/{run_id}/cells", headers={**headers, "Accept-Encoding": "identity"})
        assert plain.json() == first.json()

    def test_a_cell_opens_its_history(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
        world.complete(run_id, task_id(run_id, 3), b"<html>")
        cell = acme.get(f"/runs/{run_id}/cells/3")
        assert (cell["status"], cell["input"], cell["attempts"]) == ("completed", "https://example.org/3", 1)
        assert world.download(cell["output_url"]) == b"<html>"
        assert acme.get(f"/runs/{run_id}/cells/4")["status"] == "pending"
        acme.get(f"/runs/{run_id}/cells/5", expect=404)

    def test_a_cell_shows_every_attempt_that_met_an_error(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(1))["run"]["run_id"]
        ledger, run = world.deps.ledger, world.deps.ledger.run(run_id)
        (task,) = ledger.start_tasks(run, ledger.tasks(run), worker="fetcher")
        ledger.give_back_tasks(run, [GivenBackTask(task, "<b>503</b>", interrupted=True, duration_ms=4)])
        (task,) = ledger.start_tasks(run, ledger.tasks(run), worker="2026/03/01/[$LATEST]0af")
        ledger.end_tasks(run, [TaskEnding(task, error="404 Not Found", duration_ms=5)])
        first, second = acme.get(f"/runs/{run_id}/cells/0")["errors"]
        assert (first["attempt"], first["error"], first["interrupted"]) == (1, "<b>503</b>", True)
        assert (second["attempt"], second["error"], second["duration_ms"]) == (2, "404 Not Found", 5)
        assert (first["worker"], second["worker"]) == ("fetcher", "2026/03/01/[$LATEST]0af")
        assert acme.get(f"/runs/{run_id}/cells/0")["worker"] == second["worker"]

    def test_a_run_of_chunks_has_the_indices_of_their_items(self, world: ApiWorld, acme: Api) -> None:
        world.deps.bucket.write("cubes/field.fits", b"a cube")
        body = {"workload": "spectra", "name": "grs", "cube_key": "cubes/field.fits"}
        job = acme.post("/jobs", body, expect=202)
        run_id = job["run"]["run_id"]
        assert acme.get(f"/runs/{run_id}/cells")["count"] == 0
        world.open_run(job)
        for start in (0, 50):
            item = {"SK": f"CHUNK#chunk-{start:07d}", "status": "PENDING", "chunk_key": "k", "created_at": OPENED_AT}
            counts = {"n_spectra": 50, "n_items": 50, "attempts": 2}
            world.put("runs", {"PK": run_id, **item, **counts, "last_error": "<b>no</b>"})
        cell = acme.get(f"/runs/{run_id}/cells/50")
        assert (cell["id"], cell["attempts"], cell["last_error"]) == ("chunk-0000050", 2, "<b>no</b>")
        world.deps.cells.run(run_id).clock = lambda: time.monotonic() + watching.LOOK_SECONDS
        assert shown(acme.get(f"/runs/{run_id}/cells")) == {0: "deferred", 50: "deferred"}

    def test_nobody_follows_the_run_of_another_tenant(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job())["run"]["run_id"]
        assert world.caller("other")("GET", "/events", params={"run": run_id}).status_code == 404

    def test_where_streams_cannot_stay_open_a_browser_is_told_to_stop(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job())["run"]["run_id"]
        object.__setattr__(world.deps, "settings", world.deps.settings.model_copy(update={"events": False}))
        assert acme("GET", "/events", params={"run": run_id}).status_code == 204


@emulator
class TestEvents:
    def test_a_stream_sends_changes_and_continues_after_a_break(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
        run = find_run(world.deps.access.keys.caller(acme.api_key, ""), run_id, world.deps)

        async def scene() -> None:
            stream = follow(run, "", world.deps)
            assert (await until(stream, "run"))[1]["run_id"] == run_id
            version, _ = await until(stream, "reset")
            await asyncio.to_thread(world.complete, run_id, task_id(run_id, 2), b"x")
            version, changed = await until(stream, "cells")
            assert (changed["cell"], changed["state"]) == ([2], [STATES.index("completed")])
            await stream.aclose()  # type: ignore[attr-defined]
            await asyncio.to_thread(world.complete, run_id, task_id(run_id, 4), b"x")
            _, missed = await until(follow(run, version, world.deps), "cells")
            assert missed["cell"] == [4]

        asyncio.run(asyncio.wait_for(scene(), 30))

    def test_an_outage_is_reported_and_the_stream_continues_after_it(
        self, world: ApiWorld, acme: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
        run = find_run(world.deps.access.keys.caller(acme.api_key, ""), run_id, world.deps)

        def fails(*_: Any) -> None:
            raise UnavailableError("no answer")

        async def scene() -> None:
            stream = follow(run, "", world.deps)
            await until(stream, "reset")
            with monkeypatch.context() as outage:
                outage.setattr(world.deps.ledger, "get_run", fails)
                assert "no answer" in (await until(stream, "trouble"))[1]["detail"]
            await until(stream, "run")

        asyncio.run(asyncio.wait_for(scene(), 30))

    def test_the_service_streams_from_the_version_that_a_page_shows(self, world: ApiWorld, acme: Api, url: str) -> None:
        run_id = acme.post("/jobs", urls_job(2))["run"]["run_id"]
        headers = {"Authorization": f"Bearer {acme.api_key}"}
        for since, second in (("", "reset"), (acme.get(f"/runs/{run_id}/cells")["version"], "cells")):
            asked = {"run": run_id, "since": since}
            with httpx.stream("GET", f"{url}/v1/events", params=asked, headers=headers, timeout=30) as answer:
                assert answer.headers["Content-Type"].startswith("text/event-stream")
                kinds = (line.removeprefix("event: ") for line in answer.iter_lines() if line.startswith("event: "))
                assert next(kinds) == "run"
                if since:
                    world.complete(run_id, task_id(run_id, 1), b"x")
                assert next(kind for kind in kinds if kind != "run") == second


@emulator
class TestManyStreams:
    @staticmethod
    def stream(url: str, api: Api, run_id: str) -> socket.socket:
        """A connection that has requested the events of a run."""
        connection = socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0), timeout=20)
        head = f"GET /v1/events?run={run_id} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.api_key}\r\n\r\n"
        connection.sendall(head.encode())
        return connection

    def test_many_streams_of_a_slow_run_do_not_delay_other_requests(
        self, world: ApiWorld, acme: Api, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_id, real = acme.post("/jobs", urls_job(2))["run"]["run_id"], world.deps.ledger.page_of_cells
        slow, answer = Event(), Event()

        def page_of_cells(*arguments: Any, **options: Any) -> Page:
            slow.set()
            answer.wait(30)
            return real(*arguments, **options)

        monkeypatch.setattr(world.deps.ledger, "page_of_cells", page_of_cells)
        other = {"Authorization": f"Bearer {world.key('other')}"}
        with ExitStack() as stack:
            streams = [stack.enter_context(self.stream(url, acme, run_id)) for _ in range(60)]
            for each in streams:
                assert each.recv(15) == b"HTTP/1.1 200 OK"
            assert slow.wait(20)
            assert httpx.get(f"{url}/v1/jobs", headers=other, timeout=10).status_code == 200
            answer.set()
            for each in streams:
                output = b""
                while b"event: reset" not in output:
                    output += each.recv(65_536)

    def test_streams_that_ask_at_the_same_time_share_one_look_and_one_text(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(3))["run"]["run_id"]
        asked: list[int] = []

        def take(versions: Collection[str]) -> Look:
            asked.append(len(versions))
            return Look(run="event: run\n\n", changes=dict.fromkeys(versions, ("now", "")))

        async def scene() -> None:
            with world.deps.feeds.following(run_id, take) as feed:
                looks = await asyncio.gather(*(feed.look(f"v-{number % 3}") for number in range(600)))
                assert all(look is looks[0] for look in looks)
                assert looks[0].changes.keys() == {"v-0", "v-1", "v-2"}
                first, _ = (asyncio.create_task(feed.look("now")) for _ in range(2))
                await asyncio.sleep(0)
                first.cancel()
                assert (await feed.look("now")).run, "a stream that ends does not end the look of the others"

        asyncio.run(asyncio.wait_for(scene(), 30))
        assert asked == [3, 1]

    def test_a_tenant_with_too_many_streams_is_refused_until_one_ends(
        self, world: ApiWorld, acme: Api, url: str
    ) -> None:
        few = world.deps.settings.model_copy(update={"event_streams": 2})
        object.__setattr__(world.deps, "settings", few)
        run_id = acme.post("/jobs", urls_job(2))["run"]["run_id"]
        first, second = (self.stream(url, acme, run_id) for _ in range(2))
        assert [each.recv(15) for each in (first, second)] == [b"HTTP/1.1 200 OK"] * 2
        headers, asked = {"Authorization": f"Bearer {acme.api_key}"}, {"run": run_id}
        refused = httpx.get(f"{url}/v1/events", params=asked, headers=headers)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:prismline:problem:too-many-streams")
        assert int(refused.headers["Retry-After"]) > 0
        other = world.caller("other")
        theirs = self.stream(url, other, other.post("/jobs", urls_job(2))["run"]["run_id"])
        assert theirs.recv(15) == b"HTTP/1.1 200 OK"
        first.close()

        def accepted() -> bool:
            with httpx.stream("GET", f"{url}/v1/events", params=asked, headers=headers) as answer:
                return answer.status_code == 200

        assert wait_until(accepted, 20)
        second.close()
        theirs.close()
