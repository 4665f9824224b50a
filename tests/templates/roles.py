"""Rules for roles: the boundary around those of the services, and the role of a pipeline that deploys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from tests.templates.damage import Case, changed, properties, without
from tests.templates.reading import Stacks, branches, of_kind, statements, text_of

ROLES = "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/"
POLICIES = "arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/"
BOUNDARY = {"Fn::Sub": f"{POLICIES}prismline-${{Environment}}-boundary-${{AWS::Region}}"}
#: The actions of AWS's policy AWSLambdaVPCAccessExecutionRole, without logs.
VPC_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
#: AWS's limits in characters, without white space: for a managed policy, and for all inline policies of a role.
MANAGED_POLICY_CHARACTERS, ROLE_CHARACTERS = 6144, 10240
#: The longest values of the variables that AWS replaces in a policy.
LONGEST = {
    "${Environment}": "e" * 20,
    "${AWS::Region}": "ap-southeast-99",
    "${AWS::AccountId}": "1" * 12,
    "${AWS::Partition}": "aws-us-gov",
    "${AWS::URLSuffix}": "amazonaws.com.cn",
}
#: Properties with the name of a resource that all Regions of an account share.
GLOBAL_NAMES = {
    "CloudWatch::Dashboard": "DashboardName",
    "IAM::Group": "GroupName",
    "IAM::InstanceProfile": "InstanceProfileName",
    "IAM::ManagedPolicy": "ManagedPolicyName",
    "IAM::Role": "RoleName",
    "IAM::User": "UserName",
}
#: Actions that grant permissions: allowed only on roles that have the boundary.
ROLE_CHANGES = {
    "iam:AttachRolePolicy",
    "iam:CreateRole",
    "iam:DeleteRolePolicy",
    "iam:DetachRolePolicy",
    "iam:PutRolePermissionsBoundary",
    "iam:PutRolePolicy",
}
#: Resources of the deployer without Prismline's name: further resources of a call, ids, and roles that AWS defines.
NEIGHBOURS = (":catalog", ":event-source-mapping:*", ":role/aws-service-role/*")
#: Actions that the deployer must not have: they remove limits of roles or delete data.
NEVER = {
    "dynamodb:*",
    "dynamodb:DeleteTable",
    "glue:*",
    "glue:PutResourcePolicy",
    "iam:DeleteRolePermissionsBoundary",
    "s3:*",
    "s3:DeleteBucket",
    "s3:DeleteObject",
    "sts:AssumeRole",
}
#: Actions of the deployer on resources without a name, or without resource-level permissions.
NAMELESS = re.compile(
    r"application-autoscaling:Describe\*|cloudformation:GetTemplateSummary|cloudwatch:DescribeAlarms|ec2:Describe\w+"
    r"|ecr:GetAuthorizationToken|ecs:(Deregister|Describe)TaskDefinition|lambda:(GetAccountSettings|List\w+)"
    r"|logs:(\*LogDeliver\*|\*QueryDefinition\*|Describe\w+|PutResourcePolicy)|ssm:DescribeParameters|states:ValidateStateMachineDefinition"
)


def granted(stacks: Stacks) -> Iterator[tuple[str, str, str]]:
    """For each grant of a role except the deployer: stack and logical id of the role, action, and ARN."""
    for kind in ("IAM::Role", "IAM::ManagedPolicy"):
        for stack, logical_id, properties_ in of_kind(stacks, kind):
            if logical_id in ("DeployerRole", "Boundary"):
                continue
            for statement in statements(properties_):
                for action in branches(statement["Action"]):
                    for resource in branches(statement["Resource"]):
                        yield f"{stack}: {logical_id}", action, text_of(stacks, stack, resource)
            if "AWSLambdaVPCAccessExecutionRole" in str(properties_.get("ManagedPolicyArns")):
                for action in VPC_ACTIONS:
                    yield f"{stack}: {logical_id}", action, "*"


def unbounded_roles(stacks: Stacks) -> Iterator[str]:
    """Every role has the boundary, because the pipeline may create only such roles."""
    for stack, logical_id, role in of_kind(stacks, "IAM::Role"):
        if logical_id != "DeployerRole" and role.get("PermissionsBoundary") not in (BOUNDARY, {"Ref": "Boundary"}):
            yield f"{stack}: {logical_id} has no boundary"
    name = properties(stacks, "platform", "Boundary").get("ManagedPolicyName")
    if name != {"Fn::Sub": BOUNDARY["Fn::Sub"].rsplit("/")[-1]}:
        yield "platform: the boundary does not have the name that the roles of services use"


def names_without_region(stacks: Stacks) -> Iterator[str]:
    """An environment of the same name in another Region of the account has other global names."""
    for kind, name in GLOBAL_NAMES.items():
        for stack, logical_id, properties_ in of_kind(stacks, kind):
            if name in properties_ and "${AWS::Region}" not in text_of(stacks, stack, properties_[name]):
                yield f"{stack}: {logical_id} has the same name in each Region"


def lost_boundary(stacks: Stacks) -> Iterator[str]:
    """IAM deletes no boundary that roles have, so a replaced one remains until their stacks are deployed."""
    if stacks["platform"]["Resources"]["Boundary"].get("UpdateReplacePolicy") != "Retain":
        yield "platform: a new boundary deletes the old one, which roles of services have"


def swallowed_rights(stacks: Stacks) -> Iterator[str]:
    """The boundary allows everything that a role is granted."""
    boundary = [
        (action, text_of(stacks, "platform", resource))
        for statement in statements(properties(stacks, "platform", "Boundary"))
        for action in branches(statement["Action"])
        for resource in branches(statement["Resource"])
    ]
    for role, action, arn in granted(stacks):
        if not any(fnmatchcase(action, most) and fnmatchcase(arn, reach) for most, reach in boundary):
            yield f"{role}: the boundary does not allow {action} on {arn}"


def wide_boundary(stacks: Stacks) -> Iterator[str]:
    """The boundary allows only resources named after Prismline; of other resources services may read descriptions."""
    beyond = re.compile(
        r"autoscaling:Describe\w+|cloudwatch:(Describe|Get|List)\w+"
        r"|ec2:(Describe\*|(Create|Delete)NetworkInterface|\w+PrivateIpAddresses)"
        r"|ecr:GetAuthorizationToken|logs:(\*LogDeliver\*|Describe\w+|GetQueryResults|PutResourcePolicy)"
        r"|sqs:(GetQueueAttributes|ListQueues)"
        r"|states:SendTask\w+|xray:(Get|Put)\*"
    )
    for statement in statements(properties(stacks, "platform", "Boundary")):
        for resource in branches(statement["Resource"]):
            arn = text_of(stacks, "platform", resource)
            if arn == "*":
                yield from (
                    f"platform: the boundary allows {action} on everything"
                    for action in branches(statement["Action"])
                    if not beyond.fullmatch(action)
                )
            elif "prismline" not in arn and arn != "${SourceObjects}" and "kms:ViaService" not in str(statement):
                yield f"platform: the boundary allows {statement['Action']} on {arn}"


def deployer_for_anybody(stacks: Stacks) -> Iterator[str]:
    """Without an issuer there is no deployer; with one, only subjects that match exactly may assume it."""
    template = stacks["platform"]
    role = template["Resources"]["DeployerRole"]
    condition = str(template["Conditions"].get(role.get("Condition"), ""))
    for parameter in ("DeployerIssuer", "DeployerSubjects"):
        if template["Parameters"][parameter]["Default"] != "" or f"'Ref': '{parameter}'" not in condition:
            yield f"platform: there is a deployer without {parameter}"
    text, variables = role["Properties"]["AssumeRolePolicyDocument"]["Fn::Sub"]
    (statement,) = json.loads(text)["Statement"]
    if not statement["Principal"]["Federated"].endswith(":oidc-provider/${DeployerIssuer}"):
        yield "platform: the deployer trusts another identity provider than the issuer's"
    expected = {"${DeployerIssuer}:aud": "sts.amazonaws.com", "${DeployerIssuer}:sub": ["${Subjects}"]}
    if statement["Action"] != "sts:AssumeRoleWithWebIdentity" or statement.get("Condition") != {
        "StringEquals": expected
    }:
        yield "platform: every subject of the issuer may deploy"
    if variables != {"Subjects": {"Fn::Join": ['","', {"Ref": "DeployerSubjects"}]}}:
        yield "platform: the subjects are not those of the parameter"


def deployer_out_of_bounds(stacks: Stacks) -> Iterator[str]:
    """The deployer changes only resources named after Prismline, creates only roles with the boundary, and cannot
    change the limits of a deployer."""
    own = f"{ROLES}prismline-${{Environment}}-deployer*"
    refused = False
    for statement in statements(properties(stacks, "platform", "DeployerRole")):
        arns = [text_of(stacks, "platform", each) for each in branches(statement["Resource"])]
        condition = str(statement.get("Condition", ""))
        if statement["Effect"] == "Deny":
            refused |= arns == [own] and statement.get("NotAction") == ["iam:Get*", "iam:List*"]
            continue
        for action in branches(statement["Action"]):
            if action == "*" or (action.startswith("iam:") and "*" in arns):
                yield f"platform: the deployer may {action} everywhere"
            elif action in ROLE_CHANGES | {"iam:*"} and statement.get("Condition") != {
                "StringEquals": {"iam:PermissionsBoundary": {"Ref": "Boundary"}}
            }:
                yield f"platform: the deployer may {action} without the boundary"
            elif action == "iam:PassRole" and "iam:PassedToService" not in condition:
                yield "platform: the deployer may pass roles to any service"
            elif action in NEVER:
                yield f"platform: the deployer may {action}"
            elif "*" in arns and not condition and not NAMELESS.fullmatch(action):
                yield f"platform: the deployer may {action} on everything"
        for arn in arns:
            named = re.search(r"[:/]prismline[-_/]", arn) or arn.endswith(NEIGHBOURS)
            if arn != "*" and not named:
                yield f"platform: the deployer reaches {arn}"
            if arn.startswith(BOUNDARY["Fn::Sub"]) or ":policy/prismline-${Environment}-*" in arn:
                yield "platform: the deployer may change the boundary"
    if not refused:
        yield "platform: the deployer may change the role of a deployer"


def long_policies(stacks: Stacks) -> Iterator[str]:
    """AWS limits the length of policies."""

    def length(stack: str, policies: Any) -> int:
        def resolved(value: Any) -> Any:
            if isinstance(value, list):
                return [resolved(each) for each in value]
            if isinstance(value, dict):
                if value.keys() & {"Ref", "Fn::Sub", "Fn::GetAtt", "Fn::ImportValue"}:
                    return "x" * 90 if value == {"Ref": "Boundary"} else text_of(stacks, stack, value)
                return resolved(value["Fn::If"][1]) if "Fn::If" in value else {k: resolved(v) for k, v in value.items()}
            return value

        text = json.dumps(resolved(policies))
        for placeholder, longest in LONGEST.items():
            text = text.replace(placeholder, longest)
        return len(re.sub(r"\s", "", text))

    for stack, logical_id, policy in of_kind(stacks, "IAM::ManagedPolicy"):
        if length(stack, policy["PolicyDocument"]) > MANAGED_POLICY_CHARACTERS:
            yield f"{stack}: {logical_id} is too long"
    for stack, logical_id, role in of_kind(stacks, "IAM::Role"):
        if length(stack, role.get("Policies", [])) > ROLE_CHARACTERS:
            yield f"{stack}: the policies of {logical_id} are too long"


# ---- damage that each rule has to detect


def deployer_statement(stacks: Stacks, action: str) -> dict[str, Any]:
    """The deployer's statement with an action, to damage it."""
    found = statements(properties(stacks, "platform", "DeployerRole"))
    return next(each for each in found if action in branches(each.get("Action", each.get("NotAction"))))


