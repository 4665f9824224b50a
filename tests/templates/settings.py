"""Where each setting of a service comes from on AWS: a parameter of its template, the template itself, or its default.

The page of the settings shows it, and a test compares the three with the code.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from tests.templates.reading import Stacks, of_kind

#: Settings that no template sets, by service, with the reason why the default is right on AWS.
DEFAULTS: dict[str, dict[str, str]] = {
    "alerting": {
        "DISCORD_PUBLIC_KEY": "a parameter in SSM holds it",
        "DISCORD_WEBHOOK_URL": "a secret; a parameter in SSM holds it",
        "POST_SECONDS": "fits the timeout of the function",
        "CLAIM_SECONDS": "fits the timeout of the function",
        "RECHECK_SECONDS": "the longest delay of a message in SQS",
    },
    "api": {
        "LINKS_ENDPOINT": "callers reach S3 where the function does",
        "INLINE_TASKS": "fits the timeout of the function",
        "MAX_BODY_BYTES": "Lambda accepts 6 MB",
        "KEY_CACHE_SECONDS": "how long a withdrawn key may still be accepted",
        "COUNTS_CACHE_SECONDS": "how old the numbers on a page may be",
        "MAPS_MEMORY_BYTES": "fits the memory of the function",
        "SOURCE_PREFIXES": "the roles may read only below these",
        "QUEUE_AGE_NAMESPACE": "only an emulator has another one",
        "FUNCTIONS_LOCAL": "only for a laptop",
        "PROCESS_REPORTS": "only a laptop has a supervisor",
        "LOGS_FOLDER": "only a laptop has files",
        "EVENT_STREAMS": "a function keeps no streams open",
        "CONSOLE_SIGN_IN": "people sign in with an API key; no template makes a proxy that does it for them",
        "CONSOLE_KEY_SHA256": "only with another CONSOLE_SIGN_IN",
        "CONSOLE_PROXY_SECRET": "only with another CONSOLE_SIGN_IN",
    },
    "dlq-consumer": {
        "MESSAGE_PATIENCE_SECONDS": "shorter than the retention of the dead-letter queues",
        "RESEND_SECONDS": "part of the rule that delivery.md explains",
        "DEFERRAL_SECONDS": "the longest delay of a message in SQS",
        "WORKLOAD_RESOURCES": "the workloads are part of the release",
        "RECOVERY_CONCURRENCY": "fits the connections of the function",
        "RECOVERY_WINDOW": "fits the timeout of the function",
        "RECOVERY_LEASE_SECONDS": "fits the timeout of the function",
        "DEADLINE_MARGIN_SECONDS": "fits the timeout of the function",
        "SWEEP_LEASE_SECONDS": "longer than the timeout of the worker",
        "SWEEP_WORKLOAD_LEASE_SECONDS": "no workload outlasts the timeout of the worker",
        "SWEEP_IDLE_SECONDS": "SQS counts messages late",
        "SWEEP_DEFERRED_SECONDS": "longer than DEFERRAL_SECONDS",
        "SWEEP_RETENTION_SECONDS": "shorter than the retention of the queues",
        "SWEEP_SPLIT_SECONDS": "longer than the timeout of the splitter",
        "SWEEP_CHECK_SECONDS": "part of the protocol",
    },
    "exporter": {
        "EXPORT_PART_BYTES": "10,000 parts hold the largest export",
        "EXPORT_READERS": "fits the memory of the function",
        "EXPORT_LEASE_SECONDS": "fits the timeout of the function",
        "EXPORT_MARGIN_SECONDS": "fits the timeout of the function",
    },
    "splitter": {
        "JOBS_TABLE": "the name follows from the environment",
        "WORKDIR": "the only folder that a function can write to",
        "REQUEST_MILLISECONDS": "the time of S3",
    },
    "webhooks": {
        "WEBHOOK_SECONDS": "fits the timeout of the function",
        "WEBHOOK_ALLOW_PRIVATE": "a function must not reach private addresses for a user",
    },
    "worker": {
        "SPECTRUM_BUDGET_SECONDS": "chunks are sized for it",
        "DEADLINE_MARGIN_SECONDS": "fits the timeout of the function",
        "GPU_RESOURCE": "the dead-letter consumer waits for the same resource",
        "CAPTION_API_KEY": "a secret does not belong into a template; the model of the GPU instance needs none",
        "CAPTION_TIMEOUT_SECONDS": "fits the timeout of the function",
        "CAPTION_TRIES": "part of an attempt",
        "FUNCTIONS_RUNNERS": "one for each core of the function",
        "FUNCTIONS_PYTHON": "functions are installed in the image of the worker",
        "FUNCTIONS_PATHS": "functions are installed in the image of the worker",
        "FUNCTIONS_VARIABLES": "the template gives functions no variables",
        "FUNCTIONS_LOCAL": "only for a laptop",
        "URLS_CONCURRENCY": "fits the memory of the function",
        "URLS_ALLOW_PRIVATE": "for tests only",
    },
    "every service": {
        "PRISMLINE_GRACE_SECONDS": "Lambda ends no invocation; Fargate sets 100",
        "PRISMLINE_HEARTBEAT_FILE": "Lambda has no health check; Fargate sets it",
        "PRISMLINE_INVOCATION_SECONDS": "the longest timeout of a function",
        "PRISMLINE_MAX_CONNECTIONS": "only a process serves HTTP itself",
        "PRISMLINE_REQUEST_SECONDS": "only a process serves HTTP itself",
        "PRISMLINE_VISIBILITY_SECONDS": "Lambda uses the timeout of the queue",
        "PRISMLINE_WAIT_SECONDS": "Lambda polls by itself",
        "PRISMLINE_WRITES_PER_TRANSACTION": "the limit of DynamoDB",
    },
}


def settings_of(service: str) -> dict[str, FieldInfo]:
    """The settings of a service that a page describes, by environment variable."""
    module = importlib.import_module(f"prismline_{service.replace('-', '_')}.settings")
    classes = [each for _, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == module.__name__]
    found: dict[str, FieldInfo] = {}
    for each in classes:
        if issubclass(each, BaseSettings):
            prefix = each.model_config.get("env_prefix") or ""
            fields = {f"{prefix}{name}".upper(): field for name, field in each.model_fields.items()}
            found |= {name: field for name, field in fields.items() if field.description and name != "ENVIRONMENT"}
    return found


def variables(stacks: Stacks, service: str) -> dict[str, list[Any]]:
    """The values that a service's functions and tasks get from its template, by environment variable."""
    found: dict[str, list[Any]] = {}
    for stack, _, function in of_kind(stacks, "Lambda::Function"):
        if stack == service:
            for name, value in function["Environment"]["Variables"].items():
                found.setdefault(name, []).append(value)
    for stack, _, definition in of_kind(stacks, "ECS::TaskDefinition"):
        if stack == service:
            for each in definition["ContainerDefinitions"][0]["Environment"]:
                found.setdefault(each["Name"], []).append(each["Value"])
    return found


