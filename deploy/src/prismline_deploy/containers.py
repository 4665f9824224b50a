"""Container images of services: built on this machine, pushed to ECR, and identified by their digest in ECR."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prismline_deploy.dockerfiles import dockerfile_of, image_digest
from prismline_deploy.errors import DeployError
from prismline_deploy.labels import labels_of, version_of

#: Runs a container engine's command, with a text for its standard input.
Engine = Callable[[Sequence[str], str | None], None]
#: Platform of the images: the functions' default architecture.
PLATFORM = "linux/amd64"
#: Number of images that a repository keeps, and days that it keeps one whose tag is gone. A rollback restores one of
#: the last releases of an environment, and environments of an account share the repositories.
KEPT_IMAGES, KEPT_DAYS = 100, 14
LIFECYCLE = {
    "rules": [
        {
            "rulePriority": 1,
            "description": f"Images without a tag are kept for {KEPT_DAYS} days.",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": KEPT_DAYS,
            },
            "action": {"type": "expire"},
        },
        {
            "rulePriority": 2,
            "description": f"The last {KEPT_IMAGES} images are kept.",
            "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": KEPT_IMAGES},
            "action": {"type": "expire"},
        },
    ]
}


def docker(arguments: Sequence[str], text: str | None = None) -> None:
    """Run `docker`. Raises DeployError if it is not installed, or if it fails, with the last line of its output."""
    try:
        subprocess.run(["docker", *arguments], input=text, text=True, check=True, capture_output=True)
    except FileNotFoundError as error:
        raise DeployError("Images are built with docker, which is not installed here.") from error
    except subprocess.CalledProcessError as error:
        output = (error.stderr or error.stdout or "").strip().splitlines()
        raise DeployError(f"docker {arguments[0]} failed: {output[-1] if output else 'it gave no reason'}") from error


class ContainerImages:
    """Images in the ECR repositories `prismline/<service>`, which are created when they are first needed.

    The tag of an image is the version of its service and a digest of all files that it is built from. An image that
    exists already is not built again. Environments of an account share the repositories, so their lifecycle policy is
    set here and not by the stack of an environment.
    """

    def __init__(self, ecr: Any, engine: Engine = docker) -> None:
        self._ecr = ecr
        self._engine = engine

    def build(self, root: Path, service: str) -> str:
        """Build and push the image of a service of the checkout `root`. Return its URI, with its digest."""
        repository = f"prismline/{service}"
        place = self._place(repository)
        tag = tag_of(root, service)
        if (digest := self._digest(repository, tag)) is None:
            dockerfile = str(dockerfile_of(root, service))
            name = f"{place}:{tag}"
            # Lambda does not accept an image with a build attestation.
            build = ["build", "--pull", "--platform", PLATFORM, "--provenance=false", "--file", dockerfile]
            build += ["--tag", name]
            labels = [part for label in labels_of(root, service) for part in ("--label", label)]
            self._engine([*build, *labels, str(root)], None)
            self._log_in(place.partition("/")[0])
            self._engine(["push", name], None)
            self._ecr.put_lifecycle_policy(repositoryName=repository, lifecyclePolicyText=json.dumps(LIFECYCLE))
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


def tag_of(root: Path, service: str) -> str:
    """The tag of the image of a service of the checkout `root`."""
    return f"{version_of(root, service)}-{image_digest(root, service)[:12]}"