def _anybody(stacks: Stacks) -> None:
    trust = properties(stacks, "platform", "DeployerRole")["AssumeRolePolicyDocument"]["Fn::Sub"]
    trust[0] = trust[0].replace("StringEquals", "StringLike")


def _any_audience(stacks: Stacks) -> None:
    trust = properties(stacks, "platform", "DeployerRole")["AssumeRolePolicyDocument"]["Fn::Sub"]
    trust[0] = re.sub(r'\s+"\$\{DeployerIssuer\}:aud": "sts.amazonaws.com",', "", trust[0])


def _always(stacks: Stacks) -> None:
    del stacks["platform"]["Resources"]["DeployerRole"]["Condition"]


def _unbounded(stacks: Stacks) -> None:
    del deployer_statement(stacks, "iam:CreateRole")["Condition"]


def _passes_to_all(stacks: Stacks) -> None:
    del deployer_statement(stacks, "iam:PassRole")["Condition"]


def _any_bucket(stacks: Stacks) -> None:
    deployer_statement(stacks, "s3:CreateBucket")["Resource"].append({"Fn::Sub": "arn:${AWS::Partition}:s3:::*"})


def _any_function(stacks: Stacks) -> None:
    del deployer_statement(stacks, "lambda:*EventSourceMapping")["Condition"]


