"""Run the functions that are deployed on an emulator, until SIGTERM.

    python -m prismline_localstack.functions.driver --images FOLDER [--url api=8123] [--concurrency 2]

The driver polls the emulator every second for what is deployed in `ENVIRONMENT`. A function with a new image or a new
configuration gets new execution environments. Invocations in progress end in the old ones.

A function sees the variables of its template, and the variables of the driver: the endpoint, the Region and the
settings that the harness gives to all services. Its credentials are those of its role.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from prismline_localstack.functions.environment import ExecutionEnvironment, Outcome
from prismline_localstack.functions.function import THROTTLED, Function, Functions, Release
from prismline_localstack.functions.images import APP, FolderImages
from prismline_localstack.functions.mapping import EventSourceMapping, Source
from prismline_localstack.functions.urls import serve
from prismline_localstack.state import make_client
from prismline_runtime import ServiceSettings, service_logger

#: Seconds between two polls of what is deployed.
FOLLOW_SECONDS = 1.0
#: Time limit in seconds, after SIGTERM, for the last receive of each mapping.
STOP_SECONDS = 5.0
#: How long a request to a function's URL waits for the function to be deployed, in seconds.
DEPLOYED_SECONDS = 20.0


class Driver:
    """Functions and event source mappings of one environment on an emulator.

    variables: the environment variables that the functions see in addition to their own. concurrency: the maximum
    number of concurrent invocations of a mapping.
    """

    def __init__(
        self, environment: str, images: FolderImages, logs: Path, variables: dict[str, str], concurrency: int
    ) -> None:
        self._prefix = f"prismline-{environment}-"
        self._images = images
        self._logs = logs
        self._variables = variables
        self._concurrency = concurrency
        self._logger: Logger = service_logger("functions")
        self._lambda: Any = make_client("lambda", variables)
        self._sts: Any = make_client("sts", variables)
        self._sqs: Any = make_client("sqs", variables)
        self._functions = Functions()
        self._mappings: dict[str, EventSourceMapping] = {}

    def follow(self) -> None:
        """Start, replace or end functions and mappings so that they are those that are deployed now."""
        found = {
            each["FunctionName"]: each
            for page in self._lambda.get_paginator("list_functions").paginate()
            for each in page["Functions"]
            if each["FunctionName"].startswith(self._prefix)
        }
        for name in self._functions.names | found.keys():
            self._follow_function(name, found.get(name))
        sources = {
            each["UUID"]: Source.model_validate(each)
            for page in self._lambda.get_paginator("list_event_source_mappings").paginate()
            for each in page["EventSourceMappings"]
        }
        wanted = {
            uuid: source
            for uuid, source in sources.items()
            if source.function_name in self._functions.names and source.state in {"Enabled", "Creating", "Updating"}
        }
        for uuid in {*self._mappings, *wanted}:
            self._follow_mapping(uuid, wanted.get(uuid))

    def _follow_function(self, name: str, described: dict[str, Any] | None) -> None:
        current = self._functions.find(name)
        revision = "" if described is None else f"{described.get('RevisionId')} {described.get('LastModified')}"
        if current is not None:
            if current.release.revision == revision:
                current.end_unused()
                return
            if described is None:
                self._functions.replace(name, None)
                return
        found = self._lambda.get_function(FunctionName=name)
        image = found["Code"]["ImageUri"]
        reserved = found.get("Concurrency", {}).get("ReservedConcurrentExecutions")
        described = self._lambda.get_function_configuration(FunctionName=name)
        release = Release(name, image, revision, float(described["Timeout"]), reserved)
        self._functions.replace(name, Function(release, lambda: self._start(described, image), self._logger))
        self._logger.info("function_released", extra={"function": name, "image": image})

    def _start(self, described: dict[str, Any], image: str) -> ExecutionEnvironment:
        config = described["ImageConfigResponse"]["ImageConfig"]
        entry = [sys.executable if part == "python" else part for part in config["EntryPoint"]]
        folder = self._images.find(image) / APP
        name = described["FunctionName"]
        session = self._sts.assume_role(RoleArn=described["Role"], RoleSessionName=name)["Credentials"]
        variables = {
            **self._variables,
            **described.get("Environment", {}).get("Variables", {}),
            "AWS_ACCESS_KEY_ID": session["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
            "AWS_SESSION_TOKEN": session["SessionToken"],
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(described["MemorySize"]),
            "PYTHONPATH": str(folder),
        }
        log = self._logs / f"{name.removeprefix(self._prefix)}.log"
        return ExecutionEnvironment(
            name, described["FunctionArn"], [*entry, *config["Command"]], variables, log, folder
        )

    def _follow_mapping(self, uuid: str, source: Source | None) -> None:
        current = self._mappings.get(uuid)
        if current is not None:
            if current.source == source:
                return
            current.stop()
            del self._mappings[uuid]
        if source is not None:
            invoke = self._invoker(source.function_name)
            self._mappings[uuid] = EventSourceMapping(source, self._sqs, invoke, self._concurrency, self._logger)

    def _invoker(self, name: str) -> Any:
        def invoke(event: bytes) -> Outcome:
            return self.invoke(name, event) or Outcome(None, "ResourceNotFoundException", f"no function {name}")

        return invoke

    def invoke(self, name: str, event: bytes, patience: float = 0.0) -> Outcome | None:
        """Invoke the deployed release of a function. None if there is none within `patience` seconds."""
        outcome = self._functions.invoke(name, event, patience)
        if outcome is THROTTLED:
            self._logger.warning("invocation_throttled", extra={"function": name})
        return outcome

    def serve(self, process: str, port: int) -> ThreadingHTTPServer:
        """Serve the URL of the function with this short name."""
        return serve(port, lambda event: self.invoke(f"{self._prefix}{process}", event, DEPLOYED_SECONDS))

    def stop(self) -> None:
        """Stop receiving, wait for the receives in progress, and end all environments without an invocation."""
        mappings = list(self._mappings.values())
        for mapping in mappings:
            mapping.stop()
        for mapping in mappings:
            mapping.join(STOP_SECONDS)
        self._functions.retire()


def main() -> None:
    """Run the driver until SIGTERM."""
    parser = argparse.ArgumentParser(description="Run the functions that are deployed on an emulator.")
    parser.add_argument("--images", type=Path, required=True, help="folder of the images")
    parser.add_argument("--logs", type=Path, required=True, help="folder of the functions' logs")
    parser.add_argument("--url", action="append", default=[], metavar="NAME=PORT", help="port for a function's URL")
    parser.add_argument("--concurrency", type=int, default=2, help="concurrent invocations of a mapping")
    arguments = parser.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    driver = Driver(
        ServiceSettings().environment,
        FolderImages(arguments.images),
        arguments.logs,
        {name: value for name, value in os.environ.items() if name != "POWERTOOLS_SERVICE_NAME"},
        arguments.concurrency,
    )
    for place in arguments.url:
        name, _, port = place.partition("=")
        driver.serve(name, int(port))
    logger = service_logger("functions")
    while not stopping.is_set():
        try:
            driver.follow()
        except (ClientError, BotoCoreError) as error:
            logger.warning("deployment_not_read", extra={"reason": str(error)})
        stopping.wait(FOLLOW_SECONDS)
    driver.stop()
    sys.stdout.flush()
    os._exit(0)  # ends invocations in progress; their messages become visible again


if __name__ == "__main__":
    main()
