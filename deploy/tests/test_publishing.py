"""`publish` prints the image that it pushed, and `deploy --image` takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from prismline_cli.application import Application
from prismline_cli.output import ExitCode
from prismline_deploy import commands, deploying, targets
from prismline_deploy.deploying import Target
from prismline_localstack.settings import REPOSITORY

IMAGE = f"111122223333.dkr.ecr.eu-central-1.amazonaws.com/prismline/worker@sha256:{'a1' * 32}"


class Images:
    """Keeps one image for each service."""

    def build(self, root: Path, service: str) -> str:
        return IMAGE.replace("worker", service)


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The images of each deployment."""
    target = Target(environment="prod", stacks=None, s3=None, record=None, images=Images())  # type: ignore[arg-type]
    done = list[object]()
    monkeypatch.setattr(targets, "find_target", lambda *_: target)
    monkeypatch.setattr(commands, "_ask", lambda *_, **__: None)
    monkeypatch.setattr(deploying, "deploy", lambda *arguments: done.append(arguments[4]) or {})
    return done


def run(*arguments: str) -> tuple[int, str]:
    """The exit code and everything that was printed."""
    app = typer.Typer(cls=Application)
    commands.register(app)
    done = CliRunner().invoke(app, [*arguments, "--env", "prod", "--root", str(REPOSITORY)], env={"COLUMNS": "400"})
    return done.exit_code, done.output


def test_what_publish_prints_is_what_deploy_takes(deployed: list[object]) -> None:
    code, printed = run("publish", "--service", "worker")
    assert (code, printed.splitlines()[-1]) == (0, IMAGE)
    assert deployed == []
    assert run("deploy", "--service", "worker", "--image", printed.splitlines()[-1])[0] == 0
    assert deployed == [{"worker": IMAGE}]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--image", IMAGE], "Name it, for example --service worker"),
        (["--service", "worker", "--service", "api", "--image", IMAGE], "is the image of one service"),
        (["--service", "worker", "--image", "prismline/worker:1.0.0"], "has no digest"),
    ],
)
def test_an_image_that_cannot_be_meant_is_refused(deployed: list[object], arguments: list[str], reason: str) -> None:
    code, printed = run("deploy", *arguments)
    assert code == ExitCode.UNREACHABLE
    assert reason in printed
    assert deployed == []
