"""The dashboard of an environment shows every queue, function, table and alarm that each deployment has."""

from __future__ import annotations

import json
from typing import Any

from tests.templates import dashboard
from tests.templates.reading import of_kind, read_stacks


def shown() -> str:
    """The body with the names of the environment `dev`."""
    variables = {dashboard.NAME: "prismline-dev-", dashboard.ALARM: "arn:alarm:prismline-dev-"}
    text = dashboard.body(read_stacks())
    for variable, value in variables.items():
        text = text.replace(variable, value)
    return text


def test_the_template_has_the_dashboard_of_the_present_templates() -> None:
    (written,) = dashboard.BODY.findall(dashboard.TEMPLATE.read_text())
    assert written == dashboard.written(read_stacks()), "python -m tests.templates.dashboard writes it"


def test_a_new_queue_and_its_alarm_are_on_the_dashboard() -> None:
    stacks = read_stacks()
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": {"Fn::Sub": "prismline-${Environment}-new"}}}
    alarm = {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {"AlarmName": {"Fn::Sub": "prismline-${Environment}-new-age"}},
    }
    stacks["worker"]["Resources"] |= {"New": queue, "NewAlarm": alarm}
    body = dashboard.body(stacks)
    assert '"${Name}new"' in body
    assert '"${Alarm}new-age"' in body


def test_no_widget_covers_another() -> None:
    widgets: list[dict[str, Any]] = json.loads(shown())["widgets"]
    covered = [
        (column, row)
        for widget in widgets
        for column in range(widget["x"], widget["x"] + widget["width"])
        for row in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(covered) == len(set(covered))
    assert all(column < dashboard.COLUMNS for column, _ in covered)


def test_each_metric_is_written_whole_or_shortened_from_the_one_before() -> None:
    for widget in json.loads(shown())["widgets"]:
        for number, metric in enumerate(widget["properties"].get("metrics", [])):
            assert metric[0] != "..." or number > 0
            assert metric[0] == "..." or (len(metric) >= 4 and len(metric) % 2 == 0)


def test_every_dead_letter_queue_is_shown() -> None:
    names = {
        properties["QueueName"]["Fn::Sub"].replace("${Environment}", "dev")
        for _, _, properties in of_kind(read_stacks(), "SQS::Queue")
    }
    body = shown()
    assert {name for name in names if f'"{name}"' not in body} == set()
