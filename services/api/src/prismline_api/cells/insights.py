"""The link to CloudWatch's console with a Logs Insights query for the log lines of one chunk or task. Pure.

The console documents its addresses nowhere. They hold the query as an object in a notation of its own, whose characters
are escaped with `*` in texts, and with `$25` outside of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from prismline_api.cells.log_files import Subject
from prismline_contracts.base import timestamp
from prismline_contracts.pools import POOL_QUEUE_PREFIX, pool_of

#: Functions that write about each chunk or task, and those that work on chunks and on tasks.
_ALWAYS, _CHUNKS, _TASKS = ("splitter", "dead-letters", "repairs"), ("worker", "slow-lane"), ("fetcher",)
#: Part of the name of a function's log stream, by which a worker on Lambda is known.
_FUNCTION = "[$"
#: Most lines that the query returns.
MOST_LINES = 1000
#: Domains of the console in the partitions of AWS, by the beginning of the region. Elsewhere, `_DOMAIN`.
_DOMAINS = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"}
_DOMAIN = "console.aws.amazon.com"
_AWS = re.compile(r"^https://[^/]+\.amazonaws\.com(\.cn)?(:443)?/?$")
_ESCAPES = {"~": "$257E", "(": "$2528", ")": "$2529", "'": "$2527"}


def is_aws(endpoint: str) -> bool:
    """Whether a client's endpoint is one of AWS, and not of an emulator."""
    return _AWS.match(endpoint) is not None


def log_groups(environment: str, subject: Subject, workers: Iterable[str]) -> list[str]:
    """The log groups of the services that write about it. workers: the names of those that attempted it."""
    pool = pool_of(subject.run_id)
    functions = _CHUNKS if subject.chunk_id is not None else _TASKS
    if pool is not None:
        functions = (f"{POOL_QUEUE_PREFIX}{pool}",)
    names, kinds = list(workers), list[str]()
    if not names or any(_FUNCTION in name for name in names):
        kinds += [f"/aws/lambda/prismline-{environment}-{name}" for name in functions]
    if any(_FUNCTION not in name for name in names):
        kinds.append(f"/aws/ecs/prismline-{environment}-{functions[0] if pool is not None else 'worker'}")
    return [*(f"/aws/lambda/prismline-{environment}-{name}" for name in _ALWAYS), *kinds]


def query(subject: Subject) -> str:
    """The query for its lines, the earliest first. A line of a message with several tasks has all their ids."""
    about = (
        f'chunk_id = "{subject.chunk_id}"'
        if subject.chunk_id is not None
        else f'@message like "{subject.task_id}" and (not ispresent(index) or index = {subject.index})'
    )
    return (
        "fields @timestamp, level, message, reason, exception, @log\n"
        f'| filter run_id = "{subject.run_id}" and {about}\n'
        f"| sort @timestamp\n| limit {MOST_LINES}"
    )


def link(region: str, groups: Iterable[str], text: str, since: datetime, until: datetime) -> str:
    """The address of the console with the query `text` over `groups` in this time."""
    source = "".join(f"~'{_escaped(group)}" for group in groups)
    detail = (
        f"~(end~'{_escaped(timestamp(until))}~start~'{_escaped(timestamp(since))}~timeType~'ABSOLUTE~tz~'UTC"
        f"~editorString~'{_escaped(text)}~source~({source}))"
    )
    domain = next((_DOMAINS[start] for start in _DOMAINS if region.startswith(start)), _DOMAIN)
    detail = "".join(_ESCAPES.get(each, each) for each in detail)
    return f"https://{region}.{domain}/cloudwatch/home?region={region}#logsV2:logs-insights$3FqueryDetail$3D{detail}"


def _escaped(text: str) -> str:
    """A text in the notation: letters, digits and `-._` stay as they are."""
    return re.sub(r"[^A-Za-z0-9._-]", lambda found: "".join(f"*{byte:02x}" for byte in found[0].encode()), text)
