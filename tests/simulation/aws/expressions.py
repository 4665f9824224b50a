"""DynamoDB's expressions: parsed once for each text, compiled to closures.

A condition becomes `holds(item, names, values)`, an update `changes(item, names, values)`; items and values are in the
client's form (`{"S": "..."}`), `names` and `values` are the request's placeholders. `ExpressionError` carries
DynamoDB's text of a ValidationException.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

#: An attribute's value in the client's form: one member, whose name is the type.
Value = Mapping[str, Any]
Item = Mapping[str, Value]
Names = Mapping[str, str]
Values = Mapping[str, Value]
Condition = Callable[[Item, Names, Values], bool]
Operand = Callable[[Item, Names, Values], Value | None]

Action = Callable[[Item, Names, Values, dict[str, Any]], None]

#: Reserved words, which an expression may not use as a name, from DynamoDB's developer guide.
RESERVED_WORDS = frozenset(Path(__file__).with_name("reserved_words.txt").read_text().split())

#: Numbers have up to 38 digits.
_NUMBERS = Context(prec=38)
_TOKENS = re.compile(r"\s*(?:(?P<word>[#:]?[A-Za-z0-9_]+)|(?P<symbol><>|<=|>=|[=<>(),.+\-\[\]])|(?P<end>$))")
_COMPARATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION_FUNCTIONS = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
_SECTIONS = ("SET", "REMOVE", "ADD", "DELETE")
_ORDERED_TYPES = frozenset({"S", "N", "B"})
_SET_TYPES = frozenset({"SS", "NS", "BS"})


class ExpressionError(Exception):
    """The request is invalid; the message is DynamoDB's."""


# ---- numbers and values


@lru_cache(maxsize=4096)
def number(text: str) -> str:
    """A number in DynamoDB's form: no leading or trailing zeros, no exponent. Raises ExpressionError."""
    if text.removeprefix("-").isdecimal() and len(text) <= 38:
        return str(int(text))
    try:
        value = Decimal(text)
        if len(value.as_tuple().digits) > 38 and len(value.normalize(Context(prec=200)).as_tuple().digits) > 38:
            raise ExpressionError("Attempting to store more than 38 significant digits in a Number")
        value = value.normalize(_NUMBERS)
        if not value.is_finite():
            raise InvalidOperation
    except InvalidOperation:
        raise ExpressionError(f"The parameter cannot be converted to a numeric value: {text}") from None
    if value and not -130 <= value.adjusted() <= 125:
        size = "larger than supported range" if value.adjusted() > 0 else "smaller than supported range"
        raise ExpressionError(f"Number overflow. Attempting to store a number with magnitude {size}")
    return "0" if not value else format(value, "f")


def _numeric(text: str) -> int | Decimal:
    return int(text) if text.removeprefix("-").isdecimal() else Decimal(text)


def comparable(value: Value) -> Any:
    """The sort key for values of one type."""
    ((kind, content),) = value.items()
    return _numeric(content) if kind == "N" else content


def equal(left: Value, right: Value) -> bool:
    """Whether DynamoDB treats two values as equal: numbers by value, sets in any order."""
    if left == right:
        return True
    ((kind, one),) = left.items()
    if kind not in right:
        return False
    other = right[kind]
    if kind == "N":
        return _numeric(one) == _numeric(other)
    if kind == "NS":
        return {_numeric(each) for each in one} == {_numeric(each) for each in other}
    if kind in _SET_TYPES:
        return set(one) == set(other)
    if kind == "L":
        return len(one) == len(other) and all(map(equal, one, other))
    if kind == "M":
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return False


def _type_of(value: Value) -> str:
    return next(iter(value))


def _added(left: str, right: str, sign: int) -> str:
    try:
        return str(int(left) + sign * int(right))
    except ValueError:
        return number(str(_NUMBERS.add(Decimal(left), sign * Decimal(right))))


# ---- syntax


class DocumentPath(NamedTuple):
    """A document path: names, placeholders of names (`#a`) and list positions."""

    parts: tuple[str | int, ...]


class ValueRef(NamedTuple):
    """A placeholder of a value (`:a`)."""

    name: str


class Node(NamedTuple):
    """An operator or function with its operands."""

    kind: str
    operands: tuple[Any, ...]


