"""What is recorded of a released version is what the commit of its release says."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator

import pytest

import releases
from prismline_contracts.summaries import Kind
from prismline_contracts_tool.deploying import Verifications, can_i_deploy, read_deployed
from prismline_contracts_tool.registry import Entry, read_entry
from tests.contracts.pacts import VERIFICATIONS
from tests.contracts.versions import ROOT, version_of

RECORDED = Verifications.read(VERIFICATIONS)
RELEASED = {
    name.rpartition("/")[2]: record
    for name, record in releases.read_record(ROOT).items()
    if name == "cli" or name.startswith("services/")
}


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


@pytest.mark.parametrize("service", RELEASED)
def test_a_released_version_sends_and_takes_what_the_registry_in_its_commit_says(service: str) -> None:
    release, expected = RELEASED[service], Verifications()
    try:
        expected.add_types(service, release.version, registry_at(release.commit))
    except NoHistoryError as error:
        pytest.skip(f"{error} Run it in a clone with the whole history.")
    assert RECORDED.sends[service][release.version] == expected.sends[service][release.version]
    assert RECORDED.takes[service][release.version] == expected.takes[service][release.version]


@pytest.mark.parametrize(
    ("service", "version", "beside", "missing"),
    [
        ("splitter", "now", {"worker": "1.0.0"}, "splitter 1.1.0 sends chunk.process.v2, and worker 1.0.0"),
        ("worker", "1.0.0", {"splitter": "now"}, "sends chunk.process.v2, and worker 1.0.0 does not take it"),
        ("dlq-consumer", "now", {"worker": "1.0.0"}, "dlq-consumer 1.1.0 sends chunk.process.v2, and worker 1.0.0"),
        ("splitter", "now", {"worker": "now", "dlq-consumer": "1.0.0"}, None),
        ("worker", "now", {"splitter": "1.0.0", "dlq-consumer": "1.0.0", "status": "now"}, None),
        ("worker", "now", {"splitter": "1.0.0", "dlq-consumer": "now"}, None),
    ],
)
def test_a_worker_that_would_take_a_cube_for_the_file_of_a_chunk_is_not_deployed_beside_a_splitter_that_refers_to_it(
    service: str, version: str, beside: dict[str, str], missing: str | None
) -> None:
    def number(name: str, text: str) -> str:
        return version_of(name) if text == "now" else text

    record = {name: {"version": number(name, text)} for name, text in beside.items()}
    answer = can_i_deploy(service, number(service, version), read_deployed(json.dumps(record)), RECORDED, "prod")
    assert answer.possible is (missing is None), str(answer)
    assert missing is None or missing in str(answer)
