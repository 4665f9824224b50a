"""Decides what to do with an alert, from the alert, the last post about its subject, and the mute. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel

from prismline_alerting.alerts import Alert, State

#: Two changes to the same state within this time are one change. Sources round times differently, and CloudWatch
#: evaluates an alarm at most every ten seconds.
SAME_CHANGE = timedelta(seconds=1)


class PostedChange(BaseModel, frozen=True):
    """The change that was last posted."""

    state: State
    at: AwareDatetime


class PostClaim(BaseModel, frozen=True):
    """A notifier is posting. After `until` it is presumed dead."""

    token: str
    until: AwareDatetime


class SubjectRecord(BaseModel, frozen=True):
    """What is remembered about a subject: the last post, and the claim of a notifier that is posting."""

    told: PostedChange | None = None
    claim: PostClaim | None = None


@dataclass(frozen=True)
class Post:
    """Post the alert."""


@dataclass(frozen=True)
class Ignore:
    """Do not post the alert."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Another notifier may be posting the alert. Check again after `seconds`."""

    seconds: int


@dataclass(frozen=True)
class Suppress:
    """Alerts are muted. look_again: check after the mute whether the alert still holds, and post it then."""

    look_again: bool


def decide(alert: Alert, memory: SubjectRecord, *, muted: bool, now: datetime) -> Post | Ignore | Wait | Suppress:
    """Decide what to do with `alert`.

    A mute postpones alarms: after it, the state of every alarm that still differs from the last post is posted. A mute
    drops failed runs, because their status stays visible.
    """
    told = memory.told
    if alert.state is State.INSUFFICIENT_DATA:
        return Ignore("the alarm has insufficient data")
    if told is not None and _known(alert, told):
        return Ignore("this change or a later one was posted")
    if memory.claim is not None and memory.claim.until > now:
        return Wait(max(1, round((memory.claim.until - now).total_seconds())))
    if alert.state is State.OK and (told is None or told.state is not State.ALARM):
        return Ignore("no alarm was posted before this OK")
    if muted:
        return Suppress(look_again=alert.run_id is None)
    return Post()


def _known(alert: Alert, told: PostedChange) -> bool:
    """Whether this change, or a later one, was posted."""
    return alert.at <= told.at + SAME_CHANGE if alert.state is told.state else alert.at < told.at
