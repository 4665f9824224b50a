"""Queues in the harness: their depths, for `status` and metrics, and the requests for sweeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from prismline_contracts.commands import Queue, dead_letter_queue_name, queue_name
from prismline_localstack.state import QueueStatus

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_sqs import SQSClient

#: Suffix of the names of dead-letter queues.
DEAD_LETTER_SUFFIX = dead_letter_queue_name("")
#: Seconds between two publications of the queue depths.
METRICS_SECONDS = 5.0
#: Namespace of the metrics of queues, as templates name it for emulators.
DEPTH_NAMESPACE = "Prismline/Queues"
#: Namespace and name of the metric of the age of a queue's oldest message. SQS has the same name, but a different
#: namespace: alarms of the emulator ignore dimensions, so an alarm on SQS' metric would see every queue.
AGE_NAMESPACE, AGE_METRIC = "Prismline/QueueAges", "ApproximateAgeOfOldestMessage"


class Depth(NamedTuple):
    """The numbers of visible messages of a queue, and of messages in flight."""

    visible: int
    in_flight: int


def depths(sqs: SQSClient, environment: str) -> dict[str, Depth]:
    """The depth of every queue of `environment`, dead-letter queues included, by full name."""
    found = {}
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=queue_name(environment, ""))
    for url in (url for page in pages for url in page.get("QueueUrls", [])):
        attributes = sqs.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        )["Attributes"]
        found[url.rsplit("/", 1)[-1]] = Depth(
            int(attributes["ApproximateNumberOfMessages"]), int(attributes["ApproximateNumberOfMessagesNotVisible"])
        )
    return found


def queue_statuses(found: dict[str, Depth]) -> list[QueueStatus]:
    """One row for each queue, with the messages of its dead-letter queue."""
    empty = Depth(0, 0)
    return [
        QueueStatus(
            name=name,
            visible=depth.visible,
            in_flight=depth.in_flight,
            dead_letters=sum(found.get(dead_letter_queue_name(name), empty)),
        )
        for name, depth in sorted(found.items())
        if not name.endswith(DEAD_LETTER_SUFFIX)
    ]


def publish_depths(cloudwatch: CloudWatchClient, found: dict[str, Depth]) -> None:
    """Publish the depths of the queues: visible and hidden messages together.

    Zeros are published too, because an alarm returns to OK only on data. On AWS, an alarm adds the metrics of SQS.
    Emulated alarms cannot add, and those of the emulator ignore dimensions, so each queue has a metric with
    its own name.
    """
    cloudwatch.put_metric_data(
        Namespace=DEPTH_NAMESPACE,
        MetricData=[
            {
                "MetricName": name,
                "Dimensions": [{"Name": "QueueName", "Value": name}],
                "Value": sum(depth),
                "Unit": "Count",
            }
            for name, depth in found.items()
        ],
    )


def publish_ages(cloudwatch: CloudWatchClient, ages: Mapping[str, float]) -> None:
    """Publish the age in seconds of the oldest message of each queue that has one."""
    if not ages:
        return
    cloudwatch.put_metric_data(
        Namespace=AGE_NAMESPACE,
        MetricData=[
            {
                "MetricName": AGE_METRIC,
                "Dimensions": [{"Name": "QueueName", "Value": name}],
                "Value": seconds,
                "Unit": "Seconds",
            }
            for name, seconds in ages.items()
        ],
    )


def request_sweep(sqs: SQSClient, environment: str, found: dict[str, Depth]) -> None:
    """Send the message that the schedule sends on AWS, unless one is already in the queue."""
    name = queue_name(environment, Queue.SWEEPS)
    if name in found and found[name].visible == 0:
        event = {"version": "0", "source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"], MessageBody=json.dumps(event))
