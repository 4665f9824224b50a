"""All services on an account in memory, one message at a time: for scenes that begin at the HTTP interface.

The simulation interleaves the services that process chunks. An estate also has the others: the HTTP interface, the
fetcher, exports, webhooks and alerts. It handles each message completely before it receives the next one, and time
passes only when no service has anything to do. So a scene always has the same course.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
from fastapi.testclient import TestClient

from prismline.supervisor import Outcome
from prismline_api.app import build_app
from prismline_api.dependencies import Dependencies
from prismline_contracts.base import timestamp
from prismline_contracts.jobs import Scope, new_api_key
from prismline_contracts.workloads import RegisteredWorkload, WorkloadLimits, latest_workload_key, workload_key
from prismline_ledger.testing import Context, lambda_event
from prismline_runtime import Bucket, Table, clients
from prismline_worker.runners import RunnerKind
from tests.simulation import virtual, world
from tests.simulation.aws import Aws, PlainHub, deployed
from tests.simulation.aws.base import client_error
from tests.simulation.choices import Choices
from tests.simulation.processes import ROOT, Service, declared_services
from tests.simulation.scheduler import START
from tests.simulation.trace import Trace
from tests.simulation.virtual import InlineExecutor, TraceLogger
from tests.simulation.workloads import StandInFitter, scratch_folder

ENVIRONMENT = "estate"
#: The targets of alerts and of webhooks.
DISCORD, TARGET = "https://discord.test/webhook", "https://target.test/hook"
#: Secret of the webhook's target.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#: Seconds after which a message that cannot be handled is given up, instead of days.
PATIENCE = 3600.0
#: Most messages of a scene; more are an endless loop.
MOST_MESSAGES = 1000

#: The modules of the handlers. They are imported first, because virtual time patches the names in all loaded modules.
HANDLERS = [import_module(service.handler.partition(":")[0]) for service in declared_services().values()]
#: The modules in which services create their clients, loggers and settings.
WIRING = [
    import_module(".".join(path.relative_to(source).with_suffix("").parts))
    for source in sorted(ROOT.glob("services/*/src"))
    for path in sorted(source.rglob("dependencies.py"))
]


T = TypeVar("T")


class Hub(PlainHub):
    """The clock of an estate, and the gate before the calls of its account. Several threads call, one at a time."""

    def __init__(self) -> None:
        super().__init__(START)
        self._lock = threading.RLock()
        #: Operations that fail, e.g. `upload_part`.
        self.out_of_order: set[str] = set()
        # virtual time needs these of a scheduler; here no process waits and nothing is random
        self.current = None
        self.choices = Choices(0)
        self.trace = Trace(on=False)

    @property
    def time(self) -> float:
        return self.now()

    @property
    def next_timer(self) -> float:
        """The time of the next timer."""
        return self._timers[0][0] if self._timers else float("inf")

    def gate(self, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]) -> Any:
        with self._lock:
            if operation in self.out_of_order:
                raise client_error(operation, "ServiceUnavailable", "out of order", status=503)
            return perform()


class AtOnce(Executor):
    """An executor that runs each call immediately. Unlike the simulation's, its futures can be waited for."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class StandInSupervisor:
    """In place of a runner process: it returns each item, unless the item says how it fails.

    As long as the function is broken, each item fails.
    """

    def __init__(self, kind: RunnerKind, broken: Callable[[], bool]) -> None:
        self.description = kind.name
        self._broken = broken

    def run(self, item: Any, *, item_id: str, attempt: int) -> Outcome:
        """One attempt of an item."""
        if self._broken() or item == "hopeless":
            return Outcome("failed", error="It is broken.", error_type="prismline.Permanent", permanent=True)
        if item == "again" and attempt == 1:
            return Outcome("failed", error="It is busy.", error_type="OSError", attempts=3, delay=1.0)
        return Outcome("completed", item)

    def close(self) -> None:
        """Nothing is left."""


