"""What an author declares: item, parameters, limits, and how a workload is found and described."""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest

from prismline import Context, Limits, Result, Workload, WorkloadError, workload
from prismline.loading import describe, load
from prismline.schemas import InvalidValueError


@dataclasses.dataclass
class Frame:
    path: str
    exposure: Annotated[float, pydantic.Field(gt=0)] = 1.0


def measure(item: Frame, *, context: Context, band: Literal["r", "g"] = "r", boxes: list[int] = []) -> dict:  # noqa: B006
    """Measure a frame."""
    return {}


def schema(adapter: pydantic.TypeAdapter[Any]) -> dict[str, Any]:
    return adapter.json_schema()


def test_item_and_parameters_have_json_schemas_from_the_annotations() -> None:
    arguments = Workload(measure).arguments
    assert schema(arguments.item)["required"] == ["path"]
    assert schema(arguments.item)["properties"]["exposure"]["exclusiveMinimum"] == 0
    parameters = schema(arguments.parameters)
    assert set(parameters["properties"]) == {"band", "boxes"}
    assert parameters["properties"]["band"]["enum"] == ["r", "g"]
    assert parameters["additionalProperties"] is False
    assert arguments.context == "context"


def test_values_become_what_the_annotations_say() -> None:
    arguments = Workload(measure).arguments
    assert arguments.item_of({"path": "a", "exposure": "2.5"}) == Frame("a", 2.5)
    assert arguments.parameters_of({}) == {"band": "r", "boxes": []}
    assert arguments.parameters_of({"boxes": [1]}) == {"band": "r", "boxes": [1]}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"exposure": 1}, "item.path: Field required"),
        ({"path": "a", "exposure": 0}, "item.exposure: Input should be greater than 0"),
        ([], "item: "),
    ],
)
def test_an_item_that_does_not_fit_is_refused_with_its_field(item: object, text: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        Workload(measure).arguments.item_of(item)
    assert str(raised.value).startswith(text)


def test_a_function_without_annotations_takes_any_item_and_its_parameters_by_name() -> None:
    def plain(item, threshold=5):  # type: ignore[no-untyped-def]
        return item

    arguments = Workload(plain).arguments
    assert schema(arguments.item) == {}
    assert arguments.item_of([1, {"a": None}]) == [1, {"a": None}]
    assert arguments.parameters_of({"threshold": "x"}) == {"threshold": "x"}


def test_two_calls_do_not_share_a_default() -> None:
    arguments = Workload(measure).arguments
    arguments.parameters_of({})["boxes"].append(1)
    assert arguments.parameters_of({})["boxes"] == []


async def waits(item: int) -> int:
    return item


def several(item: int):  # type: ignore[no-untyped-def]
    yield item


def nothing() -> int:
    return 1


def anything(item: int, **options: int) -> int:
    return item


def unknown(item: "Absent") -> int:  # type: ignore[name-defined]  # noqa: F821
    return 1


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (waits, "waits is asynchronous or a generator. Write a function that returns its value."),
        (several, "several is asynchronous or a generator. Write a function that returns its value."),
        (nothing, "nothing takes no item: its first parameter is the item."),
        (anything, "anything takes **options: int: give each parameter after the first one a name of its own."),
        (unknown, "The annotations of unknown cannot be read: name 'Absent' is not defined."),
    ],
)
def test_a_function_that_cannot_be_a_workload_is_refused_with_what_to_change(function: Any, text: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        _ = Workload(function).arguments
    assert str(raised.value) == text


def test_a_decorated_function_is_still_a_function() -> None:
    @workload
    def double(item: int) -> int:
        """Twice the item."""
        return 2 * item

    @workload(timeout=60, attempts=5, batch=7, memory=512)
    def triple(item: int, *, plus: int = 0) -> int:
        return 3 * item + plus

    assert (double(2), triple(2, plus=1)) == (4, 7)
    assert (double.__name__, double.__doc__) == ("double", "Twice the item.")
    assert double.limits == Limits()
    assert triple.limits == Limits(timeout=60, attempts=5, batch=7, memory=512)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"attempts": 0}, "The limit attempts is 0: it has to be a number greater than 0."),
        ({"timeout": float("nan")}, "The limit timeout is nan: it has to be a number greater than 0."),
        ({"memory": "1 GB"}, "The limit memory is '1 GB': it has to be a number greater than 0."),
        ({"timeout": 50_000}, "The limit timeout is 50000 s: it has to be at most 43200 s."),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(limits: dict[str, Any], text: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        workload(**limits)
    assert str(raised.value) == text


def test_a_parameter_may_have_any_name() -> None:
    def named(item: int, *, json: int, model_config: int = 2, _low: int = 3, schema: int = 4) -> int:
        return item

    given = {"json": 1, "model_config": 5}
    assert Workload(named).arguments.parameters_of(given) == {"json": 1, "model_config": 5, "_low": 3, "schema": 4}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from; those that a test imports are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def register(folder: Path, package: str, line: str) -> None:
    """What an installation writes about a package with an entry point."""
    info = folder / f"{package}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[prismline.workloads]\n{line}\n")


