"""Posts to a target and returns the result. Users submit targets, so they have the same protection as URLs of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import httpx

from prismline_web import RefusedAddressError, unusable
from prismline_webhooks.retrying import Answer

#: What to do about an address that is not public.
ADVICE = "The service posts to it with WEBHOOK_ALLOW_PRIVATE=true: on a laptop, `up --set WEBHOOK_ALLOW_PRIVATE=true`."


class Poster:
    """Posts, with a new client for each post, within `seconds`.

    The limit is for the whole post, so a target that sends one byte per second cannot block the process.
    """

    def __init__(self, client: Callable[[], httpx.AsyncClient], seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post `body`. Redirects are not followed, and the body of the answer is not read."""
        reason = unusable(url)
        if reason is not None:
            return Answer(error=f"The target's URL cannot be requested: {reason}.", final=True)
        try:
            return asyncio.run(asyncio.wait_for(self._post(url, body, headers), self._seconds))
        except TimeoutError:
            return Answer(error=f"The target did not answer within {self._seconds:g} s.")
        except RefusedAddressError as error:
            return Answer(error=f"{error} {ADVICE}", final=True)
        except (httpx.TransportError, httpx.InvalidURL) as error:  # a redirect may name such a URL
            return Answer(error=f"The target cannot be reached: {type(error).__name__}.")

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        async with (
            self._client() as client,
            client.stream("POST", url, content=body, headers=headers, follow_redirects=False) as answer,
        ):
            wait = answer.headers.get("Retry-After", "")
            return Answer(answer.status_code, retry_after=int(wait) if wait.isdecimal() and len(wait) < 8 else None)
