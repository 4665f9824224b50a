"""Stand-in for the model server on the GPU: OpenAI-compatible chat completions with images, as vLLM serves them.

The caption describes the images of the request (frames, sizes, mean colour, brightness and its change), so a wrong
image gives a wrong caption. Requests are validated. Errors have the form of vLLM's `ErrorResponse`. The protocol:
https://docs.vllm.ai/en/v0.8.4/serving/openai_compatible_server.html

`POST /_standin/faults` makes the next requests for captions fail. A new fault replaces the last one:

    {"status": 500, "times": 3}
    {"status": 429, "retry_after": 1}
    {"empty_caption": true}
    {"delay_seconds": 10, "times": 1000}
"""

from __future__ import annotations

import asyncio
import base64
import colorsys
import io
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from PIL import Image, ImageStat
from pydantic import BaseModel, Field, ValidationError

from prismline_emulator.endpoints import is_from_page

#: The only model that is served.
MODEL = "prismline-standin"
#: Maximum number of images in one request, as vLLM's `--limit-mm-per-prompt`.
MAX_IMAGES = 256
#: Maximum number of pixels in one image. More is a decompression bomb.
MAX_PIXELS = 2**25
#: Maximum size of the body of a request, in bytes.
MAX_BODY_BYTES = 2**27
#: Default maximum length of a caption in tokens. This server counts words as tokens.
MAX_TOKENS = 256
#: Names of hues, each up to a degree of the colour wheel.
HUES = {
    "red": 15,
    "orange": 45,
    "yellow": 70,
    "green": 165,
    "cyan": 200,
    "blue": 260,
    "purple": 310,
    "pink": 345,
}
#: Below this saturation a colour has no hue. Below and above these values it is black or white. All are 0 to 1.
GRAY_SATURATION, BLACK_VALUE, WHITE_VALUE = 0.25, 0.1, 0.85

#: Red, green and blue, 0 to 255.
Colour = tuple[float, ...]


class RequestRefusedError(Exception):
    """Refuses a request. The answer is an error with these fields."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param


class ImageUrl(BaseModel):
    """The URL of an image: always a data URL here."""

    url: str


class TextPart(BaseModel):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str


class ImagePart(BaseModel):
    """A part of a message that is an image."""

    type: Literal["image_url"]
    image_url: ImageUrl


class Message(BaseModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Annotated[TextPart | ImagePart, Field(discriminator="type")]]

    @property
    def parts(self) -> list[TextPart | ImagePart]:
        """The parts of the message. A plain text is one part."""
        return [TextPart(type="text", text=self.content)] if isinstance(self.content, str) else self.content


class ChatRequest(BaseModel):
    """The body of a request, with the fields that are used here."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool = False

    @property
    def most_words(self) -> int:
        """Maximum length of the caption, in words."""
        return self.max_completion_tokens or self.max_tokens or MAX_TOKENS

    @property
    def parts(self) -> Iterator[TextPart | ImagePart]:
        """The parts of all messages, in order."""
        for message in self.messages:
            yield from message.parts

    @property
    def images(self) -> list[str]:
        """The addresses of all images, in order."""
        return [part.image_url.url for part in self.parts if isinstance(part, ImagePart)]

    @property
    def text(self) -> str:
        """All text, in order."""
        return " ".join(part.text for part in self.parts if isinstance(part, TextPart))


class Fault(BaseModel, extra="forbid"):
    """A fault of the next requests for captions."""

    times: Annotated[int, Field(ge=0)] = 1
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    #: Seconds of the header `Retry-After`, which is sent with `status`.
    retry_after: Annotated[int, Field(ge=0)] | None = None
    empty_caption: bool = False
    delay_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.0


@dataclass(frozen=True)
class Frame:
    """The properties of an image that the caption describes."""

    width: int
    height: int
    mean: Colour

    @property
    def pixels(self) -> int:
        """The number of pixels."""
        return self.width * self.height


