"""Decides what happens after a post: delivered, try again, or give up. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

import httpx

from prismline_contracts.jobs import WebhookItem

#: How long a post is tried again after its first attempt.
PATIENCE = timedelta(hours=24)
#: Seconds until the second attempt. The time triples with each attempt.
FIRST_WAIT_SECONDS = 5
#: Longest time in seconds between two attempts, even if a `Retry-After` asks for more.
LONGEST_WAIT_SECONDS = 3600


@dataclass(frozen=True)
class Answer:
    """The result of a post: the target's HTTP status, or the error if there is none."""

    status: int | None = None
    error: str | None = None
    #: Seconds that the target asks to wait.
    retry_after: int | None = None
    #: Whether another attempt can never succeed.
    final: bool = False

    @property
    def taken(self) -> bool:
        """Whether the target has accepted the post."""
        return self.status is not None and httpx.codes.is_success(self.status)

    @property
    def why_not(self) -> str:
        """Why the target has not accepted it, as a sentence."""
        return self.error or f"The target answered {self.status}."


@dataclass(frozen=True)
class Delivered:
    """The target has accepted the post."""


@dataclass(frozen=True)
class TryAgain:
    """Post again after `seconds`."""

    seconds: int


@dataclass(frozen=True)
class GiveUp:
    """Do not post again."""

    reason: str


def decide(answer: Answer, item: WebhookItem, now: datetime) -> Delivered | TryAgain | GiveUp:
    """Decide what to do after the latest attempt that `item` counts.

    A 410 means that the target does not want any more posts. Any other answer without success may change.
    """
    if answer.taken:
        return Delivered()
    if answer.final or answer.status == httpx.codes.GONE:
        return GiveUp(answer.why_not)
    wait = max(_backoff(item.attempts), min(answer.retry_after or 0, LONGEST_WAIT_SECONDS))
    first = datetime.fromisoformat(item.first_attempt_at) if item.first_attempt_at else now
    if now + timedelta(seconds=wait) > first + PATIENCE:
        hours = PATIENCE.total_seconds() / 3600
        return GiveUp(f"{answer.why_not} Given up after {item.attempts} attempts in {hours:.0f} hours.")
    return TryAgain(wait)


def _backoff(attempts: int) -> int:
    longest: int = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 3 ** min(attempts - 1, 10))
    return max(1, round(random.uniform(0.8, 1.0) * longest))
