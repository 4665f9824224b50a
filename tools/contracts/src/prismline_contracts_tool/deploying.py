"""Decides whether a version of a service works with the services that are deployed in an environment.

`contracts/verifications.json` says, for each version of a service, which types of messages it sends and takes, which
pacts it states as a consumer and which it keeps as a producer. `make pacts` adds the current versions, and never
changes those that are released. `contracts/deployed/<environment>.json` says what is deployed where; a deployment
writes the same to the parameters `/prismline/<environment>/deployed/<service>`.

A pact counts by its content: two versions that need the same state the same pact. Versions that were released before
there were pacts have only their types.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prismline_contracts.base import Contract, Name
from prismline_contracts.summaries import Kind
from prismline_contracts_tool.registry import BUS, Entry

#: The contract that all messages have in common.
ENVELOPE = "envelope.v1"
#: The file in a checkout's folder `contracts`.
VERIFICATIONS = "verifications.json"


class Deployed(Contract):
    """What is deployed of one service: the fields of its parameter that are needed here."""

    version: Name
    #: When it was deployed.
    deployed_at: str | None = None


@dataclass
class Verifications:
    """Which messages each version of a service sends and takes; which pacts it states, and which it keeps."""

    #: producer -> its version -> type of message -> consumers that have to take it
    sends: dict[str, dict[str, dict[str, list[str]]]] = field(default_factory=dict)
    #: consumer -> its version -> types of messages
    takes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
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
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    def knows(self, service: str, version: str) -> bool:
        """Whether anything was recorded for a version."""
        return any(version in each.get(service, {}) for each in self._all())

    def exchanges(self, service: str) -> bool:
        """Whether any version of a service sends or takes messages."""
        return any(service in each for each in self._all())

    def add(self, other: Verifications) -> None:
        """Add what another file records. Two files of one project record the same of a released version."""
        for mine, others in zip(self._all(), other._all(), strict=True):
            for service, versions in others.items():
                mine.setdefault(service, {}).update(versions)

    def _all(self) -> tuple[dict[str, dict[str, Any]], ...]:
        return self.sends, self.takes, self.needs, self.keeps

    def add_types(self, service: str, version: str, registry: Mapping[str, Entry]) -> None:
        """Record the messages that a version sends and takes, from the registry of its commit."""
        messages = {
            name: entry for name, entry in sorted(registry.items()) if entry.kind is Kind.MESSAGE and name != ENVELOPE
        }
        sent = {name: _takers(entry) for name, entry in messages.items() if service in entry.producers}
        taken = [name for name, entry in messages.items() if service in entry.consumers]
        self.sends.setdefault(service, {})[version] = sent
        self.takes.setdefault(service, {})[version] = taken


def _takers(entry: Entry) -> list[str]:
    """Who has to take a message: all that subscribe to an event, or the service that owns the queue of a command.

    The dead-letter consumer also reads commands of other services. One that does not know a type lets it wait.
    """
    command = entry.channel != BUS and entry.owner in entry.consumers
    return [entry.owner] if command else sorted(entry.consumers)


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
    beside = {name: record for name, record in deployed.items() if name != service and verified.exchanges(name)}
    broken = [
        *_unknown(beside, verified, environment),
        *_untaken(service, version, beside, verified, environment),
        *_broken(service, version, beside, verified, environment),
    ]
    if broken:
        return Answer(possible=False, reasons=tuple(broken))
    met = sorted(set(_partners(service, version, verified)) & beside.keys())
    names = (
        ", ".join(f"{name} {deployed[name].version}" for name in met) or "no service that it exchanges messages with"
    )
    return Answer(possible=True, reasons=(f"{service} {version} works with what is in {environment}: {names}.",))


def _partners(service: str, version: str, verified: Verifications) -> Iterator[str]:
    yield from verified.needs.get(service, {}).get(version, {})
    for consumers in verified.sends.get(service, {}).get(version, {}).values():
        yield from consumers
    for producer, sending in verified.sends.items():
        if any(service in consumers for sent in sending.values() for consumers in sent.values()):
            yield producer
    for consumer, versions in verified.needs.items():
        if any(service in needs for needs in versions.values()):
            yield consumer


def _unknown(beside: Mapping[str, Deployed], verified: Verifications, environment: str) -> Iterator[str]:
    for name, record in beside.items():
        if not verified.knows(name, record.version):
            yield f"Nothing was verified for {name} {record.version}, which is in {environment}."


def _untaken(
    service: str, version: str, beside: Mapping[str, Deployed], verified: Verifications, environment: str
) -> Iterator[str]:
    """Types that one side sends and the other side, as it is deployed, does not take."""
    for consumer, record in beside.items():
        there = f"{consumer} {record.version}, which is in {environment},"
        for each in _not_taken(verified, (service, version), (consumer, record.version)):
            yield (
                f"{service} {version} sends {each}, and {there} does not take it: the message would wait in the"
                f" dead-letter queue. First deploy a {consumer} that takes it."
            )
        for each in _not_taken(verified, (consumer, record.version), (service, version)):
            yield f"{there} sends {each}, and {service} {version} does not take it."


def _not_taken(verified: Verifications, producer: tuple[str, str], consumer: tuple[str, str]) -> list[str]:
    """Types that a version of a producer sends to a consumer, and that version of the consumer does not take."""
    sent = verified.sends.get(producer[0], {}).get(producer[1], {})
    taken = verified.takes.get(consumer[0], {}).get(consumer[1], [])
    return [each for each, consumers in sent.items() if consumer[0] in consumers and each not in taken]


def _broken(
    service: str, version: str, deployed: Mapping[str, Deployed], verified: Verifications, environment: str
) -> Iterator[str]:
    for producer, pact in verified.needs.get(service, {}).get(version, {}).items():
        if producer in deployed:
            there = deployed[producer].version
            keeps = verified.keeps.get(producer, {}).get(there)
            if keeps is not None and pact not in keeps:
                yield (
                    f"{service} {version} needs messages of {producer} as pact {pact} states them, and no test has"
                    f" shown that {producer} {there}, which is in {environment}, keeps it."
                    f" First deploy a {producer} that does."
                )
    for consumer, record in deployed.items():
        needed = verified.needs.get(consumer, {}).get(record.version, {}).get(service)
        keeps = verified.keeps.get(service, {}).get(version)
        if needed is not None and keeps is not None and needed not in keeps:
            yield (
                f"{consumer} {record.version}, which is in {environment}, needs messages of {service} as pact {needed}"
                f" states them, and no test has shown that {service} {version} keeps it."
                f" First deploy a {consumer} that needs less."
            )