class _Parser:
    """Recursive descent over one expression. `what` names it in messages, e.g. `ConditionExpression`."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        self.tokens: list[tuple[str, int]] = []
        self.names: set[str] = set()
        self.values: set[str] = set()
        self.position = 0
        at = 0
        if not text.strip():
            raise self.error("The expression can not be empty;")
        while at < len(text):
            match = _TOKENS.match(text, at)
            if match is None:
                raise self.error(f'Syntax error; token: "{text[at]}", near: "{text[max(0, at - 1) : at + 2]}"')
            if match["end"] is None:
                self.tokens.append((match["word"] or match["symbol"], match.start(match.lastgroup or 0)))
            at = match.end()

    def error(self, message: str) -> ExpressionError:
        return ExpressionError(f"Invalid {self.what}: {message}")

    def syntax_error(self) -> ExpressionError:
        if self.position >= len(self.tokens):
            return self.error(f'Syntax error; token: "<EOF>", near: "{self.tokens[-1][0]}"')
        token, _ = self.tokens[self.position]
        last = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        first = self.tokens[max(self.position - 1, 0)]
        return self.error(f'Syntax error; token: "{token}", near: "{self.text[first[1] : last[1] + len(last[0])]}"')

    def peek(self, ahead: int = 0) -> str:
        at = self.position + ahead
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token.upper() != expected):
            raise self.syntax_error()
        self.position += 1
        return token

    def accept(self, expected: str) -> bool:
        if self.peek().upper() == expected:
            self.position += 1
            return True
        return False

    def end(self) -> None:
        if self.position < len(self.tokens):
            raise self.syntax_error()

    def listed(self, parse: Callable[[], Any]) -> list[Any]:
        found = [parse()]
        while self.accept(","):
            found.append(parse())
        return found

    # -- operands

    def path(self) -> DocumentPath:
        parts: list[str | int] = [self.name()]
        while True:
            if self.accept("."):
                parts.append(self.name())
            elif self.accept("["):
                index = self.take()
                if not index.isdecimal():
                    self.position -= 1
                    raise self.syntax_error()
                parts.append(int(index))
                self.take("]")
            else:
                return DocumentPath(tuple(parts))

    def name(self) -> str:
        token = self.peek()
        if not re.match(r"[#A-Za-z_]", token):
            raise self.syntax_error()
        if token.startswith("#"):
            self.names.add(token)
        elif token.upper() in RESERVED_WORDS:
            raise self.error(f"Attribute name is a reserved keyword; reserved keyword: {token}")
        return self.take()

    def value(self) -> ValueRef:
        if not self.peek().startswith(":"):
            raise self.syntax_error()
        token = self.take()
        self.values.add(token)
        return ValueRef(token)

    def operand(self) -> DocumentPath | ValueRef | Node:
        if self.peek().startswith(":"):
            return self.value()
        if self.peek(1) == "(":
            if self.peek() != "size":
                raise self._unknown_function()
            self.take()
            self.take("(")
            operand = self.operand()
            self.take(")")
            return Node("size", (operand,))
        return self.path()

    def _unknown_function(self) -> ExpressionError:
        function = self.peek()
        if function in _CONDITION_FUNCTIONS or function in {"size", "if_not_exists", "list_append"}:
            return self.error(f"The function is not allowed to be used this way in an expression; function: {function}")
        if re.match(r"[A-Za-z_]", function):
            return self.error(f"Invalid function name; function: {function}")
        return self.syntax_error()

    # -- conditions

    def condition(self) -> Node:
        found = self.all_of()
        while self.accept("OR"):
            found = Node("OR", (found, self.all_of()))
        return found

    def all_of(self) -> Node:
        found = self.negated()
        while self.accept("AND"):
            found = Node("AND", (found, self.negated()))
        return found

    def negated(self) -> Node:
        return Node("NOT", (self.negated(),)) if self.accept("NOT") else self.primary()

    def primary(self) -> Node:
        if self.accept("("):
            start = self.position
            found = self.condition()
            redundant = self.peek() == ")" and self.tokens[start][0] == "(" and self._closes(start) == self.position - 1
            self.take(")")
            if redundant:
                raise self.error("The expression has redundant parentheses;")
            return found
        function = self.peek()
        if self.peek(1) == "(" and function in _CONDITION_FUNCTIONS:
            return self.function(function)
        return self.comparison()

    def _closes(self, opening: int) -> int:
        """The position of the closing parenthesis for the one at `opening`."""
        depth = 0
        for at in range(opening, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[at][0], 0)
            if depth == 0:
                return at
        return -1

    def function(self, name: str) -> Node:
        self.take()
        self.take("(")
        operands = tuple(self.listed(self.operand))
        self.take(")")
        if len(operands) != _CONDITION_FUNCTIONS[name]:
            count = len(operands)
            raise self.error(
                f"Incorrect number of operands for operator or function; operator or function: {name}, "
                f"number of operands: {count}"
            )
        if name in {"attribute_exists", "attribute_not_exists"} and not isinstance(operands[0], DocumentPath):
            raise self.error(f"Operator or function requires a document path; operator or function: {name}")
        self.distinct(name, operands)
        return Node(name, operands)

    def comparison(self) -> Node:
        left = self.operand()
        token = self.peek().upper()
        if token in {"=", "<>", *_COMPARATORS}:
            self.take()
            found = Node(token, (left, self.operand()))
        elif token == "BETWEEN":
            self.take()
            low = self.operand()
            self.take("AND")
            found = Node("BETWEEN", (left, low, self.operand()))
        elif token == "IN":
            self.take()
            self.take("(")
            found = Node("IN", (left, *self.listed(self.operand)))
            self.take(")")
        else:
            raise self.syntax_error()
        self.distinct(token, found.operands)
        return found

    def distinct(self, name: str, operands: tuple[Any, ...]) -> None:
        if isinstance(operands[0], DocumentPath) and operands[0] in operands[1:]:
            first = ", ".join(str(part) for part in operands[0].parts)
            raise self.error(
                "The first operand must be distinct from the remaining operands for this operator or function; "
                f"operator: {name}, first operand: [{first}]"
            )

    # -- updates

    def update(self) -> dict[str, list[tuple[DocumentPath, Any]]]:
        sections: dict[str, list[tuple[DocumentPath, Any]]] = {}
        while self.peek():
            section = self.peek().upper()
            if section not in _SECTIONS:
                raise self.syntax_error()
            if section in sections:
                raise self.error(f'The "{section}" section can only be used once in an update expression;')
            self.take()
            sections[section] = self.listed({"SET": self.assignment, "REMOVE": self.removal}.get(section, self.change))
        return sections

    def assignment(self) -> tuple[DocumentPath, Any]:
        path = self.path()
        self.take("=")
        left = self.set_operand()
        if self.peek() in {"+", "-"}:
            return path, Node(self.take(), (left, self.set_operand()))
        return path, left

    def set_operand(self) -> Any:
        if self.accept("("):
            found = self.set_operand()
            if self.peek() in {"+", "-"}:
                found = Node(self.take(), (found, self.set_operand()))
            self.take(")")
            return found
        if self.peek(1) != "(":
            return self.operand()
        function = self.peek()
        if function not in {"if_not_exists", "list_append"}:
            raise self._unknown_function()
        self.take()
        self.take("(")
        operands = tuple(self.listed(self.set_operand))
        self.take(")")
        if len(operands) != 2:
            raise self.error(
                f"Incorrect number of operands for operator or function; operator or function: {function}, "
                f"number of operands: {len(operands)}"
            )
        if function == "if_not_exists" and not isinstance(operands[0], DocumentPath):
            raise self.error(f"Operator or function requires a document path; operator or function: {function}")
        return Node(function, operands)

    def removal(self) -> tuple[DocumentPath, Any]:
        return self.path(), None

    def change(self) -> tuple[DocumentPath, Any]:
        return self.path(), self.value()


# ---- compiled expressions


@dataclass(frozen=True, eq=False)
class Compiled:
    """A condition: its placeholders, the checks of its values' types, and its test of an item."""

    tree: Node
    names: frozenset[str]
    values: frozenset[str]
    checks: tuple[Callable[[Values], None], ...]
    holds: Condition


