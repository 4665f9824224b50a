"""Operations on existing jobs and runs: cancel, run again, delete, export, recover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import httpx
import pytest
from api_world import Api, ApiWorld, refuse_reads, urls_job
from cube_world import CubeRun

from prismline_api import dead_letters
from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.deadletters import DeadLetterRecord, dead_letter_key
from prismline_contracts.jobs import export_key, rejects_key, webhook_key
from prismline_contracts.prefixes import FAILED_DEAD_LETTERS_PREFIX
from prismline_contracts.tasks import UrlsManifest
from prismline_ledger import NewChunk, TaskEnding

pytestmark = pytest.mark.emulator


@pytest.fixture
def job(world: ApiWorld, acme: Api) -> dict[str, Any]:
    """A job of three tasks. The messages and events of its submission are removed."""
    job: dict[str, Any] = acme.post("/jobs", urls_job(3))
    world.announced()
    return job


@pytest.fixture
def run_id(job: dict[str, Any]) -> str:
    return str(job["run"]["run_id"])


def fail_all(world: ApiWorld, run_id: str) -> None:
    """Fail every task of a run."""
    run = world.deps.ledger.run(run_id)
    started = world.deps.ledger.start_tasks(run, list(world.deps.ledger.tasks(run)))
    world.deps.ledger.end_tasks(run, [TaskEnding(task, error="It does not answer.") for task in started])


class TestCancel:
    def test_a_cancellation_is_requested_on_the_bus(self, world: ApiWorld, acme: Api, run_id: str) -> None:
        assert acme.post(f"/runs/{run_id}/cancel", expect=202)["status_url"] == f"/v1/runs/{run_id}"
        (event,) = world.announced()
        assert event["type"] == "prismline.run.cancel.requested.v1"
        assert event["data"]["run_id"] == run_id

    def test_each_request_is_shown_with_the_key_that_asked(self, acme: Api, run_id: str) -> None:
        for _ in range(2):
            acme.post(f"/runs/{run_id}/cancel", expect=202)
        acme.post("/dead-letters/recover", {"run_id": run_id, "retry": True}, expect=202)
        events = acme.get(f"/runs/{run_id}/activity")["events"]
        asked = [event for event in events if "by" in event]
        names = ["submitted", "cancel_requested", "cancel_requested", "recover_requested"]
        assert [event["name"] for event in asked] == names
        assert len({event["by"] for event in asked}) == 1
        assert acme.get(f"/runs/{run_id}")["conditions"][-1]["name"] == "cancelling"

    def test_a_run_of_a_rerun_was_submitted_by_whoever_asked_for_it(self, world: ApiWorld, acme: Api) -> None:
        job = acme.post("/jobs", urls_job(1))
        other = world.caller()
        rerun = other.post(f"/jobs/{job['job_id']}/rerun", {"only": "all"}, expect=202)
        runs = (job["run"]["run_id"], rerun["run_id"])
        by = [acme.get(f"/runs/{run_id}/activity")["events"][0]["by"] for run_id in runs]
        assert len(set(by)) == 2

    def test_the_error_of_an_earlier_attempt_is_not_shown_beside_a_post_that_was_delivered(
        self, world: ApiWorld, acme: Api, run_id: str
    ) -> None:
        about = {"job_id": "j", "tenant": "acme", "event_type": "prismline.run.completed.v1", "attempts": 2}
        for name, status in ("a", "PENDING"), ("b", "DELIVERED"):
            world.put(
                "jobs", {**webhook_key(run_id, name), **about, "status": status, "last_error": "It answered 503."}
            )
        posts = acme.get(f"/runs/{run_id}/activity")["webhooks"]
        assert {each["status"]: each.get("last_error") for each in posts} == {
            "pending": "It answered 503.",
            "delivered": None,
        }

    def test_a_run_that_has_ended_cannot_be_cancelled(self, world: ApiWorld, acme: Api, run_id: str) -> None:
        world.set_status(run_id, "completed")
        assert "completed already" in acme.post(f"/runs/{run_id}/cancel", expect=409)["detail"]

    def test_an_open_job_takes_no_more_tasks(self, world: ApiWorld, acme: Api) -> None:
        job = acme.post("/jobs", {"workload": "urls", "name": "pages", "open": True}, expect=202)
        acme.post(f"/runs/{job['run']['run_id']}/cancel", expect=202)
        assert acme.get(f"/jobs/{job['job_id']}")["state"] == "closed"
        assert len(world.received(Queue.SPLIT)) == 1


class TestRerun:
    def manifest(self, world: ApiWorld) -> UrlsManifest:
        (command,) = world.received(Queue.SPLIT)
        return UrlsManifest.model_validate_json(world.deps.bucket.read(command["data"]["manifest_key"]))

    def test_all_tasks_are_those_of_the_first_run(self, world: ApiWorld, acme: Api, job: dict[str, Any]) -> None:
        run = acme.post(f"/jobs/{job['job_id']}/rerun", {}, expect=202)
        assert run["run_id"] != job["run"]["run_id"]
        assert run["status"] == "pending"
        assert acme.get(f"/jobs/{job['job_id']}")["run_ids"] == [job["run"]["run_id"], run["run_id"]]
        rerun = self.manifest(world).rerun
        assert rerun is not None
        assert (rerun.run_id, rerun.only) == (job["run"]["run_id"], "all")

    def test_all_tasks_are_run_again_only_once_all_of_them_are_known(self, world: ApiWorld, acme: Api) -> None:
        job = acme.post("/jobs", urls_job(2) | {"async": True}, expect=202)
        path, ledger = f"/jobs/{job['job_id']}/rerun", world.deps.ledger
        assert "Not all tasks" in acme.post(path, {}, expect=409)["detail"]
        run = world.open_run(job)
        ledger.add_tasks(run, 0, ["https://example.org/0"])
        assert "Not all tasks" in acme.post(path, {}, expect=409)["detail"]
        ledger.add_tasks(run, 1, ["https://example.org/1"])
        ledger.set_task_total(run.run_id, [2])
        ledger.latch(run.run_id)
        acme.post(path, {}, expect=202)

    def test_a_rerun_has_no_deadline_because_the_jobs_was_for_the_first_run(self, world: ApiWorld, acme: Api) -> None:
        job = acme.post("/jobs", urls_job(1, deadline_at="2999-01-01T00:00:00Z"))
        acme.post(f"/jobs/{job['job_id']}/rerun", {}, expect=202)
        assert self.manifest(world).deadline_at is None

    def test_failed_tasks_of_a_cancelled_run_are_run_again(
        self, world: ApiWorld, acme: Api, job: dict[str, Any], run_id: str
    ) -> None:
        path = f"/jobs/{job['job_id']}/rerun"
        world.change("runs", {"PK": run_id, "SK": "RUN"}, ended_at=timestamp(), ended_status="cancelled")
        acme.post(path, {"only": "failed"}, expect=202)

    def test_failed_tasks_are_run_again_once_the_run_has_ended(
        self, world: ApiWorld, acme: Api, job: dict[str, Any], run_id: str
    ) -> None:
        path = f"/jobs/{job['job_id']}/rerun"
        assert "has not ended" in acme.post(path, {"only": "failed"}, expect=409)["detail"]
        fail_all(world, run_id)
        acme.post(path, {"only": "failed"}, expect=202)
        rerun = self.manifest(world).rerun
        assert rerun is not None
        assert (rerun.run_id, rerun.only) == (run_id, "failed")

    def test_a_repeat_starts_nothing(self, world: ApiWorld, acme: Api, job: dict[str, Any]) -> None:
        path = f"/jobs/{job['job_id']}/rerun"
        first = acme.post(path, {}, expect=202, key="k")
        world.set_status(first["run_id"], "running")
        assert acme.post(path, {}, expect=202, key="k")["run_id"] == first["run_id"]
        acme.post(path, {"run_id": first["run_id"]}, expect=409, key="k")
        assert len(acme.get(f"/jobs/{job['job_id']}")["run_ids"]) == 2
        assert len(world.received(Queue.SPLIT)) == 1

    @pytest.mark.parametrize("point", ["api.rerun_added", "api.rerun_manifest_written"])
    def test_a_rerun_that_was_cut_off_is_completed_by_its_repeat(
        self, world: ApiWorld, acme: Api, job: dict[str, Any], fail_at: Callable[[str], None], point: str
    ) -> None:
        path = f"/jobs/{job['job_id']}/rerun"
        fail_at(point)
        acme.post(path, {}, expect=503, key="k")
        acme.post(path, {}, expect=202, key="k")
        assert len(acme.get(f"/jobs/{job['job_id']}")["run_ids"]) == 2
        assert self.manifest(world).rerun is not None

    def test_a_run_of_another_job_is_not_there(self, acme: Api, job: dict[str, Any]) -> None:
        other = acme.post("/jobs", urls_job(1))
        acme.post(f"/jobs/{job['job_id']}/rerun", {"run_id": other["run"]["run_id"]}, expect=404)

    def test_a_cube_is_run_again_as_a_whole(self, world: ApiWorld, acme: Api) -> None:
        world.deps.bucket.write("cubes/c.fits", b"a cube")
        job = acme.post("/jobs", {"workload": "spectra", "name": "grs", "cube_key": "cubes/c.fits"}, expect=202)
        world.received(Queue.SPLIT)
        acme.post(f"/jobs/{job['job_id']}/rerun", {}, expect=202)
        assert len(world.received(Queue.SPLIT)) == 1

    def test_failed_chunks_are_tried_again_in_their_own_run(self, world: ApiWorld) -> None:
        cube = CubeRun.create(world)
        acme, again = cube.api, f"/jobs/{cube.run.job_id}/rerun"
        refused = acme.post(again, {"only": "failed"}, expect=409)
        assert "No chunk of the run has failed" in refused["detail"]
        acme.get(again, only="failed", expect=409)
        cube.fail(0)
        world.announced()
        preview = acme.get(again, only="failed")
        assert preview == {"run_id": cube.run_id, "new_run": False, "unit": "chunk", "count": 1}
        assert acme.get(again, only="rest")["new_run"] is False
        assert world.announced() == [], "a preview does nothing"
        for _ in range(2):
            run = acme.post(again, {"only": "failed"}, expect=202, key="again")
            assert run["run_id"] == cube.run_id
        first, second = world.announced()
        assert (first["data"]["only_run"], first["data"]["retry"]) == (cube.run_id, True)
        assert first["data"]["operation_id"] == second["data"]["operation_id"]

    def test_a_rerun_of_tasks_can_be_previewed(self, world: ApiWorld, acme: Api, job: dict[str, Any]) -> None:
        path, run_id = f"/jobs/{job['job_id']}/rerun", job["run"]["run_id"]
        fail_all(world, run_id)
        assert acme.get(path, only="failed") == {"run_id": run_id, "new_run": True, "unit": "task", "count": 3}
        assert acme.get(path)["count"] == 3
        assert acme.get(path, only="rest")["count"] == 3
        acme.get(path, run_id="another", expect=404)


class TestDelete:
    def test_every_repeat_requests_the_deletion_on_the_bus(
        self, world: ApiWorld, acme: Api, job: dict[str, Any]
    ) -> None:
        path = f"/jobs/{job['job_id']}"
        assert [acme("DELETE", path).status_code for _ in range(2)] == [202, 202]
        events = world.announced()
        assert {event["type"] for event in events} == {"prismline.job.delete.requested.v1"}
        assert len({event["id"] for event in events}) == 1
        assert events[0]["data"] == {
            "run_id": job["run"]["run_id"],
            "job_id": job["job_id"],
            "run_ids": [job["run"]["run_id"]],
            "tenant": "acme",
        }
        assert acme.get(path)["state"] == "deleting"
        acme.post(f"{path}/rerun", {}, expect=409)

    def test_a_deletion_that_was_cut_off_is_requested_by_its_repeat(
        self, world: ApiWorld, acme: Api, job: dict[str, Any], fail_at: Callable[[str], None]
    ) -> None:
        fail_at("api.job_deleting")
        path = f"/jobs/{job['job_id']}"
        assert (acme("DELETE", path).status_code, world.announced()) == (503, [])
        assert acme("DELETE", path).status_code == 202
        assert [event["type"] for event in world.announced()] == ["prismline.job.delete.requested.v1"]

    def test_the_key_of_a_deleted_job_submits_nothing(self, acme: Api) -> None:
        job = acme.post("/jobs", urls_job(), key="k")
        acme("DELETE", f"/jobs/{job['job_id']}")
        assert "was deleted" in acme.post("/jobs", urls_job(), expect=409, key="k")["detail"]


class TestExport:
    def test_an_export_is_requested_and_shown(self, world: ApiWorld, acme: Api, run_id: str) -> None:
        export = acme.post(f"/runs/{run_id}/export", expect=202, key="k")
        assert export["status"] == "pending"
        (event,) = world.announced()
        assert (event["type"], event["data"]["tenant"]) == ("prismline.export.requested.v1", "acme")
        assert acme.post(f"/runs/{run_id}/export", expect=202, key="k")["export_id"] == export["export_id"]
        world.deps.bucket.write("exports/e.zip", b"zip")
        key = export_key(run_id, export["export_id"])
        world.change("jobs", key, status="COMPLETED", key="exports/e.zip", bytes=3, entries=3, entries_total=3)
        done = acme.get(f"/runs/{run_id}/exports/{export['export_id']}")
        assert (done["status"], done["entries"]) == ("completed", 3)
        assert world.download(done["url"]) == b"zip"

    def test_an_export_that_was_cut_off_is_requested_by_its_repeat(
        self, world: ApiWorld, acme: Api, run_id: str, fail_at: Callable[[str], None]
    ) -> None:
        fail_at("api.export_created")
        acme.post(f"/runs/{run_id}/export", expect=503, key="k")
        assert world.announced() == []
        export = acme.post(f"/runs/{run_id}/export", expect=202, key="k")
        (event,) = world.announced()
        assert event["data"]["export_id"] == export["export_id"]


class TestDeadLetters:
    @pytest.fixture(autouse=True)
    def received(self, world: ApiWorld) -> Iterator[dict[str, int]]:
        """When each record was last received, by its name, in seconds. Others: all at the same time."""
        times: dict[str, int] = {}

        def date(parsed: dict[str, Any], **_: Any) -> None:
            for entry in parsed.get("Contents", []):
                seconds = times.get(entry["Key"].rpartition("/")[2].removesuffix(".json"), 0)
                entry["LastModified"] = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=seconds)

        world.deps.s3.meta.events.register("after-call.s3.ListObjectsV2", date)
        yield times
        world.deps.s3.meta.events.unregister("after-call.s3.ListObjectsV2", date)

    def archive(self, world: ApiWorld, run_id: str | None, number: int) -> None:
        record = DeadLetterRecord(body="{}", run_id=run_id, source_queue="tasks", error="poison", receive_count=5)
        key = dead_letter_key("2026-03-01", f"m{number:03d}")
        world.deps.bucket.write(key, record.model_dump_json().encode())

    def test_only_dead_letters_of_own_runs_are_listed(self, world: ApiWorld, acme: Api, run_id: str) -> None:
        other = world.caller("other").post("/jobs", urls_job(1))["run"]["run_id"]
        for number in range(9):
            self.archive(world, [run_id, other, None][number % 3], number)
        world.deps.bucket.write(dead_letter_key("2026-03-01", "m999"), b"no record")
        for filters in ({}, {"run_id": run_id}):
            letters = acme.walk("/dead-letters", limit=2, **filters)
            assert [letter["key"][-9:-5] for letter in letters] == ["m000", "m003", "m006"]
            assert letters[0]["error"] == "poison"
        acme.get("/dead-letters", run_id=other, expect=404)

    def test_dead_letters_are_filtered_and_the_newest_comes_first(
        self, world: ApiWorld, acme: Api, run_id: str, received: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Keys of the archive are random, so their order is not that of time."""
        received |= {"a": 1, "b": 5, "c": 9, "d": 20, "e": 7}
        monkeypatch.setattr(dead_letters, "MOST_RECORDS", 2)
        for day, name, fields in (
            ("2026-03-01", "a", {"source_queue": "tasks", "error": "Poison <b>"}),
            ("2026-03-02", "b", {"source_queue": "split", "error": "poison"}),
            ("2026-03-02", "c", {"source_queue": "tasks", "error": "timed out"}),
            ("2026-03-03", "d", {"source_queue": "tasks", "error": "poison"}),
        ):
            record = DeadLetterRecord(body="{}", run_id=run_id, **fields)
            world.deps.bucket.write(dead_letter_key(day, name), record.model_dump_json().encode())
        again = DeadLetterRecord(body="{}", run_id=run_id, error="poison")
        failed = f"{FAILED_DEAD_LETTERS_PREFIX}2026-03-02/e.json"
        world.deps.bucket.write(failed, again.model_dump_json().encode())

        def names(**filters: str) -> str:
            return "".join(letter["message_id"] for letter in acme.walk("/dead-letters", limit=1, **filters))

        assert names() == "dceba"
        assert names(first="2026-03-02", last="2026-03-02") == "ceb"
        assert names(queue="tasks") == "dca"
        assert names(error="POISON", last="2026-03-02") == "eba"
        assert [x["recovery_failed"] for x in acme.walk("/dead-letters", limit=9)] == [False, False, True, False, False]
        acme.get("/dead-letters", first="yesterday", expect=422)

    def test_a_dead_letter_without_an_error_has_that_of_its_chunk(self, world: ApiWorld, acme: Api) -> None:
        world.deps.bucket.write("cubes/field.fits", b"a cube")
        job = acme.post("/jobs", {"workload": "spectra", "name": "g", "cube_key": "cubes/field.fits"}, expect=202)
        run_id = world.open_run(job).run_id
        world.deps.ledger.add_chunks(run_id, [NewChunk(chunk_id="chunk-0000000", n_items=4, chunk_key="i")])
        world.deps.ledger.record_error(run_id, "chunk-0000000", "The worker died.")
        record = DeadLetterRecord(body="{}", run_id=run_id, chunk_id="chunk-0000000")
        world.deps.bucket.write(dead_letter_key("2026-03-01", "m"), record.model_dump_json().encode())
        (letter,) = acme.walk("/dead-letters", limit=9)
        assert letter["error"] == "The worker died."

    def test_a_record_is_shown_with_its_message_and_without_what_acts_on_it(
        self, world: ApiWorld, acme: Api, run_id: str
    ) -> None:
        record = DeadLetterRecord(body='{"n": 1}', run_id=run_id, receiptHandle="secret", attributes={"a": 1})
        world.deps.bucket.write(dead_letter_key("2026-03-01", "m"), record.model_dump_json().encode())
        shown = acme.get("/dead-letters/2026-03-01/m")
        assert (shown["run_id"], shown["record"]["body"]) == (run_id, '{"n": 1}')
        assert "secret" not in str(shown)
        assert "2026-03-01/n" in acme.get("/dead-letters/2026-03-01/n", expect=404)["detail"]

    def test_a_dead_letter_without_a_run_is_shown_only_with_the_scope_all(self, world: ApiWorld, acme: Api) -> None:
        self.archive(world, None, 1)
        everybody = world.caller("ops", ("read", "all"))
        assert [letter["message_id"] for letter in everybody.walk("/dead-letters", limit=9)] == ["m001"]
        everybody.get("/dead-letters/2026-03-01/m001")
        acme.get("/dead-letters/2026-03-01/m001", expect=404)

    def test_a_record_that_cannot_be_read_is_listed_with_the_reason_and_hides_no_other(
        self, world: ApiWorld, acme: Api, run_id: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in (1, 2):
            self.archive(world, run_id, number)
        refuse_reads(monkeypatch, dead_letter_key("2026-03-01", "m001"))
        letters = world.caller("ops", ("read", "all")).walk("/dead-letters", limit=9)
        assert [(letter["message_id"], letter.get("run_id")) for letter in letters] == [
            ("m001", None),
            ("m002", run_id),
        ]
        assert "AccessDenied" in letters[0]["error"]
        own = acme.walk("/dead-letters", limit=9)
        assert [letter["message_id"] for letter in own] == ["m002"], "nothing tells whose the first one is"

    def test_what_is_not_a_record_is_listed_with_the_reason(self, world: ApiWorld) -> None:
        for name, content in (("text", b"\xff no record"), ("number", b"1"), ("deep", b'{"attributes": ' + b"[" * 500)):
            world.deps.bucket.write(dead_letter_key("2026-03-01", name), content)
        letters = world.caller("ops", ("read", "all")).walk("/dead-letters", limit=9)
        assert [letter["message_id"] for letter in letters] == ["deep", "number", "text"]
        assert all("The archived object is not a record" in letter["error"] for letter in letters)

    def test_records_that_a_recovery_has_sent_are_listed_on_request_and_shown_by_their_key(
        self, world: ApiWorld, acme: Api, run_id: str
    ) -> None:
        self.archive(world, run_id, 1)
        key = f"dead-letter-archive/recovering/op/{run_id}/chunk-0000000.json"
        day = {"archived_at": "2026-03-02T12:00:00.000Z"}
        for place, owner in ((key, run_id), (key.replace(run_id, "other"), "other")):
            record = DeadLetterRecord(body="{}", run_id=owner, messageId="m001", **day)
            world.deps.bucket.write(place, record.model_dump_json().encode())
        assert len(acme.walk("/dead-letters", limit=1)) == 1
        found = acme.walk("/dead-letters", limit=1, recovering="true", details="true", message_id="m0")
        assert [(letter["day"], letter["recovering"]) for letter in found] == [
            ("2026-03-01", False),
            ("2026-03-02", True),
        ]
        assert found[1]["record"]["body_bytes"] == 2
        assert "body" not in found[1]["record"]
        assert acme.walk("/dead-letters", limit=1, recovering="true", message_id="m1") == []
        assert len(acme.walk("/dead-letters", limit=1, recovering="true", first="2026-03-02")) == 1
        assert acme.get("/dead-letters/2026-03-02/m001", key=key)["record"]["body"] == "{}"
        for elsewhere in ("/dead-letters/2026-03-01/m001", "/dead-letters/2026-03-02/m002"):
            acme.get(elsewhere, key=key, expect=404)
        acme.get("/dead-letters/2026-03-02/m001", key=key.replace(run_id, "other"), expect=404)

    def test_all_runs_are_recovered_only_with_the_scope_all(self, world: ApiWorld, acme: Api, run_id: str) -> None:
        assert "scope all" in acme.post("/dead-letters/recover", {}, expect=403)["detail"]
        everybody = world.caller("ops", ("read", "operate", "all"))
        prefix = "dead-letter-archive/failed-sqs/"
        asked = everybody.post("/dead-letters/recover", {"prefix": prefix, "dry_run": True}, expect=202)
        (event,) = world.announced()
        assert "only_run" not in event["data"]
        assert (event["data"]["prefix"], event["data"]["dry_run"]) == (prefix, True)
        path = asked["status_url"].removeprefix("/v1")
        shown = everybody.get(path)
        assert (shown["status"], shown["run_id"]) == ("pending", None)
        acme.get(path, expect=404)
        for wrong in ({"retry": True}, {"prefix": "cubes/"}, {"run_id": run_id, "retry": True, "prefix": prefix}):
            everybody.post("/dead-letters/recover", wrong, expect=422)

    def test_a_recovery_takes_chosen_dead_letters(self, world: ApiWorld, acme: Api, run_id: str) -> None:
        keys = [dead_letter_key(f"2026-03-0{day}", "m") for day in (2, 1)]
        acme.post("/dead-letters/recover", {"run_id": run_id, "keys": keys}, expect=202)
        chosen = {"run_id": run_id, "retry": True, "chunk_ids": ["chunk-0000001"]}
        acme.post("/dead-letters/recover", chosen, expect=202)
        records, chunks = (event["data"] for event in world.announced())
        assert (records["only_run"], records["record_keys"]) == (run_id, sorted(keys))
        assert all(key.startswith(records["prefix"]) for key in keys)
        assert chunks["chunk_ids"] == ["chunk-0000001"]
        for wrong in ({"retry": True, "keys": keys}, {"chunk_ids": ["chunk-0000001"]}, {"keys": ["jobs/x"]}):
            acme.post("/dead-letters/recover", {"run_id": run_id, **wrong}, expect=422)

    def test_a_recovery_is_requested_and_shown(self, world: ApiWorld, acme: Api, run_id: str) -> None:
        asked = acme.post("/dead-letters/recover", {"run_id": run_id, "retry": True}, expect=202, key="k")
        (event,) = world.announced()
        assert event["type"] == "prismline.deadletters.recover.requested.v1"
        assert (event["data"]["only_run"], event["data"]["retry"]) == (run_id, True)
        path = asked["status_url"].removeprefix("/v1")
        assert acme.get(path)["status"] == "pending"
        again = acme.post("/dead-letters/recover", {"run_id": run_id, "retry": True}, expect=202, key="k")
        assert again == asked
        other = world.caller("other")
        other.get(path, expect=404)
        other.post("/dead-letters/recover", {"run_id": run_id}, expect=404)
        assert timestamp() > event["data"]["requested_at"]


def test_a_result_is_downloaded_through_its_link(world: ApiWorld, acme: Api, run_id: str) -> None:
    task = acme.get(f"/runs/{run_id}/tasks")["items"][0]
    assert "no result" in acme.get(f"/tasks/{task['task_id']}/result", expect=409)["detail"]
    world.complete(run_id, task["task_id"].rpartition(".")[2], b"<html>")
    shown = acme.get(f"/tasks/{task['task_id']}")
    assert (shown["status"], shown["result"]["length"]) == ("completed", 6)
    link = acme.get(f"/tasks/{task['task_id']}/result")
    assert world.download(link["url"]) == b"<html>"
    assert link["sha256"] == shown["result"]["sha256"]


@pytest.mark.parametrize(
    ("content_type", "served"),
    [
        ("text/html", ("application/octet-stream", "attachment")),
        ("image/svg+xml", ("application/octet-stream", "attachment")),
        ("text/plain; charset=utf-8", ("text/plain; charset=utf-8", "inline")),
    ],
)
def test_no_link_to_a_body_makes_a_browser_run_it(
    world: ApiWorld, acme: Api, run_id: str, content_type: str, served: tuple[str, str]
) -> None:
    """Also if an earlier release stored the body with the type that the site gave."""
    task = acme.get(f"/runs/{run_id}/tasks")["items"][0]
    world.complete(run_id, task["task_id"].rpartition(".")[2], b"<script>", content_type)
    result = acme.get(f"/tasks/{task['task_id']}/result")
    cell = acme.get(f"/runs/{run_id}/cells/{task['index']}")
    assert result["content_type"] == cell["content_type"] == content_type
    for url in (result["url"], cell["output_url"]):
        answer = httpx.get(url)
        assert (answer.headers["Content-Type"], answer.headers["Content-Disposition"]) == served


def test_links_to_what_services_wrote_are_attachments(world: ApiWorld, acme: Api, run_id: str) -> None:
    export = acme.post(f"/runs/{run_id}/export", expect=202)["export_id"]
    rejects = rejects_key("job", run_id)
    for key in ("exports/e.zip", rejects):
        boto3.client("s3").put_object(Bucket=world.deps.bucket.name, Key=key, Body=b"<script>", ContentType="text/html")
    world.change("jobs", export_key(run_id, export), status="COMPLETED", key="exports/e.zip")
    world.change("runs", {"PK": run_id, "SK": "RUN"}, rejects_key=rejects)
    run = acme.get(f"/runs/{run_id}")
    for url in (acme.get(f"/runs/{run_id}/exports/{export}")["url"], run["rejects_url"]):
        headers = httpx.get(url).headers
        assert (headers["Content-Type"], headers["Content-Disposition"]) == ("application/octet-stream", "attachment")


def test_no_answer_of_the_service_is_taken_for_another_type(acme: Api, run_id: str) -> None:
    for path in ("/jobs", f"/runs/{run_id}/cells", "/nothing"):
        assert acme("GET", path).headers["X-Content-Type-Options"] == "nosniff"
