"""Stand-in for the parts of Discord that Prismline uses: webhooks, registration of slash commands, signed interactions.

    with DiscordStandIn() as discord:
        ...  # services post to discord.webhook_url and check signatures with discord.public_key
        message = discord.wait_for_message()
        answer = discord.sign(slash_command("mute-alerts", duration="4h")).send("http://127.0.0.1:8000/interactions")

Limits and shapes of answers: Discord's developer documentation, "Execute Webhook", "Embed Limits", "Rate Limits",
"Application Commands", "Receiving and Responding".
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from nacl.signing import SigningKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

#: Maximum number of characters of an embed, all its texts together.
MAX_EMBED_CHARACTERS = 6000
#: Discord's code for a body that breaks a rule.
INVALID_FORM_BODY = 50035
#: Discord's code for a webhook that does not exist.
UNKNOWN_WEBHOOK = 10015
#: The epoch of Discord's ids, in milliseconds since 1970.
DISCORD_EPOCH = 1_420_070_400_000
#: Ids of the server that sends commands, and of the role whose members may mute.
GUILD_ID, ON_CALL_ROLE = "4100", "4111"
#: Time limit for the start of the server, in seconds.
START_SECONDS = 10.0
#: Discord's timeout for the answer to an interaction, in seconds.
ANSWER_SECONDS = 3.0


def _characters(text: str) -> int:
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def _length(most: int) -> AfterValidator:
    def check(text: str) -> str:
        if not 1 <= _characters(text.strip()) <= most:
            raise ValueError(f"Must be between 1 and {most} in length.")
        return text

    return AfterValidator(check)


class _Shape(BaseModel):
    """Base of the strict models: a misspelt field is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Field(_Shape):
    name: Annotated[str, _length(256)]
    value: Annotated[str, _length(1024)]
    inline: bool = False


class _Footer(_Shape):
    text: Annotated[str, _length(2048)]


class _Embed(_Shape):
    title: Annotated[str, _length(256)] | None = None
    description: Annotated[str, _length(4096)] | None = None
    url: str | None = None
    color: Annotated[int, Field(ge=0, le=0xFFFFFF)] | None = None
    timestamp: str | None = None
    fields: Annotated[list[_Field], Field(max_length=25)] = []
    footer: _Footer | None = None

    @model_validator(mode="after")
    def _in_all(self) -> Self:
        texts = [self.title, self.description, self.footer.text if self.footer else None]
        texts += [text for field in self.fields for text in (field.name, field.value)]
        if sum(_characters(text) for text in texts if text) > MAX_EMBED_CHARACTERS:
            raise ValueError(f"Embed size exceeds maximum size of {MAX_EMBED_CHARACTERS}")
        if self.timestamp is not None:
            datetime.fromisoformat(self.timestamp)
        return self


class _AllowedMentions(_Shape):
    parse: list[Literal["roles", "users", "everyone"]]


class _Message(_Shape):
    username: Annotated[str, _length(80)] | None = None
    content: Annotated[str, _length(2000)] | None = None
    embeds: Annotated[list[_Embed], Field(max_length=10)] = []
    allowed_mentions: _AllowedMentions | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.content and not self.embeds:
            raise ValueError("Cannot send an empty message")
        return self


class _Option(_Shape):
    name: Annotated[str, Field(pattern=r"^[-_a-z0-9]{1,32}$")]
    type: Annotated[int, Field(ge=1, le=11)]
    description: Annotated[str, _length(100)]
    required: bool = False


class _Command(_Shape):
    name: Annotated[str, Field(pattern=r"^[-_a-z0-9]{1,32}$")]
    type: Literal[1]
    description: Annotated[str, _length(100)]
    contexts: list[int] = [0, 1, 2]
    default_member_permissions: Annotated[str, Field(pattern=r"^\d{1,20}$")] | None = None
    options: Annotated[list[_Option], Field(max_length=25)] = []


_COMMANDS = TypeAdapter(list[_Command])


