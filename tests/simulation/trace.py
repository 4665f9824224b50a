"""A readable log of a schedule, one line for each event. It is off during a search, because it costs time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

#: Most characters of one value in a line.
LONGEST = 160


class Trace:
    """The events of one schedule. Nothing is recorded while `on` is false."""

    def __init__(self, *, on: bool = False) -> None:
        self.on = on
        self.lines: list[str] = []
        #: Short names for ids.
        self.names: dict[str, str] = {}

    def note(self, moment: float, who: str, what: str) -> None:
        """Record an event that is neither a call nor a timer."""
        if self.on:
            self.lines.append(f"{clock(moment)} {who:<14} {what}")

    def call(
        self, moment: float, who: str, service: str, operation: str, parameters: Mapping[str, Any], effect: str
    ) -> None:
        """Record a call, with its subject and its result."""
        if self.on:
            about = describe(service, operation, parameters)
            self.lines.append(f"{clock(moment)} {who:<14} {service}.{operation} {about} -> {effect}".rstrip())

    def timer(self, moment: float, label: str) -> None:
        """Record that a timer of the account fired."""
        if self.on:
            self.lines.append(f"{clock(moment)} {'aws':<14} {label}")

    def text(self) -> str:
        """The whole trace."""
        text = "\n".join(self.lines)
        for identifier, name in self.names.items():
            text = text.replace(identifier, name)
        return text

    def digest(self) -> str:
        """A hash of this trace."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]


def clock(moment: float) -> str:
    """A moment of virtual time as text: `03-01 12:00:00.123`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]


def describe(service: str, operation: str, parameters: Mapping[str, Any]) -> str:
    """A short description of a call, which is the same in every process whatever its hash seed."""
    match service:
        case "dynamodb":
            return _dynamodb(operation, parameters)
        case "sqs":
            return _sqs(parameters)
        case "s3":
            return " ".join(str(parameters[name]) for name in ("Key", "Prefix", "IfNoneMatch") if name in parameters)
        case "events":
            return ", ".join(_event(entry) for entry in parameters.get("Entries", ()))
        case _:
            return short(", ".join(f"{name}={short(value, 60)}" for name, value in parameters.items()))


def _dynamodb(operation: str, parameters: Mapping[str, Any]) -> str:
    if "TransactItems" in parameters:
        writes = (next(iter(write.items())) for write in parameters["TransactItems"])
        return "; ".join(f"{kind} {_write(inner)}" for kind, inner in writes)
    if "RequestItems" in parameters:
        requests = parameters["RequestItems"].values()
        if operation == "batch_write_item":
            contents = (next(iter(each.values())) for request in requests for each in request)
            return ", ".join(_key(content.get("Key") or content["Item"]) for content in contents)
        return ", ".join(sorted(_key(key) for request in requests for key in request["Keys"]))
    if operation == "query":
        return short(_values(parameters.get("ExpressionAttributeValues", {})))
    return _write(parameters)


def _write(parameters: Mapping[str, Any]) -> str:
    key = parameters.get("Key") or parameters.get("Item") or {}
    values = _values(parameters.get("ExpressionAttributeValues", {}))
    text = parameters.get("UpdateExpression", "")
    condition = parameters.get("ConditionExpression")
    return " ".join(
        filter(None, [_key(key), short(text), short(values), f"if {short(condition)}" if condition else ""])
    )


def _key(key: Mapping[str, Any]) -> str:
    return "/".join(str(next(iter(key[name].values()))) for name in ("PK", "SK", "run_id") if name in key)


def _values(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in values.items())


def _value(value: Mapping[str, Any]) -> object:
    """A value as text. The elements of a set are sorted, because their order differs between processes."""
    ((kind, content),) = value.items()
    return sorted(content) if kind in {"SS", "NS", "BS"} else content


def _sqs(parameters: Mapping[str, Any]) -> str:
    queue = str(parameters.get("QueueUrl") or parameters.get("QueueName", "")).rpartition("/")[2]
    bodies = [parameters["MessageBody"]] if "MessageBody" in parameters else []
    bodies += [entry["MessageBody"] for entry in parameters.get("Entries", ()) if "MessageBody" in entry]
    seconds = f" {parameters['VisibilityTimeout']} s" if "VisibilityTimeout" in parameters else ""
    return f"{queue}{seconds} {', '.join(map(message, bodies))}".rstrip()


def message(body: str) -> str:
    """The type and subject of a message."""
    try:
        document = json.loads(body)
    except ValueError:
        return short(body, 40)
    if not isinstance(document, dict):
        return short(body, 40)
    if "type" in document:
        name = str(document["type"]).removeprefix("prismline.")
        status = (document.get("data") or {}).get("status")
        return " ".join(filter(None, [name, status, (document.get("data") or {}).get("chunk_id")]))
    return str(document.get("detail-type", short(body, 40)))


def _event(entry: Mapping[str, Any]) -> str:
    return message(entry.get("Detail", ""))


def short(value: object, longest: int = LONGEST) -> str:
    """`value` as text, shortened."""
    text = str(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
