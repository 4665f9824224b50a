"""Scenes that begin at the HTTP interface: lists of URLs, their exports, their webhooks and their alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi.testclient import TestClient

from tests.contracts.estate import SECRET, TARGET, Estate

#: Virtual seconds within which a run of a few tasks ends, its retries included; and the longest time of a scene.
SOON, LATE = 900.0, 7200.0


def a_list_that_is_fetched_exported_and_deleted(estate: Estate, api: TestClient) -> list[Any]:
    """A short list of URLs, one of which has no page."""
    estate.sites["/1"] = 404, {}
    job = submit(api, tolerated_failure_percent=50.0)
    estate.advance(SOON)
    ended = shown(api, job)
    export = answer(api.post(f"/runs/{job['run']['run_id']}/export"))
    estate.advance(SOON)
    exported = answer(api.get(f"/runs/{job['run']['run_id']}/exports/{export['export_id']}"))
    answer(api.delete(f"/jobs/{job['job_id']}"))
    estate.advance(LATE)
    deleted = api.get(f"/jobs/{job['job_id']}").status_code
    return [ended, exported["status"], exported["entries"], deleted, len(estate.aws.table("runs").items())]


def a_list_that_the_splitter_reads(estate: Estate, api: TestClient) -> list[Any]:
    """A list that the splitter ingests, with a site that answers Retry-After."""
    estate.sites["/0"] = 429, {"Retry-After": "20"}
    job = submit(api, **{"async": True})
    estate.advance(15.0)
    estate.sites.clear()
    estate.advance(LATE)
    return [shown(api, job)]


def a_list_whose_site_is_mended(estate: Estate, api: TestClient) -> list[Any]:
    """All tasks fail and so does the run. A person retries them when the site is available."""
    estate.sites |= {f"/{n}": (404, {}) for n in range(3)}
    job = submit(api)
    estate.advance(SOON)
    failed = shown(api, job)
    estate.sites.clear()
    answer(api.post("/dead-letters/recover", json={"run_id": job["run"]["run_id"], "retry": True}))
    estate.advance(LATE)
    return [failed, shown(api, job)]


def a_job_that_is_cancelled(estate: Estate, api: TestClient) -> list[Any]:
    """An open job with tasks whose site does not answer."""
    estate.sites["/0"] = 503, {"Retry-After": "600"}
    job = submit(api, urls=None, open=True)
    answer(api.post(f"/jobs/{job['job_id']}/tasks", json={"urls": ["https://site-0.test/0"]}))
    estate.advance(60.0)
    answer(api.post(f"/runs/{job['run']['run_id']}/cancel"))
    estate.advance(LATE)
    return [shown(api, job)]


def an_export_that_is_given_up(estate: Estate, api: TestClient) -> list[Any]:
    """The bucket refuses uploads until the request for the export is given up."""
    job = submit(api)
    estate.advance(SOON)
    estate.hub.out_of_order.add("create_multipart_upload")
    export = answer(api.post(f"/runs/{job['run']['run_id']}/export"))
    estate.advance(LATE)
    shown_export = answer(api.get(f"/runs/{job['run']['run_id']}/exports/{export['export_id']}"))
    return [shown_export["status"], shown_export.get("error")]


def a_function_over_a_list(estate: Estate, api: TestClient) -> list[Any]:
    """A list of three items: the function fails on one of them once, and on another one always."""
    job = submit_function(estate, api, tolerated_failure_percent=50.0)
    estate.advance(SOON)
    ended = shown(api, job)
    export = answer(api.post(f"/runs/{job['run']['run_id']}/export"))
    estate.advance(SOON)
    exported = answer(api.get(f"/runs/{job['run']['run_id']}/exports/{export['export_id']}"))
    return [ended, exported["status"], exported["entries"]]


def a_function_that_is_mended(estate: Estate, api: TestClient) -> list[Any]:
    """All items fail and so does the run. A person retries them when the function works."""
    estate.functions_broken = True
    job = submit_function(estate, api, tolerated_failure_percent=50.0)
    estate.advance(SOON)
    failed = shown(api, job)
    estate.functions_broken = False
    answer(api.post("/dead-letters/recover", json={"run_id": job["run"]["run_id"], "retry": True}))
    estate.advance(LATE)
    return [failed, shown(api, job)]


def submit_function(estate: Estate, api: TestClient, **fields: Any) -> dict[str, Any]:
    """A job of a function over three items."""
    estate.register("measure")
    source = {"kind": "inline", "items": ["good", "again", "hopeless"]}
    job: dict[str, Any] = answer(
        api.post("/jobs", json={"workload": "measure", "name": "night", "source": source} | fields)
    )
    return job


def submit(api: TestClient, **fields: Any) -> dict[str, Any]:
    """A job of three URLs, each of a different site, with a webhook.

    A site that answers Retry-After delays other fetches of the same site that have not begun. Which ones these are
    would differ between plays, so each URL has its own site.
    """
    given = {"workload": "urls", "name": "pages", "urls": [f"https://site-{n}.test/{n}" for n in range(3)]}
    given |= {"webhook": {"url": TARGET, "secret": SECRET}} | fields
    job: dict[str, Any] = answer(api.post("/jobs", json={k: v for k, v in given.items() if v is not None}))
    return job


def answer(response: Any) -> Any:
    """The document of a response. Raises RuntimeError if the interface refuses."""
    if response.is_error:
        raise RuntimeError(f"{response.status_code}: {response.text}")
    return response.json()


def shown(api: TestClient, job: Mapping[str, Any]) -> list[Any]:
    """The state of the first run of a job."""
    run = answer(api.get(f"/runs/{job['run']['run_id']}"))
    return [run["status"], run["counts"], run.get("error")]


#: The scenes by their description. Each returns its result.
SCENES: Mapping[str, Callable[[Estate, TestClient], list[Any]]] = {
    "a list of URLs that is fetched, exported and deleted": a_list_that_is_fetched_exported_and_deleted,
    "a list of URLs that the splitter reads": a_list_that_the_splitter_reads,
    "a list of URLs whose site is mended": a_list_whose_site_is_mended,
    "a function over a list": a_function_over_a_list,
    "a function that is mended": a_function_that_is_mended,
    "a job that is cancelled": a_job_that_is_cancelled,
    "an export that is given up": an_export_that_is_given_up,
}