@dataclass(frozen=True, eq=False)
class CompiledUpdate:
    """An update: its placeholders, the paths that it writes, and the top-level attributes that it changes."""

    names: frozenset[str]
    values: frozenset[str]
    #: In the order of the text.
    paths: tuple[tuple[str | int, ...], ...]
    checks: tuple[Callable[[Values], None], ...]
    #: `actions(item, names, values, changed)` puts each new value into `changed`, None for a removed one.
    actions: tuple[Callable[[Item, Names, Values, dict[str, Any]], None], ...]
    #: Whether every path is one name.
    flat: bool

    def changes(self, item: Item, names: Names, values: Values) -> dict[str, Any]:
        """The changed attributes by name; None for a removed one."""
        changed: dict[str, Any] = {}
        for action in self.actions:
            action(item, names, values, changed)
        return changed


@dataclass(frozen=True, eq=False)
class Projection:
    """The requested paths of an item."""

    names: frozenset[str]
    values: frozenset[str]
    paths: tuple[tuple[str | int, ...], ...]

    def of(self, item: Item, names: Names) -> dict[str, Any]:
        """The requested part of `item`."""
        found: dict[str, Any] = {}
        for path in self.paths:
            parts = resolve(path, names)
            value = lookup(item, parts)
            if value is not None:
                _place(found, parts, value)
        return found


