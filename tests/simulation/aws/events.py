"""EventBridge: buses, rules, and the deliveries to their targets."""
# ruff: noqa: N803  boto3's parameter names

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tests.simulation.aws.base import ACCOUNT, REGION, Client, client_error, operation
from tests.simulation.aws.patterns import Predicate, compile_input, compile_pattern

#: Largest entry, in bytes, and most entries of one call.
MAX_ENTRY_BYTES = 256 * 1024
MAX_ENTRIES = 10

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_UNITS = {"minute": 60, "hour": 3600, "day": 86400}


@dataclass(frozen=True)
class Target:
    """The target of a rule, and the form of its events."""

    target_id: str
    #: ARN of a queue or a state machine.
    arn: str
    #: `(event, event as JSON) -> text`
    text: Callable[[Mapping[str, Any], str], str]
    #: ARN of the queue for events that could not be delivered.
    dead_letter_arn: str | None = None


class Delivery:
    """The delivery of one event to one target: the action of the hub's timer `deliver:<rule>`.

    Each call delivers the event once. `fail` does what EventBridge does after its last retry.
    """

    def __init__(self, aws: Any, rule: Rule, target: Target, text: str, event_text: str) -> None:
        self._aws = aws
        self.rule = rule
        self.target = target
        self.text = text
        self._event_text = event_text

    def __call__(self) -> None:
        _, _, service, _, _, name = self.target.arn.split(":", 5)
        if service == "sqs":
            queue = self._aws.queues.get(name)
            if queue is not None:
                self._aws.sqs.enqueue(queue, self.text)
        elif service == "states":
            self._aws.stepfunctions.start(self.target.arn, self.text)

    def fail(self) -> None:
        """Send the event to the target's dead-letter queue. Without such a queue the event is lost."""
        if self.target.dead_letter_arn is None:
            return
        reasons = {
            "ERROR_CODE": "SDK_CLIENT_ERROR",
            "EXHAUSTED_RETRY_CONDITION": "MaximumEventAgeInSeconds",
            "RULE_ARN": self.rule.arn,
            "TARGET_ARN": self.target.arn,
        }
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in reasons.items()}
        queue = self._aws.queues[self.target.dead_letter_arn.rpartition(":")[2]]
        self._aws.sqs.enqueue(queue, self._event_text, attributes)


@dataclass
class Rule:
    """A rule of a bus."""

    name: str
    bus: str
    #: None for a schedule.
    matches: Predicate | None
    targets: list[Target] = field(default_factory=list)
    #: Seconds between two events of a schedule. 0: there is no schedule.
    every: float = 0.0
    enabled: bool = True

    @property
    def arn(self) -> str:
        bus = "" if self.bus == "default" else f"{self.bus}/"
        return f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{bus}{self.name}"

    def copy(self) -> Rule:
        return Rule(self.name, self.bus, self.matches, list(self.targets), self.every, self.enabled)


