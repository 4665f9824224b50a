"""A vectorized function gets several items in one call, and an item that fails still fails alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prismline import Context, Workload, WorkloadError
from prismline.protocol import Entry
from prismline.supervisor import Supervisor
from prismline.testing import examine

HERE = str(Path(__file__).parent)


def entries(*items: Any) -> list[Entry]:
    return [Entry(item=item, item_id=f"id-{item}", attempt=1) for item in items]


def findings(name: str, items: Sequence[Any]) -> list[str]:
    return [str(each) for each in examine(f"authors:{name}", items, paths=[HERE]).findings]


def test_one_call_has_all_items_of_a_batch_with_their_contexts_and_the_parameters() -> None:
    with Supervisor("authors:squares", paths=[HERE], parameters={"plus": 1}) as supervisor:
        assert supervisor.description.vectorized
        assert supervisor.description.item == {"type": "integer"}
        batch = supervisor.run_batch(entries(2, 3))
        assert [each.value for each in batch.outcomes] == [[5, 2, "id-2"], [10, 2, "id-3"]]
        assert supervisor.run(2, item_id="id-2").value == [5, 1, "id-2"]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (13, "prismline.Crashed: The item ended its process with exit code 3."),
        (-1, "prismline.Permanent: There is no length below 0."),
        ("x", "prismline.InvalidValue: item: Input should be a valid integer"),
    ],
)
def test_a_batch_with_a_bad_item_blames_none_and_alone_only_the_bad_one_fails(bad: Any, text: str) -> None:
    with Supervisor("authors:squares", paths=[HERE]) as supervisor:
        batch = supervisor.run_batch(entries(2, bad, 3))
        assert not batch.outcomes
        assert batch.error.startswith(text)
        alone = [supervisor.run(each.item, item_id=each.item_id) for each in entries(2, bad, 3)]
    assert [each.status for each in alone] == ["completed", "failed", "completed"]


def test_a_function_that_forgets_an_item_is_told_so() -> None:
    with Supervisor("authors:forgets_one", paths=[HERE]) as supervisor:
        assert "returned 2 values for 3 items" in supervisor.run_batch(entries(1, 2, 3)).error
        outcome = supervisor.run(1, item_id="a")
    assert (outcome.error_type, outcome.permanent) == ("prismline.WrongCount", True)


def test_the_values_of_a_batch_may_be_longer_than_one_value_may_be() -> None:
    with Supervisor("authors:long_values", paths=[HERE]) as supervisor:
        batch = supervisor.run_batch(entries(*range(200_000, 200_008)))
        assert [len(each.value) for each in batch.outcomes] == list(range(200_000, 200_008))
        too_much = supervisor.run_batch(entries(*range(200_000, 200_100)))
        assert "The values of the batch have" in too_much.error


def test_the_check_runs_items_of_a_vectorized_function_together_and_alone() -> None:
    assert findings("doubles", [1, 2, 3, 4, 5]) == []
    assert findings("share_of_the_sum", [1.0, 3.0]) == [
        "item 0: Together with others, it gives 0.25 instead of 1.0.",
        "item 1: Together with others, it gives 0.75 instead of 1.0.",
    ]
    assert findings("fails_together", [1, 2]) == [
        "item 0: Alone it succeeds, but the 2 items from it on fail together: ValueError: too many"
    ]


def no_list(items: int) -> list[int]:
    return [items]


def one_context(items: list[int], context: Context) -> list[int]:
    return items


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_list, "no_list is vectorized: its first parameter is a list of items. Annotate it list[...]."),
        (one_context, "one_context takes context, but is vectorized: annotate it list[Context]."),
    ],
)
def test_a_function_that_takes_no_list_is_refused_with_what_to_change(function: Any, text: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        _ = Workload(function, vectorized=True).arguments
    assert str(raised.value) == text
