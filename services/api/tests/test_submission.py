"""Submitting jobs over HTTP: the items and messages, and that a repeat has no further effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from api_world import Api, ApiWorld, urls, urls_job
from fastapi.testclient import TestClient

from prismline_api import submission
from prismline_api.app import build_app
from prismline_contracts.base import now
from prismline_contracts.commands import Queue
from prismline_contracts.jobs import upload_item_key, upload_key
from prismline_ledger import Tolerance

pytestmark = pytest.mark.emulator


class TestShortList:
    def test_every_task_can_be_seen_at_once(self, acme: Api) -> None:
        job = acme.post("/jobs", urls_job(130))
        tasks = acme.walk(f"/runs/{job['run']['run_id']}/tasks", limit=50)
        assert sorted((task["index"], task["url"]) for task in tasks) == list(enumerate(urls(130)))
        assert {task["status"] for task in tasks} == {"pending"}
        assert job["run"]["counts"] == {"total": 130, "completed": 0, "failed": 0}
        assert acme.get(f"/tasks/{tasks[0]['task_id']}") == tasks[0]

    def test_slots_that_nothing_counts_are_refused(self, acme: Api) -> None:
        detail = acme.post("/jobs", urls_job(2, max_concurrency=7), expect=422)["detail"]
        assert "has no Valkey server" in detail
        assert "Leave max_concurrency out" in detail
        assert acme.walk("/jobs", limit=50) == []

    def test_its_tasks_are_sent_and_its_run_is_announced(
        self, aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PRISMLINE_VALKEY_URL", "valkey://slots.invalid:6379")
        world = ApiWorld.create(aws_env["ENVIRONMENT"], monkeypatch)
        acme = world.caller()
        limits = {"tolerated_failure_percent": 12.5, "tolerated_failures": 0}
        job = acme.post("/jobs", urls_job(60, max_concurrency=7, **limits))
        assert acme.get(f"/jobs/{job['job_id']}") | limits == acme.get(f"/jobs/{job['job_id']}")
        messages = world.received("tasks")
        sent = [task for message in messages for task in message["data"]["task_ids"]]
        tasks = acme.walk(f"/runs/{job['run']['run_id']}/tasks", limit=100)
        assert sorted(sent) == sorted(task["task_id"].rpartition(".")[2] for task in tasks)
        assert {message["data"]["max_concurrency"] for message in messages} == {7}
        (event,) = world.announced()
        assert event["type"] == "prismline.run.submitted.v1"
        assert event["data"] | limits == event["data"]
        assert Tolerance.of(world.deps.ledger.run(job["run"]["run_id"])) == Tolerance(percent=12.5, failures=0)
        run = world.deps.ledger.run(job["run"]["run_id"])
        assert run.latched_at is not None
        # The run shows all parameters in force; a message carries what was given, for workers of other releases.
        assert json.loads(run.params or "")["max_redirects"] == 5
        assert [message["data"]["params"] for message in messages] == [{}, {}, {}]

    def test_a_list_that_is_not_of_urls_is_refused_with_its_position(self, acme: Api) -> None:
        answer = acme.post("/jobs", urls_job() | {"urls": ["https://example.org", "ftp://example.org"]}, expect=422)
        assert "urls.1" in answer["detail"]
        assert acme.get("/jobs")["items"] == []


class TestLongList:
    def test_async_is_accepted_and_ingested_from_its_manifest(self, world: ApiWorld, acme: Api) -> None:
        job = acme.post("/jobs", urls_job() | {"async": True}, expect=202)
        assert job["run"]["status"] == "pending"
        assert acme.get(job["status_url"].removeprefix("/v1"))["run_id"] == job["run"]["run_id"]
        (command,) = world.received(Queue.SPLIT)
        assert command["type"] == "prismline.job.ingest.v1"
        manifest = json.loads(world.deps.bucket.read(command["data"]["manifest_key"]))
        assert manifest["urls"] == urls(3)
        assert manifest["tenant"] == "acme"
        assert world.received("tasks") == []

    def test_an_uploaded_list_is_pinned_to_its_version(self, world: ApiWorld, acme: Api) -> None:
        upload = acme.post("/uploads", {"format": "text", "size_bytes": 21, "gzip": True})
        assert put(upload, b"https://example.org/a").status_code == 200
        job = acme.post(
            "/jobs", {"workload": "urls", "name": "pages", "upload": upload["upload_id"], "priority": 9}, expect=202
        )
        (command,) = world.received(Queue.SPLIT)
        manifest = json.loads(world.deps.bucket.read(command["data"]["manifest_key"]))
        assert manifest["list"]["format"] == "text"
        assert manifest["list"]["gzip"]
        assert manifest["list"]["etag"] == world.deps.bucket.version(manifest["list"]["key"])
        assert manifest["priority"] == 9
        assert job["run"]["unit"] == "task"

    def test_an_upload_of_somebody_else_is_not_there(self, world: ApiWorld, acme: Api) -> None:
        upload = acme.post("/uploads", {"format": "text", "size_bytes": 1})
        put(upload, b"x")
        job = {"workload": "urls", "name": "pages", "upload": upload["upload_id"]}
        assert world.caller("other").post("/jobs", job, expect=422)["detail"].startswith("There is no such upload")

    def test_a_repeated_request_is_for_the_same_upload(self, world: ApiWorld, acme: Api) -> None:
        asked = {"format": "text", "size_bytes": 21}
        first, again = (acme.post("/uploads", asked, key="list-1") for _ in range(2))
        assert put(first, b"https://example.org/a").status_code == 200
        assert put(again, b"https://example.org/b").status_code == 412, "the first file stays"
        job = {"workload": "urls", "name": "pages"}
        runs = [
            acme.post("/jobs", job | {"upload": each["upload_id"]}, key="job-1", expect=202)["run"]["run_id"]
            for each in (first, again)
        ]
        assert runs[0] == runs[1]
        others = [
            acme.post("/uploads", asked, key="list-2"),
            acme.post("/uploads", asked | {"size_bytes": 20}, key="list-1"),
            world.caller("other").post("/uploads", asked, key="list-1"),
            acme.post("/uploads", asked),
        ]
        assert len({each["upload_id"] for each in [first, *others]}) == 5

    @pytest.mark.parametrize(
        "change", [{"Content-Type": "text/html"}, {"x-amz-meta-prismline-format": "fits"}, {"Content-Length": "2"}]
    )
    def test_an_upload_that_differs_from_its_signature_is_refused(self, acme: Api, change: dict[str, str]) -> None:
        upload = acme.post("/uploads", {"format": "text", "size_bytes": 1})
        body = b"xy" if "Content-Length" in change else b"x"
        assert put(upload | {"headers": upload["headers"] | change}, body).status_code == 403

    def test_an_upload_that_is_too_long_is_not_signed(self, acme: Api) -> None:
        assert "at most" in acme.post("/uploads", {"format": "csv", "size_bytes": 10**13}, expect=422)["detail"]


def put(upload: dict[str, object], body: bytes) -> httpx.Response:
    """Upload a file with the URL and the headers from the api."""
    return httpx.put(str(upload["url"]), content=body, headers=upload["headers"])  # type: ignore[arg-type]


class TestLifeOfAnUpload:
    def sent(self, api: Api) -> str:
        """The id of an upload whose file was sent."""
        upload = api.post("/uploads", {"format": "fits", "size_bytes": 4})
        assert put(upload, b"cube").status_code == 200
        return str(upload["upload_id"])

    def job(self, upload_id: str) -> dict[str, Any]:
        return {"workload": "spectra", "name": "grs", "upload": upload_id}

    def tags(self, world: ApiWorld, upload_id: str) -> list[Any]:
        bucket = world.deps.bucket.name
        return list(world.deps.s3.get_object_tagging(Bucket=bucket, Key=upload_key("acme", upload_id))["TagSet"])

    def test_the_bucket_expires_an_upload_until_a_job_takes_it(self, world: ApiWorld, acme: Api) -> None:
        upload_id = self.sent(acme)
        assert self.tags(world, upload_id) == [{"Key": "prismline-upload", "Value": "waiting"}]
        acme.post("/jobs", self.job(upload_id), expect=202)
        assert self.tags(world, upload_id) == []

    def test_a_file_can_be_sent_once(self, world: ApiWorld, acme: Api) -> None:
        """A second file under the same key would have the tag again, and the bucket would expire it."""
        upload = acme.post("/uploads", {"format": "fits", "size_bytes": 4})
        assert put(upload, b"cube").status_code == 200
        acme.post("/jobs", self.job(upload["upload_id"]), expect=202)
        assert put(upload, b"cube").status_code == 412
        assert self.tags(world, upload["upload_id"]) == []
        unconditional = {name: value for name, value in upload["headers"].items() if name != "If-None-Match"}
        assert put(upload | {"headers": unconditional}, b"cube").status_code == 403

    def test_an_upload_that_the_bucket_is_about_to_expire_is_not_taken(self, world: ApiWorld, acme: Api) -> None:
        upload_id = self.sent(acme)
        assert "6 days" in self.later(world, acme, 6).post("/jobs", self.job(upload_id), expect=422)["detail"]

    def test_an_upload_that_a_job_has_taken_may_be_taken_by_another_one_at_any_time(
        self, world: ApiWorld, acme: Api
    ) -> None:
        upload_id = self.sent(acme)
        acme.post("/jobs", self.job(upload_id), expect=202)
        self.later(world, acme, 300).post("/jobs", self.job(upload_id), expect=202)

    def test_an_upload_that_is_deleted_with_its_job_is_not_taken(self, world: ApiWorld, acme: Api) -> None:
        upload_id = self.sent(acme)
        world.change("jobs", upload_item_key("acme", upload_id), deleted_at="2026-03-01T12:00:00.000Z")
        assert "no such upload" in acme.post("/jobs", self.job(upload_id), expect=422)["detail"]

    def test_an_upload_that_is_deleted_while_a_job_takes_it_is_not_taken(
        self, world: ApiWorld, acme: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upload_id, keep = self.sent(acme), submission.keep_upload

        def delete_first(*arguments: Any) -> None:
            world.change("jobs", upload_item_key("acme", upload_id), deleted_at="2026-03-01T12:00:00.000Z")
            world.deps.bucket.delete([upload_key("acme", upload_id)])
            keep(*arguments)

        monkeypatch.setattr(submission, "keep_upload", delete_first)
        assert "no such upload" in acme.post("/jobs", self.job(upload_id), expect=422)["detail"]
        assert acme.get("/jobs")["items"] == []

    def test_an_upload_of_an_earlier_release_may_be_taken(self, world: ApiWorld, acme: Api) -> None:
        world.deps.bucket.write(upload_key("acme", "0" * 32), b"cube")
        self.later(world, acme, 300).post("/jobs", self.job("0" * 32), expect=202)

    @staticmethod
    def later(world: ApiWorld, api: Api, days: int) -> Api:
        """The client of an api whose clock is ahead."""
        deps = replace(world.deps, clock=lambda: now() + timedelta(days=days))
        return Api(TestClient(build_app(deps)), api.api_key)


def job_of(source: str, folder: str, *, own: str | None = None) -> dict[str, Any]:
    """A job whose cube, noise or frames are in `folder`, and its other sources in `own`."""
    if source == "frames":
        windows = [{"window_index": 0, "frame_count": 1, "frames": [f"frames/{folder}x"]}]
        return {"workload": "captions", "name": "s", "user_id": "u", "windows": windows}
    own = folder if own is None else own
    cube, noise = (folder, own) if source == "cube" else (own, folder)
    return {
        "workload": "spectra",
        "name": "grs",
        "cube_key": f"cubes/{cube}x",
        "params": {"noise": f"noise/{noise}x"},
    }


class TestCubesAndRecordings:
    def test_a_cube_in_the_bucket_is_split_from_its_manifest(self, world: ApiWorld, acme: Api) -> None:
        world.deps.bucket.write("cubes/grs/field.fits", b"a cube")
        body = {"workload": "spectra", "name": "grs", "cube_key": "cubes/grs/field.fits", "params": {"beta": 4.0}}
        job = acme.post("/jobs", body, expect=202)
        (command,) = world.received(Queue.SPLIT)
        manifest = json.loads(world.deps.bucket.read(command["data"]["manifest_key"]))
        assert manifest["cube_key"] == "cubes/grs/field.fits"
        assert manifest["params"]["beta"] == 4.0
        assert job["run"]["unit"] == "chunk"
        assert acme.get(f"/runs/{job['run']['run_id']}/chunks") == {"items": [], "final": False}

    def test_an_uploaded_cube_is_split_from_where_it_is(self, world: ApiWorld, acme: Api) -> None:
        upload = acme.post("/uploads", {"format": "fits", "size_bytes": 4})
        put(upload, b"cube")
        acme.post("/jobs", {"workload": "spectra", "name": "grs", "upload": upload["upload_id"]}, expect=202)
        (command,) = world.received(Queue.SPLIT)
        manifest = json.loads(world.deps.bucket.read(command["data"]["manifest_key"]))
        assert world.deps.bucket.read(manifest["cube_key"]) == b"cube"

    @pytest.mark.parametrize("key", ["uploads/other/secret.fits", "results/r/t", "cubes/../uploads/other/x", "cubesx"])
    def test_a_key_outside_of_the_prefixes_of_sources_is_refused(self, world: ApiWorld, acme: Api, key: str) -> None:
        world.deps.bucket.write(key, b"not yours")
        acme.post("/jobs", {"workload": "spectra", "name": "grs", "cube_key": key}, expect=422)
        noise = {"workload": "spectra", "name": "grs", "cube_key": "cubes/c", "params": {"noise": key}}
        world.deps.bucket.write("cubes/c", b"yours")
        acme.post("/jobs", noise, expect=422)

    @pytest.mark.parametrize("source", ["cube", "noise", "frames"])
    def test_a_tenant_may_name_only_sources_below_its_own_prefixes(
        self, world: ApiWorld, acme: Api, source: str
    ) -> None:
        other = world.caller("other")
        other.get("/jobs")
        for owner, folder in ((acme, ""), (other, "other/")):
            for prefix in ("cubes", "noise", "frames"):
                world.deps.bucket.write(f"{prefix}/{folder}x", b"a source")
            owner.post("/jobs", job_of(source, folder), expect=202)
        assert "cubes/other/" in other.post("/jobs", job_of(source, "", own="other/"), expect=422)["detail"]
        assert "another tenant" in acme.post("/jobs", job_of(source, "other/", own=""), expect=422)["detail"]

    def test_a_rerun_reads_only_sources_below_the_tenants_own_prefixes(self, world: ApiWorld) -> None:
        """Also if an earlier release accepted the job."""
        world.deps.bucket.write("cubes/other/x", b"a cube")
        other = world.caller("other")
        path = f"/jobs/{other.post('/jobs', job_of('cube', 'other/'), expect=202)['job_id']}/rerun"
        other.post(path, {}, expect=202)
        (command, _) = world.received(Queue.SPLIT)
        manifest = world.deps.bucket.read(command["data"]["manifest_key"])
        world.deps.bucket.write(command["data"]["manifest_key"], manifest.replace(b"cubes/other/x", b"cubes/grs/x"))
        assert "cubes/other/" in other.post(path, {}, expect=422)["detail"]
        assert "cubes/other/" in other.get(path, expect=422)["detail"]

    def test_a_job_that_was_not_started_is_not_run_again(
        self, world: ApiWorld, acme: Api, fail_at: Callable[[str], None]
    ) -> None:
        world.deps.bucket.write("cubes/x", b"a cube")
        fail_at("api.job_created")
        assert acme("POST", "/jobs", job_of("cube", ""), key="k").status_code == 503
        (job,) = acme.get("/jobs")["items"]
        assert "Repeat the request" in acme.post(f"/jobs/{job['job_id']}/rerun", {}, expect=409)["detail"]
        assert acme.get("/jobs")["items"] == [job]

    def test_a_cube_that_is_not_there_is_refused(self, acme: Api) -> None:
        body = {"workload": "spectra", "name": "grs", "cube_key": "cubes/none.fits"}
        assert "There is no object" in acme.post("/jobs", body, expect=422)["detail"]

    def test_a_recording_is_split_from_its_manifest(self, world: ApiWorld, acme: Api) -> None:
        windows = [{"window_index": 0, "frame_count": 1, "frames": ["frames/s/0.png"]}]
        acme.post("/jobs", {"workload": "captions", "name": "s", "user_id": "u", "windows": windows}, expect=202)
        (command,) = world.received(Queue.SPLIT)
        manifest = json.loads(world.deps.bucket.read(command["data"]["manifest_key"]))
        assert manifest["session_id"] == "s"
        assert manifest["windows"] == windows


class TestIdempotency:
    def test_twenty_requests_at_once_with_one_key_make_one_job(self, world: ApiWorld, acme: Api) -> None:
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: acme.post("/jobs", urls_job(30), key="k"), range(20)))
        assert len({answer["job_id"] for answer in answers}) == 1
        assert len(acme.get("/jobs")["items"]) == 1
        (run_id,) = {answer["run"]["run_id"] for answer in answers}
        assert len(acme.walk(f"/runs/{run_id}/tasks", limit=100)) == 30
        assert acme.get(f"/runs/{run_id}")["counts"] == {"total": 30, "completed": 0, "failed": 0}
        assert len({event["id"] for event in world.announced()}) == 1

    def test_a_repeat_gets_the_same_answer(self, acme: Api) -> None:
        first = acme("POST", "/jobs", urls_job(webhook={"url": "https://example.org/hook"}), key="k")
        again = acme("POST", "/jobs", urls_job(webhook={"url": "https://example.org/hook"}), key="k")
        assert first.json() == again.json()
        assert first.json()["webhook_secret"].startswith("whsec_")
        assert again.headers["Idempotency-Replayed"] == "true"
        assert "Idempotency-Replayed" not in first.headers

    def test_the_same_key_with_another_body_is_a_conflict(self, acme: Api) -> None:
        acme.post("/jobs", urls_job(3), key="k")
        assert "another body" in acme.post("/jobs", urls_job(4), key="k", expect=409)["detail"]
        assert len(acme.get("/jobs")["items"]) == 1

    def test_a_key_belongs_to_its_tenant(self, world: ApiWorld, acme: Api) -> None:
        first = acme.post("/jobs", urls_job(3), key="k")
        second = world.caller("other").post("/jobs", urls_job(4), key="k")
        assert first["job_id"] != second["job_id"]

    def test_without_a_key_each_request_is_a_job(self, acme: Api) -> None:
        assert acme.post("/jobs", urls_job())["job_id"] != acme.post("/jobs", urls_job())["job_id"]

    @pytest.mark.parametrize(
        "point",
        ["api.job_created", "api.tasks_added", "api.total_set", "api.tasks_sent", "api.latched"],
    )
    def test_a_submission_without_a_key_that_was_cut_off_is_started_all_the_same(
        self,
        world: ApiWorld,
        acme: Api,
        fail_at: Callable[[str], None],
        monkeypatch: pytest.MonkeyPatch,
        point: str,
    ) -> None:
        """The splitter gets a command when the request must be over, and the manifest exists."""
        monkeypatch.setattr(submission, "LONGEST_REQUEST_SECONDS", 0)
        fail_at(point)
        assert acme("POST", "/jobs", urls_job(30)).status_code == 503
        (job,) = acme.get("/jobs")["items"]
        (command,) = world.received(Queue.SPLIT)
        assert command["data"]["in_advance"]
        assert command["data"]["job_id"] == job["job_id"]
        manifest = json.loads(world.deps.bucket.read(command["data"]["manifest_key"]))
        assert len(manifest["urls"]) == 30

    @pytest.mark.parametrize("point", ["api.manifest_written_first", "api.start_seen_to"])
    def test_a_submission_without_a_key_that_was_cut_off_early_makes_no_job(
        self, acme: Api, fail_at: Callable[[str], None], point: str
    ) -> None:
        fail_at(point)
        assert acme("POST", "/jobs", urls_job(30)).status_code == 503
        assert acme.get("/jobs")["items"] == []

    @pytest.mark.parametrize(
        "point",
        [
            "api.job_created",
            "api.manifest_written",
            "api.tasks_added",
            "api.total_set",
            "api.tasks_sent",
            "api.latched",
        ],
    )
    def test_a_submission_that_was_cut_off_is_completed_by_its_repeat(
        self, world: ApiWorld, acme: Api, fail_at: Callable[[str], None], point: str
    ) -> None:
        fail_at(point)
        assert acme("POST", "/jobs", urls_job(30), key="k").status_code == 503
        job = acme.post("/jobs", urls_job(30), key="k")
        run = world.deps.ledger.run(job["run"]["run_id"])
        assert run.latched_at is not None
        assert acme.get(f"/runs/{run.run_id}")["counts"] == {"total": 30, "completed": 0, "failed": 0}
        sent = {task for message in world.received("tasks") for task in message["data"]["task_ids"]}
        assert len(sent) == 30
        assert {event["type"] for event in world.announced()} == {"prismline.run.submitted.v1"}
