"""Manifests: the splitter announces the run of a new object under `manifests/`, and then splits the run."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from prismline_contracts.commands import RunSplit
from prismline_contracts.envelope import Envelope
from tests.fuzz.account import Process, empty
from tests.fuzz.mutations import encoded, json_bytes
from tests.fuzz.target import Target
from tests.simulation.processes import declared_services

KEY = "manifests/a.json"
EXAMPLES: list[dict[str, Any]] = [
    {
        "workload": "spectra",
        "survey": "grs",
        "cube_key": "cubes/c.fits",
        "params": {"beta": 3.5, "decomposer": "gaussline", "preset": "best", "noise": 0.1},
        "tolerated_failure_percent": 5.0,
        "idempotency_key": "once",
        "job_id": "job",
        "tenant": "acme",
        "max_concurrency": 4,
        "priority": 5,
        "deadline_at": "2030-03-01T12:00:00.000Z",
        "traceparent": "00-29d0fea35b91004c87449dc541b1357e-82f3c1387d8d2563-01",
        "chunk_input": "auto",
        "chunk_size": 100,
        "cube_bucket": "b",
    },
    {
        "workload": "captions",
        "session_id": "session",
        "user_id": "u",
        "windows": [{"window_index": 0, "frame_count": 1, "frames": ["frames/0.png"]}],
        "params": {"prompt": "What is this?", "max_tokens": 100},
    },
    {
        "workload": "urls",
        "survey": "pages",
        "urls": ["https://example.com/", "https://example.org/a?b#c"],
        "params": {"timeout_s": 10.0, "max_redirects": 3, "keep_headers": ["etag"]},
    },
    {"workload": "urls", "survey": "pages", "list": {"key": "uploads/a.jsonl", "format": "jsonl", "gzip": False}},
    {"workload": "urls", "survey": "pages", "rerun": {"run_id": "r", "only": "failed"}},
    {"workload": "urls", "survey": "pages", "batches": {"prefix": "jobs/j/batches/", "count": 3}},
]
HOSTILE = {
    "a_number_of_tasks_with_four_hundred_digits": encoded(
        {"workload": "urls", "survey": "pages", "batches": {"prefix": "jobs/j/batches/", "count": 10**400}}
    ),
    "nested_a_hundred_thousand_times": b"[" * 100_000,
    "an_empty_object_in_storage": b"",
    "a_survey_with_half_of_a_surrogate_pair": b'{"survey": "\\ud800", "cube_key": "c"}',
    "a_workload_that_is_a_module": b'{"workload": "__init__", "survey": "a", "cube_key": "c"}',
    "a_workload_in_another_folder": b'{"workload": "../spectra", "survey": "a", "cube_key": "c"}',
    "a_percentage_that_is_not_a_number": b'{"survey": "a", "cube_key": "c", "tolerated_failure_percent": NaN}',
    "a_field_whose_name_has_several_lines": b'{"survey": "a", "cube_key": "c", "params": {"a\\nb": 1}}',
    "a_key_that_climbs_up": b'{"survey": "a", "cube_key": "../../etc/passwd"}',
}


@cache
def splitter() -> Process:
    return Process(declared_services()["splitter"])


def submit(data: bytes) -> str | None:
    """Put a manifest into the bucket. Returns why its run cannot be split."""
    aws = empty()
    bucket = next(iter(aws.objects))
    aws.s3.put_object(Bucket=bucket, Key=KEY, Body=data)
    created = {"bucket": {"name": bucket}, "object": {"key": KEY, "etag": "e"}}
    splitter().take(json.dumps({"source": "aws.s3", "detail-type": "Object Created", "detail": created}))
    command = RunSplit(run_id="r", job_id="j", bucket=bucket, manifest_key=KEY)
    return splitter().take(Envelope.wrap(command, source="fuzz", traceparent=None).to_json())


TARGETS = [Target("manifests", submit, json_bytes(*EXAMPLES), HOSTILE, prepare=splitter)]
