"""The services' processes: receive, call the handler, delete; like Lambda's event source mapping or like the runtime.

A process that crashes loses its memory. Its messages come back when their visibility timeout ends, and the process
starts again after a while.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from prismline_contracts.commands import polled_queues
from prismline_runtime.consumer import lambda_record, unfinished
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

ROOT = Path(__file__).parents[2]

#: Seconds for which the runtime's consumer hides a message; it renews that after half of them.
VISIBILITY_SECONDS = 60
#: Longest invocation in seconds.
INVOCATION_SECONDS = 900.0
#: Seconds until a process that crashed runs again.
RESTART_SECONDS = (1.0, 10.0, 90.0)
#: Seconds between two receives while the queue cannot be reached. The pauses grow, because the receives of an
#: hour change nothing and cost as much processor time as a run.
RECEIVE_PAUSES = (20.0, 20.0, 60.0, 180.0, 600.0)

Handler = Callable[[dict[str, Any], Any], Any]


@dataclass(frozen=True)
class Service:
    """A kind of process: one table of a `pyproject.toml`."""

    name: str
    #: `module:function`
    handler: str
    queues: tuple[str, ...]
    batch_size: int
    #: Whether it also polls the queues of single runs.
    more_queues: bool = False

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
                    more_queues="more_queues" in table,
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


class Consumer:
    """One process of a service."""

    def __init__(self, world: World, service: Service, name: str) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self.service = service
        self.name = name
        self.process: Process | None = None
        self.queues = [world.queue(queue) for queue in service.queues]
        #: Receipt handles of the messages in work, and the URL of their queue.
        self._in_flight: list[str] = []
        self._url = ""
        self._invocation = 0
        #: When the process receives again, while it waits for a message.
        self.looks_at: float | None = None
        #: The process does not start before this moment.
        self._paused_until = float("-inf")
        #: When the renewal thread extends the visibility timeout of the messages in work.
        self.renews_at: float | None = None
        self._restarts = world.choices.stream(f"{name}/restart")
        self._polls_run_queues = service.more_queues
        #: Whether it behaves like a Lambda function. No function polls queues that no template declares.
        self._is_function = world.plan.functions and not service.more_queues

    # ---- life

    def start(self, at: float | None = None) -> None:
        """Start the process."""
        self._in_flight, self.renews_at = [], None
        self._invocation += 1
        self.looks_at = None
        self.process = self._scheduler.spawn(self.name, self.service.name, self._serve, at=at, ended=self._ended)
        self._world.processes.append(self.process)

    def stop(self, *, release: bool) -> None:
        """Kill the process. With `release` its messages become visible at once, as after SIGTERM."""
        if self.process is None or not self.process.running:
            return
        if release and self._in_flight:
            self._set_visibility(0)
        self._world.trace.note(self._scheduler.time, self.name, "KILLED" + (" (deploy)" if release else ""))
        self._scheduler.kill(self.process)

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

    # ---- work

    def _serve(self, process: Process) -> None:
        handler: Handler | None = None
        receives = self._scheduler.choices.stream(f"{self.name}/receive")
        hidden: dict[str, Any] = {} if self._is_function else {"VisibilityTimeout": VISIBILITY_SECONDS}
        failures = 0
        while True:
            due = self._await_message(process)
            queue = due[receives.below(len(due))] if len(due) > 1 else due[0]
            self._url = queue.url
            process.deadline = float("inf")
            try:
                answer = self._world.aws.sqs.receive_message(
                    QueueUrl=queue.url,
                    MaxNumberOfMessages=self.service.batch_size,
                    MessageSystemAttributeNames=["All"],
                    MessageAttributeNames=["All"],
                    **hidden,
                )
            except (ClientError, BotoCoreError):
                self._scheduler.wait(RECEIVE_PAUSES[min(failures, len(RECEIVE_PAUSES) - 1)])
                failures += 1
                continue
            failures = 0
            if messages := answer.get("Messages"):
                self._world.faults.repeat(queue, messages)
                handler = handler or self._world.new_handler(self.service.handler)
                self._invoke(process, handler, queue, messages)

    def _await_message(self, process: Process) -> list[Any]:
        """Wait until a queue has a visible message. Return the queues that have one."""
        scheduler, next_visible = self._scheduler, self._world.next_visible
        while True:
            due, earliest = [], float("inf")
            for queue in (*self.queues, *self._world.run_queues()) if self._polls_run_queues else self.queues:
                if queue.messages and (moment := next_visible(queue)) is not None:
                    if moment <= scheduler.time:
                        due.append(queue)
                    earliest = min(earliest, moment)
            if due:
                self.looks_at = None
                return due
            self.looks_at = float("inf")
            self._wake_at(earliest)
            scheduler.park(process)

    def look(self, queue: Any) -> None:
        """If the process waits for a message, wake it when there is one in `queue`."""
        if self.looks_at is not None and queue.messages and (moment := self._world.next_visible(queue)) is not None:
            self._wake_at(moment)

    def _wake_at(self, moment: float) -> None:
        if self.looks_at is None or self.process is None or not self.process.running:
            return
        moment = max(moment, self._scheduler.time)
        if moment < self.looks_at:
            self.looks_at = moment
            self._scheduler.wake_at(self.process, moment)

    def _invoke(self, process: Process, handler: Handler, queue: Any, messages: list[Mapping[str, Any]]) -> None:
        scheduler, functions = self._scheduler, self._is_function
        self._in_flight = [message["ReceiptHandle"] for message in messages]
        self._invocation += 1
        seconds = self._world.timeout(queue) if functions else INVOCATION_SECONDS
        if functions:
            process.deadline = scheduler.time + seconds
        else:
            self._keep_hidden(self._invocation)
        context = Context(self._world, scheduler.time + seconds)
        received = {message["MessageId"] for message in messages}
        try:
            records = [lambda_record(message, queue.arn) for message in messages]  # type: ignore[arg-type]
            answer = handler({"Records": records}, context)
            failed = unfinished(answer, received)
        except Exception as error:  # like the consumer: all of them come back
            self._world.unexpected(f"{self.name}: the handler raised {error!r}")
            failed = received
        self._invocation += 1
        done = [message["ReceiptHandle"] for message in messages if message["MessageId"] not in failed]
        self._in_flight, self.renews_at = [], None
        if done:
            entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(done)]
            try:
                self._world.aws.sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)
            except (ClientError, BotoCoreError):
                return

    def _keep_hidden(self, invocation: int) -> None:
        """The renewal thread: renews after half of the visibility timeout, until the invocation ends or is frozen."""

        def renew() -> None:
            process = self.process
            if self._invocation != invocation or process is None or not process.running:
                return
            if not process.frozen and not self._world.is_down("sqs"):
                self._set_visibility(VISIBILITY_SECONDS)
            later()

        def later() -> None:
            self.renews_at = self._scheduler.time + VISIBILITY_SECONDS / 2
            self._scheduler.at(self.renews_at, renew, "")

        later()

    def _set_visibility(self, seconds: int) -> None:
        entries = [
            {"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for n, handle in enumerate(self._in_flight)
        ]
        current, self._scheduler.current = self._scheduler.current, None
        try:
            with suppress(ClientError):  # the queue of a run may be gone
                self._world.aws.sqs.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
        finally:
            self._scheduler.current = current


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
    for name, count in counts.items():
        service = declared_services()[name]
        for number in range(1, count + 1):
            yield Consumer(world, service, name if count == 1 else f"{name}-{number}")