def resolve(path: tuple[str | int, ...], names: Names) -> tuple[str | int, ...]:
    """A path with its placeholders replaced."""
    return tuple(names[part] if isinstance(part, str) and part[0] == "#" else part for part in path)


def lookup(item: Item, parts: tuple[str | int, ...]) -> Value | None:
    """The value at a resolved path, or None."""
    value: Any = item.get(parts[0])  # type: ignore[arg-type]
    for part in parts[1:]:
        if value is None:
            return None
        if isinstance(part, int):
            elements = value.get("L", ())
            value = elements[part] if part < len(elements) else None
        else:
            value = value.get("M", {}).get(part)
    return value  # type: ignore[no-any-return]


def _place(found: dict[str, Any], parts: tuple[str | int, ...], value: Value) -> None:
    at: Any = found
    for part, following in pairwise(parts):
        container: dict[str, Any] = {"L": []} if isinstance(following, int) else {"M": {}}
        if isinstance(part, int):
            at.append(container)  # a projected list holds only the requested elements
        else:
            container = at.setdefault(part, container)
        at = next(iter(container.values()))
    if isinstance(parts[-1], int):
        at.append(value)
    else:
        at[parts[-1]] = value


@cache
def condition(text: str, what: str = "ConditionExpression") -> Compiled:
    """The compiled condition; `what` is the parameter it came in. Raises ExpressionError."""
    parser = _Parser(text, what)
    tree = parser.condition()
    parser.end()
    checks = tuple(_checks(tree, what))
    return Compiled(tree, frozenset(parser.names), frozenset(parser.values), checks, _condition(tree))


@cache
def projection(text: str) -> Projection:
    """The compiled projection. Raises ExpressionError."""
    parser = _Parser(text, "ProjectionExpression")
    paths = tuple(path.parts for path in parser.listed(parser.path))
    parser.end()
    return Projection(frozenset(parser.names), frozenset(), paths)


@cache
def update(text: str) -> CompiledUpdate:
    """The compiled update. Raises ExpressionError."""
    parser = _Parser(text, "UpdateExpression")
    sections = parser.update()
    parser.end()
    paths: list[tuple[str | int, ...]] = []
    actions: list[Action] = []
    checks: list[Callable[[Values], None]] = []
    for section, entries in sections.items():
        for path, operand in entries:
            paths.append(path.parts)
            actions.append(_ACTIONS[section](path, operand))
            checks.extend(_update_checks(section, operand))
    return CompiledUpdate(
        frozenset(parser.names),
        frozenset(parser.values),
        tuple(paths),
        tuple(checks),
        tuple(actions),
        flat=all(len(path) == 1 for path in paths),
    )


# -- operands


def _operand(tree: Any) -> Operand:
    if isinstance(tree, ValueRef):
        reference = tree.name
        return lambda item, names, values: values[reference]
    if isinstance(tree, DocumentPath):
        return _at(tree)
    measured = _operand(tree.operands[0])

    def size(item: Item, names: Names, values: Values) -> Value | None:
        value = measured(item, names, values)
        if value is None:
            return None
        ((kind, content),) = value.items()
        return None if kind in {"N", "BOOL", "NULL"} else {"N": str(len(content))}

    return size


