"""Asking a vision model for a caption, through the chat-completions API that vLLM and its like share with OpenAI's.

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

#: Seconds until a connection has to stand.
CONNECT_SECONDS = 5.0
#: Waits between two tries, seconds: they grow from the first to the last, with jitter; what the server asks for goes
#: before, up to the longest.
FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS, LONGEST_ASKED_SECONDS = 0.5, 5.0, 20.0
#: Longest time in seconds that a message is put off because the server asked for it.
LONGEST_POSTPONED_SECONDS = 900
#: Longest wait, seconds, for the list of models, and how often it is asked for, before the model counts as down.
PROBE_SECONDS, PROBE_TRIES = 5.0, 2
#: Answers that say this very request is wrong: the same frames and prompt will be refused again.
REFUSED = frozenset({400, 413, 415, 422})
#: How images begin that the API takes.
_MEDIA_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Answer:
    """A caption, and the model that gave it."""

    caption: str
    model: str


class _BusyError(UnavailableError):
    """The server has too much to do now."""


class _DownError(ResourceUnavailableError):
    """The server did not answer, or answered that it cannot serve."""


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
    """Asks for captions. Made once, with an HTTP client that keeps its connections.

    A server that cannot be reached, does not answer in time, answers 5xx or serves no model is a
    ResourceUnavailableError of `resource`: the model is down, whatever the instance under it says.

    `model` None: the first model that the server says it serves, asked again for each caption, because a server that
    was replaced may serve another.
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
        """What the model at `base_url` (ends in `/v1`) says of `frames`, PNG or JPEG images in order.

        No wait goes on past `deadline` (`time.monotonic` seconds). Raises PermanentError if the request itself is
        refused, ResourceUnavailableError if the model is down, UnavailableError if it has too much to do (429), and
        TransientError if there is no caption in its answer.
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
        """Raises ResourceUnavailableError unless the server at `base_url` answers, whatever it says."""
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
        """An answer that is not an error, asked for a few times while the server is busy or down."""
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
        """Whatever the server answers, unless that says that it cannot serve."""
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        try:
            answer = self._http.request(method, url, json=document, headers=self._headers, timeout=timeout)
        except httpx.TransportError as error:
            raise self._down(f"could not be reached: {type(error).__name__}") from error
        except httpx.RequestError as error:
            raise TransientError(f"The caption model's answer could not be read: {type(error).__name__}.") from error
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            down = self._down(f"answered {answer.status_code}")
            down.retry_after = _asked_wait(answer)
            raise down
        return answer

    def _down(self, what: str) -> _DownError:
        return _DownError(f"The caption model {what}.", resource=self._resource)


def _read(answer: httpx.Response, model: type[T]) -> T:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise TransientError(f"The caption model's answer is not valid: {describe_invalid(error)}.") from error


_exponential = wait_random_exponential(FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS)


def _wait(state: RetryCallState) -> float:
    """What the server asked for, or else exponentially more with jitter."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, TransientError) else None
    return _exponential(state) if asked is None else min(asked, LONGEST_ASKED_SECONDS)


def _asked_wait(answer: httpx.Response) -> int | None:
    """The `Retry-After` of an answer in whole seconds, where it has one that makes sense."""
    value = answer.headers.get("retry-after", "")
    return min(int(value), LONGEST_POSTPONED_SECONDS) if value.isdecimal() and len(value) < 10 else None


def _reason(answer: httpx.Response) -> str:
    """What the server says is wrong, as far as it says it the way the API does."""
    try:
        return str(answer.json()["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return "it does not say why"


def _data_url(frame: bytes) -> str:
    for beginning, media_type in _MEDIA_TYPES.items():
        if frame.startswith(beginning):
            return f"data:{media_type};base64,{base64.b64encode(frame).decode()}"
    raise PermanentError("A frame is neither PNG nor JPEG.")
