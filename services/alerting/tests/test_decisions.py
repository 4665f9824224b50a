"""Decisions about alerts. The main property: in the end, the channel shows the present state, and shows it once."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from alert_world import NOON, later
from hypothesis import given
from hypothesis import strategies as st

from prismline_alerting.alerts import Alert, State
from prismline_alerting.decisions import Ignore, Post, PostClaim, PostedChange, SubjectRecord, Suppress, Wait, decide

A_MINUTE = timedelta(minutes=1)


def alarm(state: State = State.ALARM, at: datetime = NOON) -> Alert:
    return Alert(subject="alarms/a", state=state, at=at, name="a")


def told(state: State, at: datetime = NOON) -> SubjectRecord:
    return SubjectRecord(told=PostedChange(state=state, at=at))


def test_an_alarm_is_posted_and_a_later_ok_is_too() -> None:
    assert decide(alarm(), SubjectRecord(), muted=False, now=NOON) == Post()
    ok = alarm(State.OK, later(minutes=1))
    assert decide(ok, told(State.ALARM), muted=False, now=NOON) == Post()


def test_an_alarm_that_comes_back_is_posted_again() -> None:
    assert decide(alarm(at=later(hours=1)), told(State.OK), muted=False, now=NOON) == Post()
    assert decide(alarm(at=later(hours=1)), told(State.ALARM), muted=False, now=NOON) == Post()


@pytest.mark.parametrize("late_by", [0.0, 0.9, 60.0])
def test_a_change_that_was_posted_or_is_older_is_not_posted(late_by: float) -> None:
    known = told(State.ALARM, NOON + timedelta(seconds=late_by))
    assert isinstance(decide(alarm(), known, muted=False, now=NOON), Ignore)


def test_a_change_that_another_source_rounded_down_is_the_same_change() -> None:
    exact = alarm(at=NOON + timedelta(milliseconds=900))
    assert isinstance(decide(exact, told(State.ALARM), muted=False, now=NOON), Ignore)


@pytest.mark.parametrize("memory", [SubjectRecord(), told(State.OK)])
def test_ok_is_not_posted_if_no_alarm_was(memory: SubjectRecord) -> None:
    ok = alarm(State.OK, later(minutes=1))
    assert isinstance(decide(ok, memory, muted=False, now=NOON), Ignore)


def test_insufficient_data_is_no_news() -> None:
    unknown = alarm(State.INSUFFICIENT_DATA, later(minutes=1))
    assert isinstance(decide(unknown, told(State.ALARM), muted=False, now=NOON), Ignore)


def test_a_mute_postpones_alarms_and_drops_failed_runs() -> None:
    assert decide(alarm(), SubjectRecord(), muted=True, now=NOON) == Suppress(look_again=True)
    ok = alarm(State.OK, later(minutes=1))
    assert decide(ok, told(State.ALARM), muted=True, now=NOON) == Suppress(look_again=True)
    run = Alert(subject="runs/r", state=State.ALARM, at=NOON, name="r", run_id="r")
    assert decide(run, SubjectRecord(), muted=True, now=NOON) == Suppress(look_again=False)


def test_a_notifier_waits_for_another_one_that_posts_but_not_for_a_dead_one() -> None:
    claimed = SubjectRecord(claim=PostClaim(token="t", until=NOON + A_MINUTE))
    assert decide(alarm(), claimed, muted=False, now=NOON) == Wait(60)
    assert decide(alarm(), claimed, muted=False, now=NOON + A_MINUTE) == Post()


STEPS = st.lists(st.tuples(st.sampled_from([State.ALARM, State.OK]), st.booleans()), min_size=1, max_size=8)


@given(steps=STEPS, order=st.randoms(use_true_random=False))
def test_in_any_order_each_change_is_posted_once_at_most_and_the_last_post_is_true(
    steps: list[tuple[State, bool]], order: object
) -> None:
    """Every change is delivered twice, in any order. As in the notifier, a late one stands for the present state."""
    changes = [alarm(state, later(minutes=n)) for n, (state, _) in enumerate(steps)]
    deliveries = [(change, muted) for change, (_, muted) in zip(changes, steps, strict=True)] * 2
    order.shuffle(deliveries)  # type: ignore[attr-defined]
    memory, posted, again = SubjectRecord(), [], []

    def deliver(change: Alert, *, muted: bool) -> None:
        nonlocal memory
        match decide(change, memory, muted=muted, now=NOON):
            case Post():
                posted.append(change)
                memory = told(change.state, change.at)
            case Suppress():
                again.append(change)

    for change, muted in deliveries:
        deliver(change, muted=muted)
    for change in again:  # the mute has ended
        if change.state is changes[-1].state:
            deliver(changes[-1], muted=False)
    assert len(posted) == len({change.at for change in posted})
    assert [change.at for change in posted] == sorted(change.at for change in posted)
    if posted and changes[-1].state is State.ALARM:
        assert memory.told is not None
        assert memory.told.state is State.ALARM