def _at(path: DocumentPath) -> Operand:
    parts = path.parts
    if len(parts) > 1:
        return lambda item, names, values: lookup(item, resolve(parts, names))
    name: Any = parts[0]
    if name[0] == "#":
        return lambda item, names, values: item.get(names[name])
    return lambda item, names, values: item.get(name)


# -- conditions


def _condition(tree: Node) -> Condition:
    kind = tree.kind
    if kind in {"AND", "OR"}:
        left, right = _condition(tree.operands[0]), _condition(tree.operands[1])
        if kind == "AND":
            return lambda item, names, values: left(item, names, values) and right(item, names, values)
        return lambda item, names, values: left(item, names, values) or right(item, names, values)
    if kind == "NOT":
        inner = _condition(tree.operands[0])
        return lambda item, names, values: not inner(item, names, values)
    first, *others = map(_operand, tree.operands)
    if kind == "attribute_exists":
        return lambda item, names, values: first(item, names, values) is not None
    if kind == "attribute_not_exists":
        return lambda item, names, values: first(item, names, values) is None
    if kind == "IN":
        return _is_one_of(first, others)
    if kind == "BETWEEN":
        return _is_between(first, *others)
    return _compared(kind, first, others[0])


def _compared(kind: str, first: Operand, second: Operand) -> Condition:
    if kind == "=":

        def same(item: Item, names: Names, values: Values) -> bool:
            left, right = first(item, names, values), second(item, names, values)
            return left is not None and right is not None and equal(left, right)

        return same
    if kind == "<>":

        def differs(item: Item, names: Names, values: Values) -> bool:
            left, right = first(item, names, values), second(item, names, values)
            return left is None or right is None or not equal(left, right)

        return differs
    relation = (
        _COMPARATORS.get(kind) or {"begins_with": _begins, "contains": _contains, "attribute_type": _is_type}[kind]
    )
    ordered = kind in _COMPARATORS

    def related(item: Item, names: Names, values: Values) -> bool:
        left, right = first(item, names, values), second(item, names, values)
        if left is None or right is None:
            return False
        if not ordered:
            return relation(left, right)
        kind_left = _type_of(left)
        return kind_left in right and kind_left in _ORDERED_TYPES and relation(comparable(left), comparable(right))

    return related


def _begins(value: Value, prefix: Value) -> bool:
    ((kind, content),) = value.items()
    return kind in {"S", "B"} and kind in prefix and content.startswith(prefix[kind])


def _contains(value: Value, part: Value) -> bool:
    ((kind, content),) = value.items()
    if kind in {"S", "B"}:
        return kind in part and part[kind] in content
    if kind == "L":
        return any(equal(element, part) for element in content)
    return kind in _SET_TYPES and kind[0] in part and any(equal({kind[0]: each}, part) for each in content)


def _is_type(value: Value, name: Value) -> bool:
    return _type_of(value) == name.get("S")


def _is_one_of(first: Operand, others: list[Operand]) -> Condition:
    def one_of(item: Item, names: Names, values: Values) -> bool:
        value = first(item, names, values)
        if value is None:
            return False
        for other in others:
            candidate = other(item, names, values)
            if candidate is not None and equal(value, candidate):
                return True
        return False

    return one_of


def _is_between(first: Operand, low: Operand, high: Operand) -> Condition:
    def between(item: Item, names: Names, values: Values) -> bool:
        value, least, most = (each(item, names, values) for each in (first, low, high))
        if value is None or least is None or most is None:
            return False
        kind = _type_of(value)
        if kind not in _ORDERED_TYPES or kind not in least or kind not in most:
            return False
        return bool(comparable(least) <= comparable(value) <= comparable(most))

    return between


