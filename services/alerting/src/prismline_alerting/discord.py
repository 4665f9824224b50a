"""Posts messages to Discord's webhook, and maps every error to the permanent or the transient family.

The webhook's URL is a secret. httpx includes URLs in its errors and logs, so neither may leave this module.
Source: Discord's developer documentation, "Execute Webhook" and "Rate Limits".
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_before_delay, wait_random_exponential

from prismline_runtime import PermanentError, TransientError

#: Timeout of one request, in seconds.
ANSWER_SECONDS = 5.0
#: Longest wait, in seconds, that a `Retry-After` of Discord can cause.
MAX_RETRY_AFTER_SECONDS = 3600

_backoff = wait_random_exponential(multiplier=0.5, max=5.0)


def quiet_http_logs() -> None:
    """Stop httpx and httpcore from logging URLs."""
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


class Webhook:
    """Posts messages to a webhook, with retries."""

    def __init__(self, http: httpx.Client, patience_seconds: float) -> None:
        self._http = http
        self._patience = patience_seconds

    def post(self, url: str, message: Mapping[str, Any]) -> None:
        """Post a message and wait until Discord has accepted it.

        Raises TransientError if Discord does not accept it in time, with the wait of a `Retry-After`, and
        PermanentError if Discord refuses it.
        """
        for attempt in Retrying(
            retry=retry_if_exception_type(TransientError),
            wait=_wait,
            stop=stop_before_delay(self._patience),
            reraise=True,
        ):
            with attempt:
                self._post_once(url, message)

    def _post_once(self, url: str, message: Mapping[str, Any]) -> None:
        try:
            target = httpx.URL(url).copy_merge_params({"wait": "true"})
            with self._http.stream("POST", target, json=message, timeout=ANSWER_SECONDS) as answer:
                if answer.is_success:
                    return
                answer.read()
        except httpx.DecodingError as error:
            raise TransientError(f"Discord's answer cannot be read: {type(error).__name__}.") from None
        except httpx.TransportError as error:
            if isinstance(error, httpx.UnsupportedProtocol):
                raise PermanentError(_BAD_URL) from None
            raise TransientError(f"Discord cannot be reached: {type(error).__name__}.") from None
        except (httpx.InvalidURL, TypeError, ValueError):
            raise PermanentError(_BAD_URL) from None
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise TransientError("Discord limits our rate.", retry_after=_retry_after(answer))
        if answer.is_server_error:
            raise TransientError(f"Discord answered {answer.status_code}.")
        raise PermanentError(f"Discord refused the alert: {answer.status_code}, {_reason(answer)}. {_CHECK}")


_CHECK = "Check the webhook that DISCORD_WEBHOOK_URL or the parameter alerts/webhook_url names."
_BAD_URL = f"The webhook's address is not an http or https URL. {_CHECK}"


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, TransientError) and error.retry_after is not None:
        return float(error.retry_after)
    return float(_backoff(state))


def _retry_after(answer: httpx.Response) -> int:
    """The wait that Discord asks for, in whole seconds. The body is more exact than the header."""
    for asked in (_document(answer).get("retry_after"), answer.headers.get("Retry-After")):
        try:
            seconds = float(str(asked))
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return min(math.ceil(seconds), MAX_RETRY_AFTER_SECONDS)
    return 1


def _reason(answer: httpx.Response) -> str:
    """Discord's error message."""
    document = _document(answer)
    return f"{str(document.get('message', 'no reason given'))[:200]} (code {document.get('code', 'none')})"


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
