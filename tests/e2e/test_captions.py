"""Captions during an outage of the GPU: no window is reported as complete, people are alerted once, none is lost."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from PIL import Image, ImageStat

from prismline_localstack import harness
from prismline_localstack.demos import captions as demo_captions
from prismline_localstack.demos.captions import PARAMETERS, SESSION, SETTINGS, WINDOW_SIZE, WINDOWS
from prismline_localstack.standins.discord import DiscordStandIn
from tests.invariants import assert_invariants
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

#: Deferrals of one message in a day: one every 15 minutes.
DAY = 24 * 4


def log_lines(logs: Path, process: str, message: str) -> list[dict[str, object]]:
    """The log lines of a process with this message."""
    lines = (logs / f"{process}.log").read_text().splitlines()
    return [json.loads(line) for line in lines if f'"{message}"' in line]


def mean_colour(frames: list[Path]) -> str:
    """The mean colour of frames, in hex."""
    means = [ImageStat.Stat(Image.open(frame)).mean for frame in frames]
    return "#" + "".join(f"{round(sum(channel) / len(means)):02x}" for channel in zip(*means, strict=True))


@pytest.mark.timeout(600)
def test_an_outage_of_the_gpu(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    demo_captions.make_recording(tmp_path)
    folder = tmp_path_factory.mktemp("outage")
    logs = folder / "home" / "logs"
    with (
        DiscordStandIn() as discord,
        pytest.MonkeyPatch.context() as patch,
        System.running(
            folder,
            patch,
            services=[*CHUNK_SERVICES, "alerting", "standins"],
            parameters=PARAMETERS,
            **SETTINGS | discord.settings,
        ) as system,
    ):
        interactions = harness.load_state().url("interactions") + "/interactions"
        lines: list[str] = []
        run_id = demo_captions.outage(system.connection, discord, interactions, tmp_path, lines.append)
        segments = json.loads(system.cli("segments", "--session", SESSION, "--json"))
        assert {segment["status"] for segment in segments} == {"pending"}
        assert {segment["caption"] for segment in segments} == {None}
        assert {segment["attempts"] for segment in segments} == {0}, "waiting uses up no attempt"
        (alert,) = demo_captions.alarms(discord, run_id)
        assert alert["title"] == f"Alarm: prismline-{system.connection.environment}-chunks-dlq-backlog"
        assert "No GPU is provisioned" in json.dumps(alert["fields"])
        assert len(discord.messages) == 1, "the run that failed while alerts were muted was not posted"
        assert log_lines(logs, "notifier", "alert_suppressed")
        assert [line["duration"] for line in log_lines(logs, "interactions", "alert_muted")] == ["1h"]
        assert log_lines(logs, "interactions", "alert_unmuted")

        segments_after = demo_captions.recovery(system.connection, discord, run_id, lines.append)
        assert [segment.window_index for segment in segments_after] == list(range(WINDOWS))
        assert {segment.status for segment in segments_after} == {"complete"}
        frames = sorted(tmp_path.glob("*.png"))
        for segment in segments_after:
            window = frames[segment.window_index * WINDOW_SIZE :][:WINDOW_SIZE]
            assert mean_colour(window) in (segment.caption or ""), "the caption describes the frames of its window"
        assert [message["embeds"][0]["title"].partition(":")[0] for message in discord.messages] == [
            "Alarm",
            "OK again",
        ]
        assert_invariants(system, run_id)
        secrets = (discord.webhook_url.rpartition("/")[2], discord.bot_token)
        output = "".join(path.read_text() for path in logs.iterdir())
        assert not any(secret in output for secret in secrets)


@pytest.mark.timeout(600)
def test_a_day_without_a_gpu_and_a_model_that_errs_lose_no_window(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    for frame in range(6):
        Image.new("RGB", (8, 8), (40 * frame, 0, 0)).save(tmp_path / f"{frame}.png")
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(
            tmp_path_factory.mktemp("day"),
            patch,
            services=[*CHUNK_SERVICES, "standins"],
            DEFERRAL_SECONDS="0",
            CAPTION_TRIES="1",
        ) as system,
    ):
        system.cli("gpu", "down")
        run_id = system.cli("caption", str(tmp_path), "--session", "day", "--user", "u", "--window", "2").strip()

        def outlasted_a_day() -> bool:
            chunks = system.chunks(run_id)
            return len(chunks) == 3 and all(chunk.deferrals >= DAY + 4 for chunk in chunks)

        wait_for(outlasted_a_day, "every window to be deferred a hundred times")
        assert {chunk.status for chunk in system.chunks(run_id)} == {"PENDING"}
        assert {chunk.attempts for chunk in system.chunks(run_id)} == {0}
        faults = harness.load_state().url("gpu") + "/_standin/faults"
        httpx.post(faults, json={"status": 503, "times": 2}).raise_for_status()
        system.cli("gpu", "up")
        view = system.wait(run_id)
        assert (view.status, view.completed, view.failed) == ("completed", 3, 0)
        chunks = system.chunks(run_id)
        assert sum(chunk.attempts - chunk.interruptions for chunk in chunks) == 3, "errors of the model do not count"
        assert_invariants(system, run_id)
        assert "complete" in system.cli("segments", "--session", "day")
