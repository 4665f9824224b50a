"""A command `docker` for deployments to an emulator, which starts no container and so needs no image."""

from __future__ import annotations

import sys
from pathlib import Path

#: `push` puts an image into the emulator's ECR. `run` runs the program of its standard input, as the Python of an image
#: would. The other commands do nothing.
DOCKER = f"""#!{sys.executable}
import json, sys
if sys.argv[1] == "push":
    import boto3
    repository, _, tag = sys.argv[2].partition("/")[2].rpartition(":")
    manifest = json.dumps({{"schemaVersion": 2, "config": {{"digest": sys.argv[2]}}}})
    boto3.client("ecr").put_image(repositoryName=repository, imageManifest=manifest, imageTag=tag)
elif sys.argv[1] == "run":
    exec(compile(sys.stdin.read(), "program", "exec"))
"""


def write_fake_docker(folder: Path) -> None:
    """Write the command into a folder, which a test puts into `PATH`."""
    docker = folder / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
