from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from model_server import JPEG, PNG, ModelServer, Reply, completion, model_server

from prismline_runtime import PermanentError, ResourceUnavailableError, TransientError, UnavailableError
from prismline_worker import caption_client
from prismline_worker.caption_client import Answer, CaptionClient


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr(caption_client, "exponential_wait", lambda state: 0.0)
    with model_server() as running:
        yield running


def ask(server: ModelServer, *frames: bytes, seconds: float = 60.0, **options: object) -> Answer:
    with httpx.Client() as http:
        client = CaptionClient(http, resource="gpu", **options)  # type: ignore[arg-type]
        return client.caption(server.url, frames or [PNG], "What is it?", 99, deadline=time.monotonic() + seconds)


def test_the_frames_are_sent_in_order_as_image_parts_with_the_prompt(server: ModelServer) -> None:
    assert ask(server, PNG, JPEG, api_key="s3cret") == Answer("A cat sits on a wall.", "vision-1")
    ((document, headers),) = server.requests
    assert (document["model"], document["max_tokens"]) == ("vision-1", 99)
    ((text, png, jpeg),) = [message["content"] for message in document["messages"]]
    assert text == {"type": "text", "text": "What is it?"}
    assert png["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert jpeg["image_url"]["url"] == f"data:image/jpeg;base64,{base64.b64encode(JPEG).decode()}"
    assert headers["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_request_to_a_busy_or_failing_server_is_retried_a_few_times(server: ModelServer, status: int) -> None:
    server.replies.extend([Reply(status)] * 2)
    assert ask(server).caption
    server.replies.extend([Reply(status)] * 3)
    with pytest.raises(UnavailableError, match=f"answered {status}"):
        ask(server)
    assert len(server.requests) == 6


def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caption_client, "MAX_ANSWER_BYTES", 2**20)
    server.replies.append(Reply(body=completion("cat " * 2**20)))
    with pytest.raises(TransientError, match="answer is larger than 1 MiB"):
        ask(server)


def test_a_server_that_answers_5xx_is_a_resource_that_is_down(server: ModelServer) -> None:
    server.replies.append(Reply(503))
    with pytest.raises(ResourceUnavailableError, match="answered 503") as caught:
        ask(server, tries=1)
    assert caught.value.resource == "gpu"


def test_an_overloaded_server_is_up_and_its_retry_after_is_passed_on(server: ModelServer) -> None:
    server.replies.append(Reply(429, headers={"Retry-After": "77"}))
    with pytest.raises(UnavailableError, match="answered 429") as caught:
        ask(server, tries=1)
    assert not isinstance(caught.value, ResourceUnavailableError)
    assert caught.value.retry_after == 77
    server.replies.append(Reply(429, headers={"Retry-After": "99999"}))
    with pytest.raises(UnavailableError) as caught:
        ask(server, tries=1)
    assert caught.value.retry_after == 900


def test_a_server_that_serves_no_model_is_down(server: ModelServer) -> None:
    server.models = Reply(body={"data": []})
    with pytest.raises(ResourceUnavailableError, match="serves no model"):
        ask(server)


def test_the_client_waits_as_long_as_the_server_asks(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caption_client, "exponential_wait", lambda state: 60.0)
    server.replies.append(Reply(429, headers={"Retry-After": "1"}))
    began = time.monotonic()
    ask(server)
    assert 1.0 <= time.monotonic() - began < 30.0


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_request_is_a_permanent_error_with_the_reason(server: ModelServer, status: int) -> None:
    server.replies.append(Reply(status, {"error": {"message": "cannot decode image"}}))
    with pytest.raises(PermanentError, match="cannot decode image"):
        ask(server)
    assert len(server.requests) == 1


def test_a_refusal_whose_reason_is_nested_too_deep_has_no_reason(server: ModelServer) -> None:
    server.replies.append(Reply(400, b"[" * 100_000))
    with pytest.raises(PermanentError, match="it gave no reason"):
        ask(server)


def test_an_answer_with_a_header_that_is_not_ascii_is_read(server: ModelServer) -> None:
    server.replies.append(Reply(headers={"X-Server": "caf\u00e9"}))
    assert ask(server).caption == "A cat sits on a wall."


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_misconfigured_server_fails_no_chunk(server: ModelServer, status: int) -> None:
    server.replies.append(Reply(status))
    with pytest.raises(TransientError, match="check its address, model and key"):
        ask(server)


@pytest.mark.parametrize(
    "body",
    [
        completion(""),
        completion(" \n"),
        completion(None),
        completion(7),
        {"model": "m", "choices": []},
        b"<html>",
        [],
        {},
    ],
)
def test_an_answer_without_a_caption_is_an_error(server: ModelServer, body: object) -> None:
    server.replies.append(Reply(200, body))
    with pytest.raises(TransientError, match="caption") as caught:
        ask(server)
    assert not isinstance(caught.value, UnavailableError), "the model is up, so the attempt counts"


def test_a_server_that_is_gone_is_a_resource_that_is_down_and_the_error_hides_its_address() -> None:
    with model_server() as gone:
        pass
    with pytest.raises(ResourceUnavailableError, match="could not be reached: ConnectError") as caught:
        ask(gone, tries=1)
    assert "127.0.0.1" not in str(caught.value)


def test_a_server_that_does_not_answer_in_time_is_a_resource_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute_server = ModelServer(f"http://127.0.0.1:{mute.getsockname()[1]}/v1")
        with pytest.raises(ResourceUnavailableError, match="could not be reached: ReadTimeout"):
            ask(mute_server, tries=1, timeout_seconds=0.2)


@pytest.mark.parametrize("status", [200, 401, 404, 429])
def test_a_server_that_answers_is_up_whatever_the_status(server: ModelServer, status: int) -> None:
    server.models = Reply(status)
    with httpx.Client() as http:
        CaptionClient(http, resource="gpu").require(server.url)
    assert (server.looks, server.requests) == (1, [])


def test_a_server_is_probed_twice_before_it_counts_as_down(server: ModelServer) -> None:
    server.models = Reply(502)
    with httpx.Client() as http, pytest.raises(ResourceUnavailableError, match="answered 502"):
        CaptionClient(http, resource="gpu").require(server.url)
    assert server.looks == 2


def test_the_client_never_waits_past_the_deadline(server: ModelServer) -> None:
    with pytest.raises(TransientError, match="no time left"):
        ask(server, seconds=-1)
    server.replies.append(Reply(429, headers={"Retry-After": "20"}))
    began = time.monotonic()
    with pytest.raises(TransientError, match="answered 429"):
        ask(server, seconds=5)
    assert time.monotonic() - began < 5


def test_a_frame_that_is_not_an_image_is_a_permanent_error(server: ModelServer) -> None:
    with pytest.raises(PermanentError, match="neither PNG nor JPEG"):
        ask(server, b"GIF89a")
    assert not server.requests