def _checks(tree: Node, what: str) -> Iterator[Callable[[Values], None]]:
    """The checks of the values that DynamoDB makes independently of the item. Each raises ExpressionError."""
    if tree.kind in {"AND", "OR", "NOT"}:
        for each in tree.operands:
            yield from _checks(each, what)
        return
    kinds: dict[str, frozenset[str]] = {
        "begins_with": frozenset({"S", "B"}),
        "attribute_type": frozenset({"S"}),
        "BETWEEN": _ORDERED_TYPES,
    }
    allowed = _ORDERED_TYPES if tree.kind in _COMPARATORS else kinds.get(tree.kind, frozenset())
    if allowed:
        word = "operator" if tree.kind in _COMPARATORS or tree.kind == "BETWEEN" else "operator or function"
        for each in tree.operands:
            if isinstance(each, ValueRef):
                yield _type_check(each.name, allowed, tree.kind, what, word)
    if tree.kind == "BETWEEN" and all(isinstance(each, ValueRef) for each in tree.operands[1:]):
        yield _bounds_check(tree.operands[1].name, tree.operands[2].name, what)


def _type_check(name: str, allowed: frozenset[str], function: str, what: str, word: str) -> Callable[[Values], None]:
    def check(values: Values) -> None:
        kind = _type_of(values[name])
        if kind not in allowed:
            raise ExpressionError(
                f"Invalid {what}: Incorrect operand type for operator or function; {word}: {function}, "
                f"operand type: {kind}"
            )

    return check


def _bounds_check(low: str, high: str, what: str) -> Callable[[Values], None]:
    def check(values: Values) -> None:
        least, most = values[low], values[high]
        if _type_of(least) != _type_of(most):
            raise ExpressionError(
                f"Invalid {what}: The BETWEEN operator requires same data type for lower and upper bounds; "
                f"lower bound operand: AttributeValue: {_shown(least)}, "
                f"upper bound operand: AttributeValue: {_shown(most)}"
            )
        if comparable(least) > comparable(most):
            raise ExpressionError(
                f"Invalid {what}: The BETWEEN operator requires upper bound to be greater than or equal to lower "
                f"bound; lower bound operand: AttributeValue: {_shown(least)}, "
                f"upper bound operand: AttributeValue: {_shown(most)}"
            )

    return check


def _shown(value: Value) -> str:
    ((kind, content),) = value.items()
    return f"{{{kind}:{content}}}"


# -- updates


_MISSING = "The provided expression refers to an attribute that does not exist in the item"
_WRONG_TYPE = "An operand in the update expression has an incorrect data type"
_WRONG_PATH = "The document path provided in the update expression is invalid for update"


def _update_checks(section: str, operand: Any) -> Iterator[Callable[[Values], None]]:
    if section in {"ADD", "DELETE"}:
        amended = _SET_TYPES | ({"N"} if section == "ADD" else set())
        yield _type_check(operand.name, frozenset(amended), section, "UpdateExpression", "operator")
    elif isinstance(operand, Node):
        allowed = {"+": frozenset({"N"}), "-": frozenset({"N"}), "list_append": frozenset({"L"})}.get(operand.kind)
        for each in operand.operands:
            if isinstance(each, ValueRef) and allowed is not None:
                yield _type_check(each.name, allowed, operand.kind, "UpdateExpression", "operator or function")
            yield from _update_checks(section, each)


def _new_value(tree: Any) -> Callable[[Item, Names, Values], Value]:
    """What SET assigns."""
    if not isinstance(tree, Node):
        found = _operand(tree)
        if isinstance(tree, ValueRef):
            return found  # type: ignore[return-value]

        def existing(item: Item, names: Names, values: Values) -> Value:
            value = found(item, names, values)
            if value is None:
                raise ExpressionError(_MISSING)
            return value

        return existing
    if tree.kind == "if_not_exists":
        present, otherwise = _operand(tree.operands[0]), _new_value(tree.operands[1])

        def default(item: Item, names: Names, values: Values) -> Value:
            value = present(item, names, values)
            return otherwise(item, names, values) if value is None else value

        return default
    if tree.kind == "size":
        raise ExpressionError(
            "Invalid UpdateExpression: The function is not allowed in an update expression; function: size"
        )
    left, right = map(_new_value, tree.operands)
    kind = "L" if tree.kind == "list_append" else "N"
    sign = -1 if tree.kind == "-" else 1

    def combined(item: Item, names: Names, values: Values) -> Value:
        one, other = left(item, names, values), right(item, names, values)
        if kind not in one or kind not in other:
            raise ExpressionError(_WRONG_TYPE)
        return {"L": [*one["L"], *other["L"]]} if kind == "L" else {"N": _added(one["N"], other["N"], sign)}

    return combined