def parameter_of(values: list[Any]) -> str | None:
    """The parameter that a variable has as its value."""
    names = {value["Ref"] for value in values if isinstance(value, Mapping) and "Ref" in value}
    return names.pop() if len(names) == 1 else None


def origin(stacks: Stacks, service: str, name: str) -> str:
    """Where a setting comes from on AWS, for the page of the settings."""
    values = variables(stacks, service).get(name)
    if values is None:
        reason = DEFAULTS.get(service, {}).get(name)
        return f"default: {reason}" if reason else ""
    parameter = parameter_of(values)
    if parameter is not None and parameter in stacks[service].get("Parameters", {}):
        return f"parameter `{parameter}`"
    return "the template"


def unexplained(stacks: Stacks) -> Iterator[str]:
    """Settings that neither a template nor the table mentions, and reasons in the table that are not needed."""
    for service in sorted(stacks.keys() - {"platform"}):
        declared, in_template = settings_of(service), variables(stacks, service)
        reasons = DEFAULTS.get(service, {})
        for name in declared:
            if name in in_template and name in reasons:
                yield f"{service}: the template sets {name}, and the table says why it does not"
            if name not in in_template and name not in reasons:
                yield f"{service}: no template sets {name}, and the table does not say why"
        for name in reasons.keys() - declared.keys():
            yield f"{service}: there is no setting {name}"


def other_defaults(stacks: Stacks) -> Iterator[str]:
    """Parameters whose default is not the default of the setting in the code."""
    for service in sorted(stacks.keys() - {"platform"}):
        for name, values in variables(stacks, service).items():
            parameter = stacks[service]["Parameters"].get(parameter_of(values) or "")
            field = settings_of(service).get(name)
            if parameter is None or field is None or "Default" not in parameter or field.is_required():
                continue
            given, default = parameter["Default"], field.get_default(call_default_factory=True)
            if isinstance(default, int | float) and not isinstance(default, bool):
                given = float(given)
            if given != ("" if default is None else default):
                yield f"{service}: {name} is {default!r} in the code and {given!r} in the template"
