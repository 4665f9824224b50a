"""A command `docker` for deployments to an emulator, which starts no container and so needs no image."""

from __future__ import annotations

import sys
from pathlib import Path

#: `push` puts an image into the emulator's ECR. The other commands do nothing.
DOCKER = f"""#!{sys.executable}
import json, sys
import boto3
if sys.argv[1] == "push":
    repository, _, tag = sys.argv[2].partition("/")[2].rpartition(":")
    manifest = json.dumps({{"schemaVersion": 2, "config": {{"digest": sys.argv[2]}}}})
    boto3.client("ecr").put_image(repositoryName=repository, imageManifest=manifest, imageTag=tag)
"""


def write_fake_docker(folder: Path) -> None:
    """Write the command into a folder, which a test puts into `PATH`."""
    docker = folder / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
