"""The gate: whether the services of an environment work together after a deployment or a rollback."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from prismline_contracts_tool.deploying import VERIFICATIONS, Deployed, Verifications, can_i_deploy


def objections(
    checkouts: Collection[Path], environment: str, deployed: Mapping[str, str], changes: Mapping[str, str]
) -> list[str]:
    """The sentences that say which services would not work together. Empty: all would.

    deployed: the version of each service in the environment. changes: the versions that would replace some of these.
    The verifications of all `checkouts` count, because an earlier one does not know the versions that came after it. Of
    two that know a version, the later one in the list counts.
    """
    paths = [path for root in checkouts if (path := root / "contracts" / VERIFICATIONS).exists()]
    if not paths:
        missing = f"No checkout here has a contracts/{VERIFICATIONS}, which says whether versions work together: "
        return [missing + "call the command in a checkout, or name one with --root."]
    verified = Verifications()
    for path in paths:
        verified.add(Verifications.read(path))
    return list(dict.fromkeys(_reasons(verified, environment, deployed, changes)))


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
