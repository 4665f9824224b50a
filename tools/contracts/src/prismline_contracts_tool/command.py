"""The command `prismline-contracts`: checks and releases the contracts, checks deployments, writes pages."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from prismline_contracts_tool.catalogue import write_pages, write_summaries
from prismline_contracts_tool.deploying import VERIFICATIONS, Verifications, can_i_deploy, read_deployed
from prismline_contracts_tool.registry import REGISTRY, RELEASED, read_registry
from prismline_contracts_tool.release import (
    ADVICE,
    NAMES,
    VERSION,
    breaks,
    current_names,
    current_schemas,
    disagreements,
    name_release,
    names_gone,
    read_released,
    refusal,
    write_released,
)
from prismline_contracts_tool.schemas import write_schemas


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns 1 if a contract breaks its readers, or a version may not be deployed."""
    parser = argparse.ArgumentParser(prog="prismline-contracts", description=__doc__)
    parser.add_argument(
        "--contracts", type=Path, default=Path("contracts"), help="the folder `contracts` of a checkout"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add(commands, _check, "check", "compare with the last release")
    _add(commands, _schemas, "schemas", "write the schemas and the summaries after a model has changed")
    writing = _add(commands, _pages, "pages", "write the catalogue, the AsyncAPI document and the schemas of outputs")
    writing.add_argument("folder", type=Path, help="the folder to write them into")
    releasing = _add(commands, _release, "release", "freeze the current contracts as the last release")
    releasing.add_argument("version", help="the version of prismline-contracts that is released")
    asking = _add(commands, _can_i_deploy, "can-i-deploy", "say whether a version works with what is deployed")
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
    code: int = options.run(options)
    return code


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    run: Callable[[argparse.Namespace], int],
    name: str,
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text)
    parser.set_defaults(run=run)
    return parser


def _check(options: argparse.Namespace) -> int:
    registry = read_registry(options.contracts / REGISTRY)
    released = read_released(options.contracts / RELEASED)
    found = [str(broken) for broken in breaks(released, current_schemas(), registry)]
    names = json.loads((options.contracts / RELEASED / NAMES).read_text())
    found += names_gone(names, current_names(options.contracts), registry)
    if found:
        sys.stderr.write("\n".join(found) + f"\n{len(found)} changes break readers. {ADVICE}\n")
        return 1
    if found := list(disagreements(options.contracts)):
        sys.stderr.write("\n".join(found) + "\n")
        return 1
    frozen = (options.contracts / RELEASED / VERSION).read_text().strip()
    sys.stdout.write(f"{len(released)} contracts of release {frozen} are compatible with the current ones.\n")
    return 0


def _schemas(options: argparse.Namespace) -> int:
    write_schemas(options.contracts)
    write_summaries(options.contracts)
    return 0


def _pages(options: argparse.Namespace) -> int:
    write_pages(options.contracts, options.folder)
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
    verified = Verifications.read(options.contracts / VERIFICATIONS)
    answer = can_i_deploy(options.service, options.version, deployed, verified, options.to)
    (sys.stdout if answer.possible else sys.stderr).write(f"{answer}\n")
    return 0 if answer.possible else 1
