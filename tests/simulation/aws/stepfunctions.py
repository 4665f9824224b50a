"""Step Functions: standard executions of a state machine, with task tokens, timeouts, retries and catches.

Every step of an execution is a timer of the hub: `states:<execution>:<state>` enters a state or tries its task,
`timeout:<execution>:<state>` ends a task that was not answered. The consequences of an answer also happen in a timer,
never inside the call.
"""
# ruff: noqa: A002, N803  boto3's parameter names

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tests.simulation.aws import asl
from tests.simulation.aws.asl import StatesError, Template
from tests.simulation.aws.base import ACCOUNT, REGION, Client, client_error, operation

#: Most bytes of an input, an output or a task's parameters.
MAX_PAYLOAD_BYTES = 256 * 1024
#: Errors that no `States.ALL` catches or retries.
UNCATCHABLE = frozenset({"States.Runtime", "States.DataLimitExceeded"})
#: The defaults of a retrier.
DEFAULT_INTERVAL, DEFAULT_ATTEMPTS, DEFAULT_BACKOFF = 1.0, 3, 2.0

WAIT_FOR_TOKEN = ".waitForTaskToken"


@dataclass(frozen=True)
class State:
    """A state with compiled expressions."""

    name: str
    kind: str
    raw: Mapping[str, Any]
    parameters: Template | None
    selector: Template | None
    choices: tuple[tuple[asl.Rule, str], ...]


@dataclass(frozen=True)
class StateMachine:
    """A state machine with its compiled definition."""

    name: str
    start_at: str
    states: Mapping[str, State]
    #: Timeout of an execution in seconds.
    timeout: float | None

    @property
    def arn(self) -> str:
        return machine_arn(self.name)


@dataclass
class Execution:
    """An execution and its progress."""

    arn: str
    name: str
    machine: StateMachine
    input: str
    #: Seconds since the epoch.
    started: float
    status: str = "RUNNING"
    stopped: float | None = None
    output: str | None = None
    error: str | None = None
    cause: str | None = None
    #: The present state, or the last one.
    state: str = ""
    #: All entered states, in order.
    visited: list[str] = field(default_factory=list)
    #: The token with which the current task waits. None between tasks.
    token: str | None = None
    #: The input, parsed, and the data between two states. Neither is ever changed in place.
    document: Any = None
    data: Any = None
    #: Timestamps in the form of the context object.
    start_time: str = ""
    entered_time: str = ""
    #: Upper bound of the data's size as JSON, in bytes.
    size: int = 0
    #: Number of uses of each retrier of the current state.
    retries: dict[int, int] = field(default_factory=dict)
    #: Number of the step. A timer of an earlier step does nothing.
    step: int = 0
    heartbeat: float = 0.0

    @property
    def running(self) -> bool:
        return self.status == "RUNNING"


def machine_arn(name: str) -> str:
    """The ARN of the state machine `name`."""
    return f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}"


def machine_of(name: str, definition: Mapping[str, Any]) -> StateMachine:
    """The state machine of a definition. Raises ValueError if a part of it is not simulated."""
    states = {key: _state(key, raw) for key, raw in definition["States"].items()}
    for state in states.values():
        for following in _successors(state.raw):
            if following not in states:
                raise ValueError(f"{state.name} leads to {following}, which does not exist")
    return StateMachine(name, definition["StartAt"], states, definition.get("TimeoutSeconds"))


def _successors(raw: Mapping[str, Any]) -> Iterable[str]:
    for entry in (raw, *raw.get("Choices", ()), *raw.get("Catch", ())):
        if "Next" in entry:
            yield entry["Next"]
    if "Default" in raw:
        yield raw["Default"]


def _state(name: str, raw: Mapping[str, Any]) -> State:
    kind = raw["Type"]
    if kind not in _ENTER:
        raise ValueError(f"{name}: {kind} states are not simulated")
    if kind == "Task" and raw["Resource"].partition(":::")[2].removesuffix(WAIT_FOR_TOKEN) not in _TASKS:
        raise ValueError(f"{name}: {raw['Resource']} is not simulated")
    return State(
        name,
        kind,
        raw,
        asl.compile_template(raw["Parameters"]) if "Parameters" in raw else None,
        asl.compile_template(raw["ResultSelector"]) if "ResultSelector" in raw else None,
        tuple((asl.compile_choice(rule), rule["Next"]) for rule in raw.get("Choices", ())),
    )