def _deletes_data(stacks: Stacks) -> None:
    deployer_statement(stacks, "dynamodb:CreateTable")["Action"].append("dynamodb:DeleteTable")


def _shares_the_catalog(stacks: Stacks) -> None:
    deployer_statement(stacks, "glue:CreateTable")["Action"] = ["glue:*", "glue:CreateTable"]


def _own_policies(stacks: Stacks) -> None:
    deployer_statement(stacks, "iam:CreatePolicy*")["Resource"] = {"Fn::Sub": f"{POLICIES}prismline-${{Environment}}-*"}


def _frees_itself(stacks: Stacks) -> None:
    document = properties(stacks, "platform", "DeployerRole")["Policies"][0]["PolicyDocument"]
    document["Statement"] = [each for each in document["Statement"] if each["Effect"] == "Allow"]


def _deletes_boundary(stacks: Stacks) -> None:
    del stacks["platform"]["Resources"]["Boundary"]["UpdateReplacePolicy"]


def _frees_others(stacks: Stacks) -> None:
    document = properties(stacks, "platform", "DeployerRole")["Policies"][0]["PolicyDocument"]
    (deny,) = (each for each in document["Statement"] if each["Effect"] == "Deny")
    deny["Resource"] = {"Fn::Sub": f"{ROLES}prismline-${{Environment}}-deployer-${{AWS::Region}}"}


