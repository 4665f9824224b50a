"""The api as a Lambda function behind a function URL."""

from __future__ import annotations

import json
from typing import Any

import pytest
from api_world import ApiWorld, urls_job

from prismline_api import app
from prismline_contracts.jobs import job_manifest_key
from prismline_contracts.tasks import UrlsManifest
from prismline_ledger.testing import Context

pytestmark = pytest.mark.emulator


def event(method: str, path: str, key: str, body: Any = None) -> dict[str, Any]:
    """The event of a function URL (payload format 2.0)."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"authorization": f"Bearer {key}", "content-type": "application/json", "host": "example.org"},
        "requestContext": {"http": {"method": method, "path": path, "sourceIp": "127.0.0.1", "protocol": "HTTP/1.1"}},
        "body": None if body is None else json.dumps(body),
        "isBase64Encoded": False,
    }


def test_a_job_is_submitted_through_the_function(world: ApiWorld) -> None:
    key = world.key()
    app.process_handler.cache_clear()  # each world has settings of its own
    answer = app.handler(event("POST", "/v1/jobs", key, urls_job(2)), Context())
    job = json.loads(answer["body"])
    assert (answer["statusCode"], job["run"]["counts"]["total"]) == (201, 2)
    manifest = world.deps.bucket.read(job_manifest_key(job["job_id"], job["run"]["run_id"]))
    assert UrlsManifest.model_validate_json(manifest).tenant == "acme"
    refused = app.handler(event("GET", "/v1/jobs", "nobody"), Context())
    assert refused["statusCode"] == 401
    assert refused["headers"]["content-type"] == "application/problem+json"
