"""Paths, and the settings that the harness reads from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings

from prismline_deploy.endpoints import is_aws
from prismline_emulator.endpoints import LOOPBACK

_PACKAGE = Path(__file__).resolve().parent
#: The folder with `platform/` and `services/`. An installed wheel contains them. An editable installation uses the
#: checkout around it: this file is `<repository>/localstack/src/prismline_localstack/settings.py`.
REPOSITORY = carried if (carried := _PACKAGE / "checkout").is_dir() else _PACKAGE.parents[2]

#: Region and access key id for an emulator. Its account id follows from the key id: 000000000000.
EMULATOR_REGION = "us-east-1"
EMULATOR_KEY_ID = "test"
#: Port of a LocalStack whose host is given without one.
LOCALSTACK_PORT = 4566


class HarnessSettings(BaseSettings):
    """The harness's own settings."""

    prismline_home: Path = Field(default=Path(".prismline"), description="Folder of state and logs.")
    aws_endpoint_url: str = Field(default="", description="Use this endpoint, and start no emulator.")
    prismline_emulator_secret: str = Field(default="test", description="The secret access key for this endpoint.")
    localstack_host: str = Field(default="", description="The same for a LocalStack: host[:port].")
    prismline_pools: str = Field(default="", description="Pools that the deployment of containers creates, by commas.")
    use_ssl: bool = Field(default=False, description="Whether that LocalStack is called with TLS.")

    @property
    def endpoint(self) -> str | None:
        """The endpoint of a running emulator. None: the harness starts its own."""
        if endpoint := self.aws_endpoint_url.strip():
            return endpoint
        if not (host := self.localstack_host.strip()):
            return None
        scheme = "https" if self.use_ssl else "http"
        return f"{scheme}://{host}" if ":" in host else f"{scheme}://{host}:{LOCALSTACK_PORT}"


def client_environment(endpoint: str, secret: str | None = None) -> dict[str, str]:
    """The environment variables that point AWS clients at `endpoint`.

    An emulator never sees the user's credentials or AWS configuration. secret: its secret access key. Default: the one
    that the settings name, which LocalStack does not check.
    """
    if is_aws(endpoint):
        return {"AWS_ENDPOINT_URL": endpoint}
    direct = filter(None, (urlsplit(endpoint).hostname, LOOPBACK, os.environ.get("NO_PROXY")))
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": EMULATOR_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": secret or HarnessSettings().prismline_emulator_secret,
        "AWS_REGION": EMULATOR_REGION,
        "AWS_DEFAULT_REGION": EMULATOR_REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        # Transfers within one machine need no further checksum. On AWS the default stays.
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        "NO_PROXY": ",".join(dict.fromkeys(direct)),
    }


def inherited_environment(endpoint: str | None = None) -> dict[str, str]:
    """The environment for child processes: that of this process, without AWS variables unless `endpoint` is AWS."""
    if endpoint is not None and is_aws(endpoint):
        return dict(os.environ)
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
