"""The world of one schedule: the real services and an account in memory. Only this module uses internals of services.

A service's handler is made by the service's own wiring (`process_handler` of its handler module), with clients of the
account, settings from the account's resources, and the stand-ins of `workloads`.
"""

from __future__ import annotations

import os
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import httpx
from pydantic_settings import BaseSettings

from prismline_cli.connection import Connection
from prismline_contracts.commands import RUN_QUEUE_TAG, Queue, queue_name, run_queue_prefix
from prismline_contracts.finalization import due_finalization
from prismline_contracts.items import OPEN_RUNS, RunItem
from prismline_contracts.resources import GPU, resource_tags
from prismline_coordination import server
from prismline_ledger import Ledger
from prismline_runtime import Transport, clients, dynamodb, storage, transport
from tests.simulation.aws.ec2 import Instance
from tests.simulation.aws.loader import blueprint
from tests.simulation.choices import Choices
from tests.simulation.faults import Faults
from tests.simulation.functions import CODES, StandInRunner
from tests.simulation.lists import StandInPoster, StandInUrls
from tests.simulation.plan import LIST_SERVICES, LOSABLE, SERVICES, Plan
from tests.simulation.processes import Consumer, Handler, consumers, declared_services
from tests.simulation.scheduler import START, Process, Scheduler, StoppedError
from tests.simulation.trace import Trace
from tests.simulation.virtual import TraceLogger, replaced, virtual, virtual_queue, virtual_threading
from tests.simulation.workloads import (
    MODEL_SECONDS,
    CaptionModel,
    StandInFitter,
    open_cube_once,
    scratch_folder,
)

#: The deployment's name.
ENVIRONMENT = "sim"
_RUN_QUEUES = run_queue_prefix(ENVIRONMENT)
#: The id of the GPU instance.
INSTANCE = "i-0123456789abcdef0"
#: Settings of services that make a few tasks a long list with several shards, blocks, messages and pages. The splitter
#: only wants to know whether there is a Valkey server (`slots.StandInValkey`).
SMALL_SETTINGS = {
    "own_queue_tasks": 4,
    "slice_seconds": 0.05,
    "export_part_bytes": 400,
    "functions_runners": 2,
    "prismline_valkey_url": "valkey://simulated",
}
#: The same for constants: module, name, value.
SMALL_LIMITS = (
    ("prismline_splitter.ingestion", "TASKS_OF_ONE_SHARD", 3),
    ("prismline_splitter.ingestion", "LEAST_BLOCK_TASKS", 2),
    ("prismline_splitter.ingestion", "BLOCK_TASKS_PER_SHARD", 1),
    ("prismline_splitter.ingestion", "MAX_SHARDS", 3),
    ("prismline_splitter.ingestion", "MAX_TASKS_PER_MESSAGE", 2),
    ("prismline_ledger.deleting", "MAX_SHARDS", 3),
    ("prismline_api.submission", "TASKS_PER_MESSAGE", 2),
    ("prismline_api.open_jobs", "SHARD_COUNT", 2),
    ("prismline_dlq_consumer.sweeper", "MAX_TASKS_PER_MESSAGE", 2),
    ("prismline_dlq_consumer.recovery.failed_tasks", "RETRY_TASKS", 2),
    ("prismline_exporter.exporting", "MIN_PART_BYTES", 100),
    ("prismline_exporter.exporting", "TASKS_PER_PAGE", 2),
)
#: Modules whose threads are those of the scheduler.
WITH_THREADS = (
    "prismline_runtime.consumer",
    "prismline_worker.function_tasks",
    "prismline_worker.run_queues",
    "prismline_worker.runners",
)


