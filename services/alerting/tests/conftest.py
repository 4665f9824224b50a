from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests and the children that they start import alert_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from alert_world import AlertingWorld

from prismline_localstack.standins.discord import DiscordStandIn


@pytest.fixture(scope="session")
def discord_server() -> Iterator[DiscordStandIn]:
    with DiscordStandIn() as discord:
        yield discord


@pytest.fixture
def discord(discord_server: DiscordStandIn) -> DiscordStandIn:
    """Discord, with an empty channel."""
    discord_server.recover()
    discord_server.messages.clear()
    discord_server.posts = 0
    return discord_server


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, discord: DiscordStandIn) -> AlertingWorld:
    """Queues, table, bucket and parameters of an environment of its own, and a notifier on them."""
    monkeypatch.setenv("DISCORD_WEBHOOK_URL", discord.webhook_url)
    return AlertingWorld.create(aws_env["ENVIRONMENT"], monkeypatch)
