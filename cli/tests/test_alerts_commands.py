"""`prismline alerts` on a terminal, against the emulator and against a Discord stand-in on loopback."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from cli_world import CliWorld
from typer.testing import CliRunner, Result

from prismline_cli.whole import app
from prismline_contracts.alerts import muted_until_parameter
from prismline_localstack.standins.discord import DiscordStandIn


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, ["alerts", *arguments])


class Muting:
    """The command on the emulator, and the parameter that it writes."""

    def __init__(self, environment: str, home: Path) -> None:
        self._home = home
        self._ssm: Any = boto3.client("ssm")
        self._name = muted_until_parameter(environment)

    def run(self, *arguments: str) -> Result:
        return run(*arguments, PRISMLINE_HOME=str(self._home))

    @property
    def value(self) -> str:
        return str(self._ssm.get_parameter(Name=self._name)["Parameter"]["Value"])

    @value.setter
    def value(self, value: str) -> None:
        self._ssm.put_parameter(Name=self._name, Value=value, Type="String", Overwrite=True)


@pytest.fixture
def muting(world: CliWorld) -> Muting:
    return Muting(world.connection.environment, world.home)


@pytest.mark.emulator
@pytest.mark.parametrize(("arguments", "seconds"), [((), 86_400), (("4h",), 14_400)])
def test_mute_writes_until_when_and_says_so(muting: Muting, arguments: tuple[str, ...], seconds: int) -> None:
    before = int(time.time())
    result = muting.run("mute", *arguments)
    assert result.exit_code == 0, result.output
    assert before + seconds <= int(muting.value) <= time.time() + seconds
    assert result.stdout.startswith("Alerts muted until 20")
    status = json.loads(muting.run("status", "--json").stdout)
    assert status == {"muted": True, "muted_until": int(muting.value)}


@pytest.mark.emulator
def test_unmute_writes_zero(muting: Muting) -> None:
    muting.run("mute", "4h")
    assert muting.run("unmute").stdout == "Alerts active\n"
    assert muting.value == "0"
    assert muting.run("status").stdout == "Alerts active\n"


@pytest.mark.emulator
def test_alerts_that_nobody_ever_muted_are_active(muting: Muting) -> None:
    assert muting.run("status").stdout == "Alerts active\n"


@pytest.mark.emulator
def test_an_invalid_duration_is_a_usage_error_that_writes_nothing(muting: Muting) -> None:
    muting.value = "7"
    for duration in ("banana", "0m", "31d"):
        result = muting.run("mute", duration)
        assert result.exit_code == 2
        assert result.stdout == ""
    assert "30d at most" in result.stderr
    assert muting.value == "7"


@pytest.mark.emulator
def test_an_invalid_parameter_is_reported_with_the_command_that_repairs_it(muting: Muting) -> None:
    muting.value = "tomorrow"
    result = muting.run("status")
    assert result.exit_code == 2
    assert "prismline alerts unmute" in result.stderr.replace("\n", " ")


def test_a_dry_run_prints_the_commands_and_needs_no_token() -> None:
    result = run("register-commands", "--dry-run")
    assert result.exit_code == 0
    assert [command["name"] for command in json.loads(result.stdout)] == ["mute-alerts", "unmute-alerts"]


def test_registering_without_a_token_says_which_variable_is_missing() -> None:
    result = run("register-commands", DISCORD_APPLICATION_ID="1")
    assert result.exit_code == 2
    assert "DISCORD_BOT_TOKEN" in result.stderr
    assert "DISCORD_APPLICATION_ID" not in result.stderr


@pytest.mark.parametrize("guild", [[], ["--guild", "7"]])
def test_registering_twice_leaves_the_two_commands(discord: DiscordStandIn, guild: list[str]) -> None:
    environment = {"DISCORD_APPLICATION_ID": "1", "DISCORD_BOT_TOKEN": discord.bot_token}
    for _ in range(2):
        result = run("register-commands", "--base-url", discord.api_url, *guild, **environment)
        assert result.exit_code == 0, result.output
        assert result.stdout == "/mute-alerts\n/unmute-alerts\n"
    assert [command["name"] for command in discord.commands] == ["mute-alerts", "unmute-alerts"]


def test_errors_about_a_wrong_token_or_an_unreachable_discord_hide_the_token(discord: DiscordStandIn) -> None:
    environment = {"DISCORD_APPLICATION_ID": "1", "DISCORD_BOT_TOKEN": "s3cret"}
    refused = run("register-commands", "--base-url", discord.api_url, **environment)
    away = run("register-commands", "--base-url", "http://127.0.0.1:1", **environment)
    assert (refused.exit_code, away.exit_code) == (2, 3)
    assert "401" in refused.stderr
    assert "cannot be reached" in away.stderr
    assert "s3cret" not in refused.output + away.output
