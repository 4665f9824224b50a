"""The demonstration of an outage: captions wait for a GPU, one alert is posted and muted, and no caption is lost.

A recording of a day is submitted while no GPU runs. The messages of its windows wait in the dead-letter queue. The
alarm on the depth of this queue goes off, and an alert is posted to a stand-in for Discord. A slash command mutes
alerts, and another one unmutes them later. The GPU starts, every window gets its caption, and the all-clear is posted.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image
from rich.panel import Panel
from rich.table import Table

from prismline_cli.captions import Segment, segments_of, submit_frames
from prismline_cli.connection import Connection
from prismline_cli.output import console, stderr
from prismline_cli.runs import RunView, load_run
from prismline_cli.submission import put_manifest
from prismline_client import Client
from prismline_contracts.manifest import SpectraManifest
from prismline_localstack.demos import DemoResult
from prismline_localstack.demos.own_system import own_system
from prismline_localstack.demos.waiting import wait_for
from prismline_localstack.gpu import start_gpu, stop_gpu
from prismline_localstack.home import Home
from prismline_localstack.standins.discord import DiscordStandIn, slash_command

#: Number of windows of the recording, and of frames in each.
WINDOWS, WINDOW_SIZE = 32, 4
SESSION = "a-day-outside"
#: Width and height of a frame, pixels.
FRAME_SIZE = (96, 54)
#: The sky from midnight to midnight: red, green, blue.
SKY = [(8, 10, 40), (10, 14, 60), (230, 120, 60), (120, 190, 250), (130, 200, 255), (220, 90, 50), (20, 16, 60)]

#: Settings of the services. They shorten minutes to seconds.
SETTINGS = {"PRISMLINE_VISIBILITY_SECONDS": "10", "PRISMLINE_WAIT_SECONDS": "1", "DEFERRAL_SECONDS": "4"}
#: The alarm of this demonstration: a backlog of 20 for 20 seconds, instead of 100 for ten minutes. Ten seconds is the
#: shortest period of CloudWatch.
PARAMETERS = {"AlarmThreshold": "20", "AlarmPeriod": "10", "AlarmEvaluationPeriods": "2"}

#: Colours in which the terminal shows alerts.
_RED, _GREEN = "red", "green"


def make_recording(folder: Path) -> None:
    """Draw the frames of a day into `folder`: the sky's colour, hour by hour."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = WINDOWS * WINDOW_SIZE
    for frame in range(frames):
        place = frame / (frames - 1) * (len(SKY) - 1)
        before = min(int(place), len(SKY) - 2)
        colour = tuple(round(a + (b - a) * (place - before)) for a, b in zip(SKY[before], SKY[before + 1], strict=True))
        Image.new("RGB", FRAME_SIZE, colour).save(folder / f"{frame:05d}.png")


def outage(
    connection: Connection, discord: DiscordStandIn, interactions: str, frames: Path, say: Callable[[str], None]
) -> str:
    """The first half: without a GPU, one alert is posted, muted and unmuted. Return the id of the recording's run.

    interactions: the URL that receives slash commands.
    """
    stop_gpu(connection)
    say("There is no GPU.")
    fields = {"session_id": SESSION, "user_id": "demo", "params": {"prompt": "What does the sky look like?"}}
    run_id = submit_frames(connection, frames, WINDOW_SIZE, fields)
    say(f"Submitted {WINDOWS} windows of the session {SESSION}: run {run_id}.")
    wait_for(lambda: _waiting() == WINDOWS, "all windows to wait for the GPU")
    say(f"All {WINDOWS} windows are pending; their messages wait in the dead-letter queue.")
    show_message(wait_for(lambda: alarms(discord, run_id)[:1], "the alert")[0])
    say(f"> /mute-alerts 1h   {type_command(discord, interactions, 'mute-alerts', duration='1h')}")
    broken = _submit_broken(connection)
    log = Home.at(None).log("notifier")
    wait_for(lambda: "alert_suppressed" in log.read_text(), "the notifier to suppress the alert of a failed run")
    say(f"Run {broken} failed. The notifier logged alert_suppressed and posted nothing.")
    say(f"> /unmute-alerts   {type_command(discord, interactions, 'unmute-alerts')}")
    return run_id


