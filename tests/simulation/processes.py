"""The services' processes: functions with an event source mapping, or processes with the runtime's consumers.

A process that crashes loses its memory. Its messages come back when their visibility timeout ends, and the process
starts again after a while.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from prismline_contracts.commands import dead_letter_queue_name, polled_queues
from prismline_contracts.pools import pool_queue
from prismline_ledger import Ledger
from prismline_localstack.registry import POOL_HANDLER
from prismline_runtime import consumer as runtime
from prismline_runtime.consumer import lambda_record, unfinished
from prismline_runtime.settings import ConsumerSettings
from prismline_worker import run_queues
from tests.simulation.functions import POOL
from tests.simulation.scheduler import Process
from tests.simulation.virtual import VirtualLock

if TYPE_CHECKING:
    from tests.simulation.world import World

ROOT = Path(__file__).parents[2]

#: Seconds until a process that crashed runs again.
RESTART_SECONDS = (1.0, 10.0, 90.0)
#: Seconds between two receives while the queue cannot be reached. The pauses grow, because the receives of an
#: hour change nothing and cost as much processor time as a run.
RECEIVE_PAUSES = (20.0, 20.0, 60.0, 180.0, 600.0)

#: Most batches of a queue that a process works on at a time. More show no other interleaving of two of them.
MOST_PARALLEL = 2

Handler = Callable[[dict[str, Any], Any], Any]


@dataclass(frozen=True)
class Service:
    """A kind of process: one table of a `pyproject.toml`."""

    name: str
    #: `module:function`
    handler: str
    queues: tuple[str, ...]
    batch_size: int
    #: Batches of each queue that a process works on at a time.
    parallel: int
    #: Whether it also polls the queues of single runs.
    more_queues: bool

    @property
    def package(self) -> str:
        """The package of the service that it belongs to."""
        return self.handler.partition(".")[0]


@cache
def declared_services() -> Mapping[str, Service]:
    """The processes that the services declare, by name."""
    found = {}
    for path in sorted(ROOT.glob("services/*/pyproject.toml")):
        for table in tomllib.loads(path.read_text()).get("tool", {}).get("prismline", {}).get("processes", []):
            if "handler" in table:
                found[table["name"]] = Service(
                    table["name"],
                    table["handler"],
                    tuple(polled_queues(table["queues"])),
                    table.get("batch_size", 10),
                    min(table.get("parallel", 1), MOST_PARALLEL),
                    "more_queues" in table,
                )
    return found


class Context:
    """The second argument of a Lambda handler."""

    def __init__(self, world: World, deadline: float) -> None:
        self._world = world
        self._deadline = deadline

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the invocation is killed."""
        return max(0, round((self._deadline - self._world.scheduler.time) * 1000))


class Wait:
    """One thread's wait for messages. Everything that makes a message visible calls `look`."""

    def __init__(self, world: World, process: Process, queues: Sequence[Any], *, run_queues: bool = False) -> None:
        self._world, self._scheduler, self.process = world, world.scheduler, process
        self._names, self._run_queues = {queue.name for queue in queues}, run_queues
        #: When the thread looks again, while it waits.
        self.looks_at: float | None = None

    def visible(self, queues: Callable[[], Sequence[Any]], most: float = float("inf")) -> list[Any]:
        """Wait for a visible message in one of `queues`, at most some seconds. Returns the queues that have one."""
        scheduler, next_visible = self._scheduler, self._world.next_visible
        end = scheduler.time + most
        while True:
            due, earliest = [], end
            for queue in queues():
                if queue.messages and (moment := next_visible(queue)) is not None:
                    if moment <= scheduler.time:
                        due.append(queue)
                    earliest = min(earliest, moment)
            if due or end <= scheduler.time:
                self.looks_at = None
                return due
            self.looks_at = float("inf")
            self._wake_at(earliest)
            scheduler.park(self.process)

    def look(self, queue: Any) -> None:
        """If the thread waits for a message, wake it when there is one in `queue`."""
        if self.looks_at is None or not queue.messages:
            return
        polled = queue.name in self._names or (self._run_queues and self._world.is_run_queue(queue.name))
        if polled and (moment := self._world.next_visible(queue)) is not None:
            self._wake_at(moment)

    def _wake_at(self, moment: float) -> None:
        moment = max(moment, self._scheduler.time)
        if self.looks_at is not None and self.process.running and moment < self.looks_at:
            self.looks_at = moment
            self._scheduler.wake_at(self.process, moment)


