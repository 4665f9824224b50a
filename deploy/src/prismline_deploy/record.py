"""The record of deployments, in parameters of SSM.

`/prismline/<environment>/deployed/<service>` says which release of a service is deployed.
`/prismline/<environment>/platform/pool-<pool>` says which image of a pool is.
`/prismline/<environment>/platform/chosen-<stack>` names the template parameters whose values a person chose.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from pydantic import BaseModel

from prismline_contracts.deploying import DEPLOYED_PARAMETERS

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

#: Name of the SSM parameter with the names of the parameters of a stack that a person gave a value. It is below
#: `platform`, where deployers could write before this parameter existed.
CHOSEN_PARAMETERS = "/prismline/{environment}/platform/chosen-{stack}"
#: Name of the SSM parameter of a pool. A pool is no service: it is not among those whose versions have to fit.
POOL_PARAMETERS = "/prismline/{environment}/platform/pool-{pool}"
#: Number of previous releases in the record. An SSM parameter holds at most 4 KB.
REMEMBERED = 5


class Release(BaseModel, frozen=True):
    """A release of a service, or of a pool, that was deployed."""

    #: Version of the service, from its `pyproject.toml`. Of a pool: that of the worker whose template it has.
    version: str
    #: The parameters of the stack that refer to code: `ImageUri`, and `StateMachineKey` if it has a state machine.
    code: dict[str, str]
    #: When it was deployed.
    deployed_at: str
    #: Of a pool: the digest of the code of each function that its image registers, by name.
    registered: dict[str, str] = {}

    @property
    def image(self) -> str:
        """The image with its digest."""
        return self.code.get("ImageUri", "")


class ReleaseHistory(Release):
    """The release of a service that is deployed now, and those before it."""

    #: The previous releases, the latest first.
    previous: list[Release] = []
    #: Short names of the functions of its stack. A rollback keeps the stack's template, and so its functions.
    functions: list[str] = []

    def replaced_by(self, release: Release, functions: list[str]) -> ReleaseHistory:
        """The record after another release was deployed. If it is the same release, the history stays unchanged."""
        if (self.version, self.code) == (release.version, release.code):
            return self.model_copy(update={"functions": functions})
        before = Release(version=self.version, code=self.code, deployed_at=self.deployed_at, registered=self.registered)
        return ReleaseHistory(**dict(release), previous=[before, *self.previous][:REMEMBERED], functions=functions)

    def rolled_back(self, deployed_at: str) -> ReleaseHistory:
        """The record after the previous release was restored. There must be one."""
        before, *earlier = self.previous
        restored = before.model_copy(update={"deployed_at": deployed_at})
        return ReleaseHistory(**dict(restored), previous=earlier, functions=self.functions)


class Record:
    """The record of an environment."""

    def __init__(self, ssm: SSMClient, environment: str) -> None:
        self._ssm = ssm
        self._environment = environment

    def _name(self, service: str) -> str:
        return DEPLOYED_PARAMETERS.format(environment=self._environment, service=service)

    def get(self, service: str) -> ReleaseHistory | None:
        """The record of a service. None if there is none."""
        return self._read(self._name(service))

    def get_pool(self, pool: str) -> ReleaseHistory | None:
        """The record of a pool. None if there is none."""
        return self._read(POOL_PARAMETERS.format(environment=self._environment, pool=pool))

    def _read(self, name: str) -> ReleaseHistory | None:
        try:
            found = self._ssm.get_parameter(Name=name)
        except self._ssm.exceptions.ParameterNotFound:
            return None
        return ReleaseHistory.model_validate_json(found["Parameter"]["Value"])

    def versions(self) -> dict[str, str]:
        """The version of each service that is deployed."""
        pages = self._ssm.get_paginator("get_parameters_by_path").paginate(Path=self._name(""))
        return {
            each["Name"].rpartition("/")[2]: ReleaseHistory.model_validate_json(each["Value"]).version
            for page in pages
            for each in page["Parameters"]
        }

    def chosen(self, stack: str) -> set[str] | None:
        """The parameters of a stack that a person gave a value, by any deployment. None if that is not recorded."""
        try:
            found = self._ssm.get_parameter(Name=CHOSEN_PARAMETERS.format(environment=self._environment, stack=stack))
        except self._ssm.exceptions.ParameterNotFound:
            return None
        return set(json.loads(found["Parameter"]["Value"]))

    def choose(self, stack: str, parameters: Collection[str]) -> None:
        """Record which parameters of a stack a person gave a value."""
        name = CHOSEN_PARAMETERS.format(environment=self._environment, stack=stack)
        self._ssm.put_parameter(Name=name, Value=json.dumps(sorted(parameters)), Type="String", Overwrite=True)

    def put(self, service: str, history: ReleaseHistory) -> None:
        """Write the record of a service."""
        self._write(self._name(service), history)

    def put_pool(self, pool: str, history: ReleaseHistory) -> None:
        """Write the record of a pool."""
        self._write(POOL_PARAMETERS.format(environment=self._environment, pool=pool), history)

    def _write(self, name: str, history: ReleaseHistory) -> None:
        self._ssm.put_parameter(Name=name, Value=history.model_dump_json(), Type="String", Overwrite=True)


def first(release: Release, functions: list[str]) -> ReleaseHistory:
    """The record after the first deployment of a service."""
    return ReleaseHistory(**dict(release), functions=functions)