class Finding(Exception):  # noqa: N818
    """A broken promise of a schedule: its name, and a message."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"{check}: {message}")
        self.check = check
        self.message = message

    @property
    def kind(self) -> str:
        """A text that is the same for findings that differ only in numbers and names."""
        return f"{self.check}: {re.sub('[0-9]+', 'N', self.message)[:60]}"


class World:
    """One schedule's account, processes and clock. Use it within `with world.alive():`."""

    def __init__(self, plan: Plan, choices: Choices, trace: Trace) -> None:
        import_services()
        self.plan = plan
        self.choices = choices
        self.trace = trace
        self.scheduler = Scheduler(choices, trace)
        self.aws = blueprint(ENVIRONMENT).build(self.scheduler)
        self.faults = Faults(plan, self.scheduler, self.aws, self.look_at)
        self.scheduler.on_delivery = self.faults.deliver
        self.aws.stepfunctions.task_fault = self.faults.task
        self.aws.tables[self.runs_table].index_lag = plan.index_lag
        for table in self.aws.tables.values():
            table.read_lag = plan.read_lag
        self.processes: list[Process] = []
        self.consumers: list[Consumer] = []
        self._consumers_of: dict[str, list[Consumer]] = {}
        #: Invocations with messages: (handler, queue).
        self.handled: Counter[tuple[str, ...]] = Counter()
        self.closing = False
        self.finding: Finding | None = None
        self.gpu = "up"
        #: Called with each message just before it is deleted from a queue.
        self.on_acknowledged: Callable[[str, Any], None] = lambda _queue, _message: None
        self._watch_queues()
        if plan.lists:
            self.aws.on_commit.append(self._watch_runs)
        if plan.retention is not None:
            self._shorten_retention(plan.retention)
        if plan.count_lag:
            self._count_late(plan.count_lag)
        self.logger = TraceLogger(self.scheduler, self.unexpected)

    # ---- names

    def queue(self, name: str) -> Any:
        """A queue of the account by its short name."""
        return self.aws.queues[f"prismline-{ENVIRONMENT}-{name}"]

    @property
    def runs_table(self) -> str:
        return f"prismline-{ENVIRONMENT}-runs"

    @property
    def jobs_table(self) -> str:
        return f"prismline-{ENVIRONMENT}-jobs"

    @property
    def states_table(self) -> str:
        return f"prismline-{ENVIRONMENT}-workflow-state"

    @property
    def bucket(self) -> str:
        return next(iter(self.aws.objects))

    @property
    def code(self) -> str:
        """The digest of the function's code in all workers."""
        upgraded = self.plan.upgraded_at
        return CODES[upgraded is not None and self.seconds() >= upgraded]

    # ---- life

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Run the project's code in this world within the block."""
        with virtual(self.scheduler), replaced(_replacements(self)):
            StandInFitter.work = self.scheduler.wait
            StandInFitter.clock = self.seconds
            StandInFitter.mended = {number: run.mended_at for number, run in enumerate(self.plan.runs, 1)}
            if self.plan.part_bytes is not None:
                storage.PART_BYTES = self.plan.part_bytes
            self.scheduler.adversary = self.faults
            try:
                yield
            finally:
                self.closing = True
                self.scheduler.close(self.processes)

    def start_services(self) -> None:
        """Start the processes of the plan."""
        self.consumers = list(consumers(self))
        for consumer in self.consumers:
            for queue in consumer.queues:
                self._consumers_of.setdefault(queue.name, []).append(consumer)
            consumer.start()

    def new_handler(self, path: str) -> Handler:
        """The handler of a new process of a service."""
        return made_handler(path)

    def connection(self) -> Connection:
        """The connection of the command line."""
        connection = Connection(ENVIRONMENT)
        aws: Any = self.aws
        connection.__dict__.update(
            dynamodb=aws.dynamodb,
            s3=aws.s3,
            ledger=Ledger(aws.dynamodb, self.runs_table),
            bucket=self.bucket,
            transport=Transport(
                environment=ENVIRONMENT, service="cli", sqs=aws.sqs, events=aws.events, stepfunctions=aws.stepfunctions
            ),
        )
        return connection

    # ---- questions of processes

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Calls within the block do not belong to the current process: they take no time and do not fail."""
        current, self.scheduler.current = self.scheduler.current, None
        try:
            yield
        finally:
            self.scheduler.current = current

    def next_visible(self, queue: Any) -> float | None:
        """The moment at which a message of a queue is or becomes visible."""
        moment: float | None = queue.next_visible_at()
        return moment

    def is_down(self, dependency: str) -> bool:
        """Whether a dependency is down at this moment."""
        return self.faults.outage(dependency) is not None

    def timeout(self, queue: Any) -> float:
        """Timeout of the Lambda function of a queue, in seconds."""
        return next(source.timeout for source in self.aws.event_sources if source.queue == queue.name)

    @staticmethod
    def settings_of(settings: type[BaseSettings]) -> BaseSettings:
        """The settings of a service."""
        return _settings(settings)()

    # ---- queues of runs

    @staticmethod
    def is_run_queue(name: str) -> bool:
        """Whether a queue with this full name belongs to one run."""
        return name.startswith(_RUN_QUEUES) and not name.endswith("-dlq")

    def run_queues(self) -> list[Any]:
        """The queues with messages that belong to runs that go on. A worker polls these, or will soon know them."""
        found = [queue for name, queue in self.aws.queues.items() if queue.messages and self.is_run_queue(name)]
        return [queue for queue in found if self._goes_on(queue.tags[RUN_QUEUE_TAG])]

    def _goes_on(self, run_id: str) -> bool:
        item = self.aws.tables[self.runs_table].get(run_id, "RUN") or {}
        if item.get("GSI2_PK") != OPEN_RUNS or item.get("cancelled_at") is not None:
            return False
        return item.get("drained_at") is None or due_finalization(RunItem.model_validate(item)) is not None

    def _watch_runs(self, changes: Sequence[Any]) -> None:
        """After the change of a run, workers look again which queues they poll."""
        if any(change.table == self.runs_table and change.key[1] == "RUN" for change in changes):
            for name in [name for name in self.aws.queues if self.is_run_queue(name)]:
                self.look_at(name)

    def _watch_queues(self) -> None:
        """Observe every deleted message, and every queue in which a message may have become visible."""
        sqs = self.aws.sqs
        delete, held = sqs.delete, sqs.held

        def watched(operation_name: str, queue: Any, receipt: str) -> None:
            _, message = held(operation_name, queue, receipt)
            if message is not None and message.receipt == receipt:
                self.on_acknowledged(queue.name, message)
            delete(operation_name, queue, receipt)

        enqueue, hide, give_up = sqs.enqueue, sqs.hide, sqs.give_up

        def enqueued(queue: Any, *arguments: Any, **named: Any) -> Any:
            message = enqueue(queue, *arguments, **named)
            self.look_at(queue.name)
            return message

        def hidden(operation_name: str, queue: Any, receipt: str, seconds: int) -> None:
            hide(operation_name, queue, receipt, seconds)
            self.look_at(queue.name)

        def given_up(queue: Any, *arguments: Any) -> None:
            give_up(queue, *arguments)
            self.look_at(queue.dead_letter_queue)

        vars(sqs).update(delete=watched, enqueue=enqueued, hide=hidden, give_up=given_up)

    def _shorten_retention(self, seconds: float) -> None:
        """Shorten the retention of the queues of LOSABLE until the faults are over."""
        for name in LOSABLE:
            queue = self.queue(name)
            deployed, queue.retention = queue.retention, seconds

            def restore(queue: Any = queue, deployed: float = deployed) -> None:
                queue.expire(self.scheduler.time)
                queue.retention = deployed

            self.scheduler.at(START + self.plan.faults_end, restore, "")

    def _count_late(self, seconds: float) -> None:
        """Make SQS report old numbers of messages of a queue."""
        sqs, known = self.aws.sqs, dict[tuple[str, ...], list[tuple[float, dict[str, Any]]]]()
        ask = sqs.get_queue_attributes

        def asked(*, QueueUrl: str, AttributeNames: Sequence[str] = ()) -> dict[str, Any]:  # noqa: N803
            answers = known.setdefault((QueueUrl, *AttributeNames), [])
            now = self.scheduler.time
            answers.append((now, ask(QueueUrl=QueueUrl, AttributeNames=AttributeNames)))
            while len(answers) > 1 and answers[1][0] <= now - seconds:
                answers.pop(0)
            return answers[0][1] if answers[0][0] >= now - 2 * seconds else answers[-1][1]

        vars(sqs).update(get_queue_attributes=asked)

    def look_at(self, queue: str) -> None:
        """Wake the processes that wait for a message of a queue, if there is one."""
        known = queue_name(ENVIRONMENT, Queue.TASKS) if self.is_run_queue(queue) else queue
        if queue in self.aws.queues:
            for consumer in self._consumers_of.get(known, ()):
                for wait in consumer.waits:
                    wait.look(self.aws.queues[queue])

    # ---- the model and the GPU

    def set_gpu(self, state: str) -> None:
        """`up`: the instance runs and its model answers. `mute`: it runs but does not answer. `down`: there is none."""
        self.trace.note(self.scheduler.time, "gpu", state)
        self.gpu = state
        tags = resource_tags(ENVIRONMENT, GPU)
        self.aws.instances[INSTANCE] = Instance("stopped" if state == "down" else "running", "10.0.0.7", tags)

    def ask_model(self, path: str, answer: Callable[[], httpx.Response]) -> httpx.Response:
        """A request to the caption model."""

        def perform() -> httpx.Response:
            if self.gpu != "up":
                raise httpx.ConnectError("connection refused")
            return answer()

        response: httpx.Response = self.scheduler.gate("model", path.rpartition("/")[2], {}, perform)
        if path != "/models":
            self.scheduler.wait(MODEL_SECONDS)
        return response

    # ---- findings

    def found(self, check: str, message: str) -> None:
        """Record a finding: the schedule ends here."""
        if self.finding is None:
            self.finding = Finding(check, message)
            self.trace.note(self.scheduler.time, "FOUND", str(self.finding))
        raise StoppedError

    def unexpected(self, what: str) -> None:
        """Record an error that a service did not expect."""
        if "injected" not in what and ".simulated" not in what:
            self.found("expected errors only", what)

    def seconds(self) -> float:
        """Virtual seconds since the beginning."""
        return self.scheduler.time - START


# ---- replacements in the services


def made_handler(path: str) -> Handler:
    """A new handler, made by the wiring of its service. path: `module:function` of the service's entry point."""
    handler: Handler = import_module(path.partition(":")[0]).process_handler.__wrapped__()
    return handler


