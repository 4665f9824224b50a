"""The GPU's stand-in answers requests of clients of an OpenAI-compatible server."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from PIL import Image

from prismline_emulator.endpoints import listen, url_of
from prismline_localstack.standins import gpu


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of the stand-in."""
    with listen() as listener:
        server = uvicorn.Server(uvicorn.Config(gpu.create_app(), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield url_of(listener)
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False) as client:
        yield client
        client.post("/_standin/faults", json={"times": 0})


def image(colour: str, size: tuple[int, int] = (8, 4), kind: str = "PNG") -> str:
    """A data URL of an image of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def request(*urls: str, **fields: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [{"type": "text", "text": "What is this?"}, *parts]
    return {"model": gpu.MODEL, "messages": [{"role": "user", "content": content}], **fields}


def caption(client: httpx.Client, *urls: str) -> str:
    answer = client.post("/v1/chat/completions", json=request(*urls))
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("header", [{"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "same-site"}])
def test_a_web_page_sets_no_fault(client: httpx.Client, header: dict[str, str]) -> None:
    assert client.post("/_standin/faults", json={"status": 500}, headers=header).status_code == 403
    assert client.post("/v1/chat/completions", json=request(image("red"))).status_code == 200


def test_it_is_healthy_and_names_its_model(client: httpx.Client) -> None:
    assert client.get("/health").status_code == 200
    models = client.get("/v1/models").json()
    assert (models["object"], [model["id"] for model in models["data"]]) == ("list", [gpu.MODEL])


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        ([image("#ff0000")], "1 frame of 8 x 4 pixels, mostly red (#ff0000), brightness 30 %."),
        (
            [image("black", (3, 5)), image("white", (3, 5))],
            "2 frames of 3 x 5 pixels, mostly gray (#808080), brightness 50 %, brighter by 100 % in the end.",
        ),
        (
            [image("white"), image("#cccccc")],
            "2 frames of 8 x 4 pixels, mostly white (#e6e6e6), brightness 90 %, darker by 20 % in the end.",
        ),
        (
            [image("blue"), image("red"), image("blue")],
            "3 frames of 8 x 4 pixels, mostly purple (#5500aa), brightness 18 %, steady.",
        ),
        (
            [image("lime", (2, 2)), image("lime", (6, 2))],
            "2 frames of 2 x 2, 6 x 2 pixels, mostly green (#00ff00), brightness 59 %, steady.",
        ),
    ],
)
def test_the_caption_describes_the_images_of_the_request(client: httpx.Client, urls: list[str], message: str) -> None:
    assert caption(client, *urls) == message


@pytest.mark.parametrize(
    ("colour", "name"),
    [
        ("#ff0000", "red"),
        ("#c81e46", "red"),
        ("#ff8c00", "orange"),
        ("#ffff00", "yellow"),
        ("#006400", "green"),
        ("#00ffff", "cyan"),
        ("#4467b6", "blue"),
        ("#800080", "purple"),
        ("#ff69b4", "pink"),
        ("#050505", "black"),
        ("#708090", "gray"),
        ("#fffafa", "white"),
    ],
)
def test_a_colour_has_its_common_name(client: httpx.Client, colour: str, name: str) -> None:
    assert f"mostly {name} ({colour})" in caption(client, image(colour))


def test_the_mean_counts_pixels_not_frames(client: httpx.Client) -> None:
    assert "(#404040)" in caption(client, image("white", (5, 5)), image("black", (15, 5)))


def test_a_jpeg_is_read_as_well(client: httpx.Client) -> None:
    assert "of 16 x 16 pixels, mostly orange" in caption(client, image("orange", (16, 16), "JPEG"))


def test_a_caption_is_a_chat_completion(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=request(image("red"))).json()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == gpu.MODEL
    [choice] = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    words = len(choice["message"]["content"].split())
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": words, "total_tokens": 3 + words}


def test_a_caption_is_no_longer_than_requested(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=request(image("red"), max_tokens=3)).json()
    [choice] = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("1 frame of", "length")


WHOLE = image("red", (64, 64))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (request("data:image/png;base64,AAAA"), "cannot be decoded"),
        (request("data:image/png;base64,*"), "cannot be decoded"),
        (request(WHOLE[:-40]), "cannot be decoded"),
        (request("http://127.0.0.1:9/image.png"), "only data URLs"),
        (request(), "Between 1 and 256 images are needed, 0 were sent"),
        (request(*[image("red")] * 257), "257 were sent"),
        (request(WHOLE, stream=True), "does not stream"),
        (request(WHOLE, max_tokens=0), "max_tokens"),
        ({"model": gpu.MODEL}, "messages: Field required"),
        ({"model": gpu.MODEL, "messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages.0.content"),
        ([], "body: "),
    ],
)
def test_an_invalid_request_gets_an_error_in_the_form_of_openai(client: httpx.Client, body: Any, message: str) -> None:
    answer = client.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (400, 400, "BadRequestError")
    assert message in error["message"]


def test_an_image_that_would_fill_the_memory_is_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MAX_PIXELS", 4095)
    answer = client.post("/v1/chat/completions", json=request(WHOLE))
    assert answer.status_code == 400
    assert "64 x 64 pixels are too many" in answer.json()["error"]["message"]


def test_a_model_that_is_not_served_is_not_found(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=request(WHOLE) | {"model": "other"})
    assert answer.status_code == 404
    assert answer.json() == {
        "error": {
            "message": "The model `other` does not exist.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }
    }


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe"])
def test_a_body_that_is_not_json_is_a_bad_request(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/v1/chat/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestError")


def test_a_body_that_is_too_large_is_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MAX_BODY_BYTES", 1000)
    answer = client.post("/v1/chat/completions", content=b"x" * 1001)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, 413)


def test_a_fault_occurs_the_given_number_of_times(client: httpx.Client) -> None:
    assert client.post("/_standin/faults", json={"status": 500, "times": 2}).status_code == 200
    codes = [client.post("/v1/chat/completions", json=request(WHOLE)).status_code for _ in range(3)]
    assert codes == [500, 500, 200]


def test_a_busy_server_answers_with_retry_after(client: httpx.Client) -> None:
    client.post("/_standin/faults", json={"status": 429, "retry_after": 7})
    answer = client.post("/v1/chat/completions", json=request(WHOLE))
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.json()["error"]["code"] == 429


def test_a_caption_can_be_empty(client: httpx.Client) -> None:
    client.post("/_standin/faults", json={"empty_caption": True})
    assert caption(client, WHOLE) == ""
    assert caption(client, WHOLE) != ""


def test_an_answer_can_be_late(client: httpx.Client) -> None:
    client.post("/_standin/faults", json={"delay_seconds": 0.2})
    began = time.monotonic()
    assert caption(client, WHOLE)
    assert time.monotonic() - began >= 0.2


def test_a_new_fault_replaces_the_last_one_and_times_0_ends_it(client: httpx.Client) -> None:
    client.post("/_standin/faults", json={"status": 500, "times": 1000})
    client.post("/_standin/faults", json={"status": 503, "times": 1000})
    assert client.post("/v1/chat/completions", json=request(WHOLE)).status_code == 503
    client.post("/_standin/faults", json={"times": 0})
    assert caption(client, WHOLE)


@pytest.mark.parametrize("fault", [{"status": 200}, {"sttaus": 500}, {"times": -1}, {"delay_seconds": -1}])
def test_an_invalid_fault_is_refused(client: httpx.Client, fault: dict[str, Any]) -> None:
    assert client.post("/_standin/faults", json=fault).status_code == 422
    assert caption(client, WHOLE)
