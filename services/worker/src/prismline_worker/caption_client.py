"""The client of the caption model: a vision model behind the chat-completions API of OpenAI, as vLLM serves it.

API reference: https://platform.openai.com/docs/api-reference/chat and https://docs.vllm.ai (OpenAI-compatible server).
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from prismline_runtime import (
    PermanentError,
    ResourceUnavailableError,
    TransientError,
    UnavailableError,
    describe_invalid,
)

#: Timeout of a connection, in seconds.
CONNECT_SECONDS = 5.0
#: Waits between two tries, in seconds. They grow exponentially from the first to the last, with jitter. A `Retry-After`
#: of the server replaces them, up to `LONGEST_ASKED_SECONDS`.
FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS, LONGEST_ASKED_SECONDS = 0.5, 5.0, 20.0
#: Longest time, in seconds, that a message is postponed because of a `Retry-After`.
LONGEST_POSTPONED_SECONDS = 900
#: Largest answer of the model, in bytes. A caption has a few kilobytes.
MAX_ANSWER_BYTES = 4 * 2**20
#: Timeout, in seconds, of one request of the health probe, and its number of tries.
PROBE_SECONDS, PROBE_TRIES = 5.0, 2
#: Status codes that blame the request. The server would refuse the same frames and prompt again.
REFUSED = frozenset({400, 413, 415, 422})
#: Media types that the API accepts, by the first bytes of an image.
_MEDIA_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Answer:
    """A caption, and the name of the model that wrote it."""

    caption: str
    model: str


class _BusyError(UnavailableError):
    """The server is overloaded (429)."""


class _DownError(ResourceUnavailableError):
    """The server did not answer, or answered with 5xx."""


class _Message(BaseModel):
    content: str | None


class _Choice(BaseModel):
    message: _Message


class _Completion(BaseModel):
    model: str
    choices: list[_Choice]


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


class CaptionClient:
    """Requests captions. One client serves a whole process, because its HTTP client keeps connections open.

    The model counts as down if its server cannot be reached, does not answer in time, answers 5xx or serves no model,
    even if the instance itself is running. The client then raises ResourceUnavailableError for `resource`.

    model: the model's name. None: the first model in the server's list. The list is read for each caption, because a
    replaced server may serve another model.
    """

    def __init__(
        self,
        http: httpx.Client,
        *,
        resource: str,
        model: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 60.0,
        tries: int = 3,
    ) -> None:
        self._http = http
        self._resource = resource
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_seconds = timeout_seconds
        self._tries = tries

    def caption(
        self, base_url: str, frames: Sequence[bytes], prompt: str, max_tokens: int, *, deadline: float
    ) -> Answer:
        """Request a caption of `frames`, PNG or JPEG images in order, from the model at `base_url` (ends in `/v1`).

        No request and no wait lasts beyond `deadline` (`time.monotonic` seconds). Raises PermanentError if the server
        refuses the request itself, ResourceUnavailableError if the model is down, UnavailableError if the server is
        overloaded (429), and TransientError if the answer contains no caption.
        """
        content: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        content += [{"type": "image_url", "image_url": {"url": _data_url(frame)}} for frame in frames]
        document = {
            "model": self._model or self._first_model(base_url, deadline),
            "messages": [{"role": "user", "content": content}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        asked = self._call("POST", f"{base_url}/chat/completions", deadline, document)
        completion = _read(asked, _Completion)
        caption = (completion.choices[0].message.content or "").strip() if completion.choices else ""
        if not caption:
            raise TransientError("The caption model answered without a caption.")
        return Answer(caption, completion.model)

    def require(self, base_url: str) -> None:
        """Raise ResourceUnavailableError if the server at `base_url` does not answer or answers with 5xx."""
        deadline = time.monotonic() + PROBE_TRIES * PROBE_SECONDS
        for attempt in self._retrying(_DownError, PROBE_TRIES, deadline):
            with attempt:
                self._request("GET", f"{base_url}/models", PROBE_SECONDS)

    def _first_model(self, base_url: str, deadline: float) -> str:
        models = _read(self._call("GET", f"{base_url}/models", deadline), _Models).data
        if not models:
            raise ResourceUnavailableError("The caption server serves no model.", resource=self._resource)
        return models[0].id

    def _call(self, method: str, url: str, deadline: float, document: Any = None) -> httpx.Response:
        """Send a request and return the answer. Retry while the server is overloaded or down."""
        for attempt in self._retrying((_BusyError, _DownError), self._tries, deadline):
            with attempt:
                return self._ask(method, url, deadline, document)
        raise AssertionError("unreachable: Retrying returns or raises")

    @staticmethod
    def _retrying(errors: type[Exception] | tuple[type[Exception], ...], tries: int, deadline: float) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(errors),
            wait=_wait,
            stop=stop_after_attempt(tries) | stop_before_delay(max(0.0, deadline - time.monotonic())),
            reraise=True,
        )

    def _ask(self, method: str, url: str, deadline: float, document: Any) -> httpx.Response:
        seconds = min(self._timeout_seconds, deadline - time.monotonic())
        if seconds <= 0:
            raise TransientError("There was no time left to ask the caption model.")
        answer = self._request(method, url, seconds, document)
        status = answer.status_code
        if status == httpx.codes.TOO_MANY_REQUESTS:
            raise _BusyError(f"The caption model answered {status}.", retry_after=_asked_wait(answer))
        if status in REFUSED:
            raise PermanentError(f"The caption model refused the request with {status}: {_reason(answer)}.")
        if status != httpx.codes.OK:
            raise TransientError(f"The caption server answered {status}; check its address, model and key.")
        return answer

    def _request(self, method: str, url: str, seconds: float, document: Any = None) -> httpx.Response:
        """Send one request and return the answer. An answer of 5xx, or none, raises _DownError."""
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        try:
            with self._http.stream(method, url, json=document, headers=self._headers, timeout=timeout) as streamed:
                answer = _whole(streamed)
        except httpx.TransportError as error:
            raise self._down(f"could not be reached: {type(error).__name__}") from error
        except (httpx.RequestError, httpx.InvalidURL) as error:  # a redirect may name such a URL
            raise TransientError(f"The caption model's answer could not be read: {type(error).__name__}.") from error
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            down = self._down(f"answered {answer.status_code}")
            down.retry_after = _asked_wait(answer)
            raise down
        return answer

    def _down(self, what: str) -> _DownError:
        return _DownError(f"The caption model {what}.", resource=self._resource)


def _whole(streamed: httpx.Response) -> httpx.Response:
    """Read the body of an answer. Raises TransientError if the body is larger than `MAX_ANSWER_BYTES`."""
    body = bytearray()
    for part in streamed.iter_bytes():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise TransientError(f"The caption model's answer is larger than {MAX_ANSWER_BYTES >> 20} MiB.")
    headers = [(name, value) for name, value in streamed.headers.raw if name.lower() != b"content-encoding"]
    return httpx.Response(streamed.status_code, headers=headers, content=bytes(body))


def _read(answer: httpx.Response, model: type[T]) -> T:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise TransientError(f"The caption model's answer is not valid: {describe_invalid(error)}.") from error


#: How long to wait before the next try if the server does not say.
exponential_wait = wait_random_exponential(FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS)


def _wait(state: RetryCallState) -> float:
    """Seconds until the next try: the server's `Retry-After`, or else exponential backoff with jitter."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, TransientError) else None
    return exponential_wait(state) if asked is None else min(asked, LONGEST_ASKED_SECONDS)


def _asked_wait(answer: httpx.Response) -> int | None:
    """The `Retry-After` of an answer in seconds. None if it is absent or is not a number of seconds."""
    value = answer.headers.get("retry-after", "")
    return min(int(value), LONGEST_POSTPONED_SECONDS) if value.isdecimal() and len(value) < 10 else None


def _reason(answer: httpx.Response) -> str:
    """The error message in the format of the API, if the answer has one."""
    try:
        return str(answer.json()["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it gave no reason"


def _data_url(frame: bytes) -> str:
    for beginning, media_type in _MEDIA_TYPES.items():
        if frame.startswith(beginning):
            return f"data:{media_type};base64,{base64.b64encode(frame).decode()}"
    raise PermanentError("A frame is neither PNG nor JPEG.")