@cache
def import_services() -> None:
    """Import every service, so that names in its modules can be replaced."""
    for service in _packages():
        package = import_module(service)
        for module in pkgutil.walk_packages(package.__path__, f"{service}."):
            import_module(module.name)


@cache
def _packages() -> list[str]:
    """The packages of the services that the simulation runs."""
    return sorted({declared_services()[name].package for name in (*SERVICES, *LIST_SERVICES)})


@cache
def _settings(settings: type[BaseSettings]) -> Callable[[], BaseSettings]:
    """The settings of a service in the deployment. They are the same in all worlds, so they are read once."""
    before = dict(os.environ)
    os.environ.update({"ENVIRONMENT": ENVIRONMENT, "WORKDIR": scratch_folder(), **blueprint(ENVIRONMENT).outputs})
    try:
        made = settings()
    finally:
        os.environ.clear()
        os.environ.update(before)
    small = {name: value for name, value in SMALL_SETTINGS.items() if name in settings.model_fields}
    made = made.model_copy(update=small)
    return lambda: made


class _Http:
    """The module `httpx`, whose clients reach the world's model."""

    def __init__(self, world: World) -> None:
        self._world = world

    def Client(self, **_: Any) -> CaptionModel:
        """A client that can only reach the model."""
        return CaptionModel(self._world.ask_model)

    def __getattr__(self, name: str) -> Any:
        return getattr(httpx, name)


