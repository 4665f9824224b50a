"""Creates the queue of a run with many tasks, so that small runs do not wait behind them in the shared queue.

The sweeper of the dead-letter consumer deletes it after the run's end is recorded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from prismline_contracts.commands import RUN_QUEUE_TAG, Queue, dead_letter_queue_name, queue_name, run_queue_name
from prismline_contracts.delivery import LIMITS
from prismline_runtime import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class RunQueues:
    """Creates the queues of large runs in one environment."""

    def __init__(self, sqs: SQSClient, environment: str) -> None:
        self._sqs = sqs
        self._environment = environment

    def create(self, run_id: str) -> str:
        """Create the queue of a run, with the limits and the dead-letter queue of the shared one. Return its full name.

        A queue that exists stays as it is.
        """
        name = run_queue_name(self._environment, run_id)
        dead_letters = dead_letter_queue_name(queue_name(self._environment, Queue.TASKS))
        limits = LIMITS[Queue.TASKS]
        with aws_errors(f"create the queue {name}"):
            url = self._sqs.get_queue_url(QueueName=dead_letters)["QueueUrl"]
            arn = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            redrive = {"deadLetterTargetArn": arn, "maxReceiveCount": limits.max_receives}
            self._sqs.create_queue(
                QueueName=name,
                Attributes={
                    "VisibilityTimeout": str(limits.visibility_seconds),
                    "MessageRetentionPeriod": str(limits.retention_seconds),
                    "SqsManagedSseEnabled": "true",
                    "RedrivePolicy": json.dumps(redrive),
                },
                tags={RUN_QUEUE_TAG: run_id, "prismline:environment": self._environment},
            )
        return name
