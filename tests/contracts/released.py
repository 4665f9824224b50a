"""What a released service sends and takes, by the registry in the commit of its release."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator

from prismline_contracts.summaries import Kind
from prismline_contracts_tool.registry import Entry, read_entry
from tests.contracts.versions import ROOT


class NoHistoryError(Exception):
    """The clone does not have the commit."""


def registry_at(commit: str) -> dict[str, Entry]:
    """The registry in a commit of this repository. Raises NoHistoryError if the clone does not have the commit."""
    return dict(_entries(commit))


def _entries(commit: str) -> Iterator[tuple[str, Entry]]:
    for name, text in _files(commit):
        folder, _, file = name.removeprefix("contracts/").rpartition("/")
        if name == "contracts/registry.toml":  # until contracts 1.0.0: all contracts in one file
            for contract, entry in tomllib.loads(text).items():
                yield (
                    contract,
                    Entry(Kind(entry["kind"]), entry["owner"], tuple(entry["producers"]), tuple(entry["consumers"])),
                )
        elif file == "contract.toml":
            yield folder.rpartition("/")[2], read_entry(text)


def _files(commit: str) -> Iterator[tuple[str, str]]:
    archive = ["git", "-C", str(ROOT), "archive", commit, "contracts"]
    done = subprocess.run(archive, capture_output=True, check=False)
    if done.returncode:
        raise NoHistoryError(f"The clone does not have the commit {commit}.")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        for member in files:
            found = files.extractfile(member) if member.name.endswith(".toml") else None
            if found is not None:
                yield member.name, found.read().decode()
