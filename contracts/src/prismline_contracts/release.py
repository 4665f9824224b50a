"""The command `prismline-contracts`: compares the contracts with those of the last release, and checks deployments.

`contracts/released/` holds the schemas of the last release; the file `VERSION` there names it. A change that breaks a
reader of that release, or a current reader, needs a new major version of the contract: another name beside the old one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismline_contracts.chunk_input import chunk_input_schema
from prismline_contracts.compatibility import Difference, Schema, differences
from prismline_contracts.decomposition import COLUMNS, MetadataKey
from prismline_contracts.deploying import Verifications, can_i_deploy, read_deployed
from prismline_contracts.outputs import OUTPUT_MODELS
from prismline_contracts.registry import NEXT, OUTPUT, REGISTRY, RELEASED, Entry, Kind, read_registry
from prismline_contracts.schemas import MODELS, OUTPUTS_FOLDER, output_schema_of, schema_of

#: Names of the Parquet output and of a chunk's `.npz` input among the released schemas.
PARQUET, CHUNK_INPUT = "decomposition.v1", "chunk_input.v1"

#: The file that names the release, among its schemas.
VERSION = "VERSION"

#: The entry of a contract that is not in the registry.
NOBODY = Entry(Kind.MESSAGE, "", (), ())

#: What to do about a change that breaks readers.
ADVICE = (
    "Make the change additive, or keep the old contract and add the new one under the next major version:"
    " docs/evolving-contracts.md."
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
            for difference in differences(reader=current[name], writer=old):
                yield Break(name, False, entry.consumers, difference)
        if entry.kind.read_by_old:
            for difference in differences(reader=old, writer=current[name]):
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns 1 if a contract breaks its readers, or a version may not be deployed."""
    parser = argparse.ArgumentParser(prog="prismline-contracts", description=__doc__)
    parser.add_argument(
        "--contracts", type=Path, default=Path("contracts"), help="the folder `contracts` of a checkout"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="compare with the last release")
    releasing = commands.add_parser("release", help="freeze the current contracts as the last release")
    releasing.add_argument("version", help="the version of prismline-contracts that is released")
    asking = commands.add_parser("can-i-deploy", help="say whether a version works with what is deployed")
    asking.add_argument("service")
    asking.add_argument("version")
    asking.add_argument("--to", required=True, metavar="ENV", help="the environment")
    asking.add_argument(
        "--record",
        metavar="FILE",
        help="the record to read, instead of deployed/ENV.json; -: standard input, with the output of"
        " `aws ssm get-parameters-by-path`",
    )
    options = parser.parse_args(arguments)
    if options.command == "can-i-deploy":
        return _can_i_deploy(options)
    return _release(options) if options.command == "release" else _check(options)


def _check(options: argparse.Namespace) -> int:
    registry = read_registry(options.contracts / REGISTRY)
    released = read_released(options.contracts / RELEASED)
    found = [str(broken) for broken in breaks(released, current_schemas(), registry)]
    if found:
        sys.stderr.write("\n".join(found) + f"\n{len(found)} changes break readers. {ADVICE}\n")
        return 1
    if found := list(disagreements(options.contracts)):
        sys.stderr.write("\n".join(found) + "\n")
        return 1
    frozen = (options.contracts / RELEASED / VERSION).read_text().strip()
    sys.stdout.write(f"{len(released)} contracts of release {frozen} are compatible with the current ones.\n")
    return 0


def _release(options: argparse.Namespace) -> int:
    if why := refusal(options.contracts, options.version):
        sys.stderr.write(f"{why}\n")
        return 1
    if _check(options):
        return 1
    write_released(options.contracts / RELEASED, options.version)
    name_release(options.contracts / REGISTRY, options.version)
    sys.stdout.write(f"contracts/released is now {options.version}. Run `make schemas`, and commit contracts/.\n")
    return 0


def _can_i_deploy(options: argparse.Namespace) -> int:
    record = Path(options.record) if options.record else options.contracts / "deployed" / f"{options.to}.json"
    try:
        text = sys.stdin.read() if options.record == "-" else record.read_text()
        deployed = read_deployed(text)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"Cannot tell what is deployed in {options.to}: {error}\n")
        return 2
    verified = Verifications.read(options.contracts / "verifications.json")
    answer = can_i_deploy(options.service, options.version, deployed, verified, options.to)
    (sys.stdout if answer.possible else sys.stderr).write(f"{answer}\n")
    return 0 if answer.possible else 1


if __name__ == "__main__":
    sys.exit(main())