def read_frame(url: str) -> Frame:
    """The image in a data URL. Raises RequestRefusedError unless it is a complete PNG or JPEG."""
    header, _, data = url.partition(",")
    if not (header.startswith("data:image/") and header.endswith(";base64")):
        raise _bad_image("only data URLs (data:image/png;base64,...) can be read")
    try:
        image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=("PNG", "JPEG"))
        if image.width * image.height > MAX_PIXELS:
            raise _bad_image(f"{image.width} x {image.height} pixels are too many")
        return Frame(image.width, image.height, tuple(ImageStat.Stat(image.convert("RGB")).mean))
    except (ValueError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise _bad_image("it cannot be decoded as PNG or JPEG") from error


def describe(frames: Sequence[Frame]) -> str:
    """Describe the frames in one sentence."""
    total = sum(frame.pixels for frame in frames)
    colour = tuple(sum(frame.mean[band] * frame.pixels for frame in frames) / total for band in range(3))
    sizes = ", ".join(dict.fromkeys(f"{frame.width} x {frame.height}" for frame in frames))
    hexadecimal = "".join(f"{round(level):02x}" for level in colour)
    caption = f"of {sizes} pixels, mostly {_name(colour)} (#{hexadecimal}), brightness {_brightness(colour):.0f} %"
    if len(frames) == 1:
        return f"1 frame {caption}."
    change = round(_brightness(frames[-1].mean) - _brightness(frames[0].mean))
    trend = f"{'brighter' if change > 0 else 'darker'} by {abs(change)} % in the end" if change else "steady"
    return f"{len(frames)} frames {caption}, {trend}."


def refuse_pages(request: Request) -> None:
    """Raise RequestRefusedError if a web page sent the request: every page could set faults."""
    if is_from_page(request.headers.keys()):
        raise RequestRefusedError(403, "PermissionDeniedError", "This server answers no web page.")


def create_app() -> FastAPI:
    """The server, without faults."""
    app = FastAPI(
        title="GPU stand-in", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(refuse_pages)]
    )
    faults: list[Fault] = []
    #: The metrics of vLLM that the instances of the GPU report.
    counted = {"request_success_total": 0, "num_requests_running": 0, "num_requests_waiting": 0}

    @app.exception_handler(RequestRefusedError)
    async def refused(_: Request, error: RequestRefusedError) -> Response:
        return _error(error.status, error.kind, str(error), error.param)

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/metrics")
    async def metrics() -> Response:
        labels = f'{{model_name="{MODEL}"}}'
        lines = [f"vllm:{name}{labels} {value}" for name, value in counted.items()]
        return Response("\n".join([*lines, ""]), media_type="text/plain")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        card = {"id": MODEL, "object": "model", "created": 0, "owned_by": "prismline", "root": MODEL, "parent": None}
        return {"object": "list", "data": [card]}

    @app.post("/_standin/faults")
    async def set_fault(fault: Fault) -> Fault:
        faults[:] = [fault]
        return fault

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Response:
        body = await _bounded_body(request)
        fault = _take(faults)
        await asyncio.sleep(fault.delay_seconds)
        if fault.status is not None:
            headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            return _error(fault.status, "InjectedError", "An injected fault.", headers=headers)
        counted["num_requests_running"] += 1
        try:
            answer = await run_in_threadpool(_answer, body, empty=fault.empty_caption)
        finally:
            counted["num_requests_running"] -= 1
        counted["request_success_total"] += 1
        return answer

    return app


def _take(faults: list[Fault]) -> Fault:
    """Take the fault for a request and count it. Without one, return a fault without effect."""
    if not faults or faults[0].times == 0:
        return Fault()
    faults[0].times -= 1
    return faults[0]


async def _bounded_body(request: Request) -> bytes:
    """Read the body. If it is too large, stop before its end."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RequestRefusedError(413, "RequestEntityTooLarge", f"The body is larger than {MAX_BODY_BYTES} bytes.")
    return bytes(body)


def _parse(body: bytes) -> ChatRequest:
    try:
        chat = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise RequestRefusedError(400, "BadRequestError", f"{where}: {first['msg']}", where) from error
    if chat.model != MODEL:
        raise RequestRefusedError(404, "NotFoundError", f"The model `{chat.model}` does not exist.", "model")
    if chat.stream:
        raise RequestRefusedError(400, "BadRequestError", "This server does not stream.", "stream")
    if not 1 <= len(chat.images) <= MAX_IMAGES:
        reason = f"Between 1 and {MAX_IMAGES} images are needed, {len(chat.images)} were sent."
        raise RequestRefusedError(400, "BadRequestError", reason, "messages")
    return chat


def _answer(body: bytes, *, empty: bool) -> Response:
    chat = _parse(body)
    words = describe([read_frame(url) for url in chat.images]).split()
    spoken = [] if empty else words[: chat.most_words]
    asked = len(chat.text.split())
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": " ".join(spoken)},
        "logprobs": None,
        "finish_reason": "length" if len(words) > chat.most_words else "stop",
    }
    return JSONResponse(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
            "choices": [choice],
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": len(spoken),
                "total_tokens": asked + len(spoken),
            },
        }
    )


def _error(
    status: int, kind: str, message: str, param: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    error = {"message": message, "type": kind, "param": param, "code": status}
    return JSONResponse({"error": error}, status, headers)


def _bad_image(reason: str) -> RequestRefusedError:
    return RequestRefusedError(400, "BadRequestError", f"An image was refused: {reason}.", "messages")


def _brightness(colour: Colour) -> float:
    """Brightness in percent: the luma of ITU-R BT.601."""
    red, green, blue = colour
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 2.55


def _name(colour: Colour) -> str:
    red, green, blue = (level / 255 for level in colour)
    hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
    if value < BLACK_VALUE:
        return "black"
    if saturation < GRAY_SATURATION:
        return "white" if value > WHITE_VALUE else "gray"
    return next((name for name, end in HUES.items() if hue * 360 < end), "red")