class StepFunctions(Client):
    """The part of boto3's Step Functions client that Prismline uses, and the service behind it."""

    service = "stepfunctions"

    def __init__(self, aws: Any) -> None:
        super().__init__(aws)
        self._machines: dict[str, StateMachine] = aws.state_machines
        self._executions: dict[str, Execution] = aws.executions
        #: The execution that waits or waited with a token.
        self._tokens: dict[str, Execution] = {}
        self._numbers = 0
        #: Seconds between an answer or a start and the next step.
        self.transition_seconds = 0.0
        #: Whether a retried task keeps its token, as in the emulator. On AWS it gets a new one.
        self.tokens_reused = False
        #: Called before each call of a task. Returns error and cause if the call has to fail.
        self.task_fault: Callable[[Execution, str], tuple[str, str] | None] | None = None

    # ---- the client

    @operation
    def create_state_machine(self, *, name: str, definition: str, **others: Any) -> dict[str, Any]:
        machine = machine_of(name, json.loads(definition))
        self._machines[machine.arn] = machine
        return {"stateMachineArn": machine.arn, "creationDate": _moment(self._hub.now())}

    @operation
    def start_execution(
        self, *, stateMachineArn: str, name: str | None = None, input: str = "{}", traceHeader: str = ""
    ) -> dict[str, Any]:
        execution = self.start(stateMachineArn, input, name)
        return {"executionArn": execution.arn, "startDate": _moment(execution.started)}

    def start(self, machine_arn: str, text: str, name: str | None = None) -> Execution:
        """Start an execution, without a gate. If one runs with this name and the same input, return that one."""
        machine = self._machines.get(machine_arn)
        if machine is None:
            raise client_error(
                "StartExecution", "StateMachineDoesNotExist", f"State Machine Does Not Exist: '{machine_arn}'"
            )
        try:
            data = json.loads(text)
        except ValueError:
            raise client_error(
                "StartExecution", "InvalidExecutionInput", "Invalid State Machine Execution Input"
            ) from None
        if name is None:
            self._numbers += 1
            name = f"execution-{self._numbers:08d}"
        arn = f"{machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
        known = self._executions.get(arn)
        if known is not None:
            if known.running and known.input == text:
                return known
            raise client_error("StartExecution", "ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
        execution = Execution(arn, name, machine, text, self._hub.now(), document=data, data=data)
        execution.start_time = _iso(execution.started)
        execution.size = len(text.encode())
        self._executions[arn] = execution
        self._announce(execution)
        if machine.timeout is not None:
            self._hub.call_later(machine.timeout, lambda: self._time_out(execution), f"timeout:{name}")
        self._later(execution, machine.start_at, lambda: self._enter(execution, machine.start_at))
        return execution

    @operation
    def describe_execution(self, *, executionArn: str, **others: Any) -> dict[str, Any]:
        execution = self._execution("DescribeExecution", executionArn)
        answer: dict[str, Any] = {
            "executionArn": execution.arn,
            "stateMachineArn": execution.machine.arn,
            "name": execution.name,
            "status": execution.status,
            "startDate": _moment(execution.started),
            "input": execution.input,
        }
        if execution.stopped is not None:
            answer["stopDate"] = _moment(execution.stopped)
        for name in ("output", "error", "cause"):
            if getattr(execution, name) is not None:
                answer[name] = getattr(execution, name)
        return answer

    @operation
    def get_execution_history(self, *, executionArn: str, **others: Any) -> dict[str, Any]:
        """The history, with only the entered states."""
        execution = self._execution("GetExecutionHistory", executionArn)
        entered = [
            {
                "id": number,
                "type": f"{execution.machine.states[name].kind}StateEntered",
                "stateEnteredEventDetails": {"name": name},
            }
            for number, name in enumerate(execution.visited, 1)
        ]
        return {"events": entered}

    @operation
    def stop_execution(
        self, *, executionArn: str, error: str | None = None, cause: str | None = None
    ) -> dict[str, Any]:
        execution = self._execution("StopExecution", executionArn)
        if execution.running:
            self._end(execution, "ABORTED", error=error, cause=cause)
        return {"stopDate": _moment(execution.stopped or self._hub.now())}

    @operation
    def send_task_success(self, *, taskToken: str, output: str) -> dict[str, Any]:
        execution = self._waiting("SendTaskSuccess", taskToken)
        try:
            result = json.loads(output)
        except ValueError:
            raise client_error("SendTaskSuccess", "InvalidOutput", "Invalid Output: 'Not valid JSON'") from None
        execution.size += 2 * len(output)
        self._answer(execution, lambda: self._succeed(execution, result))
        return {}

    @operation
    def send_task_failure(self, *, taskToken: str, error: str = "", cause: str = "") -> dict[str, Any]:
        execution = self._waiting("SendTaskFailure", taskToken)
        self._answer(execution, lambda: self._fail(execution, StatesError(error, cause)))
        return {}

    @operation
    def send_task_heartbeat(self, *, taskToken: str) -> dict[str, Any]:
        self._waiting("SendTaskHeartbeat", taskToken).heartbeat = self._hub.now()
        return {}

    def _waiting(self, operation_name: str, token: str) -> Execution:
        execution = self._tokens.get(token)
        if execution is None:
            raise client_error(operation_name, "InvalidToken", "Invalid Token: 'Invalid token'")
        if not execution.running or execution.token != token:
            raise client_error(operation_name, "TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
        return execution

    def _execution(self, operation_name: str, arn: str) -> Execution:
        execution = self._executions.get(arn)
        if execution is None:
            raise client_error(operation_name, "ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
        return execution

    # ---- steps

    def _later(
        self, execution: Execution, state: str, action: Callable[[], None], seconds: float | None = None
    ) -> None:
        """Run `action` as the execution's next step, unless another step comes first."""
        execution.step += 1
        step = execution.step

        def due() -> None:
            if execution.running and execution.step == step:
                execution.step += 1
                self._guarded(execution, action)

        wait = self.transition_seconds if seconds is None else seconds
        self._hub.call_later(wait, due, f"states:{execution.name}:{state}")

    def _guarded(self, execution: Execution, action: Callable[[], None]) -> None:
        try:
            action()
        except StatesError as error:
            self._fail(execution, error)

    def _answer(self, execution: Execution, action: Callable[[], None]) -> None:
        """Accept the answer of a task. Its token becomes invalid at once; the next step comes later."""
        execution.token = None
        self._later(execution, execution.state, action)

    def _enter(self, execution: Execution, name: str) -> None:
        execution.state = name
        execution.visited.append(name)
        execution.entered_time = _iso(self._hub.now())
        execution.retries = {}
        state = execution.machine.states[name]
        _ENTER[state.kind](self, execution, state)

    def _leave(self, execution: Execution, state: State, data: Any) -> None:
        """Continue with `data`: to the next state, or to the end."""
        if "OutputPath" in state.raw:
            path = state.raw["OutputPath"]
            data = {} if path is None else asl.compile_path(path)(data, self.context_of(execution))
        if execution.size > MAX_PAYLOAD_BYTES and len(asl.to_json(data).encode()) > MAX_PAYLOAD_BYTES:
            raise StatesError("States.DataLimitExceeded", f"The output of {state.name} is too large.")
        execution.data = data
        if state.raw.get("End"):
            self._end(execution, "SUCCEEDED", output=asl.to_json(data))
        else:
            self._enter(execution, state.raw["Next"])

    def input_of(self, execution: Execution, state: State) -> Any:
        if "InputPath" not in state.raw:
            return execution.data
        path = state.raw["InputPath"]
        return {} if path is None else asl.compile_path(path)(execution.data, self.context_of(execution))

    def context_of(self, execution: Execution) -> dict[str, Any]:
        """The context object, `$$`."""
        return {
            "Execution": {
                "Id": execution.arn,
                "Name": execution.name,
                "Input": execution.document,
                "StartTime": execution.start_time,
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/states",
            },
            "StateMachine": {"Id": execution.machine.arn, "Name": execution.machine.name},
            "State": {
                "Name": execution.state,
                "EnteredTime": execution.entered_time,
                "RetryCount": sum(execution.retries.values()),
            },
            "Task": {"Token": execution.token},
        }

    # ---- states

    def enter_pass(self, execution: Execution, state: State) -> None:
        data = self.input_of(execution, state)
        if "Result" in state.raw:
            result = state.raw["Result"]
        elif state.parameters is not None:
            result = state.parameters(data, self.context_of(execution))
        else:
            result = data
        self._leave(execution, state, asl.with_result(execution.data, state.raw.get("ResultPath", "$"), result))

    def enter_choice(self, execution: Execution, state: State) -> None:
        data, context = self.input_of(execution, state), self.context_of(execution)
        for holds, following in state.choices:
            if holds(data, context):
                self._enter(execution, following)
                return
        if "Default" not in state.raw:
            raise StatesError("States.NoChoiceMatched", f"No choice of {state.name} matched.")
        self._enter(execution, state.raw["Default"])

    def enter_succeed(self, execution: Execution, state: State) -> None:
        self._end(execution, "SUCCEEDED", output=asl.to_json(self.input_of(execution, state)))

    def enter_fail(self, execution: Execution, state: State) -> None:
        failure = {}
        for name in ("Error", "Cause"):
            path = state.raw.get(f"{name}Path")
            failure[name.lower()] = (
                state.raw.get(name)
                if path is None
                else asl.compile_expression(path)(execution.data, self.context_of(execution))
            )
        self._end(execution, "FAILED", **failure)

    def enter_wait(self, execution: Execution, state: State) -> None:
        raw, context = state.raw, self.context_of(execution)
        data = self.input_of(execution, state)
        if "Seconds" in raw or "SecondsPath" in raw:
            seconds = raw["Seconds"] if "Seconds" in raw else asl.compile_path(raw["SecondsPath"])(data, context)
        else:
            path = raw.get("TimestampPath")
            moment = raw["Timestamp"] if path is None else asl.compile_path(path)(data, context)
            seconds = max(0.0, datetime.fromisoformat(moment).timestamp() - self._hub.now())
        self._later(execution, state.name, lambda: self._leave(execution, state, data), float(seconds))

    def enter_task(self, execution: Execution, state: State) -> None:
        self._try_task(execution, state, token=None)

    def _try_task(self, execution: Execution, state: State, token: str | None) -> None:
        """Call the task's service. Then wait for the answer to the token, or continue with the service's answer."""
        resource: str = state.raw["Resource"].partition(":::")[2]
        waits = resource.endswith(WAIT_FOR_TOKEN)
        if waits:
            execution.token = token or self._new_token(execution)
        data, context = self.input_of(execution, state), self.context_of(execution)
        parameters = state.parameters(data, context) if state.parameters is not None else data
        fault = self.task_fault(execution, state.name) if self.task_fault is not None else None
        if fault is not None:
            raise StatesError(*fault)
        result = _TASKS[resource.removesuffix(WAIT_FOR_TOKEN)](self, parameters)
        if waits:
            self._watch(execution, state, data, context)
        else:
            self._succeed(execution, result)

    def _new_token(self, execution: Execution) -> str:
        self._numbers += 1
        token = f"token-{self._numbers:08d}-{execution.name}"
        self._tokens[token] = execution
        return token

    def _watch(self, execution: Execution, state: State, data: Any, context: Mapping[str, Any]) -> None:
        """Set the task's timeouts."""
        token = execution.token
        execution.heartbeat = self._hub.now()
        timeout = _seconds(state, "TimeoutSeconds", data, context)
        heartbeat = _seconds(state, "HeartbeatSeconds", data, context)
        label = f"timeout:{execution.name}:{state.name}"
        tried = execution.step

        def still_waits() -> bool:
            return execution.running and execution.token == token and execution.step == tried

        def give_up(error: str) -> None:
            execution.token = None
            execution.step += 1
            self._guarded(execution, lambda: self._fail(execution, StatesError(error, "")))

        def timed_out() -> None:
            if still_waits():
                give_up("States.Timeout")

        def check_heartbeat() -> None:
            if not still_waits():
                return
            left = execution.heartbeat + (heartbeat or 0.0) - self._hub.now()
            if left > 0:
                self._hub.call_later(left, check_heartbeat, label)
            else:
                give_up("States.HeartbeatTimeout")

        if timeout is not None:
            self._hub.call_later(timeout, timed_out, label)
        if heartbeat is not None:
            self._hub.call_later(heartbeat, check_heartbeat, label)

    def send_message(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        body = parameters["MessageBody"]
        text = body if isinstance(body, str) else asl.to_json(body)
        queue = self._aws.queues.get(parameters["QueueUrl"].rpartition("/")[2])
        if queue is None:
            raise StatesError("SQS.AmazonSQSException", "The specified queue does not exist.")
        if len(text.encode()) > MAX_PAYLOAD_BYTES:
            raise StatesError("States.DataLimitExceeded", "The message is too large.")
        message = self._aws.sqs.enqueue(
            queue, text, parameters.get("MessageAttributes"), parameters.get("DelaySeconds")
        )
        return {"MessageId": message.message_id}

    def put_events(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        answers = []
        for entry in parameters["Entries"]:
            detail = entry.get("Detail")
            text = detail if isinstance(detail, str) else asl.to_json(detail)
            answers.append(self._aws.events.put_entry({**entry, "Detail": text}))
        failed = [answer for answer in answers if "ErrorCode" in answer]
        if failed:
            raise StatesError("EventBridge.FailedEntry", asl.to_json(failed))
        return {"Entries": answers, "FailedEntryCount": 0}

    def _succeed(self, execution: Execution, result: Any) -> None:
        state = execution.machine.states[execution.state]
        if state.selector is not None:
            result = state.selector(result, self.context_of(execution))
        self._leave(execution, state, asl.with_result(execution.data, state.raw.get("ResultPath", "$"), result))

    def _fail(self, execution: Execution, error: StatesError) -> None:
        """Retry the state, follow a catcher, or end."""
        state = execution.machine.states[execution.state]
        token, execution.token = execution.token, None
        wait = self._wait_before_retry(execution, state, error.error)
        if wait is not None:
            again = (token or self._last_token(execution)) if self.tokens_reused else None
            self._later(execution, state.name, lambda: self._try_task(execution, state, again), wait)
            return
        catcher = next(
            (each for each in state.raw.get("Catch", ()) if _matches(each["ErrorEquals"], error.error)), None
        )
        if catcher is None:
            self._end(execution, "FAILED", error=error.error, cause=error.cause)
            return
        failure = {"Error": error.error, "Cause": error.cause}
        execution.data = asl.with_result(execution.data, catcher.get("ResultPath", "$"), failure)
        self._guarded(execution, lambda: self._enter(execution, catcher["Next"]))

    @staticmethod
    def _wait_before_retry(execution: Execution, state: State, error: str) -> float | None:
        """Count the next retry and return the seconds until it. None: there is no retry left."""
        for number, retrier in enumerate(state.raw.get("Retry", ())):
            if _matches(retrier["ErrorEquals"], error):
                used = execution.retries.get(number, 0)
                if used >= retrier.get("MaxAttempts", DEFAULT_ATTEMPTS):
                    return None
                execution.retries[number] = used + 1
                growth = retrier.get("BackoffRate", DEFAULT_BACKOFF) ** used
                wait: float = retrier.get("IntervalSeconds", DEFAULT_INTERVAL) * growth
                return min(wait, float(retrier.get("MaxDelaySeconds", wait)))
        return None

    def _last_token(self, execution: Execution) -> str | None:
        return next((token for token, owner in reversed(self._tokens.items()) if owner is execution), None)

    def _time_out(self, execution: Execution) -> None:
        if execution.running:
            self._end(execution, "TIMED_OUT", error="States.Timeout", cause=None)

    def _end(
        self,
        execution: Execution,
        status: str,
        *,
        output: str | None = None,
        error: str | None = None,
        cause: str | None = None,
    ) -> None:
        execution.step += 1
        execution.token = None
        execution.status = status
        execution.stopped = self._hub.now()
        execution.output, execution.error, execution.cause = output, error, cause
        self._announce(execution)

    def _announce(self, execution: Execution) -> None:
        """Publish the execution's status on the default bus."""
        included = {"included": True}
        self._aws.events.accept(
            "default",
            source="aws.states",
            detail_type="Step Functions Execution Status Change",
            resources=[execution.arn],
            detail={
                "executionArn": execution.arn,
                "stateMachineArn": execution.machine.arn,
                "name": execution.name,
                "status": execution.status,
                "startDate": round(execution.started * 1000),
                "stopDate": None if execution.stopped is None else round(execution.stopped * 1000),
                "input": execution.input,
                "inputDetails": included,
                "output": execution.output,
                "outputDetails": included if execution.output is not None else None,
                "error": execution.error,
                "cause": execution.cause,
            },
        )


def _matches(names: Iterable[str], error: str) -> bool:
    for name in names:
        if name == error:
            return True
        if name == "States.ALL" and error not in UNCATCHABLE:
            return True
        if name == "States.TaskFailed" and error != "States.Timeout" and error not in UNCATCHABLE:
            return True
        if name == "States.Timeout" and error == "States.HeartbeatTimeout":
            return True
    return False


def _seconds(state: State, name: str, data: Any, context: Mapping[str, Any]) -> float | None:
    if f"{name}Path" in state.raw:
        return float(asl.compile_path(state.raw[f"{name}Path"])(data, context))
    return float(state.raw[name]) if name in state.raw else None


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


@lru_cache(maxsize=1024)
def _iso(seconds: float) -> str:
    return _moment(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_ENTER: dict[str, Callable[[StepFunctions, Execution, State], None]] = {
    "Task": StepFunctions.enter_task,
    "Pass": StepFunctions.enter_pass,
    "Choice": StepFunctions.enter_choice,
    "Wait": StepFunctions.enter_wait,
    "Succeed": StepFunctions.enter_succeed,
    "Fail": StepFunctions.enter_fail,
}

_TASKS: dict[str, Callable[[StepFunctions, Mapping[str, Any]], dict[str, Any]]] = {
    "sqs:sendMessage": StepFunctions.send_message,
    "events:putEvents": StepFunctions.put_events,
}
