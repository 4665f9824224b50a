"""Container images of services: built on this machine, pushed to ECR, and identified by their digest in ECR."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prismline_deploy.errors import DeployError

#: Runs a container engine's command, with a text for its standard input.
Engine = Callable[[Sequence[str], str | None], None]
#: Platform of the images: the functions' default architecture.
PLATFORM = "linux/amd64"


def docker(arguments: Sequence[str], text: str | None = None) -> None:
    """Run `docker`. Raises DeployError if it is not installed, or if it fails, with the last line of its output."""
    try:
        subprocess.run(["docker", *arguments], input=text, text=True, check=True, capture_output=True)
    except FileNotFoundError as error:
        raise DeployError("Images are built with docker, which is not installed here.") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise DeployError(f"docker {arguments[0]} failed: {said[-1] if said else 'it gave no reason'}") from error


class ContainerImages:
    """Images in the ECR repositories `prismline/<service>`, which are created when they are first needed.

    The tag of an image is the version of its service and a digest of all files that it is built from. An image that
    exists already is not built again.
    """

    def __init__(self, ecr: Any, engine: Engine = docker) -> None:
        self._ecr = ecr
        self._engine = engine

    def build(self, root: Path, service: str) -> str:
        """Build and push the image of a service of the checkout `root`. Return its URI, with its digest."""
        repository = f"prismline/{service}"
        place = self._place(repository)
        tag = f"{version_of(root, service)}-{_source_digest(root)[:12]}"
        if (digest := self._digest(repository, tag)) is None:
            dockerfile = str(root / "services" / service / "Dockerfile")
            name = f"{place}:{tag}"
            # Lambda does not accept an image with a build attestation.
            build = ["build", "--platform", PLATFORM, "--provenance=false", "--file", dockerfile, "--tag", name]
            labels = [part for label in labels_of(root, service) for part in ("--label", label)]
            self._engine([*build, *labels, str(root)], None)
            self._log_in(place.partition("/")[0])
            self._engine(["push", name], None)
            digest = self._digest(repository, tag)
        if digest is None:
            raise DeployError(f"The image {place}:{tag} was pushed, but ECR does not have it.")
        return f"{place}@{digest}"

    def _place(self, repository: str) -> str:
        """The URI of a repository, which is created if it does not exist."""
        try:
            found = self._ecr.describe_repositories(repositoryNames=[repository])["repositories"][0]
        except self._ecr.exceptions.RepositoryNotFoundException:
            found = self._ecr.create_repository(
                repositoryName=repository,
                imageTagMutability="IMMUTABLE",
                imageScanningConfiguration={"scanOnPush": True},
            )["repository"]
        return str(found["repositoryUri"])

    def _digest(self, repository: str, tag: str) -> str | None:
        """The digest of an image. None if there is no such image."""
        try:
            found = self._ecr.describe_images(repositoryName=repository, imageIds=[{"imageTag": tag}])
        except self._ecr.exceptions.ImageNotFoundException:
            return None
        details: list[Any] = found["imageDetails"]
        return str(details[0]["imageDigest"]) if details else None

    def _log_in(self, registry: str) -> None:
        token = self._ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]
        user, _, password = base64.b64decode(token).decode().partition(":")
        self._engine(["login", "--username", user, "--password-stdin", registry], password)


def version_of(root: Path, service: str) -> str:
    """The version of a service. Raises DeployError if there is no such service."""
    project = root / "services" / service / "pyproject.toml"
    if not project.exists():
        raise DeployError(f"There is no {project}.")
    version: str = tomllib.loads(project.read_text())["project"]["version"]
    return version


def labels_of(root: Path, service: str) -> list[str]:
    """The labels of an image that its Dockerfile does not contain: the version and, in a clone, the revision."""
    labels = [f"org.opencontainers.image.version={version_of(root, service)}"]
    if (git := shutil.which("git")) is not None:
        command = [git, "-C", str(root), "rev-parse", "HEAD"]
        asked = subprocess.run(command, text=True, capture_output=True, check=False)
        if asked.returncode == 0:
            labels.append(f"org.opencontainers.image.revision={asked.stdout.strip()}")
    return labels


def _source_digest(root: Path) -> str:
    """A digest of all files that an image of the checkout may be built from."""
    whole = hashlib.sha256()
    for folder in ("contracts/src", "libs", "services"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".py", ".c", ".h", ".json", ".toml", ".txt", ".html", ".css", ".js"} or (
                path.name == "Dockerfile"
            ):
                whole.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return whole.hexdigest()
