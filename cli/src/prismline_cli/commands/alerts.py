"""`prismline alerts`: mute and unmute alerts, and register the slash commands that do the same in Discord."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings

from prismline_cli.commands.options import AsJson
from prismline_cli.connection import Connection
from prismline_cli.output import ExitCode, console, fail, print_json
from prismline_contracts.alerts import (
    DEFAULT_MUTE,
    NOT_MUTED,
    DurationError,
    muted_until_parameter,
    parse_duration,
    parse_muted_until,
    slash_commands,
)
from prismline_runtime import clients, error_code

#: Discord's API.
DISCORD_API = "https://discord.com/api/v10"
#: Time in seconds that Discord has to answer.
ANSWER_SECONDS = 10.0


class DiscordSettings(BaseSettings, env_prefix="DISCORD_"):
    """The Discord application that owns the slash commands."""

    application_id: str
    bot_token: SecretStr


def mute_command(
    duration: Annotated[str, typer.Argument(help="How long, such as 30m, 4h or 2d; at most 30d.")] = DEFAULT_MUTE,
    as_json: AsJson = False,
) -> None:
    """Mute alerts for some time."""
    try:
        until = int(time.time()) + parse_duration(duration)
    except DurationError as error:
        fail(str(error))
    _write(Connection.open(), str(until))
    _show(until, as_json=as_json)


def unmute_command(as_json: AsJson = False) -> None:
    """Unmute alerts. An alarm that is still on is posted within a quarter of an hour."""
    _write(Connection.open(), NOT_MUTED)
    _show(0, as_json=as_json)


def status_command(as_json: AsJson = False) -> None:
    """Show whether alerts are muted, and until when."""
    connection = Connection.open()
    value = _read(connection)
    try:
        until = parse_muted_until(value)
    except ValueError:
        fail(
            f"The parameter {muted_until_parameter(connection.environment)} does not hold unix seconds, so nothing"
            " is muted. Run `prismline alerts unmute` to repair it."
        )
    _show(until, as_json=as_json)


def register_command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be registered, and register nothing.")
    ] = False,
    guild: Annotated[
        str | None, typer.Option(help="Register only in the server with this id, which takes effect at once.")
    ] = None,
    base_url: Annotated[str, typer.Option(help="URL of Discord's API.")] = DISCORD_API,
    as_json: AsJson = False,
) -> None:
    """Register /mute-alerts and /unmute-alerts. They replace all commands of the Discord application.

    DISCORD_APPLICATION_ID and DISCORD_BOT_TOKEN name the application. A second call changes nothing.
    """
    if dry_run:
        print_json(slash_commands())
        return
    try:
        settings = DiscordSettings()
    except ValidationError as error:
        missing = ", ".join(f"DISCORD_{str(problem['loc'][0]).upper()}" for problem in error.errors())
        fail(f"Set {missing}: the application's page at Discord shows them.")
    scope = f"/guilds/{guild}" if guild else ""
    registered = _overwrite(
        f"{base_url}/applications/{settings.application_id}{scope}/commands", settings.bot_token.get_secret_value()
    )
    if as_json:
        print_json(registered)
        return
    for command in registered:
        console.print(f"/{command.get('name')}", markup=False)


def _overwrite(url: str, token: str) -> list[dict[str, Any]]:
    """Replace the commands of the application. Return the commands that it has now."""
    import httpx  # noqa: PLC0415  a slow import that other commands do not need

    try:
        answer = httpx.put(
            url, json=slash_commands(), headers={"Authorization": f"Bot {token}"}, timeout=ANSWER_SECONDS
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fail(f"Discord cannot be reached at {url}: {error}", ExitCode.UNREACHABLE)
    if not answer.is_success:
        fail(
            f"Discord refused the commands: {answer.status_code} {answer.text[:300]} Check DISCORD_APPLICATION_ID,"
            " DISCORD_BOT_TOKEN and the server's id."
        )
    registered: list[dict[str, Any]] = answer.json()
    return registered


def _read(connection: Connection) -> str:
    try:
        return clients.ssm().get_parameter(Name=muted_until_parameter(connection.environment))["Parameter"]["Value"]
    except ClientError as error:
        if error_code(error) == "ParameterNotFound":
            return NOT_MUTED
        raise


def _write(connection: Connection, value: str) -> None:
    name = muted_until_parameter(connection.environment)
    clients.ssm().put_parameter(Name=name, Value=value, Type="String", Overwrite=True)


def _show(until: int, *, as_json: bool) -> None:
    muted = until > time.time()
    if as_json:
        print_json({"muted": muted, "muted_until": until if muted else None})
    elif muted:
        console.print(f"Alerts muted until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC")
    else:
        console.print("Alerts active")


def register(app: typer.Typer) -> None:
    """Add the group `alerts` to `app`."""
    group = typer.Typer(help="Mute alerts, and register the slash commands that mute them.", no_args_is_help=True)
    group.command("mute")(mute_command)
    group.command("unmute")(unmute_command)
    group.command("status")(status_command)
    group.command("register-commands")(register_command)
    app.add_typer(group, name="alerts")