class Estate:
    """A deployment of everything. Use it within `with Estate.alive() as estate:`."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.aws: Aws = deployed(self.hub, ENVIRONMENT)
        #: Unexpected errors of services.
        self.unexpected: list[str] = []
        #: All posts: (URL, body).
        self.posts: list[tuple[str, Mapping[str, Any]]] = []
        #: The answers of sites by path: status and headers. Other paths answer 200.
        self.sites: dict[str, tuple[int, dict[str, str]]] = {}
        #: Whether functions fail on all items.
        self.functions_broken = False
        self._services = list(declared_services().values())
        self._handlers: dict[str, Callable[[dict[str, Any], Any], Any]] = {}

    # ---- life

    @classmethod
    @contextmanager
    def alive(cls) -> Iterator[Estate]:
        """Run the project's code in a new estate within the block."""
        world.import_services()
        estate = cls()
        aws: Any = estate.aws
        aws.s3.meta = SimpleNamespace(endpoint_url="https://s3.test")
        aws.s3.generate_presigned_url = lambda *_, **__: "https://s3.test/link"
        boto3 = SimpleNamespace(client=lambda name, **_: getattr(aws, name, None))
        settings = {
            "ENVIRONMENT": ENVIRONMENT,
            "WORKDIR": scratch_folder(),
            "DISCORD_WEBHOOK_URL": DISCORD,
            "MESSAGE_PATIENCE_SECONDS": str(PATIENCE),
        }
        logger = TraceLogger(estate.hub, estate.unexpected.append)  # type: ignore[arg-type]
        names: list[tuple[Any, str, Any]] = [
            (clients, name, lambda name=name: getattr(aws, name))
            for name in ("dynamodb", "ec2", "events", "s3", "sqs", "ssm", "stepfunctions")
        ]
        # ids are the same in each play of a scene, so that a message of one play can be used in another
        names += [
            (module, "uuid4", virtual.uuid4)
            for name, module in sorted(sys.modules.items())
            if name.startswith("prismline_") and vars(module).get("uuid4") is uuid.uuid4
        ]
        names += [(module, "service_logger", lambda _: logger) for module in WIRING]
        names += [(module, "boto3", boto3) for module in WIRING if hasattr(module, "boto3")]
        names += [
            (import_module("prismline_worker.dependencies"), "FitProcess", StandInFitter),
            (import_module("prismline_worker.url_tasks"), "guarded_async_client", estate._web),
            (import_module("prismline_worker.url_tasks"), "ThreadPoolExecutor", ThreadPoolExecutor),
            (import_module("prismline_worker.function_tasks"), "_supervisor_of", estate._supervisor),
            (import_module("prismline_webhooks.dependencies"), "guarded_async_client", estate._web),
            (import_module("prismline_alerting.dependencies"), "httpx", SimpleNamespace(Client=estate._client)),
        ]
        virtual.replacements.cache_clear()  # it may have searched before these modules were imported
        with (
            patch.dict(os.environ, {**settings, **estate.aws.outputs}),
            virtual.virtual(estate.hub),  # type: ignore[arg-type]
            virtual.replaced([(*place, AtOnce) for *place, value in virtual.replacements() if value is InlineExecutor]),
            virtual.replaced(names),
        ):
            yield estate

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.posts.append((str(request.url.copy_with(query=None)), json.loads(request.content)))
        status, headers = self.sites.get(request.url.path, (200, {}))
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(b"<html></html>"))

    def _supervisor(self, kind: RunnerKind) -> StandInSupervisor:
        return StandInSupervisor(kind, lambda: self.functions_broken)

    def _web(self, **_: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def _client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._answer))

    # ---- people

    def caller(self) -> TestClient:
        """An HTTP caller with all scopes."""
        scopes: tuple[Scope, ...] = ("read", "submit", "operate")
        key, item = new_api_key("acme", "scene", scopes, timestamp())
        table: Any = Table(self.aws.dynamodb, self.aws.outputs["JOBS_TABLE"])  # type: ignore[arg-type]
        table.create(item.model_dump(exclude_none=True), key="PK")
        app = build_app(Dependencies.from_environment())
        return TestClient(app, base_url="http://testserver/v1", headers={"Authorization": f"Bearer {key}"})

    def register(self, name: str) -> None:
        """Register a function that takes any item."""
        limits = WorkloadLimits(timeout=60.0, attempts=3, batch=20, memory=2048, processes=64, files=1024)
        registered = RegisteredWorkload(
            name=name, code="c" * 64, item={}, parameters={}, limits=limits, registered_at=timestamp()
        )
        bucket: Any = Bucket(self.aws.s3, self.aws.outputs["BUCKET"])  # type: ignore[arg-type]
        for key in (workload_key(name, registered.code), latest_workload_key(name)):
            bucket.write(key, registered.model_dump_json(exclude_none=True).encode())

    # ---- services

    def advance(self, seconds: float) -> None:
        """Let the services handle every message, including those that arrive within `seconds`."""
        end = self.hub.time + seconds
        for _ in range(MOST_MESSAGES):
            self.hub.advance()
            if sum(self._receive(service) for service in self._services):
                continue
            following = min(self.hub.next_timer, *map(self._next_message, self._services))
            if following > end:
                return
            self.hub.advance(max(0.0, following - self.hub.time))
        self.unexpected.append(f"there is no end after {MOST_MESSAGES} messages")

    def _next_message(self, service: Service) -> float:
        moments = [self.aws.queue(queue).next_visible_at() for queue in service.queues]
        return min((moment for moment in moments if moment is not None), default=float("inf"))

    def _receive(self, service: Service) -> bool:
        """Let a service handle the messages in its queues. Return whether there were any."""
        found = False
        for name in service.queues:
            queue = self.aws.queue(name)
            messages = self.aws.sqs.receive_message(
                QueueUrl=queue.url,
                MaxNumberOfMessages=service.batch_size,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", [])
            if not messages:
                continue
            found = True
            if service.name not in self._handlers:
                self._handlers[service.name] = world.made_handler(service.handler)
            answer = self._handlers[service.name](lambda_event(messages, ENVIRONMENT, name), Context())
            left = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
            for message in messages:
                if message["MessageId"] not in left:
                    self.aws.sqs.delete_message(QueueUrl=queue.url, ReceiptHandle=message["ReceiptHandle"])
        return found
