"""Compares the contracts with those of the last release, and freezes them as the next one.

`contracts/released/` holds the schemas of the last release; the file `VERSION` there names it. A change that breaks a
reader of that release, or a current reader, needs a new major version of the contract: another name beside the old one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismline_cli.printed import OUTPUT_MODELS
from prismline_contracts.chunk_input import chunk_input_schema
from prismline_contracts.commands import Queue
from prismline_contracts.decomposition import COLUMNS, MetadataKey
from prismline_contracts.summaries import NEXT, Kind
from prismline_contracts_tool.compatibility import Difference, Schema, differences
from prismline_contracts_tool.registry import OUTPUT, REGISTRY, RELEASED, Entry, read_registry
from prismline_contracts_tool.schemas import MODELS, OUTPUTS_FOLDER, output_schema_of, schema_of

#: Names of the Parquet output and of a chunk's `.npz` input among the released schemas.
PARQUET, CHUNK_INPUT = "decomposition.v1", "chunk_input.v1"

#: The file that names the release, among its schemas.
VERSION = "VERSION"
#: The file with the names of its queues and, for each service, of its rules on the bus.
NAMES = "NAMES"
#: A rule in a template: its name follows its type.
_RULE = re.compile(r'Type: AWS::Events::Rule\s+Properties:\s+Name: !Sub "prismline-\$\{Environment\}-([a-z0-9-]+)"')

#: The entry of a contract that is not in the registry.
NOBODY = Entry(Kind.MESSAGE, "", (), ())

#: What to do about a change that breaks readers.
ADVICE = (
    "Make the change additive, or keep the old contract and add the new one under the next major version:"
    " docs/how-to/change-a-contract.md."
)


@dataclass(frozen=True)
class Break:
    """A difference that breaks readers.

    old_reader: True if it breaks the readers of the last release, False if it breaks the current ones.
    """

    name: str
    old_reader: bool
    consumers: tuple[str, ...]
    difference: Difference

    def __str__(self) -> str:
        who = ", ".join(self.consumers) or "nobody that the registry knows"
        readers = (
            "in the last release, which reads what is written now"
            if self.old_reader
            else ("in its current version, which reads what the last release wrote")
        )
        return f"{self.name} {self.difference}. This breaks {who} ({readers})."


def entry_of(registry: Mapping[str, Entry], name: str) -> Entry:
    """The entry of a contract. Outputs of commands share one. A contract that is not in the registry has no readers."""
    return OUTPUT if name.startswith(f"{OUTPUTS_FOLDER}/") else registry.get(name, NOBODY)


def current_schemas() -> dict[str, Schema]:
    """Every contract's schema, by name: models, what commands print, the Parquet output, and a chunk's input."""
    return (
        {name: schema_of(name) for name in MODELS}
        | {f"{OUTPUTS_FOLDER}/{name}": output_schema_of(name) for name in OUTPUT_MODELS}
        | {PARQUET: parquet_schema(), CHUNK_INPUT: chunk_input_schema()}
    )


def parquet_schema() -> dict[str, Any]:
    """The columns and the metadata of the Parquet output in the form of a schema: each column has a type and a unit."""
    columns = {column.name: {"type": "array", "x-type": column.type, "x-unit": column.unit} for column in COLUMNS}
    metadata = {key.value: {"type": "string"} for key in MetadataKey}
    return {
        "properties": columns | metadata,
        # A reader fills columns that an older file lacks, except those of the first version.
        "required": [column.name for column in COLUMNS if column.since == 1],
        "type": "object",
    }


def breaks(
    released: Mapping[str, Schema], current: Mapping[str, Schema], registry: Mapping[str, Entry]
) -> Iterator[Break]:
    """Every change since the release that is not compatible."""
    for name, old in released.items():
        entry = entry_of(registry, name)
        if name not in current:
            yield Break(name, True, entry.consumers, Difference("$", "the contract is gone"))
            continue
        if entry.kind.reads_old:
            for difference in differences(reader=current[name], writer=old, all_known=True):
                yield Break(name, False, entry.consumers, difference)
        if entry.kind.read_by_old:
            ignorable = None if entry.kind is Kind.OUTPUT else entry.ignorable
            for difference in differences(reader=old, writer=current[name], ignorable=ignorable):
                yield Break(name, True, entry.consumers, difference)


def read_released(folder: Path) -> dict[str, Schema]:
    """The schemas of the last release, by name."""
    return {
        path.relative_to(folder).with_suffix("").as_posix(): json.loads(path.read_text())
        for path in sorted(folder.rglob("*.json"))
    }


def write_released(folder: Path, version: str) -> None:
    """Store the current contracts as those of the last release."""
    for name, schema in current_schemas().items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n")
    (folder / VERSION).write_text(f"{version}\n")
    (folder / NAMES).write_text(json.dumps(current_names(folder.parent), indent=1) + "\n")


def current_names(contracts: Path) -> dict[str, Any]:
    """The names of the queues and, for each service of the checkout around `contracts`, of its rules."""
    rules = {
        path.parent.name: _RULE.findall(path.read_text()) for path in contracts.glob("../services/*/template.yaml")
    }
    return {"queues": sorted(Queue), "rules": {service: sorted(found) for service, found in sorted(rules.items())}}


def names_gone(released: Mapping[str, Any], current: Mapping[str, Any], registry: Mapping[str, Entry]) -> Iterator[str]:
    """A sentence for each queue and each rule of the last release that has another name now."""
    for queue in sorted(set(released["queues"]) - set(current["queues"])):
        using = (entry for entry in registry.values() if entry.channel == queue)
        who = sorted({each for entry in using for each in (*entry.producers, *entry.consumers)})
        yield (
            f"The queue {queue} is gone. This breaks {', '.join(who) or 'whoever uses it'} (in the last release, which"
            f" sends to it), and the messages in it stay where they are."
        )
    present = {rule for rules in current["rules"].values() for rule in rules}
    for service in sorted(released["rules"].keys() & current["rules"].keys()):
        for rule in sorted(set(released["rules"][service]) - present):
            yield (
                f"The rule {rule} of {service} is gone. This breaks {service}: until the deployment has ended, events"
                " match neither the old rule nor the new one."
            )


def name_release(registry: Path, version: str) -> None:
    """Name the changes since the last release after their version, in the history of each contract."""
    for path in registry.glob("*/contract.toml"):
        path.write_text(path.read_text().replace(f'\n"{NEXT}" = ', f'\n"{version}" = '))


def package_version(contracts: Path) -> str:
    """The version of the package, in a checkout's folder `contracts`."""
    version: str = tomllib.loads((contracts / "pyproject.toml").read_text())["project"]["version"]
    return version


