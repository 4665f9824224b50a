from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The tests and the children that they start import alert_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from alert_world import AlertingWorld

from prismline_localstack.standins.discord import DiscordStandIn


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, discord: DiscordStandIn) -> AlertingWorld:
    """Queues, table, bucket and parameters of an environment of its own, and a notifier on them."""
    monkeypatch.setenv("DISCORD_WEBHOOK_URL", discord.webhook_url)
    return AlertingWorld.create(aws_env["ENVIRONMENT"], monkeypatch)
