"""What a deployment has to know of an endpoint: whether it is AWS, and what an emulator lacks."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_aws(endpoint: str) -> bool:
    """Whether `endpoint` is AWS itself, which needs real credentials."""
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))


def emulator_parameters(endpoint: str) -> dict[str, str]:
    """Template parameters for an emulator at `endpoint`. AWS itself gets none.

    They disable the features that emulators lack: Athena, alarms on metric math, and TLS. They also disable deletion
    protection, because data on an emulator is disposable.
    """
    if is_aws(endpoint):
        return {}
    return {"DeploySearch": "false", "DeletionProtection": "false", "MetricMath": "false", "Emulator": "true"}
