"""Queues take turns by their priorities."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from prismline_runtime.queue_choice import REST_SECONDS, QueueChoice


def turns(choice: QueueChoice, number: int) -> list[str]:
    return [choice.next(0.0)[0] for _ in range(number)]


def test_queues_of_one_priority_take_turns() -> None:
    choice = QueueChoice()
    choice.offer({"shared": 5, "large": 5})
    assert turns(choice, 6) == ["shared", "large"] * 3


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_each_queue_gets_its_share_and_none_waits_for_long(priorities: list[int]) -> None:
    choice, names = QueueChoice(), [f"q{n}" for n in range(len(priorities))]
    choice.offer(dict(zip(names, priorities, strict=True)))
    order = turns(choice, 10 * sum(priorities))
    assert Counter(order) == {name: 10 * priority for name, priority in zip(names, priorities, strict=True)}
    for name, priority in zip(names, priorities, strict=True):
        longest = sum(priorities) // priority + len(priorities)
        assert all(name in order[start : start + longest] for start in range(len(order) - longest))


def test_small_messages_do_not_wait_behind_large_ones() -> None:
    choice, work = QueueChoice(), {"shared": 1, "large": 100}
    choice.offer(dict.fromkeys(work, 5))
    done = Counter[str]()
    for _ in range(1010):
        name, _ = choice.next(0.0)
        choice.had_messages(name, work[name])
        done[name] += work[name]
    assert abs(done["shared"] - done["large"]) <= 100


def test_a_queue_that_was_empty_makes_up_for_nothing() -> None:
    choice = QueueChoice()
    choice.offer({"a": 5, "b": 5})
    choice.was_empty("a", 0.0)
    for _ in range(50):
        assert choice.next(0.0)[0] == "b"
        choice.had_messages("b", 100)
    assert choice.next(REST_SECONDS)[0] == "a"
    choice.had_messages("a", 100)
    assert "b" in {choice.next(REST_SECONDS)[0] for _ in range(3)}


def test_an_empty_queue_rests_while_others_have_messages() -> None:
    choice = QueueChoice()
    choice.offer({"a": 5, "b": 5})
    choice.was_empty("a", 0.0)
    assert [choice.next(REST_SECONDS / 2) for _ in range(3)] == [("b", False)] * 3
    assert "a" in {choice.next(REST_SECONDS)[0] for _ in range(3)}


def test_if_all_are_empty_the_caller_may_wait_for_a_message() -> None:
    choice = QueueChoice()
    choice.offer({"a": 5, "b": 5})
    for name in ("a", "b"):
        choice.was_empty(name, 0.0)
    assert choice.next(0.1)[1]
    choice.had_messages("b")
    assert choice.next(0.1) == ("b", False)


def test_a_deleted_queue_is_not_chosen_again() -> None:
    choice = QueueChoice()
    choice.offer({"a": 5, "b": 9})
    choice.remove("b")
    assert set(turns(choice, 4)) == {"a"}