class LongPolls:
    """The SQS client of one of the runtime's consumers.

    A receive that would return nothing is no call: its thread waits until there is a message. While SQS cannot be
    reached, the thread receives, or looks its queue up, more and more seldom.
    """

    def __init__(self, world: World, wait: Wait, queue: Any, *, several: bool) -> None:
        self._world, self._wait, self._own, self._several = world, wait, queue, several
        self._failures = 0

    def receive_message(self, *, QueueUrl: str, WaitTimeSeconds: int, **parameters: Any) -> Any:  # noqa: N803
        """Receive once there is a message in the queue. Return no messages once there is one in another queue."""
        queue = self._world.aws.queues.get(QueueUrl.rpartition("/")[2])
        if queue is not None and not self._has_message(queue, WaitTimeSeconds):
            return {}
        try:
            answer = self._world.aws.sqs.receive_message(QueueUrl=QueueUrl, **parameters)
        except (ClientError, BotoCoreError):
            if queue is not None:
                self._pause()
            raise
        self._failures = 0
        if messages := answer.get("Messages"):
            self._world.faults.repeat(queue, messages)
        return answer

    def get_queue_url(self, **parameters: Any) -> Any:
        """Look a queue up."""
        try:
            return self._world.aws.sqs.get_queue_url(**parameters)
        except (ClientError, BotoCoreError):
            if self._world.faults.outage("sqs") is not None:
                self._pause()
            raise

    def _pause(self) -> None:
        self._world.scheduler.wait(RECEIVE_PAUSES[min(self._failures, len(RECEIVE_PAUSES) - 1)])
        self._failures += 1

    def _has_message(self, queue: Any, seconds: int) -> bool:
        only, wait = (lambda: [queue]), self._wait.visible
        if not self._several:
            return bool(wait(only))
        if wait(only, 0):
            return True
        if seconds == 0:
            return False
        if wait(self._queues, 0):  # the consumer polls another queue next, or will soon know it
            return bool(wait(only, seconds))
        return queue in wait(self._queues)

    def _queues(self) -> list[Any]:
        return [self._own, *self._world.run_queues()]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.aws.sqs, name)


