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

from prismline_runtime import PermanentError, TransientError, describe_invalid

#: Seconds until a connection has to stand.
CONNECT_SECONDS = 5.0
#: Waits between two tries, seconds: they grow from the first to the last, with jitter; what the server asks for goes
#: before, up to the longest.
FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS, LONGEST_ASKED_SECONDS = 0.5, 5.0, 20.0
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


class _BusyError(TransientError):
    """The server could not answer now."""


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

    `model` None: the first model that the server says it serves, asked again for each caption, because a server that
    was replaced may serve another.
    """

    def __init__(
        self,
        http: httpx.Client,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 60.0,
        tries: int = 3,
    ) -> None:
        self._http = http
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_seconds = timeout_seconds
        self._tries = tries

    def caption(
        self, base_url: str, frames: Sequence[bytes], prompt: str, max_tokens: int, *, deadline: float
    ) -> Answer:
        """What the model at `base_url` (ends in `/v1`) says of `frames`, PNG or JPEG images in order.

        No wait goes on past `deadline` (`time.monotonic` seconds). Raises PermanentError if the request itself is
        refused, and TransientError if there is no answer, or none with a caption in it.
        """
        content: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        content += [{"type": "image_url", "image_url": {"url": _data_url(frame)}} for frame in frames]
        document = {
            "model": self._model or self._first_model(base_url, deadline),
            "messages": [{"role": "user", "content": content}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        completion = self._call("POST", f"{base_url}/chat/completions", _Completion, deadline, document)
        caption = (completion.choices[0].message.content or "").strip() if completion.choices else ""
        if not caption:
            raise TransientError("The caption model answered without a caption.")
        return Answer(caption, completion.model)

    def _first_model(self, base_url: str, deadline: float) -> str:
        models = self._call("GET", f"{base_url}/models", _Models, deadline).data
        if not models:
            raise TransientError("The caption server serves no model.")
        return models[0].id

    def _call(self, method: str, url: str, model: type[T], deadline: float, document: Any = None) -> T:
        for attempt in Retrying(
            retry=retry_if_exception_type(_BusyError),
            wait=_wait,
            stop=stop_after_attempt(self._tries) | stop_before_delay(max(0.0, deadline - time.monotonic())),
            reraise=True,
        ):
            with attempt:
                return self._ask(method, url, model, deadline, document)
        raise AssertionError("unreachable: Retrying returns or raises")

    def _ask(self, method: str, url: str, model: type[T], deadline: float, document: Any) -> T:
        seconds = min(self._timeout_seconds, deadline - time.monotonic())
        if seconds <= 0:
            raise TransientError("There was no time left to ask the caption model.")
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        try:
            answer = self._http.request(method, url, json=document, headers=self._headers, timeout=timeout)
        except httpx.TransportError as error:
            raise _BusyError(f"The caption model could not be reached: {type(error).__name__}.") from error
        status = answer.status_code
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise _BusyError(f"The caption model answered {status}.", retry_after=_asked_wait(answer))
        if status in REFUSED:
            raise PermanentError(f"The caption model refused the request with {status}: {_reason(answer)}.")
        if status != httpx.codes.OK:
            raise TransientError(f"The caption server answered {status}; check its address, model and key.")
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
    """The `Retry-After` of an answer in whole seconds, where it has one."""
    value = answer.headers.get("retry-after", "")
    return int(value) if value.isdecimal() else None


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
