"""Changes of code that are bound to a function, not to the text of its lines.

A change names a package and a function, and the function is looked for in all modules of the package. What changes is
a piece of its syntax tree. So a mutant survives a new format, new comments, other code around the place, and a function
that moves to another module.
"""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Names that match any expression in a pattern, and stand for what they matched in its replacement.
HOLES = frozenset({"X", "Y", "Z"})
#: Attributes of nodes that say how the code was written, not what it does.
_STYLE = frozenset({"ctx", "kind", "type_comment"})


class NoPlaceError(ValueError):
    """The change does not fit in exactly one place."""


@dataclass(frozen=True)
class Rewrite:
    """In a function, the only piece of code like `old` becomes `new`.

    where: `package:function`, for instance `prismline_ledger:drain`. The function may have its class in front
    (`Ledger.drain`), and the package a module behind (`prismline_ledger.base`), if other functions have the same name.
    It may also be a constant. old, new: an expression, or statements. In them, X, Y and Z are any expressions, and
    `...` is any other arguments of a call, pairs of a dictionary (`**...`) or statements of a block.
    """

    where: str
    old: str
    new: str

    def apply(self, root: Path) -> tuple[Path, str]:
        """The file below `root` that changes, and its new text. Raises NoPlaceError unless there is one place."""
        package, _, name = self.where.partition(":")
        found = [(path, tree, node) for path, tree in _modules(root, package, name) for node in _named(tree, name)]
        if len(found) != 1:
            places = ", ".join(str(path.relative_to(root)) for path, *_ in found) or "nowhere"
            raise NoPlaceError(f"{self.where} is defined {len(found)} times, not once: {places}")
        path, tree, node = found[0]
        rewriter = _Rewriter(self.old, self.new)
        rewriter.visit(node)
        if rewriter.count != 1:
            raise NoPlaceError(
                f"{self.where} in {path.relative_to(root)} has {rewriter.count} times, not once: {self.old}"
            )
        return path, ast.unparse(ast.fix_missing_locations(tree))


@dataclass(frozen=True)
class Setting:
    """In a JSON file, the value below `keys` becomes `value`. None removes it.

    The key of an item of a list is its place.
    """

    file: str
    keys: tuple[str, ...]
    value: Any

    def apply(self, root: Path) -> tuple[Path, str]:
        """The file below `root` that changes, and its new text. Raises NoPlaceError if there is no such value."""
        path = root / self.file
        document = json.loads(path.read_text())
        holder: Any = document
        *above, last = [int(key) if key.isdigit() else key for key in self.keys]
        try:
            for key in above:
                holder = holder[key]
            same = holder[last] == self.value
        except (LookupError, TypeError):
            same = True
        if same:
            raise NoPlaceError(f"{self.file} has nothing to change at {' / '.join(self.keys)}")
        if self.value is None:
            del holder[last]
        else:
            holder[last] = self.value
        return path, json.dumps(document, indent=2)