class Consumer:
    """One process of a service."""

    def __init__(self, world: World, service: Service, name: str) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self.service = service
        self.name = name
        self.process: Process | None = None
        self.queues = [world.queue(queue) for queue in service.queues]
        #: What its threads wait for.
        self.waits: list[Wait] = []
        #: The runtime's consumers in it. A function has none.
        self._consumers: list[runtime.Consumer] = []
        self._handler: Handler | None = None
        #: The process does not start before this moment.
        self._paused_until = float("-inf")
        self._restarts = world.choices.stream(f"{name}/restart")
        #: Whether it behaves like a Lambda function. No function polls queues that no template declares.
        self._is_function = world.plan.functions and not service.more_queues

    # ---- life

    def start(self, at: float | None = None) -> None:
        """Start the process."""
        self._handler, self.waits, self._consumers = None, [], []
        serve = self._serve_events if self._is_function else self._serve
        self.process = self._scheduler.spawn(self.name, self.service.name, serve, at=at, ended=self._ended)
        self._world.processes.append(self.process)

    def stop(self, *, release: bool) -> None:
        """Kill the process. With `release` it first makes its messages visible, as after SIGTERM without a grace."""
        process = self.process
        if process is None or not process.running:
            return
        self._world.trace.note(self._scheduler.time, self.name, "KILLED" + (" (deploy)" if release else ""))
        if release and self._consumers and process.life.frozen_by is None:
            self._scheduler.spawn_thread(process, "shutdown", self._shut_down)
        else:
            self._scheduler.kill(process)

    def _shut_down(self, process: Process) -> None:
        for consumer in self._consumers:
            consumer.stop()
        for consumer in self._consumers:
            consumer.release()
        self._scheduler.kill(process)

    def pause(self, seconds: float) -> None:
        """Let no process run for a while."""
        self._paused_until = self._scheduler.time + seconds
        self._world.trace.note(self._scheduler.time, self.name, f"PAUSED for {seconds:g} s")
        self.stop(release=True)

    def _ended(self, process: Process) -> None:
        if process is self.process and not self._world.closing:
            seconds = RESTART_SECONDS[self._restarts.below(len(RESTART_SECONDS))]
            self._world.trace.note(self._scheduler.time, self.name, f"starts again in {seconds:g} s")
            self.start(max(self._scheduler.time + seconds, self._paused_until))

    def _call(self, event: dict[str, Any], context: Any) -> Any:
        """The handler of the process, made for its first message."""
        queue = event["Records"][0]["eventSourceARN"].rpartition(":")[2]
        self._world.handled[self.service.handler.replace(":", "."), queue] += 1
        if self._handler is None:
            self._handler = self._world.new_handler(self.service.handler)
        return self._handler(event, context)

    # ---- the runtime's consumers, as `prismline-runtime` starts them

    def _serve(self, process: Process) -> None:
        world, service = self._world, self.service
        more_queues = None
        if service.more_queues:
            dynamodb: Any = world.aws.dynamodb
            more_queues = run_queues.RunQueues(Ledger(dynamodb, world.runs_table), clock=world.seconds)
        turns = runtime.polled_in_turns(
            [queue.name for queue in self.queues],
            batch_size=service.batch_size,
            parallel=service.parallel,
            more_queues=more_queues,
        )
        of_threads = []
        for of_turn in turns:
            turn = VirtualLock()
            of_threads += [partial(self._consume, polled, turn) for polled in of_turn]
        for number, consume in enumerate(of_threads[1:], 2):
            self._scheduler.spawn_thread(process, str(number), consume)
        of_threads[0](process)

    def _consume(self, polled: runtime.Polled, turn: Any, thread: Process) -> None:
        queue, several = self._world.aws.queues[polled.queue_name], polled.more_queues is not None
        wait = Wait(self._world, thread, [queue], run_queues=several)
        self.waits.append(wait)
        sqs: Any = LongPolls(self._world, wait, queue, several=several)
        settings: Any = self._world.settings_of(ConsumerSettings)
        logger: Any = self._world.logger
        consumer = runtime.Consumer(
            sqs=sqs, polled=polled, handler=self._call, settings=settings, logger=logger, turn=turn
        )
        self._consumers.append(consumer)
        consumer.run()

    # ---- Lambda's event source mapping

    def _serve_events(self, process: Process) -> None:
        wait = Wait(self._world, process, self.queues)
        self.waits.append(wait)
        receives = self._scheduler.choices.stream(f"{self.name}/receive")
        failures = 0
        while True:
            due = wait.visible(lambda: self.queues)
            queue = due[receives.below(len(due))] if len(due) > 1 else due[0]
            process.deadline = float("inf")
            try:
                answer = self._world.aws.sqs.receive_message(
                    QueueUrl=queue.url,
                    MaxNumberOfMessages=self.service.batch_size,
                    MessageSystemAttributeNames=["All"],
                    MessageAttributeNames=["All"],
                )
            except (ClientError, BotoCoreError):
                self._scheduler.wait(RECEIVE_PAUSES[min(failures, len(RECEIVE_PAUSES) - 1)])
                failures += 1
                continue
            failures = 0
            if messages := answer.get("Messages"):
                self._world.faults.repeat(queue, messages)
                self._invoke(process, queue, messages)

    def _invoke(self, process: Process, queue: Any, messages: list[Mapping[str, Any]]) -> None:
        process.deadline = self._scheduler.time + self._world.timeout(queue)
        received = {message["MessageId"] for message in messages}
        try:
            records = [lambda_record(message, queue.arn) for message in messages]  # type: ignore[arg-type]
            answer = self._call({"Records": records}, Context(self._world, process.deadline))
            failed = unfinished(answer, received)
        except Exception as error:  # like Lambda: all of them come back
            self._world.unexpected(f"{self.name}: the handler raised {error!r}")
            failed = received
        done = [message["ReceiptHandle"] for message in messages if message["MessageId"] not in failed]
        if done:
            entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(done)]
            with suppress(ClientError, BotoCoreError):
                self._world.aws.sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)


def with_pool(services: Mapping[str, Service]) -> Mapping[str, Service]:
    """The workers of the pool, and the dead-letter consumer, which also takes its dead letters."""
    queue, fetcher, consumer = pool_queue(POOL), services["fetcher"], services["dlq-consumer"]
    workers = replace(fetcher, name=queue, handler=POOL_HANDLER, queues=(queue,), more_queues=False)
    dead_letters = replace(consumer, queues=(*consumer.queues, dead_letter_queue_name(queue)))
    return {queue: workers, consumer.name: dead_letters}


def consumers(world: World) -> Iterator[Consumer]:
    """The processes of the plan."""
    plan = world.plan
    counts = {
        "splitter": plan.splitters,
        "worker": plan.workers,
        "slow-lane": plan.slow_lanes,
        "status": plan.status_services,
        "dlq-consumer": plan.dead_letter_consumers,
        "recovery": plan.dead_letter_consumers,
        "sweeper": plan.sweepers,
    }
    if plan.lists:
        counts |= {"fetcher": plan.fetchers, "exporter": plan.exporters, "webhooks": 1}
    services = dict(declared_services())
    if any(each.pool for each in plan.lists):
        services |= with_pool(services)
        counts[pool_queue(POOL)] = plan.fetchers
    for name, count in counts.items():
        service = services[name]
        for number in range(1, count + 1):
            yield Consumer(world, service, name if count == 1 else f"{name}-{number}")
