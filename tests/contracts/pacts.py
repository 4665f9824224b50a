"""Pacts: which fields each service needs in the messages of each other one, found with its real handlers.

    python -m tests.contracts.pacts           write contracts/pacts, and verify every producer against it
    python -m tests.contracts.pacts worker    only verify one producer against contracts/pacts

For a consumer, its handler gets the message of a scene with only the fields that it requires or reads, and the scene
has to end as with the whole message. These fields are the pact. For a producer, the scene is played, and its message
must have every field of the pact.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pact
from pact import Verifier, match
from pact.types import Message

from prismline_contracts_tool.deploying import Verifications, pact_digest
from prismline_contracts_tool.registry import REGISTRY, read_registry
from tests.contracts.scenes import Link, Sighting, as_sent, play, richest, sightings_of
from tests.contracts.versions import ROOT, version_of

PACTS = ROOT / "contracts/pacts"
VERIFICATIONS = ROOT / "contracts/verifications.json"
#: The folder of the pacts of older versions of consumers.
OLDER = "older"


class UnkeptError(Exception):
    """A pact is broken. The message names the consumer and the missing fields."""


# ---- consumers


def write_pacts(folder: Path) -> None:
    """Write the pacts of all consumers. Raises UnkeptError if a consumer's handler does not work with only its pact."""
    folder.mkdir(parents=True, exist_ok=True)
    for scene, sighting in richest():
        link = sighting.link
        stated = pact.Pact(link.consumer, link.producer).with_specification("V4")
        needed = stated.upon_receiving(description(link, scene), "Async")
        needed.given(f"It is sent in the scene: {scene}.")
        needed.with_body(_matching(sighting.needs()), "application/json")
        for error in stated.verify(partial(_live_with, link, scene), "Async", raises=False):
            raise UnkeptError(str(error.error))
        stated.write_file(folder)


def description(link: Link, scene: str) -> str:
    """The name of an interaction."""
    return f"{link.type} of {scene}"


def _live_with(link: Link, scene: str, body: str | bytes | None, _metadata: Mapping[str, object]) -> None:
    """Let the real handler of the consumer of `link` handle `body` instead of the first message of its kind."""
    text = body.decode() if isinstance(body, bytes) else str(body)
    whole, seen = as_sent(scene), play(scene, lambda where, sent: text if where == link else sent)
    if link not in seen[1] or (why := seen[1][link].refused) is not None:
        raise UnkeptError(f"{link.consumer} refuses a {link.type} with only the fields of its pact: {why}")
    if seen[0].finding is not None or seen[0].ended != whole[0].ended:
        raise UnkeptError(
            f"With only the fields of {link.type} for {link.consumer}, the scene ends differently: {scene}."
        )


def _matching(value: Any) -> Any:
    """A matcher of the structure of `value`, with values of the same types; only `type` and `specversion` are fixed."""
    if isinstance(value, dict):
        return {name: each if name in {"type", "specversion"} else _matching(each) for name, each in value.items()}
    return match.like(value)


# ---- producers


def verify(producer: str, folder: Path) -> None:
    """Play the scenes of all pacts with a producer. Raises UnkeptError if its messages break a pact."""
    broken = []
    for path, stated in pacts_in(folder).items():
        if stated["provider"]["name"] != producer:
            continue
        sent: dict[str, Callable[..., Message] | Message | bytes]
        sent = {each["description"]: _sent(stated, each["description"]) for each in stated["interactions"]}
        verifier = Verifier(producer).message_handler(sent).add_source(path)
        verifier.set_coloured_output(enabled=False)
        try:
            verifier.verify()
        except RuntimeError:
            why = "\n".join(sorted(set(_mismatches(verifier.results))))
            broken.append(f"{producer} does not send what {_who(path, stated)} needs:\n{why}")
    if broken:
        raise UnkeptError("\n".join(broken))


