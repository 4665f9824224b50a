"""EventBridge's event patterns, compiled to predicates, and the JSON paths and templates of targets."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

Predicate = Callable[[Any], bool]

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

#: The value of an attribute that an event does not have.
ABSENT = object()

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class PatternError(ValueError):
    """The pattern is not valid."""


def compile_pattern(pattern: Mapping[str, Any]) -> Predicate:
    """Compile a pattern. All members must match; one element of a member's list must. Raises PatternError."""
    members: list[tuple[str, Predicate]] = []
    alternatives: list[Predicate] = []
    for name, wanted in pattern.items():
        if name == "$or":
            alternatives = [compile_pattern(each) for each in wanted]
        elif isinstance(wanted, Mapping):
            members.append((name, _nested(compile_pattern(wanted))))
        elif isinstance(wanted, list) and wanted:
            members.append((name, _one_of(wanted)))
        else:
            raise PatternError(f"{name} must be an object or a non-empty array")

    def matches(event: Any) -> bool:
        for name, predicate in members:
            if not predicate(event.get(name, ABSENT)):
                return False
        return not alternatives or any(predicate(event) for predicate in alternatives)

    return matches


def _nested(inner: Predicate) -> Predicate:
    return lambda value: inner(value if isinstance(value, Mapping) else {})


def _one_of(wanted: list[Any]) -> Predicate:
    if all(isinstance(each, str) for each in wanted):
        texts = frozenset(wanted)

        def is_one(value: Any) -> bool:
            if isinstance(value, str):
                return value in texts
            return isinstance(value, list) and any(isinstance(each, str) and each in texts for each in value)

        return is_one
    leaves = [_compile_leaf(each) for each in wanted]

    def matches(value: Any) -> bool:
        if isinstance(value, list):  # one element is enough
            return any(leaf(element) for element in value for leaf in leaves)
        return any(leaf(value) for leaf in leaves)

    return matches


def _compile_leaf(wanted: Any) -> Predicate:
    if not isinstance(wanted, Mapping):
        return lambda value: value is not ABSENT and _same(value, wanted)
    ((kind, content),) = wanted.items()
    if kind == "exists":
        return lambda value: (value is not ABSENT and not isinstance(value, Mapping)) == content
    if kind == "anything-but":
        return _anything_but(content)
    if kind == "numeric":
        return _numeric(content)
    if kind in {"prefix", "suffix", "equals-ignore-case", "wildcard"}:
        return _text(kind, content)
    raise PatternError(f"Unrecognized match type {kind}")


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _text(kind: str, content: Any) -> Predicate:
    if isinstance(content, Mapping):  # {"prefix": {"equals-ignore-case": "a"}}
        folded = content["equals-ignore-case"].lower()
        inner = _text(kind, folded)
        return lambda value: isinstance(value, str) and inner(value.lower())
    if kind == "prefix":
        return lambda value: isinstance(value, str) and value.startswith(content)
    if kind == "suffix":
        return lambda value: isinstance(value, str) and value.endswith(content)
    if kind == "wildcard":
        expression = re.compile(".*".join(re.escape(part) for part in content.split("*")), re.DOTALL)
        return lambda value: isinstance(value, str) and expression.fullmatch(value) is not None
    return lambda value: isinstance(value, str) and value.lower() == content.lower()


def _anything_but(content: Any) -> Predicate:
    if isinstance(content, Mapping):
        ((kind, texts),) = content.items()
        refused = [_text(kind, each) for each in (texts if isinstance(texts, list) else [texts])]
    else:
        refused = [_compile_leaf(each) for each in (content if isinstance(content, list) else [content])]
    return lambda value: value is not ABSENT and not any(refuses(value) for refuses in refused)


def _numeric(content: list[Any]) -> Predicate:
    relations = [(_RELATIONS[name], bound) for name, bound in zip(content[::2], content[1::2], strict=True)]

    def matches(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return all(relation(value, bound) for relation, bound in relations)

    return matches


# ---- the input of a target


def at_path(document: Any, path: str) -> Any:
    """The value at a path, for example `$.detail.runid` or `$.items[0]`. ABSENT if there is none."""
    for name, index in re.findall(r"\.([\w-]+)|\[(\d+)\]", path.removeprefix("$")):
        if index:
            if not isinstance(document, list) or int(index) >= len(document):
                return ABSENT
            document = document[int(index)]
        else:
            if not isinstance(document, Mapping) or name not in document:
                return ABSENT
            document = document[name]
    return document


def compile_input(target: Mapping[str, Any]) -> Callable[[Mapping[str, Any], str], str]:
    """A function for the text that a target gets: `(event, event as JSON) -> text`."""
    if "Input" in target:
        constant: str = target["Input"]
        return lambda event, text: constant
    if "InputPath" in target:
        path: str = target["InputPath"]
        return lambda event, text: "" if (found := at_path(event, path)) is ABSENT else _json(found)
    if "InputTransformer" in target:
        return _transformer(target["InputTransformer"])
    return lambda event, text: text


def _transformer(transformer: Mapping[str, Any]) -> Callable[[Mapping[str, Any], str], str]:
    paths: Mapping[str, str] = transformer.get("InputPathsMap", {})
    template: str = transformer["InputTemplate"]
    variables = re.compile(r"(\"?)<([\w.-]+)>(\"?)")

    def text_of(event: Mapping[str, Any], text: str) -> str:
        def value(match: re.Match[str]) -> str:
            before, name, after = match.groups()
            if name == "aws.events.event.json":
                found: Any = event
            else:
                found = at_path(event, paths[name]) if name in paths else ABSENT
            if found is ABSENT:
                found = ""
            if before and after:  # the template has the quotes
                return f'"{_json(found)[1:-1]}"' if isinstance(found, str) else f'"{_json(found)}"'
            if isinstance(found, str) and _inside_text(template, match.start()):
                return f"{before}{_json(found)[1:-1]}{after}"
            return f"{before}{_json(found)}{after}"

        return variables.sub(value, template)

    return text_of


def _inside_text(template: str, position: int) -> bool:
    """Whether a position in the template is inside a JSON string."""
    return template[:position].replace('\\"', "").count('"') % 2 == 1


def _json(value: Any) -> str:
    return _ENCODER.encode(value)