def _assign(path: DocumentPath, operand: Any) -> Action:
    new = _new_value(operand)
    if len(path.parts) == 1:
        name: Any = path.parts[0]
        if name[0] == "#":

            def called(item: Item, names: Names, values: Values, changed: dict[str, Any]) -> None:
                changed[names[name]] = new(item, names, values)

            return called

        def plain(item: Item, names: Names, values: Values, changed: dict[str, Any]) -> None:
            changed[name] = new(item, names, values)

        return plain

    def nested(item: Item, names: Names, values: Values, changed: dict[str, Any]) -> None:
        value = new(item, names, values)
        parts = resolve(path.parts, names)
        holder = _holder(item, parts, changed)
        last = parts[-1]
        if isinstance(last, str) and "M" in holder:
            holder["M"][last] = value
        elif isinstance(last, int) and "L" in holder:
            elements = holder["L"]
            if last < len(elements):
                elements[last] = value
            else:
                elements.append(value)
        else:
            raise ExpressionError(_WRONG_PATH)

    return nested


def _holder(item: Item, parts: tuple[str | int, ...], changed: dict[str, Any]) -> dict[str, Any]:
    """The map or list that contains the target of a nested path, in a copy of its attribute."""
    top: Any = parts[0]
    if top not in changed:
        if top not in item:
            raise ExpressionError(_WRONG_PATH)
        changed[top] = _copied(item[top])
    found = lookup(changed, parts[:-1])
    if found is None:
        raise ExpressionError(_WRONG_PATH)
    return found  # type: ignore[return-value]


def _copied(value: Value) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "L":
        return {"L": [_copied(each) for each in content]}
    if kind == "M":
        return {"M": {name: _copied(each) for name, each in content.items()}}
    return {kind: content}


def _remove(path: DocumentPath, operand: None) -> Action:
    def remove(item: Item, names: Names, values: Values, changed: dict[str, Any]) -> None:
        parts = resolve(path.parts, names)
        last: Any = parts[-1]
        if len(parts) == 1:
            changed[last] = None
            return
        holder = _holder(item, parts, changed)
        if isinstance(last, str) and "M" in holder:
            holder["M"].pop(last, None)
        elif isinstance(last, int) and "L" in holder:
            # Positions are those before the update: removed elements are marked, and dropped at the end.
            if last < len(holder["L"]):
                holder["L"][last] = None
        else:
            raise ExpressionError(_WRONG_PATH)

    return remove


def without_marks(value: Any) -> Any:
    """A changed value without the list elements that an update removed."""
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind == "L":
        return {"L": [without_marks(each) for each in content if each is not None]}
    if kind == "M":
        return {"M": {name: without_marks(each) for name, each in content.items()}}
    return value


def _amend(path: DocumentPath, change: Callable[[Value | None, Value], Value | None], reference: str) -> Action:
    def amend(item: Item, names: Names, values: Values, changed: dict[str, Any]) -> None:
        parts = resolve(path.parts, names)
        value = change(lookup(item, parts), values[reference])
        if len(parts) == 1:
            changed[parts[0]] = value  # type: ignore[index]
            return
        holder = _holder(item, parts, changed)
        if "M" not in holder or not isinstance(parts[-1], str):
            raise ExpressionError(_WRONG_PATH)
        if value is None:
            holder["M"].pop(parts[-1], None)
        else:
            holder["M"][parts[-1]] = value

    return amend


def _add(path: DocumentPath, operand: ValueRef) -> Action:
    def add(old: Value | None, more: Value) -> Value:
        ((kind, content),) = more.items()
        if old is None:
            return more
        if kind not in old:
            raise ExpressionError(_WRONG_TYPE)
        if kind == "N":
            return {"N": _added(old["N"], content, 1)}
        return {kind: [*old[kind], *(each for each in content if each not in old[kind])]}

    return _amend(path, add, operand.name)


def _delete(path: DocumentPath, operand: ValueRef) -> Action:
    def delete(old: Value | None, gone: Value) -> Value | None:
        if old is None:
            return None
        ((kind, content),) = gone.items()
        if kind not in old:
            raise ExpressionError(_WRONG_TYPE)
        left = [each for each in old[kind] if each not in content]
        return {kind: left} if left else None

    return _amend(path, delete, operand.name)