def disagreements(contracts: Path) -> Iterator[str]:
    """Contradictions between the version of the package, the frozen schemas, and the versions in the histories."""
    version, frozen = package_version(contracts), (contracts / RELEASED / VERSION).read_text().strip()
    histories = {name: entry.history.keys() for name, entry in read_registry(contracts / REGISTRY).items()}
    named = {release for history in histories.values() for release in history} - {NEXT}
    if later := sorted(release for release in named if ordered(release) > ordered(frozen)):
        yield f"Histories name {', '.join(later)}, and contracts/released is {frozen}. Changes since then are `{NEXT}`."
    if ordered(version) < ordered(frozen):
        yield f"The package is {version}, and contracts/released is already {frozen}."
    changed = sorted(name for name, history in histories.items() if NEXT in history)
    if changed and version == frozen:
        yield (
            f"{len(changed)} contracts have changed since {frozen}, first {changed[0]}, and the package is still"
            f" {version}: give it a later version in contracts/pyproject.toml."
        )


def ordered(version: str) -> tuple[int, ...]:
    """A version as numbers, so that `1.10.0` is later than `1.9.0`."""
    return tuple(int(part) for part in version.split("."))


def refusal(contracts: Path, version: str) -> str | None:
    """Why the current contracts cannot be released as `version`. None: they can."""
    frozen = contracts / RELEASED / VERSION
    if frozen.exists() and ordered(version) <= ordered(before := frozen.read_text().strip()):
        return f"{before} is already released. A new release needs a later version."
    if package_version(contracts) != version:
        return f"The package is {package_version(contracts)}: set the version in contracts/pyproject.toml."
    if not re.search(rf"^## {re.escape(version)}$", (contracts / "CHANGELOG.md").read_text(), re.MULTILINE):
        return f"contracts/CHANGELOG.md has no section `## {version}`: describe the changes there."
    return None
