"""`POST /interactions`, called by Discord and by somebody who pretends to be Discord."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import boto3
import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from prismline_alerting.dependencies import PROMPT_CONFIG, InteractionDependencies
from prismline_alerting.interactions import MAX_BODY_BYTES, build_app, create_app
from prismline_alerting.interactions import handler as lambda_handler
from prismline_alerting.parameters import AlertParameters
from prismline_alerting.signatures import PublicKey
from prismline_contracts.alerts import (
    last_interaction_parameter,
    muted_until_parameter,
    public_key_parameter,
    slash_commands,
)
from prismline_localstack.standins.discord import (
    GUILD_ID,
    ON_CALL_ROLE,
    DiscordStandIn,
    SignedInteraction,
    slash_command,
)

pytestmark = pytest.mark.emulator

EPHEMERAL = 64


def call(app: FastAPI, method: str, path: str, **request: Any) -> httpx.Response:
    """One request to an application in this process."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://endpoint") as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())


@dataclass
class Endpoint:
    environment: str
    discord: DiscordStandIn
    deps: InteractionDependencies
    ssm: Any

    def post(self, signed: SignedInteraction, path: str = "/interactions") -> httpx.Response:
        return call(build_app(self.deps), "POST", path, content=signed.body, headers=signed.headers)

    def type(self, name: str, *, at: float | None = None, **options: Any) -> dict[str, Any]:
        """A member types `/name`. Returns the answer's data."""
        answer = self.post(self.discord.sign(slash_command(name, **options), at=at))
        assert answer.status_code == 200, answer.text
        assert answer.json()["type"] == 4
        data: dict[str, Any] = answer.json()["data"]
        assert data["allowed_mentions"] == {"parse": []}
        return data

    def muted_until(self) -> str | None:
        """The value of the mute parameter. None if it was never written."""
        name = muted_until_parameter(self.environment)
        try:
            return str(self.ssm.get_parameter(Name=name)["Parameter"]["Value"])
        except self.ssm.exceptions.ParameterNotFound:
            return None


@pytest.fixture
def endpoint(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, discord: DiscordStandIn) -> Endpoint:
    for name, value in discord.settings.items():
        monkeypatch.setenv(name, value)
    return Endpoint(aws_env["ENVIRONMENT"], discord, InteractionDependencies.from_environment(), boto3.client("ssm"))


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[Any]:
    return [record for record in caplog.records if record.message == message]


# ---- the commands


