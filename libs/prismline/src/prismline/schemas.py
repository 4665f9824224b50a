"""The item and the parameters of a function: JSON Schemas from its annotations, and values checked against them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model

from prismline.errors import WorkloadError


class InvalidValueError(ValueError):
    """An item or a parameter does not fit the annotation. The text names the field."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """What a function takes: an item, parameters by name, and perhaps the context of the attempt."""

    item: TypeAdapter[Any]
    parameters: TypeAdapter[Any]
    #: The name of the parameter that gets the context, if there is one.
    context: str | None

    @classmethod
    def of(cls, function: Callable[..., Any], context: type, *, vectorized: bool = False) -> Self:
        """Read the annotations of a function.

        context: the annotation of the parameter that gets the context; of a vectorized function, a list of it.
        vectorized: the first parameter is a list of items.
        """
        name = getattr(function, "__qualname__", repr(function))
        item, *others = _signature(function, name, "no item: its first parameter is the item")
        wanted, unwanted = (list[context], context) if vectorized else (context, list[context])  # type: ignore[valid-type]
        for each in others:
            if each.annotation == unwanted:
                takes = "vectorized: annotate it list[Context]" if vectorized else "not vectorized: annotate it Context"
                raise WorkloadError(f"{name} takes {each.name}, but is {takes}.")
        return cls(
            _adapter(f"the item of {name}", _element(item, name) if vectorized else _annotation(item)),
            _adapter(f"the parameters of {name}", _parameters([each for each in others if each.annotation != wanted])),
            next((each.name for each in others if each.annotation == wanted), None),
        )

    def item_of(self, value: Any) -> Any:
        """The item as the function takes it. Raises InvalidValueError."""
        return _checked(self.item, value, "item")

    @property
    def names(self) -> set[str]:
        """The names of the parameters."""
        return set(self.parameters.json_schema().get("properties", {}))

    def parameters_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as the function takes them, defaults included. Raises InvalidValueError."""
        found = _checked(self.parameters, dict(values), "parameters")
        return {each.alias: getattr(found, name) for name, each in type(found).model_fields.items()}


def names_of(function: Callable[..., Any], context: type) -> tuple[set[str], str | None]:
    """The parameters of a function that takes results, and the name of the one that gets the context."""
    name = getattr(function, "__qualname__", repr(function))
    _, *others = _signature(function, name, "no results: its first parameter is the results")
    asks = next((each.name for each in others if each.annotation == context), None)
    return {each.name for each in others if each.name != asks}, asks


def _signature(function: Callable[..., Any], name: str, without: str) -> list[inspect.Parameter]:
    """The parameters of a function that can be called with one value and parameters by name."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise WorkloadError(f"{name} is asynchronous or a generator. Write a function that returns its value.")
    try:
        found = list(inspect.signature(function, eval_str=True).parameters.values())
    except (NameError, TypeError, ValueError) as error:
        raise WorkloadError(f"The annotations of {name} cannot be read: {error}.") from error
    if not found or found[0].kind not in {found[0].POSITIONAL_ONLY, found[0].POSITIONAL_OR_KEYWORD}:
        raise WorkloadError(f"{name} takes {without}.")
    for each in found[1:]:
        if each.kind in {each.POSITIONAL_ONLY, each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            raise WorkloadError(f"{name} takes {each}: give each parameter after the first one a name of its own.")
    return found


def _annotation(parameter: inspect.Parameter) -> Any:
    return Any if parameter.annotation is parameter.empty else parameter.annotation


def _element(parameter: inspect.Parameter, name: str) -> Any:
    """What the list of a vectorized function holds."""
    annotation = _annotation(parameter)
    if annotation is Any or annotation is list:
        return Any
    if get_origin(annotation) not in {list, Sequence}:
        raise WorkloadError(f"{name} is vectorized: its first parameter is a list of items. Annotate it list[...].")
    return get_args(annotation)[0]


def _parameters(parameters: list[inspect.Parameter]) -> type[BaseModel]:
    """A model of the parameters. Its own names are numbered: a parameter may have the name of a method of a model."""
    fields: dict[str, Any] = {
        f"parameter_{index}": (
            _annotation(each),
            Field(... if each.default is each.empty else each.default, alias=each.name),
        )
        for index, each in enumerate(parameters)
    }
    return create_model("Parameters", __config__=ConfigDict(extra="forbid"), **fields)


def _adapter(what: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        adapter.json_schema()
    except PydanticUserError as error:
        raise WorkloadError(f"{what} cannot be described by a JSON Schema: {error.message.splitlines()[0]}") from error
    return adapter


def _checked(adapter: TypeAdapter[Any], value: Any, what: str) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problems = [
            f"{'.'.join([what, *map(str, problem['loc'])])}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise InvalidValueError("; ".join(problems[:3])) from error
