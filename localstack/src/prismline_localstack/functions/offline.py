"""The functions of the templates, and what they start with where there is no account: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prismline_deploy.order import parse, stacks_of

#: Variables that stand for the outputs of the stacks. Nothing answers at the endpoint.
VARIABLES = {
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "RUNS_TABLE": "runs",
    "JOBS_TABLE": "jobs",
    "WORKFLOW_STATE_TABLE": "states",
    "STATE_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:run",
    "BUCKET": "bucket",
    "PRISMLINE_VALKEY_URL": "none",
}
#: How handlers fail at an event without records, when they have made their clients.
NO_RECORDS = frozenset({"UnexpectedBatchTypeError", "IndexError"})


@dataclass(frozen=True)
class DeclaredFunction:
    """A function of a template."""

    service: str
    logical_id: str
    #: Its name without the part that all resources of an environment share.
    name: str
    entry_point: tuple[str, ...]
    #: The handler.
    command: tuple[str, ...]
    has_url: bool


def declared_functions(root: Path) -> Iterator[DeclaredFunction]:
    """The functions of all templates of a checkout."""
    for service, path in stacks_of(root).items():
        resources = parse(path.read_text())["Resources"]
        urls = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::Lambda::Url"]
        served = {url["TargetFunctionArn"]["Fn::GetAtt"][0] for url in urls}
        for logical_id, resource in resources.items():
            if resource["Type"] == "AWS::Lambda::Function":
                properties = resource["Properties"]
                image = properties["ImageConfig"]
                yield DeclaredFunction(
                    service,
                    logical_id,
                    properties["FunctionName"]["Fn::Sub"].rpartition("${Environment}-")[2],
                    tuple(image["EntryPoint"]),
                    tuple(image["Command"]),
                    logical_id in served,
                )
