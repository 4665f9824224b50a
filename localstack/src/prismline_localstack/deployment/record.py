"""What is deployed: one SSM parameter for each service, `/prismline/<environment>/deployed/<service>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

#: Releases before the present one that are remembered. SSM takes 4 KB.
REMEMBERED = 5


class Release(BaseModel, frozen=True):
    """A release of a service that was deployed."""

    #: Version of the service, from its `pyproject.toml`.
    version: str
    #: The parameters of the stack that carry code: `ImageUri`, and `StateMachineKey` where there is one.
    code: dict[str, str]
    #: When it was deployed.
    deployed_at: str

    @property
    def image(self) -> str:
        """The image with its digest."""
        return self.code.get("ImageUri", "")


class Deployed(Release):
    """The release of a service that is deployed now."""

    #: The releases before it, the latest first.
    previous: list[Release] = []

    def replaced_by(self, version: str, code: dict[str, str], deployed_at: str) -> Deployed:
        """The record after another release was deployed. The same release again adds nothing to the history."""
        if (self.version, self.code) == (version, code):
            return self
        before = Release(version=self.version, code=self.code, deployed_at=self.deployed_at)
        return Deployed(
            version=version, code=code, deployed_at=deployed_at, previous=[before, *self.previous][:REMEMBERED]
        )

    def rolled_back(self, deployed_at: str) -> Deployed:
        """The record after the release before was restored. There must be one."""
        before, *earlier = self.previous
        return Deployed(version=before.version, code=before.code, deployed_at=deployed_at, previous=earlier)


class Record:
    """The record of an environment."""

    def __init__(self, ssm: SSMClient, environment: str) -> None:
        self._ssm = ssm
        self._path = f"/prismline/{environment}/deployed"

    def get(self, service: str) -> Deployed | None:
        """What is deployed of a service. None if nothing is known."""
        try:
            found = self._ssm.get_parameter(Name=f"{self._path}/{service}")
        except self._ssm.exceptions.ParameterNotFound:
            return None
        return Deployed.model_validate_json(found["Parameter"]["Value"])

    def put(self, service: str, deployed: Deployed) -> None:
        """Remember what is deployed of a service."""
        self._ssm.put_parameter(
            Name=f"{self._path}/{service}", Value=deployed.model_dump_json(), Type="String", Overwrite=True
        )


def first(version: str, code: dict[str, str], deployed_at: str) -> Deployed:
    """The record after the first deployment of a service."""
    return Deployed(version=version, code=code, deployed_at=deployed_at)
