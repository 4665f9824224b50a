"""The API key of the user of a local system."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest

from prismline_client.address import KEY_VARIABLE
from prismline_contracts.jobs import api_key_key, api_key_sha256
from prismline_localstack import connecting
from prismline_localstack.api_keys import ensure_api_key, read_api_key
from prismline_localstack.testing import create_runs_table
from prismline_runtime import Table

pytestmark = pytest.mark.emulator


def test_the_key_stays_the_same_and_is_valid_again_after_the_table_was_lost(
    aws_env: dict[str, str], tmp_path: Path
) -> None:
    dynamodb, file = boto3.client("dynamodb"), tmp_path / "api-key"
    keys = set()
    for number in range(3):
        table = f"jobs-{aws_env['ENVIRONMENT']}-{number // 2}"
        if number != 1:
            create_runs_table(dynamodb, table)
        ensure_api_key(file, dynamodb, table)
        key = read_api_key(file)
        assert key is not None
        keys.add(key)
        item = Table(dynamodb, table).get(api_key_key(api_key_sha256(key)))
        assert item is not None
        assert (item["tenant"], item["scopes"]) == ("local", ["all", "operate", "read", "submit"])
    assert len(keys) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert KEY_VARIABLE not in os.environ


def test_the_command_does_not_put_the_key_into_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another system that the same process asks afterwards has another key."""
    monkeypatch.setenv("PRISMLINE_HOME", str(tmp_path))
    monkeypatch.setattr(connecting, "load_state", lambda: SimpleNamespace(activate=lambda: None))
    (tmp_path / "api-key").write_text("prismline_k\n")
    assert connecting.connect() is None
    assert KEY_VARIABLE not in os.environ
