"""The order in which stacks are deployed, derived from their templates.

A stack needs another one that

- exports a value that it imports (`Fn::ImportValue`),
- creates an SSM parameter that it reads (`{{resolve:ssm:...}}`, or a template parameter of an SSM type),
- creates a queue that one of its event source mappings names.

Other references to resources of other stacks, as in a role's policy, need no order: AWS resolves them when they are
used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML was built without its library in C
    from yaml import SafeLoader  # type: ignore[assignment]

from prismline_deploy.errors import DeployError

#: A dynamic reference to an SSM parameter, in a template.
SSM_REFERENCE = re.compile(r"\{\{resolve:ssm(?:-secure)?:((?:\$\{[^}]*\}|[^:}])+)")


class _Loader(SafeLoader):
    """Reads the short forms of intrinsic functions (`!Sub x`) as their long forms."""


def _intrinsic(loader: _Loader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _intrinsic)


def parse(text: str) -> dict[str, Any]:
    """A CloudFormation template in YAML."""
    document = yaml.load(text, _Loader)
    assert isinstance(document, dict)
    return document


def _text(value: Any) -> str | None:
    """The text of a value that is a string, or a `Fn::Sub` without its own variables."""
    value = value.get("Fn::Sub", value) if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def _values(document: Any, key: str) -> Iterator[Any]:
    """Every value of `key` at any depth."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from _values(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from _values(value, key)


def offers(template: Mapping[str, Any]) -> set[str]:
    """The exports, SSM parameters and queues that a template creates, as texts of kind and name."""
    found = {f"export {_text(each)}" for output in template.get("Outputs", {}).values() for each in _exports(output)}
    for resource in template.get("Resources", {}).values():
        properties = resource.get("Properties", {})
        match resource["Type"]:
            case "AWS::SSM::Parameter":
                found.add(f"parameter {_text(properties.get('Name'))}")
            case "AWS::SQS::Queue":
                found.add(f"queue {_text(properties.get('QueueName'))}")
    return found


def _exports(output: Mapping[str, Any]) -> Iterator[Any]:
    if "Export" in output:
        yield output["Export"]["Name"]


def needs(template: Mapping[str, Any]) -> set[str]:
    """The exports, SSM parameters and queues that a template needs, in the same form as `offers`."""
    found = {f"export {_text(each)}" for each in _values(template, "Fn::ImportValue")}
    found |= {f"parameter {name}" for name in SSM_REFERENCE.findall(str(template))}
    for parameter in template.get("Parameters", {}).values():
        if str(parameter.get("Type", "")).startswith("AWS::SSM::Parameter::Value"):
            found.add(f"parameter {parameter.get('Default')}")
    for resource in template.get("Resources", {}).values():
        if resource["Type"] == "AWS::Lambda::EventSourceMapping":
            arn = _text(resource["Properties"].get("EventSourceArn"))
            if arn is not None:
                found.add(f"queue {arn.rsplit(':', 1)[-1]}")
    return found


def function_names(template: Mapping[str, Any]) -> list[str]:
    """The names of the functions of a template, without the part that all resources of an environment share."""
    resources = template.get("Resources", {}).values()
    named = [each["Properties"]["FunctionName"] for each in resources if each["Type"] == "AWS::Lambda::Function"]
    return sorted((_text(name) or "").rpartition("${Environment}-")[2] for name in named)


def stacks_of(root: Path) -> dict[str, Path]:
    """The templates of a checkout by the short names of their stacks: `platform`, and the services."""
    services = {path.parent.name: path for path in sorted(root.glob("services/*/template.yaml"))}
    return {"platform": root / "platform" / "template.yaml", **services}


def deployment_order(templates: Mapping[str, Mapping[str, Any]], *, sparse: bool = False) -> list[str]:
    """The stacks in an order in which each comes after those that it needs.

    sparse: `templates` are not all stacks. If none of them creates what a stack needs, it is assumed to exist. If it
    does not, CloudFormation refuses the stack.

    Raises DeployError if no stack creates what a stack needs, and if stacks need each other.
    """
    makers = {name: stack for stack, template in templates.items() for name in offers(template)}
    graph: dict[str, set[str]] = {}
    for stack, template in templates.items():
        needed = needs(template)
        if (missing := sorted(needed - makers.keys())) and not sparse:
            raise DeployError(f"The stack {stack} needs {', '.join(missing)}, which no stack creates.")
        graph[stack] = {makers[name] for name in needed & makers.keys()} - {stack}
    sorter = TopologicalSorter({stack: sorted(graph[stack]) for stack in sorted(graph)})
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise DeployError(f"These stacks need each other: {' -> '.join(error.args[1])}.") from error
