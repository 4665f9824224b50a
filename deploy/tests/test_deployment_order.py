"""The order of stacks is derived from their templates."""

from __future__ import annotations

import pytest

from prismline_deploy.errors import DeployError
from prismline_deploy.order import deployment_order, parse, stacks_of
from prismline_localstack.settings import REPOSITORY

PRODUCER = """
Resources:
  Queue: {Type: AWS::SQS::Queue, Properties: {QueueName: !Sub "prismline-${Environment}-made"}}
  Parameter: {Type: AWS::SSM::Parameter, Properties: {Name: !Sub "/prismline/${Environment}/made", Type: String}}
Outputs:
  Table: {Value: x, Export: {Name: !Sub "prismline-${Environment}-Table"}}
"""
CONSUMERS = {
    "an import": """
Outputs: {Table: {Value: !ImportValue {"Fn::Sub": "prismline-${Environment}-Table"}}}
""",
    "an import inside of a text": """
Outputs:
  Arn: {Value: !Sub ["a:${T}", {T: !ImportValue {"Fn::Sub": "prismline-${Environment}-Table"}}]}
""",
    "a dynamic reference": """
Outputs: {Value: {Value: !Sub "{{resolve:ssm:/prismline/${Environment}/made}}"}}
""",
    "the queue of a mapping": """
Resources:
  Mapping:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {EventSourceArn: !Sub "arn:${AWS::Partition}:sqs:r:a:prismline-${Environment}-made"}
""",
}
SELF_SUFFICIENT = "Outputs: {Value: {Value: x}}"


@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=CONSUMERS)
def test_a_stack_comes_after_the_stack_that_it_needs(consumer: str) -> None:
    templates = {"a": parse(consumer), "z": parse(PRODUCER)}
    assert deployment_order(templates) == ["z", "a"]


def test_a_stack_whose_need_no_stack_satisfies_is_named() -> None:
    with pytest.raises(
        DeployError, match=r"The stack a needs export prismline-\$\{Environment\}-Table, which no stack creates"
    ):
        deployment_order({"a": parse(CONSUMERS["an import"]), "b": parse(SELF_SUFFICIENT)})


def test_stacks_that_need_each_other_are_named() -> None:
    other = PRODUCER.replace("Table", "Other").replace("made", "other") + (
        '  Copy: {Value: !ImportValue {"Fn::Sub": "prismline-${Environment}-Table"}}\n'
    )
    templates = {
        "a": parse(PRODUCER + '  Copy: {Value: !ImportValue {"Fn::Sub": "prismline-${Environment}-Other"}}\n'),
        "b": parse(other),
    }
    with pytest.raises(DeployError, match=r"need each other: (a -> b -> a|b -> a -> b)"):
        deployment_order(templates)


def test_the_stacks_of_this_checkout_have_an_order() -> None:
    paths = stacks_of(REPOSITORY)
    order = deployment_order({name: parse(path.read_text()) for name, path in paths.items()})
    assert order[0] == "platform"
    assert sorted(order) == sorted(paths)
