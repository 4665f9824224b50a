"""Definitions of state machines: a stack reads its own from the bucket of deployments."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def upload_state_machines(s3: S3Client, root: Path, bucket: str) -> dict[str, str]:
    """Put the state machine definition of each service into the bucket. Return its key, by service.

    The key contains a hash of the content, so that a changed definition changes the stack.
    """
    keys = {}
    for path in sorted(root.glob("services/*/statemachine/*.asl.json")):
        body = path.read_bytes()
        keys[path.parents[1].name] = key = f"state-machines/{hashlib.sha256(body).hexdigest()[:16]}/{path.name}"
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    return keys