def test_a_registered_workload_is_found_by_its_name(folder: Path) -> None:
    (folder / "seeing.py").write_text("def measure(item): return 1\n")
    register(folder, "seeing", "measure = seeing:measure")
    assert load("measure")({}) == 1
    assert describe("measure").name == "measure"


def test_two_workloads_of_one_name_are_refused(folder: Path) -> None:
    register(folder, "seeing", "measure = seeing:measure")
    register(folder, "hearing", "measure = hearing:measure")
    with pytest.raises(WorkloadError) as raised:
        load("measure")
    assert str(raised.value) == (
        "Two workloads are named measure: hearing:measure and seeing:measure. Rename one of them."
    )


def test_an_unknown_name_is_refused_with_the_known_ones(folder: Path) -> None:
    register(folder, "seeing", "measure = seeing:measure")
    with pytest.raises(WorkloadError, match=r"registers the workload mesure\. Registered are: measure\."):
        load("mesure")


def test_a_description_has_what_a_service_needs(folder: Path) -> None:
    (folder / "eye.py").write_text(
        "from prismline import workload\n"
        "@workload(timeout=60)\n"
        "def measure(item: dict, *, threshold: float = 5.0): return 1\n"
    )
    found = describe("eye:measure").model_dump(mode="json")
    assert found["item"] == {"additionalProperties": True, "type": "object"}
    assert found["parameters"]["properties"]["threshold"] == {"default": 5.0, "title": "Threshold", "type": "number"}
    assert found["limits"] == {
        "timeout": 60.0,
        "attempts": 3,
        "batch": 20,
        "memory": 2048,
        "processes": 64,
        "files": 1024,
    }
    assert len(found["code"]) == 64


def test_a_function_of_finalize_takes_parameters_of_the_run_and_no_others() -> None:
    @workload
    def measure(item: int, *, threshold: float = 5.0) -> int:
        return item

    @measure.finalize
    def total(results: Iterable[Result], context: Context, *, threshold: float = 1.0) -> list[object]:
        return [[each.value for each in results], threshold, context.attempt]

    measure.check_finalizer()
    assert total([Result(0, 1, "completed", 1)], Context("a", 2, 0.0)) == [[1], 1.0, 2], "it is still a function"
    with pytest.raises(WorkloadError, match="measure has two functions for finalize"):
        measure.finalize(total)

    @workload
    def other(item: int) -> int:
        return item

    @other.finalize
    def wrong(results: Iterable[Result], *, colour: str) -> None: ...

    with pytest.raises(WorkloadError, match=r"wrong takes colour, which is no parameter of .*other"):
        other.check_finalizer()
