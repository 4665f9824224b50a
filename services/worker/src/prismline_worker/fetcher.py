"""Fetches one URL: bounded in time, redirects and bytes, with its body streamed to S3.

Bodies are stored as the site sent them. The worker asks for no compression, so nothing has to be unpacked, and a small
answer cannot become a large one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import httpx

from prismline_contracts.base import now
from prismline_contracts.tasks import TaskResult, UrlParams
from prismline_runtime import PermanentError, TransientError
from prismline_web import RefusedAddressError
from prismline_worker.body_store import BodyStore, TooLongError
from prismline_worker.fetch_decisions import check_status

#: Longest header value that is kept, in characters. The rest is cut off.
MAX_HEADER_CHARS = 1024
#: Headers of every request. If a site compresses nevertheless, its `content-encoding` is kept with the result.
HEADERS = {"accept": "*/*", "accept-encoding": "identity"}
#: What to do about an address that is not public.
ADVICE = "Workers fetch it with URLS_ALLOW_PRIVATE=true: on a laptop, `prismline up --set URLS_ALLOW_PRIVATE=true`."


class Fetcher:
    """Fetches URLs with one HTTP client, which decides which addresses may be reached (`prismline_web`)."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def fetch(self, url: str, params: UrlParams, store: BodyStore, key: str) -> TaskResult:
        """Fetch `url` and store its body under `key`.

        Raises PermanentError if the URL is refused, the site refuses the request, or a limit of `params` is exceeded;
        ThrottledError if the site wants fewer requests; UnavailableError if S3 does not answer; and another
        TransientError if the site fails in a way that may pass.
        """
        try:
            async with asyncio.timeout(params.timeout_s):
                return await self._follow(url, params, store, key)
        except TimeoutError as error:
            raise TransientError(f"The site did not answer within {params.timeout_s:g} seconds.") from error
        except RefusedAddressError as error:
            raise RefusedAddressError(f"{error} {ADVICE}") from error
        except httpx.TimeoutException as error:
            raise TransientError(f"The site did not answer in time: {type(error).__name__}.") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError) as error:
            raise PermanentError(f"The URL cannot be fetched: {error}") from error
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise TransientError(f"The site could not be reached: {reason}") from error

    async def _follow(self, url: str, params: UrlParams, store: BodyStore, key: str) -> TaskResult:
        timeout = httpx.Timeout(params.timeout_s, connect=params.connect_timeout_s, pool=None)
        request = self._http.build_request("GET", url, headers=HEADERS, timeout=timeout)
        for _ in range(params.max_redirects + 1):
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                if response.next_request is None:
                    return await self._take(response, params, store, key)
                request = response.next_request
            finally:
                await response.aclose()
        raise PermanentError(f"The site redirected more than {params.max_redirects} times.")

    async def _take(self, response: httpx.Response, params: UrlParams, store: BodyStore, key: str) -> TaskResult:
        headers = response.headers
        check_status(response.status_code, headers.get("retry-after"), now())
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > params.max_body_bytes:
            raise TooLongError(f"The body of {declared} bytes is longer than {params.max_body_bytes}.")
        content_type = _cut(headers.get("content-type"))
        pieces: AsyncIterator[bytes] = response.aiter_raw()
        stored = await store.store(key, pieces, content_type=content_type, most_bytes=params.max_body_bytes)
        return TaskResult(
            key=key,
            http_status=response.status_code,
            content_type=content_type,
            length=stored.length,
            sha256=stored.sha256,
            final_url=str(response.url),
            headers=kept_headers(headers, params.keep_headers),
        )


def kept_headers(headers: Mapping[str, str], names: list[str]) -> dict[str, str]:
    """The headers among `names` that a response has, and its `content-encoding`; names in lower case."""
    wanted = [name.lower() for name in [*names, "content-encoding"]]
    return {name: value for name in wanted if (value := _cut(headers.get(name))) is not None}


def _cut(value: str | None) -> str | None:
    return None if value is None else value[:MAX_HEADER_CHARS]
