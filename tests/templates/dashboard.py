"""The dashboard of an environment, from the alarms, queues, functions and tables of all templates.

`python -m tests.templates.dashboard` writes its body into the platform's template. It names only what every deployment
has; a function that a deployment replaces by a service on Fargate has an empty line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from prismline_dlq_consumer.decisions import Action
from tests.templates.reading import REPOSITORY, Stacks, of_kind, read_stacks

TEMPLATE = REPOSITORY / "platform/template.yaml"
#: The body in the template, between the line before it and its variables.
BODY = re.compile(r"(?<=      DashboardBody: !Sub\n        - \|\n).*?(?=\n        - )", re.DOTALL)
#: Columns of a dashboard, and the height of its widgets.
COLUMNS, HEIGHT = 24, 6
#: Seconds that a point of a graph covers.
PERIOD = 300
#: The dimension of the services' own metrics.
OWN = ["Environment", "${Environment}"]
#: What the dead-letter consumer decides, how attempts end, and how runs end, as the names of metrics have it.
DECISIONS = [f"DeadLetters{action.value.title()}" for action in Action]
ENDINGS = ["ChunksCompleted", "ChunksFailed", "TasksCompleted", "TasksFailed"]
RUNS = ("completed", "failed", "cancelled")
#: The variables of the body: the beginnings of the names of resources and of the ARNs of alarms.
NAME, ALARM = "${Name}", "${Alarm}"


def _names(stacks: Stacks, kind: str, name: str) -> list[str]:
    """The names of all resources of a kind that every deployment has. Functions count: they are the default."""
    found = [
        properties[name]["Fn::Sub"].replace("prismline-${Environment}-", NAME)
        for stack, logical_id, properties in of_kind(stacks, kind)
        if "Condition" not in stacks[stack]["Resources"][logical_id] or kind == "Lambda::Function"
    ]
    return sorted(found)


def _pairs(metrics: list[list[Any]]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Each metric after the one before it."""
    return zip([[], *metrics], metrics, strict=False)


def _graph(title: str, stat: str, metrics: list[list[Any]]) -> dict[str, Any]:
    # "..." stands for all of the metric before it but the last text.
    short = [["...", last] if rest == before[:-1] else [*rest, last] for before, (*rest, last) in _pairs(metrics)]
    properties = {"title": title, "region": "${AWS::Region}", "stat": stat, "period": PERIOD, "metrics": short}
    return {"type": "metric", "properties": properties}


def _widgets(stacks: Stacks) -> Iterator[dict[str, Any]]:
    queues = _names(stacks, "SQS::Queue", "QueueName")
    functions = _names(stacks, "Lambda::Function", "FunctionName")
    tables = _names(stacks, "DynamoDB::Table", "TableName")
    working = [name for name in queues if not name.endswith("-dlq")]
    dead = [name for name in queues if name.endswith("-dlq")]
    alarms = [name.replace(NAME, ALARM) for name in _names(stacks, "CloudWatch::Alarm", "AlarmName")]

    def of_queues(metric: str, names: list[str]) -> list[list[Any]]:
        return [["AWS/SQS", metric, "QueueName", name] for name in names]

    def of_functions(metric: str) -> list[list[Any]]:
        return [["AWS/Lambda", metric, "FunctionName", name] for name in functions]

    def own(namespace: str, *metrics: str) -> list[list[Any]]:
        return [[f"Prismline/{namespace}", metric, *OWN] for metric in metrics]

    properties: dict[str, Any] = {"title": "Alarms", "alarms": alarms, "sortBy": "stateUpdatedTimestamp"}
    yield {"type": "alarm", "properties": properties}
    yield _graph("Messages that wait", "Maximum", of_queues("ApproximateNumberOfMessagesVisible", working))
    yield _graph("Age of the oldest message (s)", "Maximum", of_queues("ApproximateAgeOfOldestMessage", working))
    yield _graph("Messages in dead-letter queues", "Maximum", of_queues("ApproximateNumberOfMessagesVisible", dead))
    yield _graph("Decisions about dead letters", "Sum", own("DeadLetters", *DECISIONS))
    yield _graph("Attempts that ended", "Sum", own("Worker", *ENDINGS))
    updates = ["Prismline/WorkflowStatus", "StatusUpdates", "Success", "true"]
    yield _graph("Runs that ended", "Sum", [[*updates, "Status", status, *OWN] for status in RUNS])
    yield _graph("The sweeper", "Sum", own("Sweeper", "RunsSwept", "RunsNotSwept", "LedgerDrift"))
    yield _graph("Invocations of functions that failed", "Sum", of_functions("Errors"))
    yield _graph("Throttled invocations", "Sum", of_functions("Throttles"))
    yield _graph("Duration of invocations (ms), 95th percentile", "p95", of_functions("Duration"))
    yield _graph(
        "Throttled requests of tables",
        "Sum",
        [["AWS/DynamoDB", f"{kind}ThrottleEvents", "TableName", name] for kind in ("Read", "Write") for name in tables],
    )


def _text(widget: dict[str, Any]) -> str:
    """The JSON text of a widget, with a line for each metric or alarm."""
    listed = "metrics" if "metrics" in widget["properties"] else "alarms"
    entries = ",\n".join(f"  {json.dumps(each)}" for each in widget["properties"][listed])
    rest = {name: value for name, value in widget["properties"].items() if name != listed}
    place = {name: value for name, value in widget.items() if name != "properties"}
    return f'{json.dumps(place)[:-1]},\n "properties": {json.dumps(rest)[:-1]},\n  "{listed}": [\n{entries}]}}}}'


def body(stacks: Stacks) -> str:
    """The text of the dashboard's body, in which CloudFormation substitutes the environment, account and Region."""
    placed = []
    for number, widget in enumerate(_widgets(stacks)):
        width = COLUMNS if number == 0 else COLUMNS // 2
        column, row = (0, 0) if number == 0 else ((number - 1) % 2, (number + 1) // 2)
        place = {"type": widget["type"], "x": column * width, "y": row * HEIGHT, "width": width, "height": HEIGHT}
        placed.append(_text({**place, "properties": widget["properties"]}))
    return '{"widgets": [\n' + ",\n".join(placed) + "\n]}"


def written(stacks: Stacks) -> str:
    """The body as it is indented in the template."""
    return "\n".join(f"            {line}" for line in body(stacks).splitlines())


if __name__ == "__main__":
    TEMPLATE.write_text(BODY.sub(lambda _: written(read_stacks()), TEMPLATE.read_text()))
