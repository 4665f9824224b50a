"""`prismline alerts`: mute and unmute alerts, and register the slash commands that do the same in Discord."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings

from prismline_cli.commands.options import AsJson
from prismline_cli.output import ExitCode, console, fail, print_json
from prismline_client import Client, Mute
from prismline_contracts.alerts import DEFAULT_MUTE, slash_commands

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
    _show(Client.open().mute_alerts(duration), as_json=as_json)


def unmute_command(as_json: AsJson = False) -> None:
    """Unmute alerts. An alarm that is still on is posted within a quarter of an hour."""
    _show(Client.open().unmute_alerts(), as_json=as_json)


def status_command(as_json: AsJson = False) -> None:
    """Show whether alerts are muted, and until when."""
    mute = Client.open().mute()
    if mute.muted_problem is not None:
        fail(f"{mute.muted_problem} Nothing is muted. Run `prismline alerts unmute` to repair it.")
    _show(mute, as_json=as_json)


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


def _show(mute: Mute, *, as_json: bool) -> None:
    until = datetime.fromisoformat(mute.muted_until) if mute.muted_until else None
    if as_json:
        print_json({"muted": mute.muted, "muted_until": int(until.timestamp()) if until else None})
    elif until:
        console.print(f"Alerts muted until {until:%Y-%m-%d %H:%M} UTC")
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