def _long(stacks: Stacks) -> None:
    properties(stacks, "platform", "Boundary")["PolicyDocument"]["Statement"] *= 3


def _wide(stacks: Stacks) -> None:
    properties(stacks, "platform", "Boundary")["PolicyDocument"]["Statement"][-1]["Action"].append("iam:CreateUser")


def _new_right(stacks: Stacks) -> None:
    statement = next(statements(properties(stacks, "splitter", "FunctionRole")))
    statement["Action"] = "kinesis:PutRecord"


CASES: list[Case] = [
    (unbounded_roles, without("worker", "FunctionRole", "PermissionsBoundary")),
    (unbounded_roles, changed("platform", "Boundary", "other", "ManagedPolicyName")),
    (names_without_region, changed("platform", "OperatorRole", {"Fn::Sub": "prismline-${Environment}-op"}, "RoleName")),
    (names_without_region, changed("platform", "Dashboard", {"Fn::Sub": "p-${Environment}"}, "DashboardName")),
    (lost_boundary, _deletes_boundary),
    (swallowed_rights, _new_right),
    (swallowed_rights, without("platform", "Boundary", "PolicyDocument", "Statement", 1)),
    (wide_boundary, _wide),
    (deployer_for_anybody, _always),
    (deployer_for_anybody, _anybody),
    (deployer_for_anybody, _any_audience),
    (deployer_out_of_bounds, _unbounded),
    (deployer_out_of_bounds, _passes_to_all),
    (deployer_out_of_bounds, _any_bucket),
    (deployer_out_of_bounds, _any_function),
    (deployer_out_of_bounds, _deletes_data),
    (deployer_out_of_bounds, _shares_the_catalog),
    (deployer_out_of_bounds, _own_policies),
    (deployer_out_of_bounds, _frees_itself),
    (deployer_out_of_bounds, _frees_others),
    (long_policies, _long),
]
