"""The sources of services and libraries, read with their types: what functions name and call, and where values go.

mypy reads the sources, so every name and every attribute has its type. `tests.templates.needs` asks what the code does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from mypy import nodes
from mypy.build import BuildSource, build
from mypy.options import Options
from mypy.types import CallableType, Instance, TypeType, TypeVarType, UnionType, get_proper_type

#: Functions that return the function that they take.
HAND_ON_FUNCTIONS = {"cache", "once", "partial"}
#: Methods that put a value into a collection.
PUTS = {"add", "append", "extend", "update"}
#: Functions that make objects of their class.
CONSTRUCTORS = {"connect", "from_environment", "of", "__init__"}


class Sources:
    """The functions of all services, libraries and of the command, what they refer to, and where values come from."""

    def __init__(self, root: Path) -> None:
        folders = [*root.glob("services/*/src"), *root.glob("libs/*/src"), root / "contracts/src", root / "cli/src"]
        options = Options()
        options.export_types = options.preserve_asts = options.ignore_missing_imports = True
        options.incremental, options.follow_imports = False, "skip"
        sources = [
            BuildSource(str(path), ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"))
            for folder in folders
            for path in sorted(folder.rglob("*.py"))
        ]
        built = build(sources, options)
        self.types = built.types
        self.modules = {name: file for name, file in built.files.items() if name.startswith("prismline_")}
        self.classes = [each.info for file in self.modules.values() for each in file.defs if _is_class(each)]
        #: Where a variable, a parameter or a field gets its values.
        self.values: dict[nodes.Node, list[nodes.Expression]] = defaultdict(list)
        #: For each function, what it returns, its calls, and the functions and classes that it names.
        self.returned: dict[nodes.Node, list[nodes.Expression]] = defaultdict(list)
        self.calls: dict[nodes.Node, list[nodes.CallExpr]] = defaultdict(list)
        self.names: dict[nodes.Node, set[nodes.Node]] = defaultdict(set)
        #: For each parameter, the values that the calls in a function give it: (function, value).
        self.given: dict[nodes.Node, list[tuple[nodes.Node, nodes.Expression]]] = defaultdict(list)
        readers = [_Reader(self, owner, body) for file in self.modules.values() for owner, body in _functions(file)]
        self._module = {owner: name for name, file in self.modules.items() for owner, _ in _functions(file)}
        for reader in readers:
            reader.read()
        for reader in [*readers, *readers]:  # twice: a function may be an argument of the first round
            reader.bind()

    # ---- types

    def infos(self, expression: nodes.Expression) -> list[nodes.TypeInfo]:
        """The classes of which the value may be an instance, or which it is."""
        return list(infos_of(self.types.get(expression)))

    def members(self, expression: nodes.MemberExpr) -> list[nodes.Node]:
        """The field or the methods that `x.name` means."""
        if isinstance(expression.node, nodes.Var | nodes.FuncBase | nodes.Decorator | nodes.TypeInfo):
            return [_plain(expression.node)]
        found: list[nodes.Node] = []
        for info in self.infos(expression.expr):
            infos = [info]
            if info.is_protocol:
                infos += [each for each in self.classes if expression.name in each.names]
            for each in infos:
                symbol = each.get(expression.name)
                if symbol is not None and symbol.node is not None:
                    found.append(_plain(symbol.node))
        return found

    def referred(self, expression: nodes.Expression) -> list[nodes.Node]:
        """The functions, classes and variables that a name or an attribute means."""
        if isinstance(expression, nodes.MemberExpr):
            return self.members(expression)
        if isinstance(expression, nodes.NameExpr) and expression.node is not None:
            return self.infos(expression) if expression.name == "cls" else [_plain(expression.node)]
        return []

    def callables(self, expression: nodes.Expression) -> set[nodes.Node]:
        """The functions and classes that may be called by an expression, also through variables and `cache(f)`."""
        found: set[nodes.Node] = set()
        seen: set[nodes.Node] = set()
        todo: list[nodes.Node] = [expression]
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, nodes.LambdaExpr | nodes.FuncDef | nodes.TypeInfo):
                found.add(node)
            elif isinstance(node, nodes.RefExpr):
                todo += self.referred(node)
            elif isinstance(node, nodes.Var):
                todo += [*self.values[node], *(value for _, value in self.given[node])]
            elif isinstance(node, nodes.CallExpr) and _name(node.callee) in HAND_ON_FUNCTIONS:
                todo += node.args[:1]
        return found

    def methods_of(self, name: str) -> set[nodes.Node]:
        """The methods of the class with this full name."""
        return {
            _plain(each.node)
            for info in self.classes
            if info.fullname == name
            for each in info.names.values()
            if each.node
        }

    # ---- reachability

    def reached(self, entry: str) -> set[nodes.Node]:
        """The functions and classes that the code of the module `entry` names, directly or not."""
        package = entry.partition(".")[0]
        imported = self._imported(entry)
        todo: list[nodes.Node] = [self.modules[name] for name in imported]
        for owner, name in self._module.items():  # nobody names the functions of plug-ins and those of HTTP routes
            if name in imported and (
                name == entry or name.startswith(f"{package}.workloads.") or _is_registered(owner)
            ):
                todo.append(owner)
        seen: set[nodes.Node] = set()
        classes: set[nodes.TypeInfo] = set()
        waiting: list[nodes.Node] = []  # methods of classes of which there is no object yet
        while todo:
            found = todo.pop()
            info = getattr(found, "info", None)
            if found in seen or self._module.get(found, entry) not in imported:
                continue
            if isinstance(found, nodes.FuncBase) and info and info not in classes and found.name not in CONSTRUCTORS:
                waiting.append(found)
                continue
            seen.add(found)
            todo += self.names[found]
            if isinstance(found, nodes.TypeInfo):
                classes.update(found.mro)
                todo += [_plain(each.node) for name, each in found.names.items() if name.startswith("__") and each.node]
                todo += waiting
                waiting = []
        return seen

    def _imported(self, entry: str) -> set[str]:
        """The modules that a module imports, directly or not, at any place."""
        seen: set[str] = set()
        todo = [entry]
        while todo:
            name = todo.pop()
            if name in seen or name not in self.modules:
                continue
            seen.add(name)
            todo += [name.rpartition(".")[0]]
            for each in self.modules[name].imports:
                if isinstance(each, nodes.ImportFrom):
                    todo += [each.id, *(f"{each.id}.{inner}" for inner, _ in each.names)]
                elif isinstance(each, nodes.Import):
                    todo += [inner for inner, _ in each.ids]
            if name.endswith(".workloads"):
                todo += [each for each in self.modules if each.startswith(f"{name}.")]
        return seen


class _Reader:
    """Reads one function, or the statements of a module outside functions."""

    def __init__(self, sources: Sources, owner: nodes.Node, body: list[nodes.Node]) -> None:
        self._sources = sources
        self._owner = owner
        self._body = body

    def read(self) -> None:
        """Read all statements and expressions."""
        todo = list(self._body)
        seen: set[nodes.Node] = set()
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                self._see(node)
                todo += _children(node)

    def _see(self, node: nodes.Node) -> None:
        sources = self._sources
        match node:
            case nodes.RefExpr():
                sources.names[self._owner].update(sources.referred(node))
            case nodes.CallExpr():
                self._call(node)
            case nodes.AssignmentStmt():
                for target in node.lvalues:
                    self._assign(target, node.rvalue)
            case nodes.OperatorAssignmentStmt():
                self._assign(node.lvalue, node.rvalue)
            case nodes.AssignmentExpr():
                self._assign(node.target, node.value)
            case nodes.ForStmt():
                self._assign(node.index, node.expr)
            case nodes.GeneratorExpr() | nodes.DictionaryComprehension():
                for target, value in zip(node.indices, node.sequences, strict=True):
                    self._assign(target, value)
            case nodes.WithStmt():
                for value, name in zip(node.expr, node.target, strict=True):
                    if name is not None:
                        self._assign(name, value)
            case nodes.ReturnStmt() | nodes.YieldExpr() | nodes.YieldFromExpr():
                self._return(node.expr)
            case nodes.DictExpr():
                for key, value in node.items:
                    if isinstance(key, nodes.StrExpr):
                        self._field(key.value, value)

    def _return(self, value: nodes.Expression | None) -> None:
        if value is not None:
            self._sources.returned[self._owner].append(value)

    def _assign(self, target: nodes.Expression, value: nodes.Expression) -> None:
        if isinstance(target, nodes.TupleExpr | nodes.ListExpr):
            parts = value.items if isinstance(value, nodes.TupleExpr | nodes.ListExpr) else None
            same = parts is not None and len(parts) == len(target.items)
            for number, each in enumerate(target.items):
                self._assign(each, parts[number] if same and parts is not None else value)
        elif isinstance(target, nodes.StarExpr):
            self._assign(target.expr, value)
        elif isinstance(target, nodes.RefExpr):
            for each in self._sources.referred(target):
                self._sources.values[each].append(value)

    def _field(self, name: str, value: nodes.Expression) -> None:
        """A value that is named like a field of an item, for example in a change of the item."""
        if name.endswith("_key"):
            items = [info for info in self._sources.classes if info.module_name == "prismline_contracts.items"]
            for symbol in (info.names[name] for info in items if name in info.names):
                if isinstance(symbol.node, nodes.Var):
                    self._sources.values[symbol.node].append(value)

    def _call(self, call: nodes.CallExpr) -> None:
        sources = self._sources
        sources.calls[self._owner].append(call)
        for name, value in zip(call.arg_names, call.args, strict=True):
            if name:
                self._field(name, value)
        if isinstance(call.callee, nodes.MemberExpr) and not any(map(is_own, sources.referred(call.callee))):
            of = call.callee.expr
            if call.callee.name in PUTS:
                for value in call.args:
                    self._assign(of.base if isinstance(of, nodes.IndexExpr) else of, value)
            elif call.callee.name == "startswith":  # what code checks to begin with a prefix is below this prefix
                self._assign(of, call.args[0])

    def bind(self) -> None:
        """Give the parameters of functions, and the fields of classes, the arguments of the calls."""
        for call in self._sources.calls[self._owner]:
            given = list(zip(call.arg_names, call.args, strict=True))
            for target in self._sources.callables(call.callee):
                self._bind(target, given)
            for number, each in enumerate(call.args):  # map(f, values), partial(f, name=value), submit(f, value)
                for target in self._sources.callables(each):
                    if isinstance(target, nodes.FuncItem):
                        self._bind(target, given[number + 1 :])

    def _bind(self, target: nodes.Node, given: list[tuple[str | None, nodes.Expression]]) -> None:
        if isinstance(target, nodes.TypeInfo):
            init = target.get("__init__")
            if init is not None and is_own(init.node) and not init.plugin_generated:
                self._bind(_plain(init.node), given)
            else:
                self._bind_fields(target, given)
        elif isinstance(target, nodes.FuncItem):
            names = [each.variable for each in target.arguments]
            if names and target.info and not getattr(target, "is_static", False):
                names = names[1:]
            for variable, value in _matched(names, given):
                self._sources.given[variable].append((self._owner, value))

    def _bind_fields(self, info: nodes.TypeInfo, given: list[tuple[str | None, nodes.Expression]]) -> None:
        fields = {
            name: symbol.node
            for each in reversed(info.mro)
            for name, symbol in each.names.items()
            if isinstance(symbol.node, nodes.Var) and not symbol.node.is_classvar and not name.startswith("__")
        }
        for variable, value in _matched(list(fields.values()), given):
            self._sources.values[variable].append(value)


def _matched(
    variables: list[nodes.Var], given: list[tuple[str | None, nodes.Expression]]
) -> Iterator[tuple[nodes.Var, nodes.Expression]]:
    by_name = {each.name: each for each in variables}
    position = 0
    for name, value in given:
        if name is not None:
            if name in by_name:
                yield by_name[name], value
        else:
            if position < len(variables):
                yield variables[position], value
            position += 1


#: Attributes of mypy's nodes that point to what a name means, not to a part of the node.
_LINKS = {"node", "info", "def_var", "analyzed", "original_def", "unanalyzed_items", "impl", "type", "fallback"}


@cache
def _attributes(kind: type[nodes.Node]) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name not in _LINKS]


def result_of(function: nodes.LambdaExpr) -> nodes.Expression:
    (statement,) = function.body.body
    assert isinstance(statement, nodes.ReturnStmt)
    assert statement.expr is not None
    return statement.expr


def _children(node: nodes.Node) -> Iterator[nodes.Node]:
    """The statements and expressions of which a statement or an expression consists."""
    if isinstance(node, nodes.LambdaExpr):
        yield result_of(node)
        return
    todo: list[Any] = [getattr(node, name, None) for name in _attributes(type(node))]
    while todo:
        match todo.pop():
            case nodes.Statement() | nodes.Expression() | nodes.Argument() as found:
                yield found
            case list() | tuple() as found:
                todo += found


def _is_class(statement: nodes.Node) -> TypeGuard[nodes.ClassDef]:
    return isinstance(statement, nodes.ClassDef)


def _functions(file: nodes.MypyFile) -> Iterator[tuple[nodes.Node, list[nodes.Node]]]:
    """The functions and methods of a module with their bodies; first the module with its other statements."""
    rest: list[nodes.Node] = []
    found: list[tuple[nodes.Node, list[nodes.Node]]] = []

    def take(statements: Iterable[nodes.Node]) -> None:
        for each in statements:
            plain = _plain(each)
            if isinstance(each, nodes.ClassDef):
                take(each.defs.body)
            elif isinstance(plain, nodes.FuncDef):
                found.append((plain, [plain.body, *_defaults(plain)]))
            elif isinstance(each, nodes.OverloadedFuncDef):
                take(each.items)
            else:
                rest.append(each)

    take(file.defs)
    yield file, rest
    yield from found


def _defaults(function: nodes.FuncDef) -> list[nodes.Node]:
    return [each.initializer for each in function.arguments if each.initializer is not None]


def _plain(node: nodes.Node) -> nodes.Node:
    return node.func if isinstance(node, nodes.Decorator) else node


def _name(expression: nodes.Expression) -> str:
    return expression.name if isinstance(expression, nodes.RefExpr) else ""


def is_own(node: nodes.Node | None) -> bool:
    """Whether this is a function or a class of Prismline."""
    return isinstance(node, nodes.FuncBase | nodes.TypeInfo | nodes.Decorator) and node.fullname.startswith(
        "prismline_"
    )


def _is_registered(function: nodes.Node) -> bool:
    """Whether a decorator registers the function, as FastAPI's do: nobody names it."""
    return isinstance(function, nodes.FuncDef) and function.is_decorated and not function.info


def infos_of(type_: Any) -> Iterator[nodes.TypeInfo]:
    proper = get_proper_type(type_)
    match proper:
        case Instance():
            yield proper.type
        case UnionType():
            for each in proper.items:
                yield from infos_of(each)
        case TypeType():
            yield from infos_of(proper.item)
        case TypeVarType():
            yield from infos_of(proper.upper_bound)
        case CallableType() if proper.is_type_obj():
            yield proper.type_object()
