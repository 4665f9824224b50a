"""Cold starts of all functions: how long awslambdaric takes until it asks for work, and until the first answer.

Each function of the templates runs in its own process, from a folder with the files of its image, without an account
and without an emulator. The invocation has no records, so it measures the creation of clients and no work. The kernel's
page cache is warm.

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
from dataclasses import dataclass
from pathlib import Path

from prismline_localstack.functions import offline
from prismline_localstack.functions.environment import ExecutionEnvironment
from prismline_localstack.functions.images import APP, FolderImages
from prismline_localstack.functions.urls import request_event
from prismline_localstack.settings import REPOSITORY

#: Variables of all functions.
VARIABLES = offline.VARIABLES | {"PATH": os.environ["PATH"], "ENVIRONMENT": "bench", "POWERTOOLS_LOG_LEVEL": "ERROR"}


@dataclass(frozen=True)
class Measured:
    """Seconds of a cold start: elapsed time and processor time."""

    ready: float
    ready_processor: float
    answered: float
    answered_processor: float


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
        if outcome.error not in {None, *offline.NO_RECORDS}:
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
        chosen = [
            each
            for each in offline.declared_functions(REPOSITORY)
            if not arguments.function or each.name in arguments.function
        ]
        services = {each.service for each in chosen}
        built = {service: images.find(images.build(REPOSITORY, service)) / APP for service in services}
        for _ in range(arguments.rounds + 1):  # the first round compiles the modules of the images
            for each in chosen:
                event = web if each.has_url else b'{"Records": []}'
                rows.setdefault(each.name, []).append(measure(built[each.service], each.command[0], event, Path(draft)))
    print("| function | ready, s | processor time of that, s | first answer, s | processor time of that, s |")
    print("| --- | --- | --- | --- | --- |")
    for name, found in rows.items():
        middle = [
            statistics.median(getattr(each, field) for each in found[1:])
            for field in ("ready", "ready_processor", "answered", "answered_processor")
        ]
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in middle) + " |")


if __name__ == "__main__":
    main()