@dataclass(frozen=True)
class SignedInteraction:
    """A signed interaction, as Discord sends it. A second `send` is a replay."""

    body: bytes
    signature: str
    timestamp: str

    def altered(self, body: bytes) -> SignedInteraction:
        """The same interaction with another body, as an attacker would send it."""
        return replace(self, body=body)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that Discord sends."""
        return {
            "Content-Type": "application/json",
            "X-Signature-Ed25519": self.signature,
            "X-Signature-Timestamp": self.timestamp,
        }

    def send(self, url: str) -> httpx.Response:
        """Send the interaction. Raises httpx.TimeoutException if the answer takes longer than Discord waits."""
        return httpx.post(url, content=self.body, headers=self.headers, timeout=ANSWER_SECONDS)


_ids = itertools.count()


def interaction_id() -> str:
    """A new id, greater than all earlier ones: milliseconds, then a counter."""
    return str((int(time.time() * 1000) - DISCORD_EPOCH << 22) + next(_ids) % (1 << 22))


def slash_command(
    name: str, *, guild: str = GUILD_ID, roles: tuple[str, ...] = (ON_CALL_ROLE,), **options: Any
) -> dict[str, Any]:
    """The interaction of a member of a server who typed `/name`, with options."""
    return {
        "id": interaction_id(),
        "application_id": "1",
        "type": 2,
        "token": secrets.token_hex(8),
        "version": 1,
        "guild_id": guild,
        "member": {"roles": list(roles), "user": {"id": "2", "username": "operator"}},
        "data": {
            "id": "3",
            "name": name,
            "type": 1,
            "options": [{"name": option, "type": 3, "value": value} for option, value in options.items()],
        },
    }


class DiscordStandIn:
    """Discord on a free loopback port, for the duration of a `with` block."""

    def __init__(self) -> None:
        self._key = SigningKey.generate()
        #: The application's public key, in hex.
        self.public_key = self._key.verify_key.encode().hex()
        #: Messages that were accepted, oldest first.
        self.messages: list[dict[str, Any]] = []
        #: The registered slash commands.
        self.commands: list[dict[str, Any]] = []
        #: Posts to the webhook, refused ones included.
        self.posts = 0
        self._path = f"/api/webhooks/1/{secrets.token_hex(16)}"
        self._bot_token = secrets.token_hex(16)
        self._failures: list[Response] = []
        self._changed = threading.Condition()
        config = uvicorn.Config(self._app(), host="127.0.0.1", port=0, log_level="warning", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError("The stand-in for Discord did not start: is there no free port?")
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    @property
    def webhook_url(self) -> str:
        """The URL for messages. Its last part is a secret."""
        return self.base_url + self._path

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the alerting service for this Discord."""
        return {
            "DISCORD_WEBHOOK_URL": self.webhook_url,
            "DISCORD_PUBLIC_KEY": self.public_key,
            "DISCORD_GUILD_ID": GUILD_ID,
            "DISCORD_ALLOWED_ROLES": json.dumps([ON_CALL_ROLE]),
        }

    @property
    def api_url(self) -> str:
        """Base address of the API."""
        return f"{self.base_url}/api/v10"

    @property
    def bot_token(self) -> str:
        """The token that registers slash commands."""
        return self._bot_token

    def fail(self, status: int, *, times: int = 1, retry_after: float = 0.1) -> None:
        """Refuse the next `times` posts with a status. With 429, `retry_after` is the wait in seconds."""
        document = {"message": "refused on purpose", "code": 0}
        headers = {}
        if status == 429:
            document = {"message": "You are being rate limited.", "retry_after": retry_after, "global": False}
            headers = {"Retry-After": str(retry_after), "X-RateLimit-Scope": "shared"}
        self._failures += [JSONResponse(document, status, headers) for _ in range(times)]

    def recover(self) -> None:
        """Accept posts again."""
        self._failures.clear()

    def wait_for_message(
        self, wanted: Callable[[dict[str, Any]], bool] = lambda _: True, *, timeout: float = 10.0
    ) -> dict[str, Any]:
        """Wait for the first message that is `wanted`, earlier messages included. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: any(map(wanted, self.messages)), timeout):
                raise TimeoutError(f"No such message within {timeout:g} s, but {len(self.messages)} others.")
            return next(filter(wanted, self.messages))

    def sign(self, interaction: dict[str, Any], *, at: float | None = None, forged: bool = False) -> SignedInteraction:
        """Sign an interaction. at: the time in unix seconds. forged: use a key that is not the application's."""
        return self.sign_body(json.dumps(interaction).encode(), at=at, forged=forged)

    def sign_body(self, body: bytes, *, at: float | None = None, forged: bool = False) -> SignedInteraction:
        """Sign a body that need not be an interaction."""
        timestamp = str(int(time.time() if at is None else at))
        key = SigningKey.generate() if forged else self._key
        return SignedInteraction(body, key.sign(timestamp.encode() + body).signature.hex(), timestamp)

    def _app(self) -> FastAPI:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

        @app.post("/api/webhooks/{webhook}/{token}")
        async def execute_webhook(request: Request) -> Response:
            return self._take(request.url.path, await request.body(), wait=request.query_params.get("wait") == "true")

        @app.put("/api/v10/applications/{application}/commands")
        @app.put("/api/v10/applications/{application}/guilds/{guild}/commands")
        async def overwrite_commands(request: Request) -> Response:
            if request.headers.get("Authorization") != f"Bot {self._bot_token}":
                return JSONResponse({"message": "401: Unauthorized", "code": 0}, 401)
            body = await request.body()
            try:
                _COMMANDS.validate_json(body)
            except ValidationError as error:
                return _invalid(error)
            self.commands = [{"id": interaction_id()} | command for command in json.loads(body)]
            return JSONResponse(self.commands)

        return app

    def _take(self, path: str, body: bytes, *, wait: bool) -> Response:
        with self._changed:
            self.posts += 1
            if path != self._path:
                return JSONResponse({"message": "Unknown Webhook", "code": UNKNOWN_WEBHOOK}, 404)
            if self._failures:
                return self._failures.pop(0)
            try:
                _Message.model_validate_json(body)
            except ValidationError as error:
                return _invalid(error)
            message = json.loads(body)
            self.messages.append(message)
            self._changed.notify_all()
        if not wait:
            return Response(status_code=204)
        return JSONResponse({"id": interaction_id(), "timestamp": datetime.now(UTC).isoformat()} | message)


def _invalid(error: ValidationError) -> JSONResponse:
    """The answer of Discord to an invalid body."""
    errors = {
        ".".join(map(str, problem["loc"])): {"_errors": [{"code": problem["type"], "message": problem["msg"]}]}
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    }
    return JSONResponse({"message": "Invalid Form Body", "code": INVALID_FORM_BODY, "errors": errors}, 400)
