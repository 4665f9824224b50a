"""The AsyncAPI 3.0 document of all messages, from the registry and the models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismline_contracts.summaries import Kind
from prismline_contracts_tool.registry import BUS, Entry, read_example
from prismline_contracts_tool.schemas import MODELS, schema_of

#: Keywords that mean something else in AsyncAPI, or that only a JSON Schema in a file of its own needs.
DROPPED = frozenset({"$schema", "$id", "$defs", "discriminator"})


def document(registry: Mapping[str, Entry], folder: Path, version: str) -> dict[str, Any]:
    """The AsyncAPI document. folder: the registry's, which holds the examples."""
    messages = {name: entry for name, entry in registry.items() if entry.kind is Kind.MESSAGE and entry.channel}
    channels = sorted({entry.channel for entry in messages.values() if entry.channel})
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Prismline",
            "version": version,
            "description": "The messages of Prismline's services. Every message is a CloudEvents 1.0 object.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "queues": _server(
                "sqs", "Queues of Amazon SQS. Each belongs to one service. No other service receives from it."
            ),
            "bus": _server("events", "The bus of Amazon EventBridge. Rules send its events to queues."),
        },
        "channels": {channel: _channel(channel, messages) for channel in channels},
        "operations": {
            operation: each for name, entry in messages.items() for operation, each in _operations(name, entry).items()
        },
        "components": {
            "messages": {name: _message(name, entry, folder) for name, entry in messages.items()},
            "schemas": {part: schema for name in ("envelope.v1", *messages) for part, schema in _schemas(name).items()},
        },
    }


def _server(service: str, description: str) -> dict[str, Any]:
    return {
        "host": f"{service}.{{region}}.amazonaws.com",
        "protocol": "sqs" if service == "sqs" else "https",
        "description": description,
        "variables": {"region": {"description": "The Region that the environment is deployed in."}},
    }


def _channel(channel: str, messages: Mapping[str, Entry]) -> dict[str, Any]:
    return {
        "address": "prismline-{environment}" if channel == BUS else f"prismline-{{environment}}-{channel}",
        "servers": [{"$ref": "#/servers/bus" if channel == BUS else "#/servers/queues"}],
        "parameters": {"environment": {"description": "The environment's name, for example `dev`."}},
        "messages": {
            name: {"$ref": f"#/components/messages/{name}"}
            for name, entry in messages.items()
            if entry.channel == channel
        },
    }


def _operations(name: str, entry: Entry) -> dict[str, Any]:
    """One operation for each service that sends the message, and for each that receives it."""
    channel = {"$ref": f"#/channels/{entry.channel}"}
    message = {"$ref": f"#/channels/{entry.channel}/messages/{name}"}
    return {
        f"{service}.{action}.{name}": {
            "action": action,
            "channel": channel,
            "messages": [message],
            "tags": [{"name": service}],
        }
        for action, services in (("send", entry.producers), ("receive", entry.consumers))
        for service in services
    }


def _message(name: str, entry: Entry, folder: Path) -> dict[str, Any]:
    summary = (MODELS[name].__doc__ or "").strip().partition("\n")[0]
    return {
        "name": f"prismline.{name}",
        "title": name,
        "summary": summary,
        "contentType": "application/json",
        "payload": {
            "allOf": [
                {"$ref": "#/components/schemas/envelope.v1"},
                {
                    "type": "object",
                    "properties": {
                        "type": {"const": f"prismline.{name}"},
                        "data": {"$ref": f"#/components/schemas/{name}"},
                    },
                },
            ]
        },
        "examples": [{"name": "example", "payload": read_example(folder, name)}],
        "x-owner": entry.owner,
        "x-history": dict(entry.history),
    }


def _schemas(name: str) -> dict[str, Any]:
    """The schema of a contract and its parts, by their names in the document."""
    schema = schema_of(name)
    parts = {f"{name}.{part}": each for part, each in schema.get("$defs", {}).items()}
    return {part: _moved(each, name) for part, each in ({name: schema} | parts).items()}


def _moved(value: Any, name: str) -> Any:
    """`value` with its references pointing into the document."""
    if isinstance(value, list):
        return [_moved(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        word: f"#/components/schemas/{name}.{each.rpartition('/')[2]}" if word == "$ref" else _moved(each, name)
        for word, each in value.items()
        if word not in DROPPED
    }
