"""Requests to the HTTP interfaces: every operation of the api with its body, parameters and headers, and Discord's.

An input is a request as a JSON document: `method`, `path`, `query`, `headers`, `body`. A body that is text is sent
unchanged, any other as JSON. An input that is not such a document is the body of a new job. The account has jobs, runs
and a dead letter of the caller, so that the ids in the examples exist.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import quote, unquote, urlencode

import anyio.to_thread
from fastapi import FastAPI
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from nacl.signing import SigningKey
from starlette.types import Message

from prismline_alerting.dependencies import InteractionDependencies
from prismline_alerting.interactions import respond
from prismline_alerting.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER
from prismline_api.app import build_app
from prismline_api.dependencies import Dependencies
from prismline_api.store import encoded as item_of
from prismline_contracts.base import now, timestamp
from prismline_contracts.jobs import DEFAULT_TENANT, api_key_sha256, new_api_key
from prismline_ledger.testing import split_run
from prismline_runtime import Table, clients
from tests.fuzz.account import account, empty, quiet
from tests.fuzz.mutations import documents, encoded, json_bytes
from tests.fuzz.target import BrokenRuleError, Target
from tests.fuzz.targets.dead_letters import KEY as RECORD_KEY
from tests.fuzz.targets.dead_letters import record

JOB = {"workload": "urls", "name": "pages", "urls": ["https://example.com/", "https://example.org/a?b#c"]}
JOBS: list[dict[str, Any]] = [
    JOB,
    JOB | {"max_concurrency": 4, "priority": 5, "deadline_at": "2030-03-01T12:00:00.000Z", "async": True},
    JOB | {"params": {"timeout_s": 10.0, "keep_headers": ["etag"]}, "tolerated_failure_percent": 5.0},
    {"workload": "urls", "name": "open", "open": True, "webhook": {"url": "https://example.com/hook"}},
    {"workload": "urls", "name": "list", "upload": "0" * 32},
    {"workload": "spectra", "name": "grs", "cube_key": "cubes/c.fits", "params": {"beta": 3.5}, "chunk_size": 100},
    {
        "workload": "captions",
        "name": "session",
        "user_id": "u",
        "windows": [{"window_index": 0, "frame_count": 1, "frames": ["frames/0.png"]}],
    },
]
#: Bodies of the other operations, by their path.
BODIES: dict[str, Any] = {
    "/v1/jobs/{job_id}/tasks": {"urls": ["https://example.com/b"]},
    "/v1/jobs/{job_id}/rerun": {"only": "failed"},
    "/v1/uploads": {"format": "jsonl", "size_bytes": 100, "gzip": False},
    "/v1/dead-letters/recover": {"run_id": "RUN", "retry": True, "chunk_ids": ["chunk-0000000"]},
    "/v1/alerts/mute": {"duration": "4h"},
}
#: Values of parameters of the path and the query.
PARAMETERS = (
    {"day": "2026-03-01", "message_id": "message", "cell": "0", "name": "integrated", "limit": "10"}
    | {"level": "0", "column": "0", "row": "0", "x": "0", "y": "0", "status": "FAILED", "workload": "urls"}
    | {"first": "2026-03-01", "last": "2026-03-02", "queue": "chunks", "error": "a", "only": "all", "since": "1"}
    | {"cursor": "AAAAAAAAAAAAAAAAAAAAAFtd", "export_id": "e", "operation_id": "recovery-RUN-0", "other_run_id": "RUN"}
)
#: Paths that are not in the OpenAPI document.
HIDDEN = ["/v1/events", "/console/runs", "/console/runs/RUN", "/console/login", "/openapi.json", "/console/static/x.js"]


@dataclass(frozen=True)
class World:
    """The application, and the account in which a client has submitted jobs."""

    app: FastAPI
    key: str
    #: The ids that the account knows, by the names that stand for them in inputs.
    ids: dict[str, str]
    loop: asyncio.AbstractEventLoop
    #: The tables and the objects before each input.
    tables: dict[str, Any]
    objects: dict[str, Any]


@cache
def world() -> World:
    """The application of this process, and its account with a job, its runs and a dead letter."""
    account()
    setattr(anyio.to_thread, "run_sync", _run_at_once)  # noqa: B010
    deps = Dependencies.from_environment()
    quiet()
    aws, app, loop = empty(), build_app(deps), asyncio.new_event_loop()
    key, item = new_api_key(DEFAULT_TENANT, "fuzz", ("read", "submit", "operate", "all"), timestamp())
    Table(clients.dynamodb(), deps.settings.jobs_table).create(item_of(item), key="PK")
    aws.s3.put_object(Bucket=deps.bucket.name, Key="cubes/c.fits", Body=b"SIMPLE")
    start = partial(World, app, key, {}, loop, {}, {})
    job = json.loads(_send(start(), {"method": "POST", "path": "/v1/jobs", "body": JOB}).body)
    opened = json.loads(_send(start(), {"method": "POST", "path": "/v1/jobs", "body": JOBS[3]}).body)
    cube = json.loads(_send(start(), {"method": "POST", "path": "/v1/jobs", "body": JOBS[5]}).body)
    ids = {"JOB": job["job_id"], "RUN": job["run"]["run_id"], "OPEN": opened["job_id"], "CUBE": cube["run"]["run_id"]}
    session = deps.access.sessions.open(api_key_sha256(key))
    ids["COOKIE"] = f"{deps.access.sessions.cookie_name}={session.cookie}"
    split_run(deps.ledger, ids["CUBE"], 3)
    ids["TASK"] = f"{ids['RUN']}.{next(deps.ledger.tasks(deps.ledger.run(ids['RUN']))).task_id}"
    aws.s3.put_object(Bucket=deps.bucket.name, Key=RECORD_KEY, Body=encoded(record({}) | {"run_id": ids["RUN"]}))
    return World(app, key, ids, loop, copy.deepcopy(aws.tables), copy.deepcopy(dict(aws.objects)))


async def _run_at_once(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
    """Call a function without a thread. A new thread for each request takes longer than the request."""
    return function(*arguments)


@dataclass
class Answer:
    """An answer of the application."""

    status: int = 0
    content_type: str = ""
    body: bytes = b""


def send(data: bytes) -> str | None:
    """Send a request. Returns the detail of the problem document that refuses it."""
    made, aws = world(), empty()
    aws.tables.update(copy.deepcopy(made.tables))
    aws.objects.update(copy.deepcopy(made.objects))
    return _judged(_send(made, _request(data)))


def show_record(data: bytes) -> str | None:
    """Put a record into the archive of dead letters, then list the archive and show the record."""
    made, aws = world(), empty()
    aws.tables.update(copy.deepcopy(made.tables))
    aws.s3.put_object(Bucket=next(iter(aws.objects)), Key=RECORD_KEY, Body=data)
    refusals = [_judged(_send(made, {"path": path})) for path in RECORD_PATHS]
    return next(filter(None, refusals), None)


RECORD_PATHS = ["/v1/dead-letters", "/v1/dead-letters/2026-03-01/message", "/v1/runs"]


def _judged(answer: Answer) -> str | None:
    if answer.status >= 500:
        raise BrokenRuleError(f"The answer is {answer.status}: {answer.body[:200]!r}")
    if answer.status < 400 or "problem+json" not in answer.content_type:
        return None
    return str(json.loads(answer.body)["detail"])


def _request(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("path"), str):
        return document
    return {"method": "POST", "path": "/v1/jobs", "body": data.decode("utf-8", errors="replace")}


def _send(made: World, request: dict[str, Any]) -> Answer:
    """Call the application as a server does that has parsed the request."""
    text = {name: _with_ids(value, made.ids) for name, value in request.items()}
    body, query, headers = text.get("body"), text.get("query"), text.get("headers")
    content = body.encode("utf-8", "replace") if isinstance(body, str) else encoded(body) if body is not None else b""
    given = {"authorization": f"Bearer {made.key}"} if not str(text["path"]).startswith("/console") else {}
    given |= {"content-type": "application/json", "host": "127.0.0.1"}
    given |= {str(name).lower(): str(value) for name, value in headers.items()} if isinstance(headers, dict) else {}
    path = quote(str(text["path"]).encode("utf-8", "replace"), safe="/%:@!$&'()*+,;=~-._")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": str(text.get("method", "GET")).upper(),
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": urlencode(query, doseq=True, errors="replace").encode() if isinstance(query, dict) else b"",
        "headers": [(_header(name), _header(value)) for name, value in given.items() if _header(name)],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }
    return made.loop.run_until_complete(_call(made.app, scope, content))


def _header(text: str) -> bytes:
    """A name or value of a header, without the characters that servers refuse."""
    return "".join(char for char in text if " " <= char != "\x7f").encode("latin-1", "replace").strip()


def _with_ids(value: Any, ids: dict[str, str]) -> Any:
    """The value, with the ids of the account in place of their names."""
    if isinstance(value, str):
        for name, known in ids.items():
            value = value.replace(name, known)
        return value
    if isinstance(value, dict):
        return {name: _with_ids(each, ids) for name, each in value.items()}
    return [_with_ids(each, ids) for each in value] if isinstance(value, list) else value


async def _call(app: FastAPI, scope: dict[str, Any], body: bytes) -> Answer:
    answer, parts = Answer(), [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def take(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.content_type = dict(message["headers"]).get(b"content-type", b"").decode()
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, take)
    return answer


@cache
def operations() -> tuple[dict[str, Any], ...]:
    """Valid requests to every operation, for both kinds of runs.

    /v1/system is left out: it takes nothing, and the account cannot list its queues.
    """
    found = [{"method": "POST", "path": "/v1/jobs", "body": job, "headers": {"idempotency-key": "a"}} for job in JOBS]
    for path, methods in world().app.openapi()["paths"].items():
        for method, operation in methods.items():
            if (method, path) not in {("post", "/v1/jobs"), ("get", "/v1/system")}:
                found += [_example(method, path, operation, run) for run in ("RUN", "CUBE")]

    more = {"method": "GET", "query": {"run": "RUN", "next": "/console/runs"}, "headers": {"cookie": "COOKIE"}}
    return (*found, *(more | {"path": path} for path in HIDDEN))


def _example(method: str, path: str, operation: dict[str, Any], run: str) -> dict[str, Any]:
    """A valid request to an operation."""
    known = PARAMETERS | {"run_id": run, "job_id": "OPEN" if path.endswith(("tasks", "close")) else "JOB"}
    known |= {"cursor": ""} if run == "CUBE" else {}
    known |= {"task_id": "TASK", "idempotency-key": "a", "if-none-match": '"a"', "accept-encoding": "gzip"}
    parameters: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
    for each in operation.get("parameters", []):
        if value := known.get(each["name"], "a"):
            parameters[each["in"]][each["name"]] = value
    body = {"body": BODIES[path]} if path in BODIES else {}
    return {
        "method": method.upper(),
        "path": path.format(**parameters["path"]),
        "query": parameters["query"],
        "headers": parameters["header"],
        **body,
    }


def _any_request() -> SearchStrategy[bytes]:
    """Mutants of valid requests, and valid requests with mutants of their bodies."""
    with_bodies = [each for each in operations() if "body" in each]
    return st.one_of(documents(*operations()), st.sampled_from(with_bodies).flatmap(_with_mutated_body)).map(encoded)


def _with_mutated_body(request: dict[str, Any]) -> SearchStrategy[dict[str, Any]]:
    bodies = st.one_of(documents(request["body"]), json_bytes(request["body"]).map(lambda text: text.decode("latin-1")))
    return bodies.map(lambda body: {key: value for key, value in request.items() if key != "headers"} | {"body": body})


# ---- Discord's requests

INTERACTION = {
    "id": "1234567890123456789",
    "type": 2,
    "token": "token",
    "guild_id": "1",
    "channel_id": "2",
    "member": {"user": {"id": "3"}, "roles": ["4"]},
    "data": {"name": "mute", "options": [{"name": "duration", "type": 3, "value": "4h"}]},
}
SIGNING_KEY = SigningKey(bytes(32))


@cache
def interactions() -> InteractionDependencies:
    """The dependencies of the endpoint for Discord, which trusts `SIGNING_KEY`."""
    account()
    os.environ["DISCORD_PUBLIC_KEY"] = SIGNING_KEY.verify_key.encode().hex()
    os.environ.update(DISCORD_GUILD_ID="1", DISCORD_ALLOWED_ROLES='["4"]')
    deps = InteractionDependencies.from_environment()
    quiet()
    return deps


def interact(data: bytes) -> str | None:
    """Let Discord sign `data` and send it. Returns the error that refuses it."""
    empty()
    moment = str(int(now().timestamp()))
    headers = {SIGNATURE_HEADER: SIGNING_KEY.sign(moment.encode() + data).signature.hex(), TIMESTAMP_HEADER: moment}
    status, document = respond(headers, data, interactions())
    if status >= 500:
        raise BrokenRuleError(f"The answer is {status}: {document}")
    json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    return document["error"] if status >= 400 else None


def request(path: str, method: str = "GET", **parts: Any) -> bytes:
    return encoded({"method": method, "path": path, **parts})


HOSTILE = {
    "a_body_nested_a_hundred_thousand_times": b"[" * 100_000,
    "a_number_of_five_thousand_digits": b'{"workload": "urls", "priority": ' + b"9" * 5_000 + b"}",
    "a_name_with_half_of_a_surrogate_pair": request("/v1/jobs", "POST", body='{"workload": "urls", "name": "\\ud800"}'),
    "a_field_whose_name_has_several_lines": request("/v1/jobs", "POST", body={"workload": "urls", "a\nb": 1}),
    "a_percentage_that_is_not_a_number": request(
        "/v1/jobs", "POST", body='{"workload": "urls", "name": "a", "open": true, "tolerated_failure_percent": NaN}'
    ),
    "a_cursor_that_is_not_base64": request("/v1/jobs", query={"cursor": "é" * 10}),
    "a_cursor_of_a_million_characters": request("/v1/jobs", query={"cursor": "A" * 10**6}),
    "a_key_with_other_characters": request("/v1/jobs", headers={"authorization": "Bearer \xff\xfe"}),
    "a_session_that_is_not_one": request(
        "/v1/jobs", headers={"authorization": "", "cookie": "prismline_session_=\xff"}
    ),
    "an_idempotency_key_of_control_characters": request(
        "/v1/jobs", "POST", body=JOB, headers={"idempotency-key": "\x01"}
    ),
    "a_run_whose_id_climbs_up": request("/v1/runs/..%2f..%2fetc"),
    "a_run_whose_id_has_a_null_character": request("/v1/runs/a%00b/tasks"),
    "a_limit_of_four_hundred_digits": request("/v1/runs", query={"limit": "9" * 400}),
    "a_day_that_does_not_exist": request("/v1/dead-letters", query={"first": "2026-99-99"}),
    "a_length_that_is_not_a_number": request("/v1/jobs", "POST", body=JOB, headers={"content-length": "x"}),
    "a_host_that_is_half_of_an_address": request("/console/runs", headers={"host": "[::1"}),
    "an_origin_that_is_half_of_an_address": request("/console/logout", "POST", headers={"origin": "http://[::1"}),
}
RECORDS = {
    "a_record_that_is_a_list": b"[]",
    "a_record_nested_a_hundred_thousand_times": b"[" * 100_000,
    "a_record_nested_three_hundred_times": b'{"a": ' * 300 + b"1" + b"}" * 300,
    "a_record_with_half_of_a_surrogate_pair": b'{"run_id": "\\ud800", "error": "\\ud800"}',
    "a_record_with_a_number_that_is_none": b'{"run_id": "r", "receive_count": NaN, "time": Infinity}',
    "a_record_whose_fields_have_other_types": b'{"run_id": [], "error": {}, "collection": 1, "receive_count": "x"}',
}
INTERACTIONS = {
    "an_interaction_of_another_type": encoded(INTERACTION | {"type": 10**30}),
    "an_interaction_whose_id_is_no_number": encoded(INTERACTION | {"id": "x"}),
    "a_mute_of_ten_thousand_digits": encoded(
        INTERACTION | {"data": {"name": "mute", "options": [{"name": "duration", "value": "9" * 10_000 + "d"}]}}
    ),
    "an_interaction_nested_a_hundred_thousand_times": b"[" * 100_000,
}
TARGETS = [
    Target("api", send, st.deferred(_any_request), HOSTILE, prepare=world),
    Target("api-dead-letters", show_record, json_bytes(record(JOB)), RECORDS, prepare=world),
    Target("discord-interactions", interact, json_bytes(INTERACTION, {"type": 1}), INTERACTIONS, prepare=interactions),
]
