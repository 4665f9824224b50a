"""The whole deployment: its queues with depth and age, its deployed services, and the version of the contracts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from prismline_api.deployment.processes import ProcessView, measured, reported
from prismline_api.models import Response
from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import Queue, dead_letter_queue_name, queue_name
from prismline_contracts.deploying import DEPLOYED_PARAMETERS
from prismline_contracts.pools import POOL_QUEUE_PREFIX
from prismline_ledger import QueueLook
from prismline_runtime import aws_errors, batches

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricDataQueryTypeDef
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeFilterType
    from mypy_boto3_ssm import SSMClient

#: How long all requests share one answer, in seconds. So many open pages ask SQS no more often than one page.
FRESH_SECONDS = 2.0
#: Queues of runs whose depths are remembered.
MOST_QUEUES = 64
#: The processes that read the queues of runs, as a supervisor reports them. Any other queue is that of one run.
READERS_OF: Mapping[str, str] = {
    Queue.SPLIT: "splitter",
    Queue.CHUNKS: "worker",
    Queue.TASKS: "fetcher",
    Queue.RUNS: "status",
}
#: Queues that are asked at the same time.
READERS = 8
#: The attributes of a queue that are read from SQS.
ATTRIBUTES: list[QueueAttributeFilterType] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]
#: Period that is searched for the age of the oldest message. SQS publishes it every minute, with a delay.
AGE_WINDOW = timedelta(minutes=10)
#: Most metrics in one request to CloudWatch.
METRICS_PER_REQUEST = 500
#: The end of a dead-letter queue's name.
DEAD_LETTER_SUFFIX = dead_letter_queue_name("")


class QueueView(Response):
    """A queue. The numbers come from SQS and are approximate."""

    name: Annotated[str, Field(description="Short name, without the deployment's prefix.", examples=["chunks"])]
    visible: Annotated[int, Field(description="Messages that wait for a consumer.")]
    in_flight: Annotated[int, Field(description="Messages that a consumer has, or that are hidden for a while.")]
    delayed: Annotated[int, Field(description="Messages whose delay has not passed yet.")]
    oldest_seconds: Annotated[
        float | None,
        Field(description="Age of the oldest message, by CloudWatch, some minutes ago. Absent: not published."),
    ] = None
    dead_letters: Annotated[int, Field(description="Messages in its dead-letter queue.")]
    dead_letters_oldest_seconds: float | None = None


class DeployedView(Response):
    """A service in the record of its last deployment."""

    service: str
    version: str | None = None
    digest: Annotated[str | None, Field(description="Digest of its container image.")] = None
    deployed_at: str | None = None


class SystemView(Response):
    """The whole deployment."""

    environment: str
    at: Annotated[str, Field(description="When the queues were read.")]
    api_version: Annotated[str, Field(description="Version of the api service that answers.")]
    contracts_version: Annotated[str, Field(description="Version of the contracts that it was built with.")]
    queues: list[QueueView]
    processes: Annotated[list[ProcessView], Field(description="Empty if there is no source for running processes.")]
    deployed: Annotated[list[DeployedView], Field(description="Empty if no deployment was recorded.")]


@dataclass(frozen=True)
class SystemClients:
    """The clients that read the state of the deployment."""

    sqs: SQSClient
    cloudwatch: CloudWatchClient
    ssm: SSMClient


class System:
    """Reads the state of the deployment every `FRESH_SECONDS` at most. Raises TransientError if AWS does not answer."""

    def __init__(
        self,
        clients: SystemClients,
        environment: str,
        *,
        age_namespace: str,
        process_reports: bool = False,
        clock: Callable[[], datetime] = now,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        self._sqs = clients.sqs
        self._cloudwatch = clients.cloudwatch
        self._ssm = clients.ssm
        self._environment = environment
        self._age_namespace = age_namespace
        self._process_reports = process_reports
        self._prefix = queue_name(environment, "")
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._looking = threading.Lock()
        self._seen: tuple[float, SystemView] | None = None
        self._looking_at_queue = threading.Lock()
        self._queues: dict[str, tuple[float, QueueLook | None]] = {}

    def view(self) -> SystemView:
        """The deployment now. Requests at the same time share one answer."""
        with self._looking:
            if self._seen is None or time.monotonic() - self._seen[0] > self._fresh_seconds:
                self._seen = (time.monotonic(), self._look())
            return self._seen[1]

    def queue(self, name: str) -> QueueLook | None:
        """One queue of runs, by its short name or the full name of a run's own queue. None if it does not exist."""
        short = name.removeprefix(self._prefix)
        with self._looking_at_queue:
            seen = self._queues.get(short)
            if seen is None or time.monotonic() - seen[0] > self._fresh_seconds:
                if len(self._queues) > MOST_QUEUES:
                    self._queues.clear()
                seen = self._queues[short] = (time.monotonic(), self._look_at(short))
            return seen[1]

    def _look_at(self, name: str) -> QueueLook | None:
        with aws_errors(f"read the depth of the queue {name}"):
            try:
                url = self._sqs.get_queue_url(QueueName=self._prefix + name)["QueueUrl"]
            except self._sqs.exceptions.QueueDoesNotExist:
                return None
            visible, hidden, delayed = self._depth(url)
        # The processes of a pool have the name of its queue.
        reader = name if name.startswith(POOL_QUEUE_PREFIX) else READERS_OF.get(name, READERS_OF[Queue.TASKS])
        # A queue with messages in flight has a consumer.
        consumers = self._running(reader) if visible and not hidden else None
        return QueueLook(name, visible + delayed, hidden, consumers)

    def _running(self, reader: str) -> int | None:
        """How many processes with this name run. None: no supervisor reports. On AWS a function starts when needed."""
        if not self._process_reports:
            return None
        processes = reported(self._ssm, self._environment)
        return sum(each.running or 0 for each in processes if each.name == reader) if processes else None

    def _look(self) -> SystemView:
        at = self._clock()
        with aws_errors("read the queues"):
            pages = self._sqs.get_paginator("list_queues").paginate(QueueNamePrefix=self._prefix)
            urls = {url.rsplit("/", 1)[-1]: url for page in pages for url in page.get("QueueUrls", [])}
            with ThreadPoolExecutor(READERS) as pool:
                depths = dict(zip(urls, pool.map(self._depth, urls.values()), strict=True))
        ages, deployed = self._ages(list(urls), at), self._deployed()
        return SystemView(
            environment=self._environment,
            at=timestamp(at),
            api_version=version("prismline-api"),
            contracts_version=version("prismline-contracts"),
            queues=[
                self._queue(name, depths, ages) for name in sorted(depths) if not name.endswith(DEAD_LETTER_SUFFIX)
            ],
            processes=self._processes(deployed, at),
            deployed=[view for view, _ in deployed],
        )

    def _processes(self, deployed: list[tuple[DeployedView, list[str]]], at: datetime) -> list[ProcessView]:
        """The running processes. Functions and services on Fargate have the version that was deployed."""
        if self._process_reports:
            return reported(self._ssm, self._environment)
        releases = {release.service: release for release, _ in deployed}
        functions = {release.service: names for release, names in deployed}
        return [
            view.model_copy(
                update={"version": releases[view.service].version, "since": releases[view.service].deployed_at}
            )
            for view in measured(self._cloudwatch, self._environment, functions, at)
        ]

    def _depth(self, url: str) -> tuple[int, int, int]:
        """Visible, hidden and delayed messages. All are 0 if the queue, for example that of a run, was just deleted."""
        try:
            found: dict[Any, str] = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=ATTRIBUTES)[
                "Attributes"
            ]
        except self._sqs.exceptions.QueueDoesNotExist:
            return 0, 0, 0
        visible, hidden, delayed = (int(found.get(name, 0)) for name in ATTRIBUTES)
        return visible, hidden, delayed

    def _ages(self, names: list[str], at: datetime) -> dict[str, float]:
        """The age in seconds of the oldest message of each queue, by the latest metric."""
        ages: dict[str, float] = {}
        for part in batches(names, METRICS_PER_REQUEST):
            queries: list[MetricDataQueryTypeDef] = [
                {
                    "Id": f"q{number}",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": self._age_namespace,
                            "MetricName": "ApproximateAgeOfOldestMessage",
                            "Dimensions": [{"Name": "QueueName", "Value": name}],
                        },
                        "Period": 60,
                        "Stat": "Maximum",
                    },
                }
                for number, name in enumerate(part)
            ]
            with aws_errors("read the ages of messages"):
                results = self._cloudwatch.get_metric_data(
                    MetricDataQueries=queries,
                    StartTime=at - AGE_WINDOW,
                    EndTime=at + timedelta(minutes=1),
                    ScanBy="TimestampDescending",
                )["MetricDataResults"]
            for result in results:
                points = sorted(zip(result["Timestamps"], result["Values"], strict=True))
                if points:
                    ages[part[int(result["Id"][1:])]] = points[-1][1]
        return ages

    def _queue(self, name: str, depths: dict[str, tuple[int, int, int]], ages: dict[str, float]) -> QueueView:
        visible, hidden, delayed = depths[name]
        dead = dead_letter_queue_name(name)
        return QueueView(
            name=name.removeprefix(self._prefix),
            visible=visible,
            in_flight=hidden,
            delayed=delayed,
            oldest_seconds=ages.get(name) if any(depths[name]) else None,
            dead_letters=sum(depths.get(dead, ())),
            dead_letters_oldest_seconds=ages.get(dead) if any(depths.get(dead, ())) else None,
        )

    def _deployed(self) -> list[tuple[DeployedView, list[str]]]:
        """The records of deployments: a parameter for each service below `/prismline/<environment>/deployed/`."""
        path = DEPLOYED_PARAMETERS.format(environment=self._environment, service="")
        with aws_errors(f"read the parameters below {path}"):
            pages = self._ssm.get_paginator("get_parameters_by_path").paginate(Path=path)
            parameters = {
                parameter["Name"].removeprefix(path): parameter["Value"]
                for page in pages
                for parameter in page["Parameters"]
            }
        return [_deployed(service, text) for service, text in sorted(parameters.items())]


def _deployed(service: str, text: str) -> tuple[DeployedView, list[str]]:
    """What the record of a service says, and the short names of its functions."""
    try:
        record: Any = json.loads(text)
    except ValueError:
        record = None
    fields = record if isinstance(record, dict) else {}

    def text_of(name: str) -> str | None:
        value = fields.get(name)
        return value if isinstance(value, str) else None

    code = fields.get("code")
    image = code.get("ImageUri") if isinstance(code, dict) else None
    digest = image.partition("@")[2] if isinstance(image, str) else ""
    functions = fields.get("functions")
    view = DeployedView(
        service=service,
        version=text_of("version"),
        digest=digest or None,
        deployed_at=text_of("deployed_at"),
    )
    return view, [name for name in functions if isinstance(name, str)] if isinstance(functions, list) else []
