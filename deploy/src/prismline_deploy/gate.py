"""The gate: whether the services of an environment work together after a deployment or a rollback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from prismline_contracts_tool.deploying import VERIFICATIONS, Deployed, Verifications, can_i_deploy
from prismline_deploy.errors import DeployError


def objections(root: Path, environment: str, deployed: Mapping[str, str], changes: Mapping[str, str]) -> list[str]:
    """Why `changes` must not be made to what is `deployed`: a sentence for each reason.

    Both map services to versions. root: a checkout, whose verifications decide. Raises DeployError if it has none.
    """
    path = root / "contracts" / VERIFICATIONS
    if not path.exists():
        raise DeployError(
            f"{root} has no contracts/{VERIFICATIONS}, so nothing says whether these versions work together: name a"
            " checkout with --root."
        )
    return list(dict.fromkeys(_reasons(Verifications.read(path), environment, deployed, changes)))


def _reasons(
    verified: Verifications, environment: str, deployed: Mapping[str, str], changes: Mapping[str, str]
) -> Iterator[str]:
    after = {service: Deployed(version=version) for service, version in {**deployed, **changes}.items()}
    for service, version in changes.items():
        if not verified.exchanges(service):
            continue
        answer = can_i_deploy(service, version, after, verified, environment)
        if not answer.possible:
            yield from answer.reasons
