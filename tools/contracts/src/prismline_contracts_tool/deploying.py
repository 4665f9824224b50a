"""Decides whether a version of a service works with the services that are deployed in an environment.

`contracts/verifications.json` says, for each version of a service, which pacts it states as a consumer and which it
keeps as a producer. `make pacts` adds the current versions. `contracts/deployed/<environment>.json` says what is
deployed where; a deployment writes the same to the parameters `/prismline/<environment>/deployed/<service>`.

A pact counts by its content: two versions that need the same state the same pact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prismline_contracts.base import Contract, Name

#: Where a deployment records what it has deployed.
DEPLOYED_PARAMETERS = "/prismline/{environment}/deployed/{service}"


class Deployed(Contract):
    """What is deployed of one service: the fields of its parameter that are needed here."""

    version: Name
    #: When it was deployed.
    deployed_at: str | None = None


@dataclass
class Verifications:
    """Which pacts each version of a service states, and which it keeps."""

    #: consumer -> its version -> producer -> pact
    needs: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    #: producer -> its version -> pacts
    keeps: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Verifications:
        """The verifications in a file; none if there is no file."""
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_text(json.dumps({"needs": self.needs, "keeps": self.keeps}, indent=1, sort_keys=True) + "\n")

    def knows(self, service: str, version: str) -> bool:
        """Whether anything was verified for a version."""
        return version in self.needs.get(service, {}) or version in self.keeps.get(service, {})


@dataclass(frozen=True)
class Answer:
    """Whether a version may be deployed, and one sentence for each service that it meets."""

    possible: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.reasons)


def pact_digest(pact: Mapping[str, Any]) -> str:
    """The digest of what a pact requires: its interactions, with the types of values instead of the example values."""
    asked = sorted((each["description"], _shape(each["contents"]["content"])) for each in pact["interactions"])
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def _shape(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value[:1]]
    return "number" if type(value) in (int, float) else type(value).__name__


def read_deployed(text: str) -> dict[str, Deployed]:
    """Read the deployed version of each service.

    text: `{service: {version}}`, or what `aws ssm get-parameters-by-path` prints. Raises `ValueError` if
    it is neither.
    """
    document = json.loads(text)
    if "Parameters" in document:
        document = {each["Name"].rpartition("/")[2]: json.loads(each["Value"]) for each in document["Parameters"]}
    try:
        return {service: Deployed.model_validate(each) for service, each in document.items()}
    except (ValidationError, AttributeError) as error:
        raise ValueError(f"This is not a record of what is deployed: {error}") from error


def can_i_deploy(
    service: str, version: str, deployed: Mapping[str, Deployed], verified: Verifications, environment: str
) -> Answer:
    """Whether `version` of `service` works with what is deployed beside it."""
    if not verified.knows(service, version):
        what = f"Nothing was verified for {service} {version}: run `make pacts` in its checkout."
        return Answer(possible=False, reasons=(what,))
    broken = list(_broken(service, version, deployed, verified, environment))
    if broken:
        return Answer(possible=False, reasons=tuple(broken))
    met = sorted(set(_partners(service, version, verified)) & deployed.keys() - {service})
    beside = (
        ", ".join(f"{name} {deployed[name].version}" for name in met) or "no service that it exchanges messages with"
    )
    return Answer(possible=True, reasons=(f"{service} {version} works with what is in {environment}: {beside}.",))


def _partners(service: str, version: str, verified: Verifications) -> Iterator[str]:
    yield from verified.needs.get(service, {}).get(version, {})
    for consumer, versions in verified.needs.items():
        if any(service in needs for needs in versions.values()):
            yield consumer


def _broken(
    service: str, version: str, deployed: Mapping[str, Deployed], verified: Verifications, environment: str
) -> Iterator[str]:
    for producer, pact in verified.needs.get(service, {}).get(version, {}).items():
        if producer != service and producer in deployed:
            there = deployed[producer].version
            if pact not in verified.keeps.get(producer, {}).get(there, []):
                yield (
                    f"{service} {version} needs messages of {producer} as pact {pact} states them, and no test has"
                    f" shown that {producer} {there}, which is in {environment}, keeps it."
                    f" First deploy a {producer} that does."
                )
    for consumer, record in deployed.items():
        needed = verified.needs.get(consumer, {}).get(record.version, {}).get(service)
        if (
            consumer != service
            and needed is not None
            and needed not in verified.keeps.get(service, {}).get(version, [])
        ):
            yield (
                f"{consumer} {record.version}, which is in {environment}, needs messages of {service} as pact {needed}"
                f" states them, and no test has shown that {service} {version} keeps it."
                f" First deploy a {consumer} that needs less."
            )
