"""The API key of the user of a local system. `prismline up` creates it, and the command line uses it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from prismline_contracts.base import timestamp
from prismline_contracts.jobs import DEFAULT_TENANT, Scope, new_api_key
from prismline_runtime import Change, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def ensure_api_key(file: Path, dynamodb: DynamoDBClient, table: str) -> str:
    """Write the local user's key to `file`, unless it holds one, and its item to the jobs table. Return the key.

    The key gets every scope, also if an older release created it with fewer.
    """
    key, item = new_api_key(DEFAULT_TENANT, "local user", get_args(Scope), timestamp(), key=read_api_key(file))
    keys = Table(dynamodb, table)
    if not keys.create(item.model_dump(exclude_none=True), key="PK"):
        keys.update({"PK": item.PK, "SK": item.SK}, Change({"scopes": item.scopes}))
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as writer:
        writer.write(f"{key}\n")
    return key


def read_api_key(file: Path) -> str | None:
    """The key in `file`, or None."""
    return (file.read_text().strip() or None) if file.exists() else None
