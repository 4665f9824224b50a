"""The dependencies of the webhooks service: clients and settings, made once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Self

from aws_lambda_powertools import Logger

from prismline_contracts.base import now
from prismline_ledger import Ledger
from prismline_runtime import Transport, clients, service_logger
from prismline_web import guarded_async_client
from prismline_webhooks.deliveries import Deliveries
from prismline_webhooks.posting import Poster
from prismline_webhooks.settings import Settings

#: Name of the process in logs, as the source of messages, and to targets.
SERVICE = "webhooks"
USER_AGENT = "prismline-webhooks/1"


@dataclass(frozen=True)
class Dependencies:
    """What the webhooks service uses."""

    deliveries: Deliveries
    ledger: Ledger
    poster: Poster
    transport: Transport
    logger: Logger
    clock: Callable[[], datetime] = now

    @classmethod
    def from_environment(cls) -> Self:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = Settings()
        client = partial(
            guarded_async_client, allow_private=settings.webhook_allow_private, headers={"User-Agent": USER_AGENT}
        )
        return cls(
            deliveries=Deliveries(clients.dynamodb(), settings.jobs_table),
            ledger=Ledger(clients.dynamodb(), settings.runs_table),
            poster=Poster(client, settings.webhook_seconds),
            transport=Transport.connect(settings.environment, SERVICE),
            logger=service_logger(SERVICE),
        )
