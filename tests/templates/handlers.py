"""The deployer's rights compared with those that CloudFormation's handlers need.

The published schema of each type of resource lists the permissions of its handlers; cfn-lint contains the schemas. A
handler's list covers every property of the type, so much of it is not needed here: `NOT_GRANTED` says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cfnlint

from tests.templates.damage import properties
from tests.templates.reading import Stacks, branches, statements

#: The handlers that a deployment calls.
HANDLERS = ("create", "read", "update", "delete")
#: Permissions of handlers that the deployer does not have, as patterns, with the reason.
NOT_GRANTED = {
    r"kms:\w+": "the resources are encrypted with keys of AWS",
    r"(kinesis|firehose|s3tables|elasticfilesystem|s3files|lakeformation):\w+": "no template uses the service",
    r"dynamodb:(\w*TableReplica|\w*Kinesis\w*|ImportTable|UpdateContributorInsights|\w+ResourcePolicy)": (
        "the tables have no replicas, streams, imports or policies"
    ),
    r"dynamodb:(BatchWriteItem|DeleteItem|GetItem|PutItem|Query|Scan|UpdateItem)": "a deployment touches no items",
    r"dynamodb:DeleteTable|s3:DeleteBucket": "only an administrator deletes data",
    r"s3:DeleteBucketPolicy": "no template removes the policy of a bucket",
    r"s3:DeleteBucket(Analytics\w+|Cors|Encryption|Lifecycle|Metadata\w+|Metrics\w+|Replication|Website)": (
        "CloudFormation puts an empty configuration, or the buckets never had one"
    ),
    r"s3:(Put(Accelerate|Analytics|IntelligentTiering|Inventory|Metrics|ObjectLock|Replication)Configuration"
    r"|\w+BucketMetadata\w+)": "the buckets have none of these configurations",
    r"s3:(\w*Object\w*|\w*MultipartUpload\w*|REST\.PUT\.OBJECT)": "a deployment touches no objects of users",
    r"s3:(Tag|Untag|ListTagsFor)Resource": "of S3 Tables and access points",
    r"iam:(Attach|Detach)(Group|User)Policy": "the policies belong to roles",
    r"iam:DeleteRolePermissionsBoundary": "the boundary limits what the deployer can grant",
    r"glue:\w+Connection": "the table has no connection",
    r"elasticache:(Create|Delete)ServerlessCache|ec2:Create(Tags|VpcEndpoint)": (
        "an administrator creates the cache: its endpoint in the VPC needs rights beyond Prismline"
    ),
}


@cache
def permissions(kind: str) -> frozenset[str]:
    """The permissions that the handlers of a type need."""
    folder = Path(cfnlint.__file__).parent / "data/schemas/resources"
    found: set[str] = set()
    for path in folder.glob("*.json"):
        text = path.read_text()
        if kind in text and (schema := json.loads(text)).get("typeName") == kind:
            handlers = schema.get("handlers", {})
            found.update(each for name in HANDLERS for each in handlers.get(name, {}).get("permissions", []))
    return frozenset(found)


def needed(stacks: Stacks) -> dict[str, set[str]]:
    """The permissions that the handlers of all types in the templates need, with the types that need each."""
    found: dict[str, set[str]] = {}
    for kind in {each["Type"] for template in stacks.values() for each in template["Resources"].values()}:
        for permission in permissions(kind):
            found.setdefault(permission, set()).add(kind)
    return found


def _granted(stacks: Stacks) -> list[re.Pattern[str]]:
    role = properties(stacks, "platform", "DeployerRole")
    actions = {
        action
        for statement in statements(role)
        if statement["Effect"] == "Allow"
        for action in branches(statement["Action"])
    }
    return [re.compile(re.escape(action).replace(r"\*", ".*"), re.IGNORECASE) for action in actions]


def missing_rights(stacks: Stacks) -> Iterator[str]:
    """What a handler needs, the deployer may do, or the table says why not."""
    granted = _granted(stacks)
    for permission, kinds in sorted(needed(stacks).items()):
        if any(each.fullmatch(permission) for each in granted):
            continue
        if not any(re.fullmatch(pattern, permission) for pattern in NOT_GRANTED):
            yield f"the deployer may not {permission}, which {', '.join(sorted(kinds))} needs"


def useless_reasons(stacks: Stacks) -> Iterator[str]:
    """Patterns of the table that match nothing any more."""
    all_needed = needed(stacks)
    for pattern in NOT_GRANTED:
        if not any(re.fullmatch(pattern, permission) for permission in all_needed):
            yield f"no handler needs {pattern}"
