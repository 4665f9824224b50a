"""Errors that a message of a run raises again and again: when the run shows them, and until when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scene, before_request

from prismline_contracts.items import RepeatedErrorItem
from prismline_ledger import Ledger, RepeatedError
from prismline_ledger.repeated_errors import after_error, latest
from prismline_runtime import Work

SPLIT = Work("run", "prismline.run.split.v1")
CHUNKS = [Work("run", "prismline.chunk.process.v1", f"chunk-{number:07d}") for number in range(3)]


def note(ledger: Ledger, work: Work, times: int = 1, error: str = "ZeroDivisionError: division by zero") -> None:
    for _ in range(times):
        ledger.note_error(work, service="splitter", error=error)


#: What happens to the messages, one after the other: their number, and whether they raise, meet an outage, or succeed.
HISTORIES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["raises", "outage", "succeeds"])), max_size=40)


@given(HISTORIES)
def test_a_run_shows_the_latest_error_of_the_messages_that_raised_three_times_since_they_last_succeeded(
    history: list[tuple[int, str]],
) -> None:
    items: dict[int, RepeatedErrorItem] = {}
    for moment, (number, what) in enumerate(history):
        at = f"2026-03-01T12:00:{moment:02}.000Z"
        if what == "raises":
            items[number] = after_error(items.get(number), CHUNKS[number], service="worker", error=f"E{moment}", at=at)
        elif what == "succeeds" and number in items:
            items[number] = items[number].model_copy(update={"over_at": at})
    since = {n: [what for which, what in history if which == n] for n in range(3)}
    raised = {n: "".join(what[0] for what in since[n]).rpartition("s")[2].count("r") for n in range(3)}
    raising = [n for n in range(3) if raised[n] >= 3]
    shown = latest(items.values())
    if not raising:
        assert shown is None
        return
    last = max(moment for moment, (number, what) in enumerate(history) if number in raising and what == "raises")
    assert shown is not None
    assert (shown.item.error, shown.item.part) == (f"E{last}", CHUNKS[history[last][0]].part)
    assert (shown.item.count, shown.others) == (raised[history[last][0]], len(raising) - 1)


def test_errors_from_before_the_end_of_a_run_are_over() -> None:
    item = None
    for minute in (1, 2, 3):
        at = f"2026-03-01T12:0{minute}:00.000Z"
        item = after_error(item, SPLIT, service="splitter", error="E", at=at)
    assert item is not None
    assert latest([item], after="2026-03-01T12:04:00.000Z") is None
    assert latest([item], after="2026-03-01T12:02:30.000Z") == RepeatedError(item)


def test_the_sentence_says_what_was_raised_where_how_often_and_when() -> None:
    item = RepeatedErrorItem(
        PK="run",
        SK="ERROR#prismline.chunk.process.v1#chunk-0000500",
        service="worker",
        message_type="prismline.chunk.process.v1",
        part="chunk-0000500",
        error="KeyError: 'noise'",
        count=3,
        first_at="2026-03-01T12:00:00.000Z",
        last_at="2026-03-01T12:00:15.000Z",
    )
    assert RepeatedError(item).sentence == (
        "KeyError: 'noise' (worker, chunk.process of chunk-0000500,"
        " 3 times from 2026-03-01T12:00:00.000Z to 2026-03-01T12:00:15.000Z)"
    )
    assert RepeatedError(item, others=7).sentence.endswith("; 7 more messages of the run are in trouble)")


@pytest.mark.emulator
class TestInTheTable:
    def test_a_message_that_raises_before_its_run_has_an_item_is_found(
        self, ledger: Ledger, new_run_id: Callable[[], str]
    ) -> None:
        run_id = new_run_id()
        note(ledger, Work(run_id, SPLIT.type), 2)
        assert ledger.repeated_error(run_id) is None
        note(ledger, Work(run_id, SPLIT.type), error="KeyError: 'CTYPE3'")
        shown = ledger.repeated_error(run_id)
        assert shown is not None
        assert (shown.item.service, shown.item.count, shown.item.error) == ("splitter", 3, "KeyError: 'CTYPE3'")
        assert shown.item.first_at < shown.item.last_at
        assert ledger.get_run(run_id) is None
        assert ledger.repeated_error(run_id, after=shown.item.last_at) is None

    def test_a_message_that_succeeds_begins_to_count_again(self, scene: Scene) -> None:
        work = Work(scene.run_id, SPLIT.type)
        note(scene.ledger, work, 3)
        scene.ledger.forget_error(work)
        assert scene.ledger.repeated_error(scene.run_id) is None
        note(scene.ledger, work, 2)
        assert scene.ledger.repeated_error(scene.run_id) is None
        note(scene.ledger, work)
        shown = scene.ledger.repeated_error(scene.run_id)
        assert shown is not None
        assert shown.item.count == 3

    def test_a_message_that_never_raised_leaves_no_item(self, scene: Scene) -> None:
        scene.ledger.forget_error(Work(scene.run_id, SPLIT.type))
        assert scene.ledger.repeated_error(scene.run_id) is None

    def test_two_deliveries_that_raise_at_the_same_time_are_both_counted(self, scene: Scene) -> None:
        work = Work(scene.run_id, SPLIT.type)
        note(scene.ledger, work)
        with before_request(scene.dynamodb, 1, lambda: note(scene.ledger, work)):
            note(scene.ledger, work)
        shown = scene.ledger.repeated_error(scene.run_id)
        assert shown is not None
        assert shown.item.count == 3

    def test_a_success_does_not_hide_an_error_that_another_delivery_has_raised_since(self, scene: Scene) -> None:
        work = Work(scene.run_id, SPLIT.type)
        note(scene.ledger, work, 3)
        with before_request(scene.dynamodb, 1, lambda: note(scene.ledger, work)):
            scene.ledger.forget_error(work)
        assert scene.ledger.repeated_error(scene.run_id) is not None

    def test_the_errors_of_a_run_are_deleted_with_it(self, scene: Scene) -> None:
        scene.split(1)
        for chunk in CHUNKS:
            note(scene.ledger, Work(scene.run_id, chunk.type, chunk.part), 3)
        shown = scene.ledger.repeated_error(scene.run_id)
        assert shown is not None
        assert shown.others == 2
        list(scene.ledger.delete_run(scene.ledger.run(scene.run_id)))
        assert scene.ledger.repeated_error(scene.run_id) is None