def recovery(connection: Connection, discord: DiscordStandIn, run_id: str, say: Callable[[str], None]) -> list[Segment]:
    """The second half: the GPU comes up, and every window gets its caption. Return the segments of the session."""
    client = Client.open()
    say(f"The GPU is up: {', '.join(start_gpu(connection))}.")
    with stderr.status("captioning") as status:

        def ended() -> RunView | None:
            counts = Counter(segment.status for segment in segments_of(Client.open(), SESSION))
            status.update(f"{counts['complete']} of {WINDOWS} windows have captions")
            view = load_run(client, run_id)
            return view if view is not None and view.run.ended else None

        view = wait_for(ended, "the windows to be captioned")
    say(f"The run {view.run.status}: {view.completed} windows complete, {view.failed} failed.")
    show_message(wait_for(lambda: alarms(discord, run_id)[1:2], "the all-clear")[0])
    return segments_of(Client.open(), SESSION)


def alarms(discord: DiscordStandIn, run_id: str) -> list[dict[str, Any]]:
    """The messages about the backlog that were posted, oldest first."""
    embeds = [message["embeds"][0] for message in discord.messages]
    return [embed for embed in embeds if "backlog" in embed["title"] and run_id not in embed["title"]]


def type_command(discord: DiscordStandIn, interactions: str, name: str, **options: Any) -> str:
    """Send a slash command as Discord does. Return the answer."""
    answer = discord.sign(slash_command(name, **options)).send(interactions)
    answer.raise_for_status()
    content: str = answer.json()["data"]["content"]
    return readable(content)


def demo_captions(to: Path) -> DemoResult:
    """Run the demonstration on its own system. It succeeds if every window gets its caption."""
    home, frames = to / "captions-home", to / "frames"
    make_recording(frames)
    with (
        DiscordStandIn() as discord,
        own_system(home, workers=2, settings=SETTINGS | discord.settings, parameters=PARAMETERS) as (state, say),
    ):
        connection = Connection(state.environment)
        run_id = outage(connection, discord, state.url("interactions") + "/interactions", frames, say)
        segments = recovery(connection, discord, run_id, say)
    table = Table("window", "status", "deferrals", "caption", box=None)
    for segment in segments[:: WINDOWS // 8]:
        table.add_row(str(segment.window_index), segment.status, str(segment.deferrals), segment.caption or "-")
    console.print(table)
    console.print(f"{len(discord.messages)} messages were posted.")
    return DemoResult(all(segment.status == "complete" for segment in segments), run_id)


def show_message(embed: dict[str, Any]) -> None:
    """Print a message as it would look in Discord."""
    lines = [embed.get("description", ""), ""]
    lines += [f"{field['name']}: {field['value']}" for field in embed["fields"]]
    colour = _RED if embed["title"].startswith("Alarm") else _GREEN
    console.print(Panel(readable("\n".join(lines)), title=embed["title"], border_style=colour, width=100))


def readable(text: str) -> str:
    """Text with Discord's timestamps replaced by readable ones: an age, or a time in UTC."""

    def moment(match: re.Match[str]) -> str:
        if match[2] == "R":
            return f"{max(0, round(time.time()) - int(match[1]))} seconds ago"
        return datetime.fromtimestamp(int(match[1]), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    return re.sub(r"<t:(\d+)(?::(\w))?>", moment, text)


def _waiting() -> int:
    return sum(segment.status == "pending" and segment.deferrals > 0 for segment in segments_of(Client.open(), SESSION))


def _submit_broken(connection: Connection) -> str:
    """Submit a cube that does not exist. Return the id of its run."""
    manifest = SpectraManifest(cube_key="cubes/not-there.fits", survey="broken", idempotency_key="broken")
    return put_manifest(connection, manifest, "broken")
