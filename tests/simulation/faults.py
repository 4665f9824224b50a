"""The adversary: decides how long each call takes and how it fails.

botocore's own retries are not simulated: an error here is one that remains after these retries. The services' own
retries happen in virtual time.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Self

import httpx
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, ReadTimeoutError
from valkey.exceptions import ConnectionError as ValkeyConnectionError

from tests.simulation.plan import DAY, LATENCIES, LATENCY_PROFILES, MINUTE, VALKEY, Outage, Plan
from tests.simulation.scheduler import START, CrashedError, Process, Scheduler
from tests.simulation.trace import clock, short

#: Rules whose events may be lost for good, because their target failed longer than EventBridge retries: those
#: between our services. The manifest's event is not one of them, because no process would repeat it.
DROPPABLE = frozenset({"run-events", "execution-events"})
#: Seconds for which EventBridge retries a delivery.
DELIVERY_SECONDS = DAY

#: Most repeated deliveries in a schedule: each repeated message may be repeated again.
MOST_REPEATS = 6
#: A call that takes longer than so many seconds may cost an attempt: half of a consumer's visibility timeout.
HARMFUL_SECONDS = 25.0

#: Each service's error code for throttling.
_THROTTLED = {
    "dynamodb": "ProvisionedThroughputExceededException",
    "s3": "SlowDown",
    "ec2": "RequestLimitExceeded",
    "sqs": "RequestThrottled",
}
#: Operations of DynamoDB that may leave some of their items unprocessed.
_BATCHES_OF_ITEMS = frozenset({"batch_get_item", "batch_write_item"})
#: Operations that change nothing, so that an error after them equals an error before them.
_READS = frozenset({"get_item", "query", "batch_get_item", "get_object", "head_object", "list_objects_v2"})

#: Operations by which a consumer looks for work: a process that crashes there loses nothing.
_LOOKS = frozenset({"get_queue_url", "get_queue_attributes"})


class Faults:
    """Injects the faults that the plan allows, where the choices say so. `struck` counts (kind, service, operation)."""

    def __init__(self, plan: Plan, scheduler: Scheduler, aws: Any, on_queue: Callable[[str], None]) -> None:
        self.plan = plan
        self._aws = aws
        #: Called with each queue in which a message becomes visible.
        self._on_queue = on_queue
        self._scheduler = scheduler
        self._latencies = (*tuple(accumulate(LATENCY_PROFILES[plan.network]))[:-1], 1.0)
        shares = [share for _, share in plan.faults]
        #: Interval 0 is no fault, the others are the plan's kinds in order.
        self._shares = (1.0 - sum(shares), *(1.0 - sum(shares) + total for total in accumulate(shares)))
        self._shares = (*self._shares[:-1], 1.0)
        self._kinds = [kind for kind, _ in plan.faults]
        self._left = plan.most_faults
        self._repeats_left = MOST_REPEATS
        #: Number of faults, and of calls so slow that they are as bad as one: these may use up the attempts at a chunk.
        self.harm = 0
        self._end = START + plan.chaos_seconds
        self._bus = scheduler.choices.stream("bus")
        self._outages = [outage for outage in plan.outages if outage.seconds > 0]
        #: When the outage of a dependency ends, for dependencies with intermittent outages.
        self.struck: Counter[tuple[str, str, str]] = Counter()
        #: The last fault, if it crashed its process.
        self.crash = ""

    # ---- the adversary of the scheduler

    def latency(self, process: Process) -> float:
        """Seconds until a call of `process` arrives."""
        if self._scheduler.time >= self._end:
            return LATENCIES[0]
        seconds = LATENCIES[process.latencies.weighted(self._latencies)]
        if seconds >= HARMFUL_SECONDS:
            self.harm += 1
        return seconds

    def perform(
        self, process: Process, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]
    ) -> Any:
        """One call, with what befalls it."""
        if not process.trusted:
            if self._outages:
                outage = self.outage(dependency_of(service, parameters))
                if outage is not None:
                    return self._during_outage(outage, process, service, operation, parameters, perform)
            if self._left > 0:
                kind = self._strike(process, service, operation, parameters)
                if kind is not None:
                    return self._faultily(kind, process, service, operation, parameters, perform)
        if not self._scheduler.trace.on:
            return perform()
        return self._plainly(process, service, operation, parameters, perform)

    def outage(self, dependency: str) -> Outage | None:
        """The outage of a dependency at this moment."""
        since = self._scheduler.time - START
        for outage in self._outages:
            if outage.dependency == dependency and outage.start <= since < outage.end:
                return outage
        return None

    # ---- calls

    def _trace(
        self, process: Process, service: str, operation: str, parameters: Mapping[str, Any], effect: str
    ) -> None:
        self._scheduler.trace.call(self._scheduler.time, process.name, service, operation, parameters, effect)

    def _plainly(
        self, process: Process, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]
    ) -> Any:
        if not self._scheduler.trace.on:
            return perform()
        try:
            answer = perform()
        except (ClientError, BotoCoreError, httpx.HTTPError) as error:
            self._trace(process, service, operation, parameters, f"{error}")
            raise
        self._trace(process, service, operation, parameters, effect_of(operation, answer))
        return answer

    def _during_outage(
        self,
        outage: Outage,
        process: Process,
        service: str,
        operation: str,
        parameters: Mapping[str, Any],
        perform: Callable[[], Any],
    ) -> Any:
        done = ""
        if outage.lossy and operation not in _READS and process.faults.chance(0.5):
            with suppress(ClientError, BotoCoreError):
                perform()
            done = ", but it was done"
        self.struck["outage", service, operation] += 1
        if self._scheduler.trace.on:
            self._trace(process, service, operation, parameters, f"OUTAGE of {outage.dependency}{done}")
        raise unreachable(service, lost=bool(done))

    def _strike(self, process: Process, service: str, operation: str, parameters: Mapping[str, Any]) -> str | None:
        """The fault of this call. None: there is none."""
        if self._left <= 0 or self._scheduler.time >= self._end:
            return None
        if self.plan.struck and process.service not in self.plan.struck:
            return None
        chosen = process.faults.weighted(self._shares)
        if chosen == 0:
            return None
        kind = self._kinds[chosen - 1]
        if not applies(kind, service, operation, parameters):
            return None
        self._left -= 1
        self.harm += 1
        self.struck[kind, service, operation] += 1
        return kind

    def _faultily(
        self,
        kind: str,
        process: Process,
        service: str,
        operation: str,
        parameters: Mapping[str, Any],
        perform: Callable[[], Any],
    ) -> Any:
        note = f"FAULT {kind}"
        self.crash = kind if kind.startswith("crash") else ""
        match kind:
            case "crash before":
                self._trace(process, service, operation, parameters, note)
                process.life.running = False
                raise CrashedError
            case "crash after":
                with suppress(ClientError, BotoCoreError, httpx.HTTPError):
                    perform()
                self._trace(process, service, operation, parameters, f"done, FAULT {kind}")
                process.life.running = False
                raise CrashedError
            case "error before":
                self._trace(process, service, operation, parameters, note)
                raise unreachable(service)
            case "error after":
                with suppress(ClientError, BotoCoreError, httpx.HTTPError):
                    perform()
                self._trace(process, service, operation, parameters, f"done, FAULT {kind}")
                raise unreachable(service, lost=True)
            case "throttle":
                self._trace(process, service, operation, parameters, note)
                return throttled(service, operation, parameters)
            case "freeze":
                self._trace(process, service, operation, parameters, note)
                with self._scheduler.freezing(process):
                    self._scheduler.wait((40.0, 200.0, 17 * MINUTE, 45 * MINUTE)[process.faults.below(4)])
                self._scheduler.expire(process)
                return self._plainly(process, service, operation, parameters, perform)
            case "conflict":
                self._trace(process, service, operation, parameters, note)
                raise conflict(service, operation, parameters)
            case "broken stream":
                answer = perform()
                self._trace(process, service, operation, parameters, note)
                return {**answer, "Body": BrokenStream(process.faults.below(3))}
            case _:
                answer = self._partly(service, operation, parameters)
                self._trace(process, service, operation, parameters, f"FAULT {kind}")
                return answer

    def _partly(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
        """The first half of a batch is accepted, the rest is refused."""
        if operation in _BATCHES_OF_ITEMS:
            return self._partly_processed(operation, parameters["RequestItems"])
        entries = list(parameters["Entries"])
        taken, refused = entries[: len(entries) // 2], entries[len(entries) // 2 :]
        answer: dict[str, Any] = {}
        if taken:
            process, self._scheduler.current = self._scheduler.current, None
            try:
                answer = getattr(getattr(self._aws, service), operation)(**{**parameters, "Entries": taken})
            finally:
                self._scheduler.current = process
        if service == "events":
            error = {"ErrorCode": "InternalFailure", "ErrorMessage": "injected"}
            return {
                "FailedEntryCount": len(refused),
                "Entries": answer.get("Entries", []) + [error for _ in refused],
            }
        failed = [
            {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError", "Message": "injected"}
            for entry in refused
        ]
        return {**answer, "Failed": failed}

    def _partly_processed(self, operation: str, request: Mapping[str, Any]) -> Any:
        """The first half of the items of one table is processed, the rest is not."""
        ((table, asked),) = request.items()
        reads = operation == "batch_get_item"
        items = list(asked["Keys"] if reads else asked)
        taken, left = items[: len(items) // 2], items[len(items) // 2 :]
        answer: dict[str, Any] = {"Responses": {}} if reads else {}
        if taken:
            process, self._scheduler.current = self._scheduler.current, None
            try:
                wanted = {table: {**asked, "Keys": taken} if reads else taken}
                answer = getattr(self._aws.dynamodb, operation)(RequestItems=wanted)
            finally:
                self._scheduler.current = process
        rest = {table: {**asked, "Keys": left} if reads else left}
        return {**answer, ("UnprocessedKeys" if reads else "UnprocessedItems"): rest}

    # ---- SQS

    def repeat(self, queue: Any, messages: Sequence[Mapping[str, Any]]) -> None:
        """Deliver some of the received messages once more, now or later."""
        if not self.plan.repeated or self._scheduler.time >= self._end:
            return
        for message in messages:
            if self._repeats_left > 0 and self._bus.chance(self.plan.repeated):
                self._repeats_left -= 1
                copy = self._aws.sqs.redeliver(queue.name, message["MessageId"])
                if copy is not None:
                    copy.visible_at = self._scheduler.time + (0.0, 2.0, 40.0, 15 * MINUTE)[self._bus.below(4)]
                    self.struck["repeated", "sqs", queue.name] += 1
                    self._scheduler.trace.note(
                        self._scheduler.time, "sqs", f"REPEATS a message of {queue.name} at {clock(copy.visible_at)}"
                    )
                    self._on_queue(queue.name)

    # ---- Step Functions

    def task(self, execution: Any, state: str) -> tuple[str, str] | None:
        """The error of a state machine's own call of SQS or EventBridge. None: it succeeds.

        Half of the failed calls had their effect, so that the task's message comes twice, with two tokens.
        """
        service = "sqs" if ":sqs:" in execution.machine.states[state].raw["Resource"] else "events"
        outage = self.outage(service)
        if outage is None and not self._strikes_task():
            return None
        done = (outage is None or outage.lossy) and self._bus.chance(0.5)
        return self.fail_task(execution, state, done=done, kind="outage" if outage else "error")

    def fail_task(self, execution: Any, state: str, *, done: bool, kind: str = "error") -> tuple[str, str]:
        """The error of a task that had no effect, or that had its effect (`done`) and got no answer."""
        machine = self._aws.stepfunctions
        task = execution.machine.states[state]
        service = "sqs" if ":sqs:" in task.raw["Resource"] else "events"
        if done:
            parameters = task.parameters(machine.input_of(execution, task), machine.context_of(execution))
            (machine.send_message if service == "sqs" else machine.put_events)(parameters)
            kind = f"{kind} after"
        self.struck[kind, "states", state] += 1
        self._scheduler.trace.note(self._scheduler.time, "states", f"FAULT {kind} in {state}")
        return ("SQS.SdkClientException" if service == "sqs" else "EventBridge.SdkClientException", "injected")

    def _strikes_task(self) -> bool:
        if self._left <= 0 or self._scheduler.time >= self._end or self.plan.struck or not self._kinds:
            return False
        if not self._bus.chance(0.1):
            return False
        self._left -= 1
        return True

    # ---- EventBridge

    def deliver(self, seconds: float, action: Any, label: str) -> None:
        """A delivery: at least once, at some time; never, if its target fails longer than EventBridge retries."""
        scheduler, plan = self._scheduler, self.plan
        rule = label.removeprefix("deliver:").partition(" ")[0]
        if scheduler.time < self._end:
            if plan.dropped and rule.endswith(tuple(DROPPABLE)) and self._bus.chance(plan.dropped):
                self._give_up(action, label, scheduler.time + self._delay())
                return
            if plan.doubled and self._bus.chance(plan.doubled):
                self.struck["doubled", "events", rule] += 1
                scheduler.at(scheduler.time + seconds + self._delay(), action, f"{label} AGAIN")
            if plan.late and self._bus.chance(plan.late):
                self.struck["late", "events", rule] += 1
                seconds += self._delay()
        self._when_up(scheduler.time + seconds, action, label, since=scheduler.time)

    def _delay(self) -> float:
        return (1.0, 30.0, 5 * MINUTE, 40 * MINUTE)[self._bus.below(4)]

    def _when_up(self, moment: float, action: Any, label: str, *, since: float) -> None:
        """Deliver at `moment`, or once SQS is up, unless that takes too long."""
        scheduler = self._scheduler
        ends = [
            START + outage.end
            for outage in self._outages
            if outage.dependency == "sqs" and outage.start <= moment - START < outage.end
        ]
        if not ends:
            scheduler.at(moment, action, label)
        elif max(ends) - since <= DELIVERY_SECONDS:
            self._when_up(max(ends) + 1.0, action, label, since=since)
        else:
            self._give_up(action, label, max(ends) + 1.0)

    def _give_up(self, action: Any, label: str, moment: float) -> None:
        """The target failed longer than EventBridge retries: send the event to its dead-letter queue, if it has one."""
        self.struck["given up", "events", label] += 1
        self._scheduler.trace.note(self._scheduler.time, "aws", f"FAULT given up: {label}")
        self._scheduler.at(moment, action.fail, f"{label} to its dead-letter queue")


def dependency_of(service: str, parameters: Mapping[str, Any]) -> str:
    """The dependency that a call needs."""
    if service == "dynamodb":
        return "workflow-state" if str(parameters.get("TableName", "")).endswith("workflow-state") else "ledger"
    return service


def applies(kind: str, service: str, operation: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a kind of fault can strike a call."""
    match kind:
        case "conflict":
            return operation in {"transact_write_items", "update_item"} or (
                operation == "put_object" and ("IfNoneMatch" in parameters or "IfMatch" in parameters)
            )
        case "broken stream":
            return operation == "get_object"
        case "freeze":
            return operation not in _LOOKS and operation != "receive_message"
        case "crash before":
            return operation not in _LOOKS
        case "partial":
            if operation in _BATCHES_OF_ITEMS:
                return True
            return (
                operation in {"send_message_batch", "put_events", "delete_message_batch"}
                and len(parameters["Entries"]) > 0
            )
        case "error after" | "crash after":
            return operation not in _READS
        case _:
            return True