class Events(Client):
    """The part of boto3's EventBridge client that Prismline uses.

    Each delivery of an event to one target is a timer of the hub, labelled `deliver:<rule>`.
    """

    service = "events"

    def __init__(self, aws: Any) -> None:
        super().__init__(aws)
        self.buses: set[str] = {"default"}
        self._numbers = 0
        #: Seconds until a delivery.
        self.delivery_seconds = 0.0

    # ---- buses and rules

    @operation
    def create_event_bus(self, *, Name: str, **others: Any) -> dict[str, Any]:
        if Name in self.buses:
            raise client_error("CreateEventBus", "ResourceAlreadyExistsException", f"Event bus {Name} already exists.")
        self.buses.add(Name)
        return {"EventBusArn": bus_arn(Name)}

    @operation
    def put_rule(
        self,
        *,
        Name: str,
        EventBusName: str = "default",
        EventPattern: str | None = None,
        ScheduleExpression: str | None = None,
        State: str = "ENABLED",
        **others: Any,
    ) -> dict[str, Any]:
        bus = _bus_name(EventBusName)
        self._require_bus("PutRule", bus)
        rule = rule_of(Name, bus, json.loads(EventPattern) if EventPattern else None, ScheduleExpression)
        rule.enabled = State == "ENABLED"
        known = self._aws.rules.get(Name)
        if known is not None:
            rule.targets = known.targets
        self._aws.rules[Name] = rule
        return {"RuleArn": rule.arn}

    @operation
    def put_targets(
        self, *, Rule: str, Targets: Sequence[Mapping[str, Any]], EventBusName: str = "default"
    ) -> dict[str, Any]:
        rule = self._aws.rules.get(Rule)
        if rule is None or rule.bus != _bus_name(EventBusName):
            raise client_error("PutTargets", "ResourceNotFoundException", f"Rule {Rule} does not exist on EventBus.")
        added = [target_of(each) for each in Targets]
        kept = [each for each in rule.targets if each.target_id not in {new.target_id for new in added}]
        rule.targets = kept + added
        return {"FailedEntryCount": 0, "FailedEntries": []}

    # ---- events

    @operation
    def put_events(self, *, Entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if not 1 <= len(Entries) <= MAX_ENTRIES:
            raise client_error(
                "PutEvents",
                "ValidationException",
                "1 validation error detected: Value at 'entries' failed to satisfy constraint: "
                "Member must have length less than or equal to 10",
            )
        answers = [self.put_entry(entry) for entry in Entries]
        return {"FailedEntryCount": sum("ErrorCode" in each for each in answers), "Entries": answers}

    def put_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Accept or refuse one entry, without a gate. Return its part of the answer."""
        missing = next((name for name in ("Source", "DetailType", "Detail") if not entry.get(name)), None)
        if missing is not None:
            message = f"Parameter {missing} is not valid. Reason: {missing} is a required argument."
            return {"ErrorCode": "InvalidArgument", "ErrorMessage": message}
        size = sum(len(entry[name].encode()) for name in ("Source", "DetailType", "Detail"))
        if size > MAX_ENTRY_BYTES:
            message = "Total size of the entry is greater than 262144 bytes."
            return {"ErrorCode": "EntryTooLarge", "ErrorMessage": message}
        try:
            detail = json.loads(entry["Detail"])
        except ValueError:
            detail = None
        if not isinstance(detail, dict):
            return {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
        bus = _bus_name(entry.get("EventBusName") or "default")
        if bus not in self.buses:
            return {"ErrorCode": "ResourceNotFoundException", "ErrorMessage": f"Event bus {bus} does not exist."}
        event_id = self.accept(
            bus,
            source=entry["Source"],
            detail_type=entry["DetailType"],
            detail=detail,
            resources=list(entry.get("Resources") or ()),
        )
        return {"EventId": event_id}

    def accept(
        self, bus: str, *, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str] = ()
    ) -> str:
        """Put an event on a bus, without a gate. Return its id."""
        event = self._event(source, detail_type, detail, resources)
        for listener in self._aws.on_event:
            listener(event)
        text = ""
        for rule in self._aws.rules.values():
            if rule.bus == bus and rule.enabled and rule.matches is not None and rule.matches(event):
                text = text or _json(event)
                self._send(rule, event, text)
        return str(event["id"])

    def _event(
        self, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str]
    ) -> dict[str, Any]:
        self._numbers += 1
        return {
            "version": "0",
            "id": f"00000000-0000-4000-9000-{self._numbers:012d}",
            "detail-type": detail_type,
            "source": source,
            "account": ACCOUNT,
            "time": _second(int(self._hub.now())),
            "region": REGION,
            "resources": list(resources),
            "detail": detail,
        }

    def _send(self, rule: Rule, event: Mapping[str, Any], text: str) -> None:
        for target in rule.targets:
            delivery = Delivery(self._aws, rule, target, target.text(event, text), text)
            self._hub.call_later(self.delivery_seconds, delivery, f"deliver:{rule.name}")

    # ---- schedules

    def start_schedules(self) -> None:
        """Start all scheduled rules. Each sends its first event after its interval."""
        for rule in self._aws.rules.values():
            if rule.every:
                self._schedule(rule)

    def _schedule(self, rule: Rule) -> None:
        def due() -> None:
            self.fire(rule.name)
            self._schedule(rule)

        self._hub.call_later(rule.every, due, f"schedule:{rule.name}")

    def fire(self, rule_name: str) -> None:
        """Send one event of a scheduled rule immediately."""
        rule = self._aws.rules[rule_name]
        if rule.enabled:
            event = self._event("aws.events", "Scheduled Event", {}, [rule.arn])
            self._send(rule, event, _json(event))

    def _require_bus(self, operation_name: str, bus: str) -> None:
        if bus not in self.buses:
            raise client_error(operation_name, "ResourceNotFoundException", f"Event bus {bus} does not exist.")


def bus_arn(name: str) -> str:
    """The ARN of the bus `name`."""
    return f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{name}"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _bus_name(name_or_arn: str) -> str:
    return name_or_arn.rpartition("/")[2]


def rule_of(name: str, bus: str, pattern: Mapping[str, Any] | None, schedule: str | None = None) -> Rule:
    """A rule without targets, from the parameters of PutRule or of a template. Raises PatternError."""
    every = 0.0
    if schedule is not None:
        match = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", schedule)
        if match is None:
            raise ValueError(f"only rate() schedules are simulated, not {schedule}")
        every = float(match[1]) * _UNITS[match[2]]
    return Rule(name, bus, None if pattern is None else compile_pattern(pattern), every=every)


def target_of(described: Mapping[str, Any]) -> Target:
    """A target from the parameters of PutTargets or of a template."""
    dead_letter_arn = described.get("DeadLetterConfig", {}).get("Arn")
    return Target(described["Id"], described["Arn"], compile_input(described), dead_letter_arn)


def _json(value: Any) -> str:
    return _ENCODER.encode(value)