def _who(path: Path, stated: Mapping[str, Any]) -> str:
    """The consumer; for an older pact, with the versions that have it."""
    consumer, producer = _parties(stated)
    if path.parent.name != OLDER:
        return consumer
    stating = Verifications.read(VERIFICATIONS).needs.get(consumer, {})
    versions = [version for version, needs in stating.items() if needs.get(producer) == pact_digest(stated)]
    return f"{consumer} {', '.join(versions)}"


def _sent(stated: Mapping[str, Any], name: str) -> Message:
    """The message of the producer in the scene of an interaction."""
    kind, _, scene = name.partition(" of ")
    link = Link(stated["consumer"]["name"], stated["provider"]["name"], kind)
    sighting: Sighting | None = sightings_of(scene).get(link)
    body = {} if sighting is None else sighting.body
    return {"contents": json.dumps(body).encode(), "metadata": None, "content_type": "application/json"}


def _mismatches(results: Mapping[str, Any]) -> Iterator[str]:
    for error in results.get("errors", []):
        found = error.get("mismatch", {})
        for each in found.get("mismatches", []) or [found]:
            yield f"  {error.get('interaction', '')}: {each.get('mismatch') or each.get('message') or each}"


def pacts_in(folder: Path) -> dict[Path, dict[str, Any]]:
    """All pacts in a folder and below, including those of older versions."""
    return {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))}


def producers(folder: Path) -> list[str]:
    """All producers of the pacts."""
    return sorted({stated["provider"]["name"] for stated in pacts_in(folder).values()})


# ---- files of pacts and verifications


def replace_pacts(folder: Path) -> None:
    """Write the current pacts. Pacts of other versions of a consumer are kept under `older/`."""
    recorded = Verifications.read(VERIFICATIONS)
    before = pacts_in(folder)
    with tempfile.TemporaryDirectory() as fresh:
        write_pacts(Path(fresh))
        now = {path.name: stated for path, stated in pacts_in(Path(fresh)).items()}
    for path, stated in before.items():
        consumer, producer, digest = *_parties(stated), pact_digest(stated)
        versions = recorded.needs.get(consumer, {}).items()
        others = [needs for version, needs in versions if version != version_of(consumer)]
        path.unlink()
        if pact_digest(now.get(path.name, stated)) == digest and path.name in now:
            now[path.name] = stated  # keep the earlier example values, so that a file changes only if its fields change
        elif any(needs.get(producer) == digest for needs in others):
            _write(folder / OLDER / f"{consumer}-{producer}.{digest}.json", stated)
    for name, stated in now.items():
        _write(folder / name, stated)


def verify_all(folder: Path) -> Verifications:
    """Verify every producer against every pact, and add the results to the recorded ones."""
    recorded = Verifications.read(VERIFICATIONS)
    stated = pacts_in(folder)
    registry = read_registry(ROOT / "contracts" / REGISTRY)
    for service in sorted({each for entry in registry.values() for each in (*entry.producers, *entry.consumers)}):
        if (ROOT / "services" / service).is_dir() or service == "cli":
            recorded.add_types(service, version_of(service), registry)
            recorded.keeps.setdefault(service, {})[version_of(service)] = []
    for consumer in sorted({_parties(each)[0] for each in stated.values()}):
        recorded.needs.setdefault(consumer, {})[version_of(consumer)] = {
            _parties(each)[1]: pact_digest(each)
            for path, each in stated.items()
            if _parties(each)[0] == consumer and path.parent == folder
        }
    for producer in producers(folder):
        verify(producer, folder)
        recorded.keeps.setdefault(producer, {})[version_of(producer)] = sorted(
            {pact_digest(each) for each in stated.values() if _parties(each)[1] == producer}
        )
    return recorded


def _parties(stated: Mapping[str, Any]) -> tuple[str, str]:
    return stated["consumer"]["name"], stated["provider"]["name"]


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Entry point. Returns 1 if a pact is not kept."""
    logging.disable(logging.WARNING)
    try:
        if arguments:
            for producer in arguments:
                verify(producer, PACTS)
        else:
            replace_pacts(PACTS)
            verify_all(PACTS).write(VERIFICATIONS)
    except UnkeptError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{', '.join(arguments or producers(PACTS))}: every pact is kept.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
