"""The CloudFormation templates of the repository as data: `!Ref X` is `{"Ref": "X"}`, `!Sub X` `{"Fn::Sub": "X"}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from prismline_deploy.pool_template import POOL_TEMPLATE

REPOSITORY = Path(__file__).parents[2]

#: Parsed templates by stack: `platform`, the services, and `pool`, which stands for each pool.
Stacks = dict[str, dict[str, Any]]


class _Loader(yaml.CSafeLoader):
    """YAML with CloudFormation's short forms. Unlike in the harness, `!GetAtt X.Y` stays the text that it is."""


def _short_form(loader: yaml.CSafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        return {name: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}  # type: ignore[arg-type]


_Loader.add_multi_constructor("!", _short_form)


def read_template(path: Path) -> dict[str, Any]:
    """A template. `!Ref X` is `{"Ref": "X"}`, and so on."""
    template: dict[str, Any] = yaml.load(path.read_text(), _Loader)  # a SafeLoader
    return template


def read_stacks(*, pools: bool = False) -> Stacks:
    """All templates of this checkout; with `pools` also that of a pool, which no environment needs."""
    paths = {path.parent.name: path for path in sorted(REPOSITORY.glob("services/*/template.yaml"))}
    paths = {"platform": REPOSITORY / "platform" / "template.yaml", **paths}
    if pools:
        paths["pool"] = REPOSITORY / POOL_TEMPLATE
    return {name: read_template(path) for name, path in paths.items()}


def of_kind(stacks: Stacks, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Stack, logical id and properties of every resource of `AWS::<kind>`."""
    for stack, template in stacks.items():
        for logical_id, resource in template["Resources"].items():
            if resource["Type"] == f"AWS::{kind}":
                yield stack, logical_id, resource.get("Properties", {})


def referred(value: Any) -> str | None:
    """The logical id in a `!Ref` or `!GetAtt X.Y`. None if `value` is neither."""
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
    """The elements of a list; an `!If` is replaced by both its sides."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, Mapping) and "Fn::If" in each:
            yield from branches(each["Fn::If"][1:])
        else:
            yield each


def imports(template: Mapping[str, Any]) -> set[str]:
    """Names of the exports that the template imports, for example `RunsTable`."""
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


#: For each kind of resource, the ARN without its beginning, and the property with the resource's name.
_ARNS = {
    "AWS::DynamoDB::Table": ("TableName", "dynamodb:${AWS::Region}:${AWS::AccountId}:table/"),
    "AWS::Events::EventBus": ("Name", "events:${AWS::Region}:${AWS::AccountId}:event-bus/"),
    "AWS::Logs::LogGroup": ("LogGroupName", "logs:${AWS::Region}:${AWS::AccountId}:log-group:"),
    "AWS::S3::Bucket": ("BucketName", "s3:::"),
    "AWS::SQS::Queue": ("QueueName", "sqs:${AWS::Region}:${AWS::AccountId}:"),
    "AWS::StepFunctions::StateMachine": ("StateMachineName", "states:${AWS::Region}:${AWS::AccountId}:stateMachine:"),
}


def text_of(stacks: Stacks, stack: str, value: Any) -> str:
    """A name or an ARN; parameters stay as they are written, for example `${Environment}`."""
    if isinstance(value, str):
        return value
    ((function, argument),) = value.items()
    resources = stacks[stack]["Resources"]
    if function in ("Ref", "Fn::GetAtt"):
        logical_id, _, attribute = argument.partition(".")
        if logical_id not in resources:
            return f"${{{logical_id}}}"  # a parameter
        kind = resources[logical_id]["Type"]
        name_property, arn = _ARNS[kind]
        name = text_of(stacks, stack, resources[logical_id]["Properties"][name_property])
        is_arn = attribute == "Arn" or kind == "AWS::StepFunctions::StateMachine"
        return f"arn:${{AWS::Partition}}:{arn}{name}" if is_arn else name
    if function == "Fn::ImportValue":
        for exporter, template in stacks.items():
            for output in template.get("Outputs", {}).values():
                if output.get("Export", {}).get("Name") == argument:
                    return text_of(stacks, exporter, output["Value"])
        raise LookupError(f"no stack exports {argument}")
    if function == "Fn::Sub":
        text, variables = (argument, {}) if isinstance(argument, str) else argument

        def replaced(match: re.Match[str]) -> str:
            name = match[1]
            if name in variables:
                return text_of(stacks, stack, variables[name])
            return text_of(stacks, stack, {"Fn::GetAtt": name}) if name.split(".")[0] in resources else match[0]

        return re.sub(r"\$\{([^}]+)\}", replaced, text)
    raise LookupError(f"{function} is not read")


def statements(role_or_policy: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The statements of a role's own policies, or of a managed policy."""
    policies = branches(role_or_policy["Policies"]) if "Policies" in role_or_policy else [role_or_policy]
    for policy in policies:
        if "PolicyDocument" in policy:
            yield from (each for each in branches(policy["PolicyDocument"]["Statement"]) if "Effect" in each)


def conditions(template: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, bool]:
    """The values of a template's conditions, with `parameters` instead of their defaults."""
    parameters = {key: each.get("Default", "") for key, each in template.get("Parameters", {}).items()} | dict(given)
    found: dict[str, bool] = {}

    def value(expression: Any) -> Any:
        if not isinstance(expression, Mapping):
            return expression
        ((function, argument),) = expression.items()
        match function:
            case "Ref":
                return parameters[argument]
            case "Fn::Join":
                return value(argument[1])  # a parameter; its lists are text
            case "Condition":
                return value(template["Conditions"][argument])
            case "Fn::Equals":
                return value(argument[0]) == value(argument[1])
            case "Fn::Not":
                return not value(argument[0])
            case "Fn::And":
                return all(value(each) for each in argument)
            case "Fn::Or":
                return any(value(each) for each in argument)
        raise LookupError(f"{function} is not read")

    for name, expression in template.get("Conditions", {}).items():
        found[name] = bool(value(expression))
    return found


def deployed(template: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The resources of a stack with these parameters; each `!If` is replaced by the side that applies."""
    holds = conditions(template, given)

    def chosen(value: Any) -> Any:
        if isinstance(value, list):
            return [each for each in map(chosen, value) if each != {"Ref": "AWS::NoValue"}]
        if isinstance(value, Mapping):
            if "Fn::If" in value:
                condition, yes, no = value["Fn::If"]
                return chosen(yes if holds[condition] else no)
            found = {key: chosen(each) for key, each in value.items()}
            return {key: each for key, each in found.items() if each != {"Ref": "AWS::NoValue"}} or found
        return value

    resources = template["Resources"].items()
    return {key: chosen(each) for key, each in resources if "Condition" not in each or holds[each["Condition"]]}