def _modules(root: Path, package: str, name: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules of the package, or the one module, that hold the name, with their syntax trees."""
    top, *below = package.split(".")
    for home in [*root.glob(f"*/src/{top}"), *root.glob(f"*/*/src/{top}")]:
        inner = home.joinpath(*below)
        for path in [inner.with_suffix(".py")] if inner.with_suffix(".py").is_file() else sorted(inner.rglob("*.py")):
            if name.rpartition(".")[2] in (text := path.read_text()):
                yield path, ast.parse(text)


def _named(tree: ast.Module, name: str) -> Iterator[ast.AST]:
    """The functions and constants of a module whose name is `name`, or ends with it after a dot."""
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, holder = pending.pop()
        for node in ast.iter_child_nodes(holder):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names, inside = [node.name], True
            elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(holder, ast.Module | ast.ClassDef):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names, inside = [target.id for target in targets if isinstance(target, ast.Name)], False
            else:
                continue
            for own in names:
                if f".{prefix}{own}".endswith(f".{name}") and not isinstance(node, ast.ClassDef):
                    yield node
                if inside:
                    pending.append((f"{prefix}{own}.", node))


@dataclass
class _Match:
    """What the holes and the ellipses of a pattern matched. Ellipses have no names: they count in order."""

    holes: dict[str, ast.AST] = field(default_factory=dict)
    rests: list[Any] = field(default_factory=list)

    def fits(self, pattern: object, node: object) -> bool:
        """Whether `node` is like `pattern`."""
        if isinstance(pattern, ast.Name) and pattern.id in HOLES and isinstance(node, ast.expr):
            return ast.dump(self.holes.setdefault(pattern.id, node)) == ast.dump(node)
        if isinstance(pattern, ast.Call) and isinstance(node, ast.Call):
            return self.fits(pattern.func, node.func) and self._calls_fit(pattern, node)
        if isinstance(pattern, ast.Dict) and isinstance(node, ast.Dict):
            return self._dicts_fit(pattern, node)
        if isinstance(pattern, list) and isinstance(node, list):
            if len(pattern) == 1 and isinstance(pattern[0], ast.Expr) and _is_rest(pattern[0].value):
                self.rests.append(node)
                return True
            return len(pattern) == len(node) and all(self.fits(*pair) for pair in zip(pattern, node, strict=True))
        if isinstance(pattern, ast.AST) and isinstance(node, ast.AST):
            return type(pattern) is type(node) and all(
                self.fits(getattr(pattern, name, None), getattr(node, name, None))
                for name in pattern._fields
                if name not in _STYLE
            )
        return type(pattern) is type(node) and pattern == node

    def _calls_fit(self, pattern: ast.Call, node: ast.Call) -> bool:
        """Whether the arguments of two calls fit. Those by name may have any order."""
        rest: tuple[list[ast.expr], list[ast.keyword]] | None = None
        positional, n = list(node.args), len(pattern.args)
        if n and _is_rest(pattern.args[-1]):
            rest, n = (positional[n - 1 :], []), n - 1
            self.rests.append(rest)
        if len(positional) < n or (rest is None and len(positional) > n):
            return False
        if not all(self.fits(*pair) for pair in zip(pattern.args[:n], positional[:n], strict=True)):
            return False
        named = {keyword.arg: keyword for keyword in node.keywords}
        for keyword in pattern.keywords:
            if keyword.arg not in named or not self.fits(keyword.value, named.pop(keyword.arg).value):
                return False
        if rest is not None:
            rest[1].extend(named.values())
        return rest is not None or not named

    def _dicts_fit(self, pattern: ast.Dict, node: ast.Dict) -> bool:
        """Whether the pairs of two dictionaries fit, in any order."""
        left = list(zip(node.keys, node.values, strict=True))
        for key, value in zip(pattern.keys, pattern.values, strict=True):
            if key is None and _is_rest(value):
                self.rests.append(left)
                return True
            pair = next((pair for pair in left if _same(key, pair[0]) and self.fits(value, pair[1])), None)
            if pair is None:
                return False
            left.remove(pair)
        return not left


class _Filler(ast.NodeTransformer):
    """Puts what a pattern matched into its replacement."""

    def __init__(self, match: _Match) -> None:
        self._match, self._rests = match, iter(match.rests)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A hole."""
        return copy.deepcopy(self._match.holes.get(node.id, node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call with the other arguments."""
        if node.args and _is_rest(node.args[-1]):
            positional, named = next(self._rests)
            node.args[-1:], node.keywords = positional, [*node.keywords, *named]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """A dictionary with the other pairs."""
        if node.keys and node.keys[-1] is None and _is_rest(node.values[-1]):
            pairs = next(self._rests)
            node.keys[-1:], node.values[-1:] = [key for key, _ in pairs], [value for _, value in pairs]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        """The other statements of a block."""
        return next(self._rests) if _is_rest(node.value) else self.generic_visit(node)


class _Rewriter(ast.NodeTransformer):
    """Replaces each place that is like the pattern, and counts them."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new, self.count = ast.parse(old).body, ast.parse(new).body, 0
        #: Both are an expression. Otherwise both are statements.
        self._expressions = all(
            len(part) == 1 and isinstance(part[0], ast.Expr) and not _is_rest(part[0].value)
            for part in (self._old, self._new)
        )

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Look for the pattern in the node and below it."""
        if self._expressions and (new := self._replaced(self._old[0].value, node, self._new[0].value)):  # type: ignore[attr-defined]
            return new  # type: ignore[no-any-return]
        super().generic_visit(node)
        if not self._expressions:
            for name, block in ast.iter_fields(node):
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    setattr(node, name, self._block(block))
        return node

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        n = len(self._old)
        for start in range(len(block) - n + 1):
            new = self._replaced(self._old, block[start : start + n], self._new)
            if new is not None:
                return [*block[:start], *new, *self._block(block[start + n :])] or [ast.Pass()]
        return block

    def _replaced(self, old: Any, node: Any, new: Any) -> Any:
        """What replaces `node`. None: it is not like the pattern."""
        match = _Match()
        if not match.fits(old, node):
            return None
        self.count += 1
        filler = _Filler(match)
        if not isinstance(new, list):
            return filler.visit(copy.deepcopy(new))
        filled: list[ast.stmt] = []
        for statement in copy.deepcopy(new):
            result = filler.visit(statement)
            filled.extend(result if isinstance(result, Sequence) else [result])
        return filled


def _is_rest(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _same(one: ast.AST | None, other: ast.AST | None) -> bool:
    return (None if one is None else ast.dump(one)) == (None if other is None else ast.dump(other))
