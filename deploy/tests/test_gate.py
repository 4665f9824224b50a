"""`deploy` and `rollback` ask whether the services of the environment work together, before anything changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from prismline_cli.application import Application
from prismline_cli.output import ExitCode
from prismline_contracts_tool.deploying import VERIFICATIONS, Verifications
from prismline_deploy import commands, deploying, targets
from prismline_deploy.deploying import Target
from prismline_deploy.gate import objections
from prismline_deploy.record import Record, Release, ReleaseHistory
from prismline_localstack.state import make_client

VERIFIED = Verifications(
    sends={"splitter": {"1.0.0": {"chunk.v1": ["worker"]}, "1.1.0": {"chunk.v2": ["worker"]}}},
    takes={"worker": {"1.0.0": ["chunk.v1"], "1.1.0": ["chunk.v1", "chunk.v2"]}},
)
REFUSED = "splitter 1.1.0 sends chunk.v2, and worker 1.0.0, which is in prod, does not take it"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a splitter that sends what worker 1.0.0 does not take."""
    (tmp_path / "contracts").mkdir()
    VERIFIED.write(tmp_path / "contracts" / VERIFICATIONS)
    for service, version in {"splitter": "1.1.0", "worker": "1.1.0"}.items():
        folder = tmp_path / "services" / service
        folder.mkdir(parents=True)
        (folder / "template.yaml").write_text("Resources: {}\n")
        (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    return tmp_path


def test_a_producer_waits_until_its_consumer_takes_what_it_sends(root: Path) -> None:
    (why,) = objections([root], "prod", {"worker": "1.0.0", "splitter": "1.0.0"}, {"splitter": "1.1.0"})
    assert REFUSED in why
    assert "First deploy a worker that takes it." in why


def test_services_that_are_deployed_together_are_judged_together(root: Path) -> None:
    before = {"worker": "1.0.0", "splitter": "1.0.0"}
    assert objections([root], "prod", before, {"splitter": "1.1.0", "worker": "1.1.0"}) == []


def test_a_service_without_messages_is_not_asked_for_them(root: Path) -> None:
    assert objections([root], "prod", {"worker": "1.0.0"}, {"pages": "1.0.0"}) == []


def test_a_folder_without_verifications_says_what_is_missing(tmp_path: Path) -> None:
    (why,) = objections([tmp_path], "prod", {}, {"worker": "1.0.0"})
    assert re.search(r"contracts/verifications.json.*--root", why)


def test_an_earlier_checkout_is_judged_with_the_versions_that_came_after_it(root: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    (earlier / "contracts").mkdir(parents=True)
    sent = {"splitter": {"0.9.0": {"chunk.v1": ["worker"]}}}
    Verifications(sends=sent, takes={"worker": {"0.9.0": ["chunk.v1"]}}).write(earlier / "contracts" / VERIFICATIONS)
    beside = {"splitter": "1.0.0"}
    assert "Nothing was verified for splitter" in objections([earlier], "prod", beside, {"worker": "0.9.0"})[0]
    assert objections([earlier, root], "prod", beside, {"worker": "0.9.0"}) == []


class Environment:
    """The commands, on an environment whose record says what is deployed. What they would deploy is noted."""

    def __init__(self, record: Record, done: list[object]) -> None:
        self.record, self.done = record, done
        self._app = typer.Typer(cls=Application)
        commands.register(self._app)

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code and everything that was printed."""
        done = CliRunner().invoke(self._app, list(arguments), env={"COLUMNS": "400"})
        return done.exit_code, done.output


@pytest.fixture
def environment(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Environment:
    name = aws_env["ENVIRONMENT"]
    record, done = Record(make_client("ssm", aws_env), name), list[object]()
    old = Release(version="1.0.0", code={}, deployed_at="2026-01-01T00:00:00Z")
    record.put("worker", ReleaseHistory(version="1.1.0", code={}, deployed_at="2026-02-01T00:00:00Z", previous=[old]))
    record.put("splitter", ReleaseHistory(**dict(old)))
    target = Target(environment=name, stacks=None, s3=None, record=record, images=None)  # type: ignore[arg-type]
    monkeypatch.setattr(targets, "find_target", lambda *_: target)
    monkeypatch.setattr(deploying, "deploy", lambda *arguments: done.append(arguments[3]) or {})
    monkeypatch.setattr(deploying, "rollback", lambda *arguments: done.append(arguments[1]))
    return Environment(record, done)


@pytest.mark.emulator
def test_a_rollback_of_a_consumer_below_its_producer_is_refused(environment: Environment, root: Path) -> None:
    environment.record.put("splitter", ReleaseHistory(version="1.1.0", code={}, deployed_at="2026-03-01T00:00:00Z"))
    asked = ["rollback", "--env", "prod", "--service", "worker", "--root", str(root)]
    code, output = environment.run(*asked)
    assert (code, environment.done) == (ExitCode.UNREACHABLE, [])
    assert "sends chunk.v2, and worker 1.0.0 does not take it" in output
    assert "add --force" in output
    code, output = environment.run(*asked, "--force")
    assert (code, environment.done) == (0, ["worker"])
    assert "does not take it" in output


@pytest.mark.emulator
def test_a_deployment_of_one_service_is_refused_and_planned(environment: Environment, root: Path) -> None:
    environment.record.put("worker", ReleaseHistory(version="1.0.0", code={}, deployed_at="2026-01-01T00:00:00Z"))
    asked = ["deploy", "--env", "prod", "--service", "splitter", "--root", str(root)]
    code, output = environment.run(*asked)
    assert (code, environment.done) == (ExitCode.UNREACHABLE, [])
    assert "splitter 1.1.0 sends chunk.v2, and worker 1.0.0, which is in" in output
    assert environment.run(*asked, "--plan")[0] == 0
    assert environment.run("deploy", "--env", "prod", "--root", str(root))[0] == 0, "all services together"
    assert environment.done == [["splitter"], None]


@pytest.mark.emulator
def test_the_record_lists_what_is_deployed(environment: Environment) -> None:
    assert environment.record.versions() == {"worker": "1.1.0", "splitter": "1.0.0"}
