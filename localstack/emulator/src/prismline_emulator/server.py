"""The process of the emulator: ministack, with state that survives a kill.

ministack alone writes S3 objects to disk at once, and all other state when it gets SIGTERM. This process adds:

- A journal. Every successful write to DynamoDB is appended to it before the answer, and replayed at the next start.
- Files for all other services (queues, executions, parameters, ...), written one second after a change.
- A *base*: the state of all services at one moment. It is written after the stacks were deployed (`POST` to
  `SAVE_PATH`), when the journal has grown long, and at the end. One rename makes a base visible, so a base is always
  complete. None is written while stacks are being deployed, so an interrupted deployment leaves nothing behind.

Therefore a kill at any moment loses no item and no object. It may lose messages that were sent in the last second, and
messages that were deleted in the last second may come back. The services handle both (docs/explanation/protocol.md).

This holds for killed processes only. The process does not call fsync, so a power failure may lose more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
import os
import resource
import shutil
import signal
import sys
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import uvicorn
import yaml
from ministack import app as ministack
from ministack.core import persistence, responses
from ministack.services import dynamodb, lambda_svc, s3, sqs, stepfunctions

from prismline_emulator.clients import Clients
from prismline_emulator.emulated import OWN_SERVICE, offered
from prismline_emulator.endpoints import (
    AGES_PATH,
    FUNCTIONS_VARIABLE,
    HOSTS_VARIABLE,
    KEEP_VARIABLE,
    ORIGINS_VARIABLE,
    SAVE_PATH,
)
from prismline_emulator.guard import guarded
from prismline_emulator.permissions import LOG_VARIABLE, enforce_policies
from prismline_emulator.signatures import LINKED_SERVICE

#: Seconds that an idle connection stays open, and that open requests have when the emulator stops. As in ministack.
IDLE_SECONDS, GRACE_SECONDS = 75, 3
#: Seconds between two checks for changes. The pause is also at least this many times as long as the last check took.
SAVE_SECONDS, SAVE_SHARE = 1.0, 20.0
#: A journal of this many bytes is replaced by a base.
JOURNAL_BYTES = 8 * 1024 * 1024
#: From this size in bytes on, only the requested range of an object is read.
MAPPED_BYTES = 1024 * 1024
#: From this number of items on, only the requested page of a partition is read.
LARGE_PARTITION = 1000
#: Maximum number of attempts to read the state of a service while its threads change it.
READ_ATTEMPTS = 20
#: Prefixes of operations that do not change the stored state. ReceiveMessage only hides messages for a while.
READS = ("BatchGet", "Describe", "Get", "List", "Query", "Scan", "TransactGet", "ReceiveMessage")
#: The service whose writes are in the journal, and ministack's name for its state.
JOURNALED = "dynamodb"

Handler = Callable[
    [str, str, dict[str, str], bytes, dict[str, list[str]]], Awaitable[tuple[int, dict[str, str], bytes]]
]


class Keeper:
    """Stores the state of the emulator in numbered folders below `folder`. The highest number is the current one.

    at_once: store it from the start, without a request. Then an interrupted deployment is stored, too.
    """

    def __init__(self, folder: Path, handle: Handler, *, at_once: bool) -> None:
        self._folder = folder
        self._handle = handle
        self._at_once = at_once
        self._base: Path | None = None
        self._journal: int | None = None
        self._journaled = 0
        self._written: dict[str, str] = {}
        self._buckets: dict[Any, dict[str, Any]] = {}
        self._saving: asyncio.Task[None] | None = None
        self._changed = False

    def start(self) -> None:
        """Load the stored state."""
        self.restore()
        if self._at_once:
            self.save()

    def restore(self) -> None:
        """Load the base, as ministack's own start does, and replay the journal."""
        bases = self._bases()
        if bases:
            self._base = bases[-1]
        elif any(self._folder.glob("*.json")):  # as an earlier version left it
            self._base = self._folder
        else:
            # Objects without stacks: the first deployment was interrupted. Its buckets would make the next one fail.
            self._buckets = dict(s3._buckets._data)
            s3._buckets._data.clear()
            return
        persistence.STATE_DIR = str(self._base)
        load_all()
        journal = self._base / "journal.jsonl"
        self._replay(journal)
        self._open(journal)

    def _bases(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("[0-9]*") if path.name.isdigit())

    def _replay(self, journal: Path) -> None:
        if not journal.exists():
            return
        whole = journal.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end < len(whole):  # a kill interrupted this write, so no client got an answer to it
            os.truncate(journal, end)
        for line in whole[:end].splitlines():
            entry = json.loads(line)
            responses.set_request_account_id(entry["account"])
            responses.set_request_region(entry["region"])
            headers = {"x-amz-target": entry["target"]}
            with suppress(StopIteration):
                self._handle("POST", "/", headers, entry["body"].encode(), {}).__await__().send(None)  # never suspends

    def _open(self, journal: Path) -> None:
        if self._journal is not None:
            os.close(self._journal)
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._journaled = os.fstat(self._journal).st_size

    async def handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        """Handle a request to DynamoDB. The handler does not suspend, so the journal has the order of the writes."""
        answer = await self._handle(method, path, headers, body, query)
        target = headers.get("x-amz-target", "")
        if self._journal is not None and answer[0] < 400 and not is_read(target):
            entry = {
                "account": responses.get_account_id(),
                "region": responses.get_region(),
                "target": target,
                "body": body.decode(),
            }
            self._journaled += os.write(self._journal, json.dumps(entry).encode() + b"\n")
        return answer

    def note(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Note that a request was answered."""
        if method not in {"GET", "HEAD"}:
            target = next((value for name, value in headers if name == b"x-amz-target"), b"")
            self._changed = self._changed or not is_read(target.decode("latin-1"))

    def save(self) -> None:
        """Write a base and begin a new journal. After the first base, changes are written as they happen."""
        for key, bucket in self._buckets.items():
            objects = s3._buckets._data.setdefault(key, bucket)["objects"]
            objects |= {name: kept for name, kept in bucket["objects"].items() if name not in objects}
        self._buckets = {}
        old = self._bases()
        base = self._folder / f"{int(old[-1].name) + 1 if old else 1:08d}"
        draft = self._folder / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        texts = dict(serialized(everything()))
        for name, text in texts.items():
            (draft / f"{name}.json").write_text(text)
        draft.rename(base)
        self._open(base / "journal.jsonl")
        self._base, self._written = base, texts
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        for path in self._folder.glob("*.json"):
            path.unlink()
        if self._saving is None:
            self._saving = asyncio.get_running_loop().create_task(self._save_changes())

    def stop(self) -> None:
        """Write the last base. If the stacks were never deployed, the earlier base stays."""
        if self._saving is not None:
            self._saving.cancel()
            self.save()

    async def _save_changes(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(SAVE_SECONDS, SAVE_SHARE * took))
            began = time.monotonic()
            try:
                if self._journaled > JOURNAL_BYTES:
                    self.save()
                elif self._changed:
                    self._changed = False
                    self._save_changed()
            except (OSError, RuntimeError):  # the files of the last save stay valid; the next save may succeed
                self._changed = True
                logging.getLogger("prismline").exception("The state of the emulator was not saved.")
            took = time.monotonic() - began

    def _save_changed(self) -> None:
        assert self._base is not None
        for name, text in serialized({name: read for name, read in everything().items() if name != JOURNALED}):
            if self._written.get(name) != text:
                draft = self._base / f"{name}.tmp"
                draft.write_text(text)
                draft.replace(self._base / f"{name}.json")
                self._written[name] = text


def is_read(target: str) -> bool:
    """Whether a request only reads, by its target `<API>.<operation>`."""
    return target.rpartition(".")[2].startswith(READS)


def everything() -> dict[str, Callable[[], Any]]:
    """A function that reads the state of each service that has any, by ministack's name for the state."""
    found: dict[str, Callable[[], Any]] = ministack._build_persistence_save_dict()
    return found


def serialized(readers: dict[str, Callable[[], Any]]) -> Iterator[tuple[str, str]]:
    """Names and states, in ministack's file format. Raises RuntimeError if a state changes during every attempt."""
    for name, read in readers.items():
        for attempt in range(READ_ATTEMPTS):
            try:
                state = read()
            except RuntimeError:  # a thread of the emulator changed it meanwhile
                if attempt == READ_ATTEMPTS - 1:
                    raise
                time.sleep(0.01)
            else:
                break
        if state is not None:
            document = {"__ministack_format__": persistence._state_format_version(name), "payload": state}
            yield name, json.dumps(document, default=persistence._json_default)


def forget_executions(load: Callable[[Any], None], data: dict[str, Any]) -> None:
    """Load the state of Step Functions without the executions that were running, because their threads are gone.

    ministack would mark them FAILED without an event, and no other execution could have their names.
    """
    executions = data.get("executions")
    if isinstance(executions, responses.AccountRegionScopedDict):
        running = [key for key, execution in executions._data.items() if execution.get("status") == "RUNNING"]
        for key in running:
            del executions._data[key]
    load(data)


load_all: Callable[[], None] = ministack._load_persisted_state

#: Whether the current request asks for a range of an object.
_in_part: ContextVar[bool] = ContextVar("in_part", default=False)


def get_object(bucket: str, key: str, headers: dict[str, str], query: dict[str, list[str]] | None = None) -> Any:
    """GetObject that reads only the requested range of a large object from the disk."""
    token = _in_part.set("range" in headers)
    try:
        return get_whole_object(bucket, key, headers, query)
    finally:
        _in_part.reset(token)


def read_body(bucket: str, key: str, found: dict[str, Any]) -> Any:
    """The body of an object. If only a range of it is requested, it is mapped into memory instead of read."""
    path = s3._object_disk_path(bucket, key) if _in_part.get() and found.get("body") is None else None
    if path is None or found["size"] < MAPPED_BYTES:
        return read_whole_body(bucket, key, found)
    with open(path, "rb") as file:  # noqa: PTH123 - a path of ministack's
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


get_whole_object, read_whole_body = s3._get_object, s3._read_body


def query(data: dict[str, Any]) -> Any:
    """Query that reads only the requested page of a large partition.

    ministack sorts and checks the whole partition for each page, which takes seconds for 100,000 items.
    """
    name = dynamodb._normalize_table_name(data.get("TableName"))
    table = dynamodb._tables.get(name)
    part = None if table is None or data.get("IndexName") else next_items(data, table)
    if part is None:
        return query_whole(data)
    narrowed = {**vars(dynamodb), "_tables": {name: {**table, "items": part}}}
    return FunctionType(query_whole.__code__, narrowed, argdefs=query_whole.__defaults__)(data)


def next_items(data: dict[str, Any], table: dict[str, Any]) -> dict[str, dict[str, Any]] | None:
    """The items that a page of a large partition can hold, and one more, by `PK` and `SK`. None: all are needed."""
    after, limit = data.get("ExclusiveStartKey"), data.get("Limit")
    if not isinstance(after, dict) or not limit or data.get("ScanIndexForward") is False:
        return None
    pk, sk = (after.get(table.get(key) or "", {}).get("S") for key in ("pk_name", "sk_name"))
    items = table["items"].get(pk, {})
    if sk is None or len(items) < LARGE_PARTITION:
        return None
    names = sorted(items)
    first = bisect_right(names, sk)
    return {pk: {name: items[name] for name in names[first : first + int(limit) + 1]}}


query_whole = dynamodb._query


def ages(now: float) -> dict[str, float]:
    """Age in seconds of the oldest message of each queue that has one. SQS has a metric for it, ministack does not."""
    queues = list(sqs._queues._data.values())
    return {queue["name"]: now - min(sent) for queue in queues if (sent := [m["sent_at"] for m in queue["messages"]])}


def reserves_concurrency(provision: Callable[..., Any], given: int) -> Callable[..., Any]:
    """Wrap ministack's `provision` of a function: it also sets `ReservedConcurrentExecutions`, which ministack ignores.

    given: position of the function's properties among the arguments of `provision`.
    """

    def provisioned(*arguments: Any, **named: Any) -> Any:
        made = provision(*arguments, **named)
        reserved = arguments[given].get("ReservedConcurrentExecutions")
        lambda_svc._functions[made[0]]["concurrency"] = None if reserved is None else int(reserved)
        return made

    return provisioned


@cache
def take_over_reservations() -> None:
    """Have CloudFormation set `ReservedConcurrentExecutions` of the functions that it creates and updates."""
    from ministack.services.cloudformation import provisioners  # noqa: PLC0415  it doubles the time of a start

    function = provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]
    function["create"] = reserves_concurrency(function["create"], given=1)
    function["update"] = reserves_concurrency(function["update"], given=2)


