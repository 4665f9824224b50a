"""Whether a version may be deployed beside others."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from prismline_contracts_tool.command import main
from prismline_contracts_tool.deploying import Deployed, Verifications, can_i_deploy, pact_digest, read_deployed

#: Worker 1.1 needs more fields than 1.0. The splitter has sent them since its 1.1, and no longer sends them in 2.0.
VERIFIED = Verifications(
    needs={
        "worker": {"1.0.0": {"splitter": "little"}, "1.1.0": {"splitter": "more", "worker": "own"}},
        "status": {"1.0.0": {"worker": "drains"}},
    },
    keeps={
        "splitter": {"1.0.0": ["little"], "1.1.0": ["little", "more"], "2.0.0": ["little"]},
        "worker": {"1.0.0": ["drains"], "1.1.0": ["drains", "own"], "1.2.0": ["own"]},
    },
)


#: Since 1.1 the splitter sends chunks of which a newer type says where in the cube they are.
TYPED = Verifications(
    sends={
        "splitter": {
            "1.0.0": {"chunk.v1": ["worker"]},
            "1.1.0": {"chunk.v1": ["worker"], "chunk.v2": ["worker"], "split.v1": ["people"]},
        }
    },
    takes={"worker": {"1.0.0": ["chunk.v1"], "1.1.0": ["chunk.v1", "chunk.v2"], "2.0.0": ["chunk.v2"]}},
)


def there(**versions: str) -> dict[str, Deployed]:
    return {service: Deployed(version=version) for service, version in versions.items()}


#: Service, version, what is deployed, whether it may be deployed beside that, and a part of the answer.
OF_PACTS: list[Any] = [
    ("worker", "1.1.0", there(splitter="1.1.0", status="1.0.0"), True, "prod: splitter 1.1.0, status 1.0.0."),
    (
        "worker",
        "1.1.0",
        there(splitter="1.0.0"),
        False,
        "no test has shown that splitter 1.0.0, which is in prod, keeps it",
    ),
    ("worker", "1.0.0", there(splitter="1.0.0"), True, "works with"),
    ("splitter", "2.0.0", there(worker="1.0.0"), True, "works with"),
    (
        "splitter",
        "2.0.0",
        there(worker="1.1.0"),
        False,
        "worker 1.1.0, which is in prod, needs messages of splitter",
    ),
    ("worker", "1.2.0", there(status="1.0.0"), False, "status 1.0.0, which is in prod, needs messages of worker"),
    ("worker", "9.0.0", there(), False, "Nothing was verified for worker 9.0.0"),
    ("worker", "1.1.0", there(), True, "no service that it exchanges messages with"),
    ("worker", "1.1.0", there(worker="1.0.0"), True, "no service that it exchanges messages with"),
]
OF_TYPES: list[Any] = [
    (
        "splitter",
        "1.1.0",
        there(worker="1.0.0"),
        False,
        "splitter 1.1.0 sends chunk.v2, and worker 1.0.0, which is in prod, does not take it",
    ),
    ("splitter", "1.1.0", there(worker="1.1.0"), True, "worker 1.1.0"),
    ("splitter", "1.0.0", there(worker="1.0.0"), True, "worker 1.0.0"),
    (
        "worker",
        "1.0.0",
        there(splitter="1.1.0"),
        False,
        "splitter 1.1.0, which is in prod, sends chunk.v2, and worker 1.0.0 does not take it",
    ),
    ("worker", "2.0.0", there(splitter="1.0.0"), False, "sends chunk.v1, and worker 2.0.0 does not take it"),
    (
        "worker",
        "1.1.0",
        there(splitter="0.9.0"),
        False,
        "Nothing was verified for splitter 0.9.0, which is in prod",
    ),
    ("worker", "1.1.0", there(splitter="1.1.0", pages="3.0.0"), True, "splitter 1.1.0."),
]


@pytest.mark.parametrize(
    ("verified", "service", "version", "deployed", "possible", "message"),
    [*((VERIFIED, *row) for row in OF_PACTS), *((TYPED, *row) for row in OF_TYPES)],
)
def test_an_answer_has_its_reason(
    verified: Verifications, service: str, version: str, deployed: dict[str, Deployed], possible: bool, message: str
) -> None:
    answer = can_i_deploy(service, version, deployed, verified, "prod")
    assert (answer.possible, message in str(answer)) == (possible, True), str(answer)


def test_a_pact_is_identified_by_fields_and_types_and_not_by_values() -> None:
    def pact(**data: object) -> dict[str, object]:
        return {"interactions": [{"description": "d", "contents": {"content": data}}]}

    assert pact_digest(pact(a=1, b="x")) == pact_digest(pact(b="y", a=2.5))
    assert pact_digest(pact(a=1)) != pact_digest(pact(a=1, b="x"))
    assert pact_digest(pact(a=1)) != pact_digest(pact(a="1"))
    assert pact_digest(pact(a={"b": [1, 2]})) == pact_digest(pact(a={"b": [3]}))


def test_the_parameters_of_an_environment_are_read_as_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `aws ssm get-parameters-by-path --path /prismline/prod/deployed` prints them."""
    VERIFIED.write(tmp_path / "verifications.json")
    value = there(splitter="1.0.0")["splitter"].model_dump_json()
    printed = json.dumps({"Parameters": [{"Name": "/prismline/prod/deployed/splitter", "Value": value}]})
    assert read_deployed(printed) == there(splitter="1.0.0")
    monkeypatch.setattr("sys.stdin", io.StringIO(printed))
    ask = ["--contracts", str(tmp_path), "can-i-deploy", "worker", "1.1.0", "--to", "prod"]
    assert main([*ask, "--record", "-"]) == 1
    assert "splitter 1.0.0" in capsys.readouterr().err


@pytest.mark.parametrize("record", [None, "[]", '{"worker": {"version": 1}}', "{"])
def test_nothing_is_answered_without_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: str | None
) -> None:
    (tmp_path / "deployed").mkdir()
    if record is not None:
        (tmp_path / "deployed/prod.json").write_text(record)
    assert main(["--contracts", str(tmp_path), "can-i-deploy", "worker", "1.1.0", "--to", "prod"]) == 2
    assert "Cannot tell what is deployed in prod" in capsys.readouterr().err
