"""What to do about an alert: a pure decision from the alert, what people were told before, and the mute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel

from prismline_alerting.alerts import Alert, State

#: Two changes to one state that are no further apart are the same: sources differ in how they round, and CloudWatch
#: looks at an alarm every ten seconds at most.
SAME_CHANGE = timedelta(seconds=1)


class Told(BaseModel, frozen=True):
    """The change that people were last told of."""

    state: State
    at: AwareDatetime


class Claim(BaseModel, frozen=True):
    """Somebody is about to tell people, and may be taken for dead after `until`."""

    token: str
    until: AwareDatetime


class Memory(BaseModel, frozen=True):
    """What is remembered of a subject."""

    told: Told | None = None
    claim: Claim | None = None


@dataclass(frozen=True)
class Post:
    """Tell people."""


@dataclass(frozen=True)
class Ignore:
    """Nothing is to be said."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Somebody else may be saying it: see whether they did."""

    seconds: int


@dataclass(frozen=True)
class Suppress:
    """Alerts are muted. `look_again`: what still holds when the mute ends is told then."""

    look_again: bool


def decide(alert: Alert, memory: Memory, *, muted: bool, now: datetime) -> Post | Ignore | Wait | Suppress:
    """What to do about `alert`; the first that fits.

    A mute postpones what people were to know of an alarm, so that once it has ended the last thing they were told is
    how things are. It drops failed runs: the run itself goes on saying that it failed.
    """
    told = memory.told
    if alert.state is State.INSUFFICIENT_DATA:
        return Ignore("CloudWatch does not know")
    if told is not None and _known(alert, told):
        return Ignore("people were told of this or of a later change")
    if memory.claim is not None and memory.claim.until > now:
        return Wait(max(1, round((memory.claim.until - now).total_seconds())))
    if alert.state is State.OK and (told is None or told.state is not State.ALARM):
        return Ignore("people were not told that it was otherwise")
    if muted:
        return Suppress(look_again=alert.run_id is None)
    return Post()


def _known(alert: Alert, told: Told) -> bool:
    """Whether people were told of this change, or of a later one."""
    return alert.at <= told.at + SAME_CHANGE if alert.state is told.state else alert.at < told.at