def get_module(name: str) -> Any:
    """A service module of ministack. ministack imports each when it is first called."""
    if name == "cloudformation":
        take_over_reservations()
    return load_module(name)


load_module = ministack._get_module


def service_of(method: str, path: str, headers: dict[str, str], query: dict[str, Any]) -> str:
    """The service of a request. A link is for S3 only, whatever its other headers and its body ask for."""
    found: str = detect_service(method, path, headers, query) if "authorization" in headers else LINKED_SERVICE
    return found


detect_service = ministack.detect_service


async def answer_health(_method: str, path: str, _headers: Any, _query: Any, request_id: str) -> Any:
    """The answer to the health check. ministack's other pages need no signature, and nothing needs them."""
    return ministack._handle_health_request(path, request_id)


async def answer_nothing(*_: Any, **__: Any) -> None:
    """Leave a request to the services. It replaces ministack's entrances for services that are not offered."""


def refuse_to_run(*_: Any, **__: Any) -> Any:
    """Replaces ministack's executor of functions: `prismline_localstack.functions` runs them."""
    raise PermissionError("This emulator runs no functions. `prismline up --functions` runs those of the stacks.")


def install(folder: Path, clients: Clients, services: frozenset[str], *, at_once: bool) -> None:
    """Make ministack store its state in `folder`, and offer `services` to `clients`. Call it before it starts.

    at_once: store the state from the start, without a request.
    """
    keeper = Keeper(folder, dynamodb.handle_request, at_once=at_once)
    inner, load_executions = ministack.app, stepfunctions.load_persisted_state

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == SAVE_PATH:
            keeper.save()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        if scope["type"] == "http" and scope["path"] == AGES_PATH:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(ages(time.time())).encode()})
            return
        await inner(scope, receive, send)
        if scope["type"] == "http":
            keeper.note(scope["method"], scope["headers"])

    replace(dynamodb, handle_request=keeper.handle, _query=query)
    replace(s3, _get_object=get_object, _read_body=read_body)
    # ministack stores event source mappings and does not poll for them: `prismline_localstack.functions` does.
    replace(lambda_svc, _ensure_poller=lambda: None, _execute_function=refuse_to_run, acquire_worker=refuse_to_run)
    replace(stepfunctions, load_persisted_state=lambda data: forget_executions(load_executions, data))
    # ministack's CloudFormation derives its template loader from `yaml.SafeLoader`. libyaml parses ten times as fast.
    replace(yaml, SafeLoader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    replace(
        ministack,
        app=guarded(app, clients, services | {OWN_SERVICE}),
        SERVICE_HANDLERS={name: ministack.SERVICE_HANDLERS[name] for name in services},
        detect_service=service_of,
        _handle_pre_body_request=answer_health,
        _handle_post_body_shortcuts=answer_nothing,
        _handle_special_data_plane_request=answer_nothing,
        _get_module=get_module,
        _load_persisted_state=keeper.start,
        save_all=lambda _: keeper.stop(),
    )


def replace(module: ModuleType, **functions: Any) -> None:
    """Replace functions of a module. Each must exist."""
    for name, function in functions.items():
        if not hasattr(module, name):
            raise SystemExit(f"This version of ministack has no {module.__name__}.{name}: install the locked one.")
        setattr(module, name, function)


def serve(host: str, port: int) -> None:
    """Serve the emulator until SIGTERM or SIGINT.

    ministack's own server, hypercorn, needs 1.7 times the processor time for a request to DynamoDB.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS refuses an unlimited number
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn repeats the signal when it has shut down
        signal.signal(number, lambda *_: sys.exit(0))
    uvicorn.run(
        ministack.app,
        host=host,
        port=port,
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


if __name__ == "__main__":
    install(
        Path(os.environ["STATE_DIR"]),
        Clients.of(os.environ.get(HOSTS_VARIABLE, ""), os.environ.get(ORIGINS_VARIABLE, "")),
        offered(functions=bool(os.environ.get(FUNCTIONS_VARIABLE))),
        at_once=bool(os.environ.get(KEEP_VARIABLE)),
    )
    if iam_log := os.environ.get(LOG_VARIABLE):
        enforce_policies(Path(iam_log))
    serve(os.environ["BIND_HOST"], int(os.environ["GATEWAY_PORT"]))