def unreachable(service: str, *, lost: bool = False) -> Exception:
    """The error of a service that does not answer. `lost`: it had received the request."""
    if service == "model":
        return httpx.ReadTimeout("no answer") if lost else httpx.ConnectError("connection refused")
    if service == VALKEY:
        return ValkeyConnectionError("no answer" if lost else "connection refused")
    if lost:
        return ReadTimeoutError(endpoint_url=f"https://{service}.simulated")
    return EndpointConnectionError(endpoint_url=f"https://{service}.simulated")


def throttled(service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
    """The answer or the error of a throttled request. A transaction of several items is cancelled with a reason."""
    if service == VALKEY:
        raise unreachable(service)
    if service == "model":
        return httpx.Response(429, headers={"retry-after": "5"})
    if operation == "transact_write_items" and len(parameters["TransactItems"]) > 1:
        reasons = [{"Code": "None"} for _ in parameters["TransactItems"]]
        reasons[-1] = {"Code": "ThrottlingError", "Message": "Throughput exceeds the current capacity of your table"}
        raise _client_error("TransactionCanceledException", operation, CancellationReasons=reasons)
    raise _client_error(_THROTTLED.get(service, "ThrottlingException"), operation)


def conflict(service: str, operation: str, parameters: Mapping[str, Any]) -> ClientError:
    """The error of a write that conflicts with another one."""
    if service == "s3":
        return _client_error("ConditionalRequestConflict", operation)
    if operation == "update_item":
        return _client_error("TransactionConflictException", operation)
    reasons = [{"Code": "None"} for _ in parameters["TransactItems"]]
    reasons[-1] = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
    return _client_error("TransactionCanceledException", operation, CancellationReasons=reasons)


class BrokenStream:
    """The body of an object whose connection breaks while it is read."""

    def __init__(self, how: int) -> None:
        self._error = (
            ssl.SSLError("injected: decryption failed or bad record mac"),
            OSError(28, "injected: no space left on device"),
            MemoryError("injected"),
        )[how]

    def read(self, _size: int | None = None) -> bytes:
        """Raise the error."""
        raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def effect_of(operation: str, answer: Any) -> str:
    """A short text for an answer."""
    if operation == "receive_message":
        return ", ".join(f"{m['MessageId'][:8]}" for m in answer.get("Messages", ())) or "nothing"
    if operation in {"get_item", "update_item"}:
        item = answer.get("Item") or answer.get("Attributes")
        return short({name: next(iter(value.values())) for name, value in item.items()}) if item else "ok"
    if isinstance(answer, Mapping) and answer.get("Failed"):
        return short(answer)
    return "ok"


def _client_error(code: str, operation: str, **more: Any) -> ClientError:
    response: dict[str, Any] = {"Error": {"Code": code, "Message": "injected"}, **more}
    return ClientError(response, operation)  # type: ignore[arg-type]
