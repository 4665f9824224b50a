"""Amazon States Language with JSONPath: paths, payload templates, intrinsic functions, choices, compiled once."""

from __future__ import annotations

import base64
import fnmatch
import json
import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

#: `(input, context object) -> value`
Template = Callable[[Any, Mapping[str, Any]], Any]

ABSENT = object()

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_STEPS = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']*)'\]|\[(\d+)\]")
_PLACES = re.compile(r"(?<!\\)\{\}")
_CALL = re.compile(r"States\.\w+\(")


class StatesError(Exception):
    """An error of a state: its name, e.g. `States.Runtime`, and its cause."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(f"{error}: {cause}")
        self.error = error
        self.cause = cause


# ---- paths


def steps_of(path: str) -> tuple[str | int, ...]:
    """The members of a path, for example `$.chunks.summary` or `$.list[0]`. Raises ValueError if it is not a path."""
    rest, steps = path[1:], []
    while rest:
        match = _STEPS.match(rest)
        if match is None:
            raise ValueError(f"{path} is not a path that is simulated")
        name = match[1] or match[2]
        steps.append(name if name is not None else int(match[3]))
        rest = rest[match.end() :]
    return tuple(steps)


def look_up(document: Any, steps: tuple[str | int, ...]) -> Any:
    """The value at a path, or ABSENT."""
    for step in steps:
        if isinstance(step, int):
            if not isinstance(document, list) or step >= len(document):
                return ABSENT
        elif not isinstance(document, dict) or step not in document:
            return ABSENT
        document = document[step]
    return document


def with_result(document: Any, path: str | None, result: Any) -> Any:
    """A copy of `document` with `result` at a ResultPath; None drops the result."""
    if path is None:
        return document
    return _placed(document, steps_of(path), result)


def _placed(document: Any, steps: tuple[str | int, ...], result: Any) -> Any:
    if not steps:
        return result
    copy = dict(document) if isinstance(document, dict) else {}
    copy[steps[0]] = _placed(copy.get(steps[0]), steps[1:], result)
    return copy


def compile_path(path: str) -> Template:
    """A function that reads a path of the input, or of the context object (`$$`)."""
    in_context = path.startswith("$$")
    steps = steps_of(path[1:] if in_context else path)

    def read(document: Any, context: Mapping[str, Any]) -> Any:
        found = look_up(context if in_context else document, steps)
        if found is ABSENT:
            raise StatesError("States.Runtime", f"The JSONPath '{path}' could not be found in the input.")
        return found

    return read


def _is_constant(template: Any) -> bool:
    if isinstance(template, dict):
        return all(not name.endswith(".$") and _is_constant(value) for name, value in template.items())
    return not isinstance(template, list) or all(map(_is_constant, template))


# ---- payload templates


def compile_template(template: Any) -> Template:
    """A payload template: members whose names end in `.$` are paths or intrinsic functions."""
    if _is_constant(template):
        return _constant(template)
    if isinstance(template, list):
        parts = [compile_template(each) for each in template]
        return lambda document, context: [part(document, context) for part in parts]
    constants: dict[str, Any] = {}
    members: list[tuple[str, Template]] = []
    for name, value in template.items():
        if name.endswith(".$"):
            constants[name[:-2]] = None  # keeps its position
            members.append((name[:-2], compile_expression(value)))
        else:
            constants[name] = value if _is_constant(value) else None
            if not _is_constant(value):
                members.append((name, compile_template(value)))

    def made(document: Any, context: Mapping[str, Any]) -> dict[str, Any]:
        filled = constants.copy()
        for name, value in members:
            filled[name] = value(document, context)
        return filled

    return made


def compile_expression(text: str) -> Template:
    """A path, or a call of an intrinsic function. Raises ValueError."""
    found, rest = _expression(text.strip())
    if rest.strip():
        raise ValueError(f"{text} is not an expression that is simulated")
    return found


def _expression(text: str) -> tuple[Template, str]:
    """The expression at the beginning of `text`, and the rest of the text."""
    if text.startswith("$"):
        match = re.match(r"\$\$?(?:\.[A-Za-z_][\w-]*|\['[^']*'\]|\[\d+\])*", text)
        path = match[0] if match else ""
        return compile_path(path), text[len(path) :]
    if text.startswith("'"):
        match = re.match(r"'((?:[^'\\]|\\.)*)'", text)
        if match is None:
            raise ValueError(f"{text}: a text has no end")
        content = re.sub(r"\\(.)", lambda found: found[0] if found[1] in "{}" else found[1], match[1])
        return _constant(content), text[match.end() :]
    if _CALL.match(text):
        name, _, rest = text.partition("(")
        arguments: list[Template] = []
        rest = rest.lstrip()
        while not rest.startswith(")"):
            argument, rest = _expression(rest)
            arguments.append(argument)
            rest = rest.lstrip()
            if rest.startswith(","):
                rest = rest[1:].lstrip()
            elif not rest.startswith(")"):
                raise ValueError(f"{text} has no end")
        return _call(name, arguments), rest[1:]
    match = re.match(r"-?\d+(\.\d+)?|true|false|null", text)
    if match is None:
        raise ValueError(f"{text} is not an expression that is simulated")
    return _constant(json.loads(match[0])), text[match.end() :]


def _constant(value: Any) -> Template:
    return lambda document, context: value


def _call(name: str, arguments: list[Template]) -> Template:
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ValueError(f"{name} is not simulated")

    def called(document: Any, context: Mapping[str, Any]) -> Any:
        try:
            return function(*(argument(document, context) for argument in arguments))
        except (TypeError, ValueError, IndexError) as error:
            raise StatesError("States.IntrinsicFailure", f"{name}: {error}") from None

    return called


def to_json(value: Any) -> str:
    """JSON as Step Functions writes it: compact."""
    return _ENCODER.encode(value)


def _format(template: str, *values: Any) -> str:
    parts = _PLACES.split(template)
    if len(parts) != len(values) + 1:
        raise ValueError(f"{len(parts) - 1} places for {len(values)} values")
    texts = [value if isinstance(value, str) else to_json(value) for value in values]
    joined = "".join(part + text for part, text in zip(parts, [*texts, ""], strict=True))
    return re.sub(r"\\([{}'\\])", r"\1", joined) if "\\" in joined else joined


def _merged(one: dict[str, Any], other: dict[str, Any], deep: bool) -> dict[str, Any]:
    if deep:
        raise ValueError("only a shallow merge is supported")
    return one | other


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "States.Format": _format,
    "States.StringToJson": json.loads,
    "States.JsonToString": to_json,
    "States.Array": lambda *values: list(values),
    "States.ArrayLength": len,
    "States.ArrayContains": lambda array, value: value in array,
    "States.ArrayGetItem": operator.getitem,
    "States.ArrayUnique": lambda array: list(dict.fromkeys(array)),
    "States.JsonMerge": _merged,
    "States.MathAdd": lambda one, other: one + other,
    "States.StringSplit": lambda text, marks: [each for each in re.split(f"[{re.escape(marks)}]", text) if each],
    "States.Base64Encode": lambda text: base64.b64encode(text.encode()).decode(),
    "States.Base64Decode": lambda text: base64.b64decode(text).decode(),
}


# ---- choices

Rule = Callable[[Any, Mapping[str, Any]], bool]

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "Equals": operator.eq,
    "LessThan": operator.lt,
    "LessThanEquals": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanEquals": operator.ge,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_timestamp(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


_TYPES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    "String": (lambda value: isinstance(value, str), str),
    "Numeric": (_is_number, lambda value: value),
    "Boolean": (lambda value: isinstance(value, bool), lambda value: value),
    "Timestamp": (_is_timestamp, datetime.fromisoformat),
}
_IS: dict[str, Callable[[Any], bool]] = {
    "IsNull": lambda value: value is None,
    "IsNumeric": _is_number,
    "IsString": lambda value: isinstance(value, str),
    "IsBoolean": lambda value: isinstance(value, bool),
    "IsTimestamp": _is_timestamp,
}


def compile_choice(rule: Mapping[str, Any]) -> Rule:
    """Whether a choice rule is true. Raises ValueError for an unknown operator."""
    for name, combine in (("And", all), ("Or", any)):
        if name in rule:
            rules = [compile_choice(each) for each in rule[name]]
            return lambda document, context: combine(each(document, context) for each in rules)
    if "Not" in rule:
        inner = compile_choice(rule["Not"])
        return lambda document, context: not inner(document, context)
    ((name, wanted),) = ((key, value) for key, value in rule.items() if key not in {"Variable", "Next", "Comment"})
    if name == "IsPresent":
        return _is_present(rule["Variable"], wanted)
    variable = compile_path(rule["Variable"])
    if name in _IS:
        check = _IS[name]
        return lambda document, context: check(variable(document, context)) == wanted
    if name == "StringMatches":
        pattern = re.sub(r"([\[?])", r"[\1]", wanted)
        return lambda document, context: fnmatch.fnmatchcase(str(variable(document, context)), pattern)
    return _comparison(name, variable, wanted)


def _is_present(path: str, wanted: bool) -> Rule:
    in_context = path.startswith("$$")
    steps = steps_of(path[1:] if in_context else path)
    return lambda document, context: (look_up(context if in_context else document, steps) is not ABSENT) == wanted


def _comparison(name: str, variable: Template, wanted: Any) -> Rule:
    by_path = name.endswith("Path")
    kind, relation_name = _split(name)
    applies, comparable = _TYPES[kind]
    relation = _RELATIONS[relation_name]
    other: Template = compile_path(wanted) if by_path else _constant(wanted)

    def holds(document: Any, context: Mapping[str, Any]) -> bool:
        value, bound = variable(document, context), other(document, context)
        return applies(value) and applies(bound) and relation(comparable(value), comparable(bound))

    return holds


def _split(name: str) -> tuple[str, str]:
    match = re.fullmatch(r"(String|Numeric|Boolean|Timestamp)(Equals|(?:Less|Greater)Than(?:Equals)?)(?:Path)?", name)
    if match is None:
        raise ValueError(f"{name} is not an operator of choices")
    return match[1], match[2]
