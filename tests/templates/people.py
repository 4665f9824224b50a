"""The commands that people type, the AWS actions that each needs, and the least role that allows them.

The actions of a command of `prismline` are derived from its code, as those of a service are; those of the AWS command
line are declared here. `python -m tests.templates.people` writes the table of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from prismline_cli.commands import COMMANDS
from tests.templates.needs import needs_of_command
from tests.templates.reading import REPOSITORY, read_stacks, statements
from tests.templates.rights import Role, grant

PAGE = REPOSITORY / "docs/reference/commands-and-roles.md"
TABLE = re.compile(r"(?<=<!-- table -->\n\n).*?(?=\n<!-- end of table -->)", re.DOTALL)

ACCOUNT = "${AWS::Region}:${AWS::AccountId}"
PARAMETERS = f"arn:${{AWS::Partition}}:ssm:{ACCOUNT}:parameter/prismline/${{Environment}}/"
BUS = f"arn:${{AWS::Partition}}:events:{ACCOUNT}:event-bus/prismline-${{Environment}}"
LOG_GROUPS = f"arn:${{AWS::Partition}}:logs:{ACCOUNT}:log-group:"
LOG_GROUP = f"{LOG_GROUPS}/aws/lambda/prismline-${{Environment}}-worker"
#: The roles of people, from the one with the fewest rights, and the resources of the platform's stack with its rights.
PEOPLE = {
    "submitter": ("SubmitterPolicy",),
    "operator": ("SubmitterPolicy", "OperatorPolicy"),
    "on-call": ("SubmitterPolicy", "OperatorPolicy", "OnCallRole"),
}
#: Whoever may do in the account what no role of Prismline allows to a person.
ADMINISTRATOR = "administrator"
DEPLOYER, KEY, NONE = "deployer", "API key", "none"

#: Commands of the harness, which start a system on this machine or look at it.
LOCAL = ("up", "down", "status", "logs", "demo", "demo-captions", "demo-faults", "demo-urls")
#: The command of the harness for the GPU instances of AWS too: the actions that it needs, and on what.
GPU = {
    "autoscaling:DescribeAutoScalingGroups": "*",
    "autoscaling:SetDesiredCapacity": (
        f"arn:${{AWS::Partition}}:autoscaling:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName"
        "/prismline-${Environment}-gpu"
    ),
    "ec2:DescribeInstances": "*",
}
#: Commands of the deploy tool. `roles.py` has the rules for the deployer's rights.
DEPLOYING = ("deploy", "publish", "rollback")
#: Each AWS command of the documentation: the actions that it needs, and on what in the example of the page.
AWS: dict[str, dict[str, str]] = {
    "cloudformation delete-stack": {"cloudformation:DeleteStack": "*", "iam:DeleteRole": "*"},
    "cloudformation deploy": {"cloudformation:CreateChangeSet": "*", "iam:CreateRole": "*"},
    "cloudformation wait": {"cloudformation:DescribeStacks": "*"},
    "cloudwatch describe-alarm-history": {"cloudwatch:DescribeAlarmHistory": "*"},
    "cloudwatch describe-alarms": {"cloudwatch:DescribeAlarms": "*"},
    "dynamodb create-backup": {"dynamodb:CreateBackup": "runs"},
    "dynamodb delete-table": {"dynamodb:DeleteTable": "runs"},
    "dynamodb describe-backup": {"dynamodb:DescribeBackup": "*"},
    "dynamodb get-item": {"dynamodb:GetItem": "runs"},
    "dynamodb list-backups": {"dynamodb:ListBackups": "*"},
    "dynamodb put-item": {"dynamodb:PutItem": "runs"},
    "dynamodb query": {"dynamodb:Query": "runs/index/GSI1"},
    "dynamodb restore-table-from-backup": {"dynamodb:RestoreTableFromBackup": "runs"},
    "dynamodb restore-table-to-point-in-time": {"dynamodb:RestoreTableToPointInTime": "runs"},
    "dynamodb update-table": {"dynamodb:UpdateTable": "runs"},
    "dynamodb wait": {"dynamodb:DescribeTable": "runs"},
    "ec2 describe-instances": {"ec2:DescribeInstances": "*"},
    "iam create-open-id-connect-provider": {"iam:CreateOpenIDConnectProvider": "*"},
    "lambda get-account-settings": {"lambda:GetAccountSettings": "*"},
    "lambda list-event-source-mappings": {"lambda:ListEventSourceMappings": "*"},
    "lambda update-event-source-mapping": {"lambda:UpdateEventSourceMapping": "*"},
    "logs describe-query-definitions": {"logs:DescribeQueryDefinitions": "*"},
    "logs filter-log-events": {"logs:FilterLogEvents": LOG_GROUP},
    "logs get-query-results": {"logs:GetQueryResults": "*"},
    "logs start-query": {"logs:StartQuery": LOG_GROUP},
    "logs tail": {"logs:FilterLogEvents": LOG_GROUP},
    "s3 ls": {"s3:ListBucket": "dead-letter-archive/failed-sqs/"},
    "s3api copy-object": {"s3:GetObjectVersion": "decompositions/", "s3:PutObject": "decompositions/"},
    "s3api list-object-versions": {"s3:ListBucketVersions": "*"},
    "service-quotas request-service-quota-increase": {"servicequotas:RequestServiceQuotaIncrease": "*"},
    "ssm get-parameter": {"ssm:GetParameter": f"{PARAMETERS}alerts/webhook_url"},
    "ssm get-parameters-by-path": {"ssm:GetParametersByPath": f"{PARAMETERS}deployed"},
    "ssm put-parameter": {"ssm:PutParameter": f"{PARAMETERS}alerts/webhook_url"},
}
#: AWS commands that the pages use only with the emulator, and why.
EMULATOR_ONLY = {
    "s3 cp": "the tutorials put files into the bucket of the emulator",
    "s3 mv": "a tutorial hides a file on the emulator",
}


@dataclass(frozen=True)
class Row:
    """A row of the page's table."""

    commands: tuple[str, ...]
    role: str
    actions: tuple[str, ...] = ()

    def __str__(self) -> str:
        commands = ", ".join(f"`{each}`" for each in self.commands)
        return f"| {commands} | {self.role} | {', '.join(f'`{each}`' for each in self.actions) or '-'} |"


