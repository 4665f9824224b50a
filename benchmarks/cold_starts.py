"""Cold starts of all functions: how long awslambdaric takes until it asks for work, and until the first answer.

Each function of the templates is started from a folder image, with credentials of no account and no emulator, in a
process of its own. The invocation has no records, so it measures the making of clients and no work. The kernel's page
cache is warm.

    .venv/bin/python benchmarks/cold_starts.py [--rounds 5] [--function interactions]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prismline_localstack.deployment.order import parse, stacks_of
from prismline_localstack.functions.environment import ExecutionEnvironment
from prismline_localstack.functions.images import APP, FolderImages
from prismline_localstack.functions.urls import request_event
from prismline_localstack.settings import REPOSITORY

#: Variables that stand for the outputs of the stacks.
VARIABLES = {
    "PATH": os.environ["PATH"],
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "ENVIRONMENT": "bench",
    "RUNS_TABLE": "runs",
    "JOBS_TABLE": "jobs",
    "WORKFLOW_STATE_TABLE": "states",
    "STATE_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:run",
    "BUCKET": "bucket",
    "PRISMLINE_VALKEY_URL": "none",
    "POWERTOOLS_LOG_LEVEL": "ERROR",
}

#: How handlers fail at an event without records, when they have made their clients.
NO_RECORDS = {"UnexpectedBatchTypeError", "IndexError"}


@dataclass(frozen=True)
class Measured:
    """Seconds of a cold start: of the clock, and of the processor."""

    ready: float
    ready_processor: float
    answered: float
    answered_processor: float


def functions() -> Iterator[tuple[str, str, str, bool]]:
    """Service, short name and handler of each function, and whether it answers HTTP."""
    for service, path in stacks_of(REPOSITORY).items():
        resources = parse(path.read_text())["Resources"]
        served = {
            each["Properties"]["TargetFunctionArn"]["Fn::GetAtt"][0]
            for each in resources.values()
            if each["Type"] == "AWS::Lambda::Url"
        }
        for name, resource in resources.items():
            if resource["Type"] == "AWS::Lambda::Function":
                properties = resource["Properties"]
                short = properties["FunctionName"]["Fn::Sub"].rpartition("${Environment}-")[2]
                yield service, short, properties["ImageConfig"]["Command"][0], name in served


def measure(image: Path, handler: str, event: bytes, folder: Path) -> Measured:
    """One cold start."""
    command = [sys.executable, "-m", "awslambdaric", handler]
    variables = VARIABLES | {"PYTHONPATH": str(image)}
    began = time.monotonic()
    environment = ExecutionEnvironment("bench", "arn", command, variables, folder / "log", image)
    try:
        ready = environment.wait_until_ready()
        outcome = environment.invoke(event, 30.0)
        answered = time.monotonic() - began
        if outcome.error not in {None, *NO_RECORDS}:
            raise SystemExit(f"{handler}: {outcome.error} {outcome.message}\n{(folder / 'log').read_text()[-2000:]}")
        return Measured(ready.seconds, ready.processor_seconds, answered, environment.processor_seconds)
    finally:
        environment.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--function", action="append", help="only this function; may be repeated")
    arguments = parser.parse_args()
    web = json.dumps(request_event("GET", "/nothing", {"host": "h"}, b"", "127.0.0.1")).encode()
    rows: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as draft:
        images = FolderImages(Path(draft))
        chosen = [each for each in functions() if not arguments.function or each[1] in arguments.function]
        built = {service: images.find(images.build(REPOSITORY, service)) / APP for service, *_ in chosen}
        for _ in range(arguments.rounds + 1):  # the first round compiles the modules of the images
            for service, name, handler, served in chosen:
                event = web if served else b'{"Records": []}'
                rows.setdefault(name, []).append(measure(built[service], handler, event, Path(draft)))
    print("| function | ready, s | of it processor, s | first answer, s | of it processor, s |")
    print("| --- | --- | --- | --- | --- |")
    for name, found in rows.items():
        middle = [
            statistics.median(getattr(each, field) for each in found[1:])
            for field in ("ready", "ready_processor", "answered", "answered_processor")
        ]
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in middle) + " |")


if __name__ == "__main__":
    main()
