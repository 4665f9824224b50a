"""What is recorded of a released version is what the commit of its release says."""

from __future__ import annotations

import json

import pytest

import releases
from prismline_contracts_tool.deploying import Verifications, can_i_deploy, read_deployed
from tests.contracts.pacts import VERIFICATIONS
from tests.contracts.released import NoHistoryError, registry_at
from tests.contracts.versions import ROOT, version_of

RECORDED = Verifications.read(VERIFICATIONS)
RELEASED = {
    name.rpartition("/")[2]: record
    for name, record in releases.read_record(ROOT).items()
    if name == "cli" or name.startswith("services/")
}


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