@cache
def people() -> dict[str, Role]:
    """The roles of people, with their rights."""
    stacks, found = read_stacks(), {}
    for name, resources in PEOPLE.items():
        role = found[name] = Role("platform", name)
        for resource in resources:
            for statement in statements(stacks["platform"]["Resources"][resource]["Properties"]):
                grant(role, statement, stacks)
    return found


def least_role(needs: set[tuple[str, str]]) -> str:
    """The first role of `PEOPLE` that allows all these actions."""
    allowing = (name for name, role in people().items() if all(role.allows(action, on) for action, on in needs))
    return next(allowing, ADMINISTRATOR)


def needs(module: str) -> set[tuple[str, str]]:
    """The actions that the commands of a module of `prismline_cli.commands` need, and on what."""
    found = {(need.action, need.on) for need in needs_of_command(f"prismline_cli.commands.{module}")}
    return {(action, _whole(action, on)) for action, on in found}


def _whole(action: str, on: str) -> str:
    if action.startswith("ssm:"):
        return f"{PARAMETERS}{on}"
    return BUS if action == "events:PutEvents" else on


def _row(commands: tuple[str, ...], needed: set[tuple[str, str]]) -> Row:
    role = least_role(needed) if needed else KEY
    return Row(commands, role, tuple(sorted({action for action, _ in needed})))


def rows() -> Iterator[Row]:
    """All rows of the table."""
    for module, names in COMMANDS.items():
        if module == "jobs":
            yield Row(("prismline jobs",), KEY)
        of_aws = ("jobs keys create",) if module == "jobs" else names
        yield _row(tuple(f"prismline {name}" for name in of_aws), needs(module))
    yield Row(tuple(f"prismline {name}" for name in DEPLOYING), DEPLOYER)
    yield Row(tuple(f"prismline {name}" for name in LOCAL), NONE)
    yield _row(("prismline gpu",), set(GPU.items()))
    for command, needed in AWS.items():
        yield _row((f"aws {command}",), set(needed.items()))


def table() -> str:
    """The table of the page."""
    return "\n".join(["| command | least role | AWS actions |", "| --- | --- | --- |", *map(str, rows()), ""])


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text()))
