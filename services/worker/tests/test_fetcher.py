"""One URL, fetched from a site that is slow, flaky, huge, redirecting or hostile, into the emulator's S3."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from prismline_contracts.tasks import TaskResult, UrlParams
from prismline_localstack.standins.site import Site, page_body
from prismline_runtime import PermanentError, PrismlineError, TransientError, UnavailableError, clients
from prismline_web import RefusedAddressError, guarded_async_client
from prismline_worker import body_store
from prismline_worker.body_store import BodyStore
from prismline_worker.fetch_decisions import ThrottledError
from prismline_worker.fetcher import Fetcher

BUCKET = "bodies"


class Web:
    """A site, a bucket, and a fetcher between them."""

    def __init__(self, url: str, site: Site) -> None:
        self.url, self.site = url, site
        self.s3: Any = clients.s3()
        self.allow_private = True

    def fetch(self, path: str, key: str = "results/r/t", **params: object) -> TaskResult:
        return self.fetch_all([path], [key], **params)[0]

    def fetch_all(self, paths: list[str], keys: list[str], **params: object) -> list[TaskResult]:
        async def run() -> list[TaskResult]:
            with ThreadPoolExecutor(8) as executor:
                async with guarded_async_client(allow_private=self.allow_private) as http:
                    store, fetcher = BodyStore(self.s3, BUCKET, executor), Fetcher(http)
                    limits = UrlParams.model_validate(params)
                    urls = [self.url + path if path.startswith("/") else path for path in paths]
                    return await asyncio.gather(
                        *(fetcher.fetch(url, limits, store, key) for url, key in zip(urls, keys, strict=True))
                    )

        return asyncio.run(run())

    def stored(self, key: str = "results/r/t") -> bytes:
        body: bytes = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    @property
    def keys(self) -> list[str]:
        return [entry["Key"] for entry in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]

    @property
    def uploads(self) -> list[str]:
        """Multipart uploads that were neither completed nor aborted."""
        return [entry["Key"] for entry in self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]


@pytest.fixture
def web(aws_env: dict[str, str], site: tuple[str, Site]) -> Iterator[Web]:
    made = Web(*site)
    made.s3.create_bucket(Bucket=BUCKET)
    yield made
    for key in made.keys:
        made.s3.delete_object(Bucket=BUCKET, Key=key)
    made.s3.delete_bucket(Bucket=BUCKET)


def test_a_page_is_stored_with_what_describes_it(web: Web) -> None:
    result = web.fetch("/page/7")
    body = page_body(7)
    assert result == TaskResult(
        key="results/r/t",
        http_status=200,
        content_type="text/plain",
        length=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        final_url=f"{web.url}/page/7",
        headers={"content-type": "text/plain", "etag": f'"{hashlib.md5(body).hexdigest()}"'},
    )
    assert web.stored() == body


@pytest.mark.parametrize("size", [6, body_store.SMALL_BYTES + 1])
@pytest.mark.parametrize(
    ("content_type", "served"),
    [
        ("text/html; charset=utf-8", ("application/octet-stream", "attachment")),
        ("image/svg+xml", ("application/octet-stream", "attachment")),
        (None, ("application/octet-stream", "attachment")),
        ("image/png", ("image/png", "inline")),
    ],
)
def test_a_body_is_stored_as_a_type_that_no_browser_runs(
    web: Web, size: int, content_type: str | None, served: tuple[str, str]
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * size

    with ThreadPoolExecutor(1) as executor:
        store = BodyStore(web.s3, BUCKET, executor)
        asyncio.run(store.store("results/r/t", pieces(), content_type=content_type, most_bytes=size))
    answer = web.s3.get_object(Bucket=BUCKET, Key="results/r/t")
    assert (answer["ContentType"], answer["ContentDisposition"]) == served


def test_only_the_headers_that_the_job_asks_for_are_kept(web: Web) -> None:
    assert set(web.fetch("/page/1", keep_headers=["Content-Length", "X-None"]).headers) == {"content-length"}


def test_an_empty_body_is_a_result(web: Web) -> None:
    result = web.fetch("/status/204")
    assert (result.http_status, result.length, web.stored()) == (204, 0, b"")


@pytest.mark.parametrize("path", ["/huge", "/endless"])
@pytest.mark.parametrize("size", [body_store.SMALL_BYTES, body_store.SMALL_BYTES + 1, 2 * body_store.PART_BYTES + 17])
def test_a_large_body_is_stored_in_parts(web: Web, path: str, size: int) -> None:
    result = web.fetch(f"{path}/{size}")
    assert (result.length, result.sha256) == (size, hashlib.sha256(bytes(size)).hexdigest())
    assert hashlib.sha256(web.stored()).hexdigest() == result.sha256
    in_parts = "-" in web.s3.head_object(Bucket=BUCKET, Key="results/r/t")["ETag"]
    assert in_parts == (size > body_store.SMALL_BYTES)


@pytest.mark.parametrize("path", ["/huge/3000000", "/endless/3000000", "/huge/90000000"])
def test_a_body_that_is_too_long_is_permanent_and_leaves_nothing(web: Web, path: str) -> None:
    with pytest.raises(PermanentError, match="longer than 2000000"):
        web.fetch(path, max_body_bytes=2_000_000)
    assert (web.keys, web.uploads) == ([], [])


def test_a_body_that_never_ends_is_cut_at_the_limit(web: Web) -> None:
    with pytest.raises(PermanentError, match="longer than 12000000"):
        web.fetch("/endless/90000000", max_body_bytes=12_000_000)
    assert (web.keys, web.uploads) == ([], [])


@pytest.mark.parametrize("path", ["/slow/60/1", "/drip/0.2/1"])
def test_a_site_that_takes_too_long_is_tried_again(web: Web, path: str) -> None:
    with pytest.raises(TransientError, match=r"within 0\.5 seconds|in time"):
        web.fetch(path, timeout_s=0.5)
    assert web.keys == []


def test_a_body_that_breaks_off_is_tried_again_and_not_stored(web: Web) -> None:
    with pytest.raises(TransientError, match="could not be reached"):
        web.fetch("/cut/63")
    assert web.keys == []


def test_a_site_that_cannot_be_reached_is_a_transient_error(web: Web) -> None:
    with pytest.raises(TransientError, match="could not be reached"):
        web.fetch("http://127.0.0.1:1/")
    web.allow_private = False
    with pytest.raises(TransientError, match="does not resolve"):
        web.fetch("http://no-such-host.invalid/")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451, 304, 300])
def test_a_refusal_of_the_site_is_a_permanent_error(web: Web, status: int) -> None:
    with pytest.raises(PermanentError, match=f"The site answered {status}"):
        web.fetch(f"/status/{status}")
    assert web.keys == []


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 425, 599])
def test_a_status_that_may_pass_is_a_transient_error(web: Web, status: int) -> None:
    with pytest.raises(TransientError, match=f"The site answered {status}") as raised:
        web.fetch(f"/status/{status}")
    assert not isinstance(raised.value, ThrottledError)


def test_the_wait_that_a_site_asks_for_is_passed_on(web: Web) -> None:
    with pytest.raises(ThrottledError) as raised:
        web.fetch("/busy/1/17/3")
    assert raised.value.wait == 17
    assert web.fetch("/busy/1/17/3").http_status == 200


def test_redirects_are_followed_up_to_the_limit(web: Web) -> None:
    result = web.fetch("/redirect/5/9", max_redirects=5)
    assert (result.final_url, web.stored()) == (f"{web.url}/page/9", page_body(9))
    with pytest.raises(PermanentError, match="redirected more than 4 times"):
        web.fetch("/redirect/5/9", max_redirects=4)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "gopher://127.0.0.1:6379/_", "javascript:alert(1)"])
def test_a_redirect_to_another_protocol_is_refused(web: Web, target: str) -> None:
    with pytest.raises(PermanentError, match="cannot be fetched"):
        web.fetch(f"/redirect-to?{target}")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://site.example/", "http://", "site.example/", "http://[::1/"]
)
def test_a_url_that_is_not_a_web_address_is_a_permanent_error(web: Web, url: str) -> None:
    with pytest.raises(PermanentError, match="cannot be fetched"):
        web.fetch(url)


def test_without_the_opt_out_a_site_on_loopback_is_refused_before_the_first_request(web: Web) -> None:
    web.allow_private = False
    with pytest.raises(RefusedAddressError, match=r"loopback.* `prismline up --set URLS_ALLOW_PRIVATE=true`"):
        web.fetch("/page/1")
    assert web.site.counts == {}


def test_a_cookie_of_the_site_is_not_sent_back(web: Web) -> None:
    web.fetch_all(["/cookie"] * 20, [f"c{n}" for n in range(20)])
    assert {web.stored(f"c{n}") for n in range(20)} == {b"none"}


def test_if_two_workers_fetch_one_task_the_first_body_wins_and_both_describe_it(web: Web) -> None:
    first = web.fetch("/page/1")
    second = web.fetch("/page/2")
    assert (second.length, second.sha256) == (first.length, first.sha256)
    assert web.stored() == page_body(1)


def test_a_large_body_does_not_replace_a_stored_one(web: Web) -> None:
    first = web.fetch("/page/1")
    size = body_store.SMALL_BYTES + 1
    second = web.fetch(f"/huge/{size}")
    assert hashlib.sha256(web.stored()).hexdigest() == second.sha256
    assert second.sha256 in {first.sha256, hashlib.sha256(bytes(size)).hexdigest()}


class CountingS3:
    """S3 that counts the multipart uploads that are open at the same time."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3
        self._lock = threading.Lock()
        self._open = self.most = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._s3, name)

        def counted(**arguments: Any) -> Any:
            with self._lock:
                self._open += name == "create_multipart_upload"
                self.most = max(self.most, self._open)
            try:
                return call(**arguments)
            finally:
                with self._lock:
                    self._open -= name in {"complete_multipart_upload", "abort_multipart_upload"}

        return counted


def test_only_some_large_bodies_are_in_memory_at_a_time(web: Web) -> None:
    size, s3 = body_store.SMALL_BYTES + 1, CountingS3(web.s3)
    web.s3 = s3
    results = web.fetch_all([f"/huge/{size}"] * 20, [f"h{n}" for n in range(20)])
    assert [result.length for result in results] == [size] * 20
    assert 1 < s3.most <= body_store.LARGE_AT_A_TIME


def test_an_outage_of_s3_is_not_the_sites_fault(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    web.s3, working = clients.s3(), web.s3
    with pytest.raises(UnavailableError, match="Could not write s3://"):
        web.fetch("/page/1")
    web.s3 = working


def test_every_error_is_of_one_of_the_two_families(web: Web) -> None:
    for path in ("/status/404", "/status/500", "/cut/63", "/busy/9/1/1", "http://[::1/", "/huge/99999999"):
        with pytest.raises(PrismlineError):
            web.fetch(path)
