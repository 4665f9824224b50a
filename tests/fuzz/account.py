"""An AWS account in memory for the services of this process, the same before each input.

It is the account of the simulation, with everything that the templates declare and nothing in it. Only processes of the
fuzzer call this module, because it replaces the clients of all services.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import boto3

from prismline_ledger.testing import Context, lambda_event_of
from prismline_runtime import clients
from prismline_runtime.errors import TransientError
from tests.simulation.aws import Aws, PlainHub
from tests.simulation.aws.loader import blueprint
from tests.simulation.processes import Service

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: The deployment's name.
ENVIRONMENT = "sim"
#: The templates are read here, before a process has children: that takes longer than all else.
BLUEPRINT = blueprint(ENVIRONMENT)
_CLIENTS = ("dynamodb", "ec2", "events", "sqs", "ssm", "stepfunctions")
#: The parts of the account that hold state.
_STATE = ("tables", "queues", "objects", "rules", "executions", "parameters")


@cache
def account() -> Aws:
    """The account of this process. The first call replaces the clients and the settings of all services."""
    aws = BLUEPRINT.build(PlainHub(time.time()))
    credentials = {"AWS_ACCESS_KEY_ID": "fuzz", "AWS_SECRET_ACCESS_KEY": "fuzz", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(credentials, **aws.outputs)
    os.environ.update(ENVIRONMENT=ENVIRONMENT, WORKDIR=mkdtemp(prefix="fuzz-"), LINKS_ENDPOINT="http://127.0.0.1:1")
    os.environ.update(KEY_CACHE_SECONDS="0", REQUESTS_PER_SECOND="1e9", REQUEST_BURST="1000000000")
    fakes = {name: getattr(aws, name) for name in _CLIENTS} | {"cloudwatch": _CLOUDWATCH}
    real: Any = boto3.client  # it makes the client that signs links to S3, which needs no network
    setattr(boto3, "client", lambda name, **options: fakes[name] if name in fakes else real(name, **options))  # noqa: B010
    clients.s3 = lambda: cast("S3Client", aws.s3)
    return aws


def _no_pages(_operation: str) -> Any:
    return SimpleNamespace(paginate=lambda **_: [{"MetricAlarms": [], "AlarmHistoryItems": []}])


#: CloudWatch of an account without alarms and metrics.
_CLOUDWATCH = SimpleNamespace(
    describe_alarms=lambda **_: {"MetricAlarms": []},
    get_metric_data=lambda **_: {"MetricDataResults": []},
    get_paginator=_no_pages,
)


def empty() -> Aws:
    """Remove everything that an earlier input left in the account."""
    aws, fresh = account(), BLUEPRINT.build(PlainHub())
    for name in _STATE:
        state = getattr(aws, name)
        state.clear()
        state.update(getattr(fresh, name))
    return aws


class _Outcome(logging.Handler):
    """What a service's log says about a message: an unexpected error, or the reason for which it was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.refusal: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.error = record.exc_info[1]
        elif record.getMessage() == "message_dead_lettered":
            self.refusal = getattr(record, "reason", "")


def quiet(*handlers: logging.Handler) -> None:
    """Let the loggers of the services write to `handlers` only."""
    for name in list(logging.Logger.manager.loggerDict):
        if name.startswith("prismline-"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [*handlers], False


class Process:
    """A process of a service, with its real handler."""

    def __init__(self, service: Service) -> None:
        account()
        self._outcome = _Outcome()
        self._queue = service.queues[0]
        self._handler: Callable[[Any, Any], Any] = import_module(service.handler.partition(":")[0]).process_handler()
        quiet(self._outcome)

    def take(self, body: str, attributes: Mapping[str, str] = MappingProxyType({})) -> str | None:
        """Let the process take a message. Returns why it refused the message, and raises what it did not expect."""
        self._outcome.error = self._outcome.refusal = None
        event = lambda_event_of(body, ENVIRONMENT, self._queue)
        for name, value in attributes.items():
            event["Records"][0]["messageAttributes"][name] = {"stringValue": value, "dataType": "String"}
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            self._handler(event, Context())
        if self._outcome.error is not None and not isinstance(self._outcome.error, TransientError):
            raise self._outcome.error
        return self._outcome.refusal
