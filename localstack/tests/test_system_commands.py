"""`up`, `down`, `status` and `logs` on a terminal. The tests of the harness cover the processes that they start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from prismline_cli.whole import app


def run(home: Path, *arguments: str) -> Result:
    return CliRunner(env={"PRISMLINE_HOME": str(home)}).invoke(app, arguments)


@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["logs"], ["logs", "worker"]])
def test_commands_without_a_system_end_with_exit_code_3_and_a_sentence(tmp_path: Path, command: list[str]) -> None:
    result = run(tmp_path, *command)
    assert result.exit_code == 3
    assert str(tmp_path) in result.stderr.replace("\n", "")
    if "--json" in command:
        assert json.loads(result.stdout)["exit_code"] == 3
    else:
        assert result.stdout == ""


def test_down_without_a_system_is_not_an_error(tmp_path: Path) -> None:
    result = run(tmp_path, "down")
    assert result.exit_code == 0
    assert "Nothing was running" in result.stdout


@pytest.mark.parametrize("setting", ["NAME", "=value", ""])
def test_a_setting_that_is_not_name_and_value_is_a_usage_error(tmp_path: Path, setting: str) -> None:
    assert run(tmp_path, "up", "--set", setting).exit_code == 2


def test_up_that_fails_is_exit_code_3_with_the_reason(tmp_path: Path) -> None:
    result = run(tmp_path, "up", "--service", "wroker")
    assert result.exit_code == 3
    assert "There is no service wroker" in result.stderr
    assert "There is no service wroker" in run(tmp_path, "status").stderr
