"""The queues of single runs: a run with many tasks has one, so that small runs do not wait behind it.

The run's item records the name of its queue. A recorded queue may be gone: an emulator was killed, or somebody deleted
it. So whoever is about to send many tasks calls `ensure` first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from prismline_contracts.commands import (
    RUN_QUEUE_TAG,
    Queue,
    dead_letter_queue_name,
    queue_name,
    run_queue_name,
    run_queue_prefix,
)
from prismline_contracts.delivery import LIMITS
from prismline_contracts.pools import pool_queue
from prismline_runtime.errors import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: Error codes of SQS for a queue that does not exist.
NO_QUEUE_CODES = frozenset({"QueueDoesNotExist", "NonExistentQueue"})


class RunQueues:
    """Creates, lists and deletes the queues of single runs in one environment.

    Raises UnavailableError if SQS does not answer. For a minute after a queue was deleted, SQS refuses to create
    another one with its name; that is an UnavailableError too.
    """

    def __init__(self, sqs: SQSClient, environment: str) -> None:
        self._sqs = sqs
        self._environment = environment
        self._dead_letters = dead_letter_queue_name(queue_name(environment, Queue.TASKS))

    def ensure(self, run_id: str) -> str:
        """Create the queue of a run if it does not exist. Return its full name.

        It has the limits and the dead-letter queue of the shared queue of tasks. An existing queue stays as it is, even
        if an earlier release made it with other limits.
        """
        name = run_queue_name(self._environment, run_id)
        if self._url(name) is None:
            with aws_errors(f"create the queue {name}"):
                self._create(name, run_id)
        return name

    def has_pool(self, pool: str) -> bool:
        """Whether a pool exists in this environment: whether it has a queue."""
        return self._url(queue_name(self._environment, pool_queue(pool))) is not None

    def _create(self, name: str, run_id: str) -> None:
        limits = LIMITS[Queue.TASKS]
        url = self._sqs.get_queue_url(QueueName=self._dead_letters)["QueueUrl"]
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

    def list(self) -> Iterator[tuple[str, str]]:
        """The queues as pairs of the full name and the run's id. Skips queues without the tag.

        At most 1,000: a caller that deletes some sees the others the next time.
        """
        with aws_errors("list the queues of runs"):
            urls = self._sqs.list_queues(QueueNamePrefix=run_queue_prefix(self._environment)).get("QueueUrls", [])
        for url in urls:
            name = url.rpartition("/")[2]
            run_id = self._tags(url).get(RUN_QUEUE_TAG) if name != self._dead_letters else None
            if run_id is not None:
                yield name, run_id

    def _tags(self, url: str) -> dict[str, str]:
        with aws_errors(f"read the tags of {url}"):
            try:
                return self._sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
            except ClientError as error:
                if error_code(error) in NO_QUEUE_CODES:  # another process has deleted it
                    return {}
                raise

    def delete(self, name: str) -> None:
        """Delete a queue. One that does not exist is ignored."""
        with aws_errors(f"delete the queue {name}"):
            try:
                self._sqs.delete_queue(QueueUrl=self._sqs.get_queue_url(QueueName=name)["QueueUrl"])
            except ClientError as error:
                if error_code(error) not in NO_QUEUE_CODES:
                    raise

    def _url(self, name: str) -> str | None:
        with aws_errors(f"find the queue {name}"):
            try:
                return self._sqs.get_queue_url(QueueName=name)["QueueUrl"]
            except ClientError as error:
                if error_code(error) in NO_QUEUE_CODES:
                    return None
                raise