def test_mute_alerts_default_duration(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    now = int(time.time())
    data = endpoint.type("mute-alerts", at=now)
    assert endpoint.muted_until() == str(now + 86_400)
    assert data["content"] == f"Alerts muted until <t:{now + 86_400}:f> (1d)"
    assert "flags" not in data, "the whole channel sees it"
    (line,) = logged(caplog, "alert_muted")
    assert (line.duration, line.muted_until) == ("1d", now + 86_400)


def test_mute_alerts_custom_duration(endpoint: Endpoint) -> None:
    now = int(time.time())
    data = endpoint.type("mute-alerts", duration="4h", at=now)
    assert endpoint.muted_until() == str(now + 14_400)
    assert data["content"] == f"Alerts muted until <t:{now + 14_400}:f> (4h)"


@pytest.mark.parametrize("duration", ["banana", "", "0m", "31d", "9" * 5000 + "d", "4h; rm", 4, None, ["4h"], {"a": 1}])
def test_mute_alerts_invalid_duration(endpoint: Endpoint, duration: Any) -> None:
    data = endpoint.type("mute-alerts", duration=duration)
    assert data["flags"] == EPHEMERAL
    assert any(hint in data["content"] for hint in ("such as 30m", "at most", "unmute"))
    assert endpoint.muted_until() is None


def test_unmute_alerts_writes_zero(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    endpoint.type("mute-alerts")
    assert endpoint.type("unmute-alerts")["content"] == "Alerts active"
    assert endpoint.muted_until() == "0"
    assert len(logged(caplog, "alert_unmuted")) == 1


@pytest.mark.parametrize(
    "command",
    [
        slash_command("deploy"),
        slash_command("unmute-alerts", duration="4h"),
        slash_command("mute-alerts", until="4h"),
        slash_command("mute-alerts") | {"data": None},
    ],
)
def test_unknown_commands_and_options_are_answered_and_do_nothing(endpoint: Endpoint, command: dict[str, Any]) -> None:
    data = endpoint.post(endpoint.discord.sign(command)).json()["data"]
    assert data["flags"] == EPHEMERAL
    assert "/mute-alerts" in data["content"]
    assert endpoint.muted_until() is None


class _NoAws:
    """Parameters that fail the test if they are used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")


def _without(command: dict[str, Any], field: str) -> dict[str, Any]:
    return {key: value for key, value in command.items() if key != field}


STRANGERS = {
    "another server": slash_command("mute-alerts", guild="4101"),
    "no server": _without(slash_command("mute-alerts"), "guild_id"),
    "a direct message": _without(slash_command("mute-alerts"), "member"),
    "another role": slash_command("mute-alerts", roles=("10",)),
    "no role": slash_command("unmute-alerts", roles=()),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_is_refused_before_any_call_to_aws(endpoint: Endpoint, stranger: str) -> None:
    deps = replace(endpoint.deps, parameters=cast("AlertParameters", _NoAws()))
    signed = endpoint.discord.sign(STRANGERS[stranger])
    answer = call(build_app(deps), "POST", "/interactions", content=signed.body, headers=signed.headers)
    assert answer.json()["data"]["flags"] == EPHEMERAL
    assert endpoint.muted_until() is None


@pytest.mark.parametrize("missing", ["DISCORD_GUILD_ID", "DISCORD_ALLOWED_ROLES"])
def test_nobody_may_mute_until_server_and_roles_are_set(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delenv(missing)
    endpoint.deps = replace(InteractionDependencies.from_environment(), parameters=cast("AlertParameters", _NoAws()))
    data = endpoint.type("mute-alerts", roles=(ON_CALL_ROLE, "1"))
    assert data["flags"] == EPHEMERAL
    assert "not set" in data["content"]


def test_a_member_with_one_of_the_roles_may_mute(endpoint: Endpoint) -> None:
    assert "flags" not in endpoint.type("mute-alerts", roles=("10", ON_CALL_ROLE))


def test_the_servers_id_stands_for_every_member(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCORD_ALLOWED_ROLES", json.dumps([GUILD_ID]))
    endpoint.deps = InteractionDependencies.from_environment()
    assert "flags" not in endpoint.type("mute-alerts", roles=())
    assert endpoint.type("mute-alerts", guild="4101", roles=())["flags"] == EPHEMERAL


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Signature-Ed25519": "ab" * 64},
        {"X-Signature-Ed25519": "zz" * 64, "X-Signature-Timestamp": str(int(time.time()))},
        {"X-Signature-Ed25519": "ab" * 64, "X-Signature-Timestamp": "1"},
    ],
)
def test_a_request_with_wrong_headers_costs_no_look_up_of_the_key(endpoint: Endpoint, headers: dict[str, str]) -> None:
    looked_up: list[bool] = []
    endpoint.deps = replace(endpoint.deps, public_key=PublicKey(None, lambda: looked_up.append(True)))
    answer = call(build_app(endpoint.deps), "POST", "/interactions", content=b"{}", headers=headers)
    assert (answer.status_code, looked_up) == (401, [])


def test_members_who_may_not_manage_the_server_do_not_see_the_commands() -> None:
    assert {command["default_member_permissions"] for command in slash_commands()} == {"32"}


def test_the_registered_commands_are_the_ones_that_are_understood(endpoint: Endpoint) -> None:
    for command in slash_commands():
        options = {option["name"]: "4h" for option in command.get("options", [])}
        assert "flags" not in endpoint.type(command["name"], **options)


# ---- who may call


def test_a_ping_is_answered(endpoint: Endpoint) -> None:
    answer = endpoint.post(endpoint.discord.sign({"id": "1", "type": 1, "application_id": "1"}))
    assert (answer.status_code, answer.json()) == (200, {"type": 1})


Forge = Callable[[DiscordStandIn, bytes], SignedInteraction]
FORGERIES: dict[str, Forge] = {
    "another key": lambda discord, body: discord.sign_body(body, forged=True),
    "another body": lambda discord, body: discord.sign_body(b"{}").altered(body),
    "another time": lambda discord, body: replace(discord.sign_body(body), timestamp=str(int(time.time()) + 1)),
    "no signature": lambda discord, body: replace(discord.sign_body(body), signature=""),
    "half a signature": lambda discord, body: replace(discord.sign_body(body), signature="ab" * 32),
    "no hexadecimal signature": lambda discord, body: replace(discord.sign_body(body), signature="zz" * 64),
    "signature with spaces": lambda discord, body: replace(discord.sign_body(body), signature=" " * 128),
    "no time": lambda discord, body: replace(discord.sign_body(body), timestamp=""),
    "no number for a time": lambda discord, body: replace(discord.sign_body(body), timestamp="now"),
    "a time of a million digits": lambda discord, body: replace(discord.sign_body(body), timestamp="1" * 60_000),
    "stale": lambda discord, body: discord.sign_body(body, at=time.time() - 310),
    "from the future": lambda discord, body: discord.sign_body(body, at=time.time() + 60),
    "from far in the future": lambda discord, body: discord.sign_body(body, at=99_999_999_999),
    "from 1970": lambda discord, body: discord.sign_body(body, at=0),
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("body", [json.dumps(slash_command("mute-alerts")).encode(), b"{", b'{"type": 1, "id": "1"}'])
def test_a_request_that_discord_did_not_sign_just_now_is_refused(endpoint: Endpoint, forgery: str, body: bytes) -> None:
    answer = endpoint.post(FORGERIES[forgery](endpoint.discord, body))
    assert answer.status_code == 401
    assert endpoint.muted_until() is None
    assert "Traceback" not in answer.text


def test_a_request_without_signature_headers_is_refused(endpoint: Endpoint) -> None:
    answer = call(build_app(endpoint.deps), "POST", "/interactions", json=slash_command("mute-alerts"))
    assert answer.status_code == 401


def test_a_request_of_four_minutes_ago_is_taken_and_counts_from_then(endpoint: Endpoint) -> None:
    then = int(time.time()) - 240
    endpoint.type("mute-alerts", duration="1h", at=then)
    assert endpoint.muted_until() == str(then + 3600)


def test_a_replayed_mute_extends_nothing(endpoint: Endpoint) -> None:
    signed = endpoint.discord.sign(slash_command("mute-alerts", duration="1h"), at=time.time() - 100)
    assert "flags" not in endpoint.post(signed).json()["data"]
    until = endpoint.muted_until()
    assert endpoint.post(signed).json()["data"]["flags"] == EPHEMERAL
    assert endpoint.muted_until() == until


def test_a_mute_replayed_after_an_unmute_does_not_mute_again(endpoint: Endpoint) -> None:
    signed = endpoint.discord.sign(slash_command("mute-alerts"))
    endpoint.post(signed)
    endpoint.type("unmute-alerts")
    assert endpoint.post(signed).json()["data"]["flags"] == EPHEMERAL
    assert endpoint.muted_until() == "0"


def test_a_replay_is_known_to_a_process_that_did_not_see_the_first(endpoint: Endpoint) -> None:
    signed = endpoint.discord.sign(slash_command("mute-alerts"))
    endpoint.post(signed)
    endpoint.ssm.put_parameter(Name=muted_until_parameter(endpoint.environment), Value="0", Overwrite=True)
    endpoint.deps = InteractionDependencies.from_environment()
    endpoint.post(signed)
    assert endpoint.muted_until() == "0"


def test_a_broken_memory_of_the_latest_command_keeps_nobody_from_muting(endpoint: Endpoint) -> None:
    name = last_interaction_parameter(endpoint.environment)
    endpoint.ssm.put_parameter(Name=name, Value="garbage", Type="String")
    assert "flags" not in endpoint.type("mute-alerts")


# ---- requests that are not interactions


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"id": "1"}',
        b'{"id": 1, "type": 2}',
        b'{"id": "x", "type": 2}',
        b'{"id": "1", "type": "ping"}',
        b'{"id": "1", "type": 2, "data": "mute-alerts"}',
        b'{"id": "1", "type": 2, "data": {"name": "mute-alerts", "options": [1]}}',
        b'{"id": "1", "type": 3}',
        b'{"id": "1", "type": 4, "data": {"name": "mute-alerts"}}',
        b'{"id": "1", "type": 99}',
    ],
)
def test_signed_nonsense_is_a_400_with_a_sentence(endpoint: Endpoint, body: bytes) -> None:
    answer = endpoint.post(endpoint.discord.sign_body(body))
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")
    assert endpoint.muted_until() is None


@pytest.mark.parametrize("path", ["/", "/docs", "/redoc", "/openapi.json", "/interactions/x", "/.env"])
def test_other_paths_do_not_exist(endpoint: Endpoint, path: str) -> None:
    assert endpoint.post(endpoint.discord.sign({"id": "1", "type": 1}), path).status_code == 404
    assert call(build_app(endpoint.deps), "GET", path).status_code == 404
    assert call(build_app(endpoint.deps), "GET", "/interactions").status_code == 405


@contextmanager
def served(deps: InteractionDependencies) -> Iterator[int]:
    """Run the application on a real server. Yields its port."""
    server = uvicorn.Server(uvicorn.Config(build_app(deps), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("length", [b"10485760", b"many", b"-1"])
def test_a_body_of_ten_megabytes_is_refused_before_it_is_sent(endpoint: Endpoint, length: bytes) -> None:
    with served(endpoint.deps) as port, socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(b"POST /interactions HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\n")
        status = connection.recv(4096).split(b" ")[1]
        assert status in (b"413", b"400")


def test_a_body_without_announced_length_is_read_up_to_the_limit_only(endpoint: Endpoint) -> None:
    """The application is called as a server calls it, with ten megabytes in pieces. The test counts the pieces read."""
    piece, asked, sent = b"x" * 8192, [], []

    async def receive() -> dict[str, Any]:
        asked.append(1)
        return {"type": "http.request", "body": piece, "more_body": len(asked) * len(piece) < 10_485_760}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/interactions", "query_string": b"", "headers": []}
    asyncio.run(build_app(endpoint.deps)(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 413
    assert len(asked) * len(piece) <= MAX_BODY_BYTES + len(piece)


def test_a_body_that_breaks_off_does_not_crash_the_application(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with served(endpoint.deps) as port:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"POST /interactions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        answer = endpoint.discord.sign({"id": "1", "type": 1}).send(f"http://127.0.0.1:{port}/interactions")
        assert answer.json() == {"type": 1}
    assert "Traceback" not in caplog.text


# ---- failures


def test_a_setting_that_cannot_be_written_is_reported_within_discords_three_seconds(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        ssm = boto3.client("ssm", endpoint_url=f"http://127.0.0.1:{silent.getsockname()[1]}", config=PROMPT_CONFIG)
        parameters = AlertParameters(ssm, endpoint.environment, endpoint.deps.logger)
        deps = replace(endpoint.deps, parameters=parameters)
        with served(deps) as port:
            answer = endpoint.discord.sign(slash_command("mute-alerts")).send(f"http://127.0.0.1:{port}/interactions")
    data = answer.json()["data"]
    assert data["flags"] == EPHEMERAL
    assert data["content"].startswith("Sorry")
    assert len(logged(caplog, "mute_not_written")) == 1


def test_an_unexpected_failure_shows_no_stack_trace(endpoint: Endpoint) -> None:
    class Broken:
        def last_interaction(self) -> int:
            raise RuntimeError("s3cret")

    endpoint.deps = replace(endpoint.deps, parameters=Broken())  # type: ignore[arg-type]
    answer = endpoint.post(endpoint.discord.sign(slash_command("mute-alerts")))
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")


def test_the_public_key_is_read_from_its_parameter(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISCORD_PUBLIC_KEY")
    name = public_key_parameter(endpoint.environment)
    endpoint.ssm.put_parameter(Name=name, Value=endpoint.discord.public_key, Type="String")
    endpoint.deps = InteractionDependencies.from_environment()
    assert "flags" not in endpoint.type("mute-alerts")


@pytest.mark.parametrize("key", ["", "zz" * 32, "ab" * 31])
def test_without_a_key_everything_is_refused_and_the_log_says_what_to_do(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    monkeypatch.setenv("DISCORD_PUBLIC_KEY", key)
    endpoint.deps = InteractionDependencies.from_environment()
    assert endpoint.post(endpoint.discord.sign({"id": "1", "type": 1})).status_code == 401
    (line,) = logged(caplog, "interactions_not_configured")
    assert "public key" in line.reason


def test_a_key_that_cannot_be_read_is_a_503_and_read_the_next_time(endpoint: Endpoint) -> None:
    ssm = boto3.client("ssm", endpoint_url="http://127.0.0.1:1", config=PROMPT_CONFIG)
    silent = AlertParameters(ssm, endpoint.environment, endpoint.deps.logger)
    parameters = iter([silent, endpoint.deps.parameters])
    name = public_key_parameter(endpoint.environment)
    endpoint.ssm.put_parameter(Name=name, Value=endpoint.discord.public_key, Type="String")
    endpoint.deps = replace(endpoint.deps, public_key=PublicKey(None, lambda: next(parameters).public_key()))
    ping = endpoint.discord.sign({"id": "1", "type": 1})
    assert endpoint.post(ping).status_code == 503
    assert endpoint.post(ping).status_code == 200


def test_the_clock_may_be_half_a_minute_behind_discords(endpoint: Endpoint) -> None:
    endpoint.deps = replace(endpoint.deps, clock=lambda: datetime.now(UTC) - timedelta(seconds=25))
    assert endpoint.post(endpoint.discord.sign({"id": "1", "type": 1})).status_code == 200


# ---- in Lambda


def test_in_lambda_behind_a_function_url_the_same_application_answers(endpoint: Endpoint) -> None:
    def invoke(signed: SignedInteraction) -> dict[str, Any]:
        event = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": "/interactions",
            "rawQueryString": "",
            "headers": {name.lower(): value for name, value in signed.headers.items()},
            "requestContext": {
                "http": {"method": "POST", "path": "/interactions", "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"},
            },
            "body": base64.b64encode(signed.body).decode(),
            "isBase64Encoded": True,
        }
        answer: dict[str, Any] = lambda_handler(event, None)
        return answer

    signed = endpoint.discord.sign(slash_command("mute-alerts", duration="2d"))
    answer = invoke(signed)
    assert answer["statusCode"] == 200
    assert "Alerts muted until" in json.loads(answer["body"])["data"]["content"]
    assert endpoint.muted_until() is not None
    assert invoke(signed.altered(b"{}"))["statusCode"] == 401


def test_the_factory_starts_without_any_setting(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISCORD_PUBLIC_KEY", "DISCORD_ALLOWED_ROLES"):
        monkeypatch.delenv(name, raising=False)
    assert call(create_app(), "POST", "/interactions").status_code == 401
