"""The check finds what would go wrong in a run, and nothing in a good function."""

import importlib
from pathlib import Path

import pytest

from prismline import WorkloadError
from prismline.testing import CheckError, Report, check, examine

HERE = str(Path(__file__).parent)

pytestmark = pytest.mark.slow


def findings(name: str, items: list[object]) -> list[str]:
    return [str(each) for each in examine(f"authors:{name}", items, paths=[HERE]).findings]


def test_a_good_function_passes_and_the_report_has_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    authors = importlib.import_module("authors")
    report = check(authors.square, [1, 2, -3], params={"plus": 10})
    assert [each.value for each in report.outcomes] == [11, 14, None]
    assert report.outcomes[2].error == "There is no length below 0."
    assert report.description is not None
    assert report.description.limits.timeout == 30
    assert check(authors.plain, [{"a": [None]}, "b"]).outcomes[1].value == "b"


def test_a_value_that_depends_on_other_items_is_found() -> None:
    assert findings("counts_its_calls", [5, 5]) == [
        "item 1: Repeated in another order, it gives 1 instead of 2.",
        "item 0: Repeated in another order, it gives 2 instead of 1.",
    ]
    assert findings("depends_on_the_process", [1, 7, 1]) == [
        "item 2: Repeated in another order, it gives false instead of true.",
        "item 0: Repeated in another order, it gives true instead of false.",
    ]


def test_a_value_that_differs_when_it_is_repeated_is_found() -> None:
    (found,) = findings("draws_lots", [1])
    assert found.startswith("item 0: Repeated in another order, it gives 0.")


def test_what_cannot_be_repeated_after_a_kill_is_found(tmp_path: Path) -> None:
    (found,) = findings("needs_an_empty_folder", [str(tmp_path / "file")])
    assert found.startswith("item 0: After it was killed on the way, it gives FileExistsError: ")
    assert found.endswith('instead of "done".')


def test_an_error_that_would_be_tried_again_in_vain_is_found() -> None:
    assert findings("breaks", [{"n": 1}, {}]) == [
        "item 1: It fails with KeyError: 'n'. Raise Permanent if the item can never succeed."
    ]


def test_a_value_that_is_no_json_is_found() -> None:
    (found,) = findings("gives_a_set", [1])
    assert found.startswith("item 0: prismline.NotJson: The value has the type set, which is no JSON. Convert it")


def test_items_near_and_beyond_the_timeout_are_found() -> None:
    slow, killed = findings("sleeps", [1.6, 5])
    assert slow.startswith("item 0: It takes ")
    assert slow.endswith(" s of the 3 s after which it is killed. Raise its timeout.")
    assert killed == "item 1: prismline.TimedOut: The item took longer than its limit of 3 s."


def test_an_item_that_is_no_json_is_found_before_anything_runs() -> None:
    report = examine("authors:plain", [1, {2}], paths=[HERE])
    assert report == Report(None, [], report.findings)
    assert str(report.findings[0]).startswith("item 1: The item cannot be sent. The value has the type set")


def test_a_workload_that_cannot_be_imported_is_one_finding() -> None:
    (found,) = findings("absent", [1, 2])
    assert found.startswith("The workload authors:absent cannot be used: ")
    assert found.endswith("authors:absent does not exist: authors has no absent.")


def test_a_test_fails_with_one_line_for_each_finding() -> None:
    with pytest.raises(CheckError) as raised:
        check("authors:gives_a_set", [1, 2], paths=[HERE])
    assert [line[:6] for line in str(raised.value).splitlines()] == ["item 0", "item 1"]


def test_a_function_inside_another_one_is_refused_with_what_to_do() -> None:
    def inner(item: int) -> int:
        return item

    with pytest.raises(WorkloadError, match=r"is not a function of a module that another process can import"):
        check(inner, [1])


def test_the_function_of_finalize_is_called_with_the_results() -> None:
    report = check("authors:adds", [1, 2, -3], params={"plus": 10}, paths=[HERE])
    assert report.final is not None
    assert report.final.value == [23, 10, ["There is nothing below 0."], "check"]


def test_a_function_of_finalize_that_fails_or_cannot_be_repeated_is_found(tmp_path: Path) -> None:
    assert findings("passes", [1]) == ["finalize: It fails with ValueError: a bug"]
    assert findings("keeps", [str(tmp_path / "file")]) == ["finalize: Repeated, it gives 2 instead of 1."]