_ACTIONS: dict[str, Callable[[DocumentPath, Any], Action]] = {
    "SET": _assign,
    "REMOVE": _remove,
    "ADD": _add,
    "DELETE": _delete,
}


# ---- key conditions


@dataclass(frozen=True)
class KeyCondition:
    """The partition that a query reads, and its range of sort keys."""

    partition: str
    #: `admits(values)(sort key)`; None: all.
    admits: Callable[[Values], Callable[[Any], bool]] | None
    #: Names or placeholders of the attributes, with the values that they are compared with.
    hash_part: str
    range_part: str | None
    range_values: tuple[str, ...] = ()


_KEY_ERROR = "Query key condition not supported"


@cache
def key_condition(text: str) -> tuple[Compiled, tuple[Node, ...]]:
    """The compiled condition and its one or two comparisons. Raises ExpressionError."""
    compiled = condition(text, "KeyConditionExpression")
    parts: list[Node] = []

    def collect(tree: Node) -> None:
        if tree.kind == "AND":
            collect(tree.operands[0])
            collect(tree.operands[1])
        elif tree.kind in {"OR", "NOT", "<>", "IN", "contains", "attribute_exists", "attribute_not_exists"}:
            raise ExpressionError(
                "Invalid KeyConditionExpression: Invalid operator used in KeyConditionExpression: " + tree.kind
            )
        else:
            parts.append(tree)

    collect(compiled.tree)
    if len(parts) > 2:
        raise ExpressionError("Conditions can be of length 1 or 2 only")
    return compiled, tuple(parts)


@cache
def keys_of(text: str, aliases: tuple[tuple[str, str], ...], hash_key: str, range_key: str | None) -> KeyCondition:
    """The query of a table or index with these keys. Raises ExpressionError."""
    names = dict(aliases)
    _, parts = key_condition(text)
    partition = None
    admits: Callable[[Values], Callable[[Any], bool]] | None = None
    hash_part, range_part, range_values = "", None, ()
    for part in parts:
        path, *operands = part.operands
        if isinstance(path, ValueRef) and len(operands) == 1 and isinstance(operands[0], DocumentPath):
            flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
            part = Node(flipped.get(part.kind, part.kind), (operands[0], path))  # noqa: PLW2901
            path, *operands = part.operands
        if (
            not isinstance(path, DocumentPath)
            or len(path.parts) != 1
            or not all(isinstance(o, ValueRef) for o in operands)
        ):
            raise ExpressionError(_KEY_ERROR)
        (name,) = resolve(path.parts, names)
        references = tuple(each.name for each in operands)
        if name == hash_key:
            if part.kind != "=":
                raise ExpressionError(_KEY_ERROR)
            if partition is not None:
                raise ExpressionError(
                    "Invalid KeyConditionExpression: KeyConditionExpressions must only contain one condition per key"
                )
            partition, hash_part = references[0], str(name)
        elif name == range_key and admits is None:
            admits, range_part, range_values = _admits(part.kind, references), str(name), references
        else:
            missed = hash_key if partition is None and len(parts) == 1 else (range_key or hash_key)
            raise ExpressionError(
                f"Query condition missed key schema element: {missed}" if range_key or len(parts) == 1 else _KEY_ERROR
            )
    if partition is None:
        raise ExpressionError(f"Query condition missed key schema element: {hash_key}")
    return KeyCondition(partition, admits, hash_part, range_part, range_values)


def _admits(kind: str, references: tuple[str, ...]) -> Callable[[Values], Callable[[Any], bool]]:
    if kind not in {"BETWEEN", "begins_with", "=", *_COMPARATORS}:
        raise ExpressionError(_KEY_ERROR)
    relation: Callable[[Any, Any], bool] = _COMPARATORS.get(kind, operator.eq)

    def admits(values: Values) -> Callable[[Any], bool]:
        bound = comparable(values[references[0]])
        if kind == "BETWEEN":
            last = comparable(values[references[1]])
            return lambda key: bool(bound <= key <= last)
        if kind == "begins_with":
            return lambda key: bool(key.startswith(bound))
        return lambda key: relation(key, bound)

    return admits
