from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The tests import api_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from api_world import Api, ApiWorld

from prismline_api.app import build_app
from prismline_localstack.testing import serving
from prismline_runtime import faults


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ApiWorld:
    """Tables, queues, a bus and a bucket of an environment of its own, and the api on them."""
    return ApiWorld.create(aws_env["ENVIRONMENT"], monkeypatch)


@pytest.fixture
def acme(world: ApiWorld) -> Api:
    """A client of the tenant `acme` with all scopes of a tenant."""
    return world.caller()


@pytest.fixture
def url(world: ApiWorld) -> Iterator[str]:
    """The URL at which the service listens."""
    with serving(build_app(world.deps)) as found:
        yield found


@pytest.fixture
def fail_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes the api fail once at a fault point."""
    rules = tmp_path / "faults.json"
    monkeypatch.setenv("PRISMLINE_FAULTS_FILE", str(rules))
    faults.rules_file.cache_clear()
    yield lambda point: rules.write_text(json.dumps([{"point": point, "action": "transient", "times": 1}])) and None
    faults.rules_file.cache_clear()