def _client(name: str, world: World) -> Callable[[], Any]:
    return lambda: getattr(world.aws, name)


def _settings_of(made: type[BaseSettings], _: World) -> Callable[[], BaseSettings]:
    return _settings(made)


@cache
def _wired() -> list[tuple[Any, str, Callable[[World], Any]]]:
    """Names in the services' modules, with their replacements in a world."""
    found: list[tuple[Any, str, Callable[[World], Any]]] = []
    found += [
        (clients, name, partial(_client, name)) for name in ("dynamodb", "ec2", "events", "s3", "sqs", "stepfunctions")
    ]
    dependencies = [import_module(f"{service}.dependencies") for service in _packages()]
    found += [(module, "service_logger", lambda world: lambda _: world.logger) for module in dependencies]
    for module in (*dependencies, dynamodb, server, transport):
        found += [
            (module, name, partial(_settings_of, value))
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, BaseSettings)
        ]
    worker = import_module("prismline_worker.dependencies")
    spectra = import_module("prismline_splitter.workloads.spectra")
    output = import_module("prismline_worker.output")
    open_cube = spectra.open_cube
    found.append((spectra, "open_cube", lambda _: partial(open_cube_once, open_cube)))
    found.append((output, "COMPRESSION", lambda _: "none"))
    captions = import_module("prismline_worker.workloads.captions")
    found.append((worker, "FitProcess", lambda _: StandInFitter))
    found.append((worker, "process_name", lambda world: lambda: world.scheduler.running_thread().name))
    found.append((worker, "PresignedRanges", lambda _: lambda _: None))  # all calls go through the world's clients
    found.append((captions, "httpx", _Http))
    found.append((import_module("prismline_worker.handler"), "UrlTasks", lambda _: StandInUrls))
    found += [(import_module(module), "threading", lambda _: virtual_threading) for module in WITH_THREADS]
    found.append((import_module("prismline_worker.function_tasks"), "queue", lambda _: virtual_queue))
    found.append((import_module("prismline.supervisor"), "RunnerProcess", StandInRunner.of))
    found.append((import_module("prismline_webhooks.dependencies"), "Poster", lambda _: StandInPoster))
    found += [(import_module(module), name, partial(_same, value)) for module, name, value in SMALL_LIMITS]
    found.append((storage, "PART_BYTES", lambda _: storage.PART_BYTES))
    return found


def _same(value: Any, _: World) -> Any:
    return value


def _replacements(world: World) -> list[tuple[Any, str, Any]]:
    return [(module, name, meaning(world)) for module, name, meaning in _wired()]
