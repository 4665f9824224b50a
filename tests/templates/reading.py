"""The CloudFormation templates of the repository as data: `!Ref X` is `{"Ref": "X"}`, `!Sub X` `{"Fn::Sub": "X"}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]

#: Parsed templates by stack: `platform` and the services.
Stacks = dict[str, dict[str, Any]]


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        return {name: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}  # type: ignore[arg-type]


_Loader.add_multi_constructor("!", _short_form)


def read_stacks() -> Stacks:
    """All templates of this checkout."""
    paths = {path.parent.name: path for path in sorted(REPOSITORY.glob("services/*/template.yaml"))}
    paths = {"platform": REPOSITORY / "platform" / "template.yaml", **paths}
    return {name: yaml.load(path.read_text(), _Loader) for name, path in paths.items()}


def of_kind(stacks: Stacks, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Stack, logical id and properties of every resource of `AWS::<kind>`."""
    for stack, template in stacks.items():
        for logical_id, resource in template["Resources"].items():
            if resource["Type"] == f"AWS::{kind}":
                yield stack, logical_id, resource.get("Properties", {})


def referred(value: Any) -> str | None:
    """The logical id that `!Ref`, `!GetAtt X.Y` or nothing of both refers to."""
    if isinstance(value, Mapping):
        if "Ref" in value:
            return str(value["Ref"])
        if "Fn::GetAtt" in value:
            return str(value["Fn::GetAtt"]).split(".", maxsplit=1)[0]
    return None


def leaves(value: Any) -> Iterator[Any]:
    """All scalars below `value`."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def branches(value: Any) -> Iterator[Any]:
    """The elements of a list, with both sides of an `!If` in place of it."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, Mapping) and "Fn::If" in each:
            yield from branches(each["Fn::If"][1:])
        else:
            yield each


def imports(template: Mapping[str, Any]) -> set[str]:
    """Names of the exports that the template imports, such as `RunsTable`."""
    found = set()

    def walk(value: Any) -> None:
        if isinstance(value, Mapping):
            if "Fn::ImportValue" in value:
                found.add(str(value["Fn::ImportValue"]["Fn::Sub"]).removeprefix("prismline-${Environment}-"))
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(template)
    return found


def exports(template: Mapping[str, Any]) -> set[str]:
    """Names of the exports of the template."""
    names = [output["Export"]["Name"] for output in template.get("Outputs", {}).values() if "Export" in output]
    return {str(name["Fn::Sub"]).removeprefix("prismline-${Environment}-") for name in names}
