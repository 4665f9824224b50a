"""The stack of a pool: a group of workers with the package of one author.

The functions of the package are registered with it: what each takes, and which code it is. A run names a registered
function, and keeps its code to the end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from prismline_contracts.base import timestamp
from prismline_contracts.pools import is_pool_name, not_a_pool_name, pool_queue
from prismline_contracts.workloads import (
    RegisteredWorkload,
    is_entry_point,
    latest_workload_key,
    registration_of,
    workload_key,
)
from prismline_deploy.change_sets import NOT_CREATED
from prismline_deploy.deploying import IMAGE, PLATFORM, restore
from prismline_deploy.errors import DeployError
from prismline_deploy.labels import version_of
from prismline_deploy.pool_template import POOL_TEMPLATE
from prismline_deploy.record import Release, ReleaseHistory, first

if TYPE_CHECKING:
    from prismline_deploy.deploying import Show, Target


def described_functions(file: Path) -> list[RegisteredWorkload]:
    """The functions in a file with what `python -m prismline.describe` prints in the image of a pool.

    Raises DeployError for a file without any, for a line that describes none, and for a name that has two.
    """
    found: dict[str, RegisteredWorkload] = {}
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise DeployError(f"{file} cannot be read: {error.strerror}.") from error
    for number, line in enumerate(lines, 1):
        try:
            described = json.loads(line)
            described["limits"]["timeout"] = float(described["limits"]["timeout"])
            each = RegisteredWorkload.model_validate({**described, "registered_at": timestamp()})
        except (ValueError, TypeError, KeyError, ValidationError) as error:
            raise DeployError(
                f"Line {number} of {file} does not describe a function. It needs what `python -m prismline.describe`"
                " prints."
            ) from error
        if each.name in found or not is_entry_point(each.name):
            why = "has two descriptions" if each.name in found else "is not the name of an entry point of a function"
            raise DeployError(f"Line {number} of {file}: {each.name} {why}.")
        found[each.name] = each
    if not found:
        raise DeployError(f"{file} describes no function.")
    return list(found.values())


def deploy_pool(
    target: Target, root: Path, pool: str, image: str, show: Show, functions: Sequence[RegisteredWorkload] = ()
) -> None:
    """Deploy the stack of a pool, whose function runs `image`: the worker's image with the author's package.

    Then register `functions`, which the image has, as the latest. Raises DeployError for a name that no pool can have,
    in an environment without workers, and with the reason of the first resource that failed.
    """
    if not is_pool_name(pool):
        raise DeployError(not_a_pool_name(pool))
    if target.stacks.state(target.stack("dlq-consumer")) in NOT_CREATED:
        raise DeployError(f"{target.environment} has no services yet. Deploy them before a pool.")
    stack = target.stack(pool_queue(pool))
    given = {**target.parameters, "Environment": target.environment, "Pool": pool, IMAGE: image}
    text = (root / POOL_TEMPLATE).read_text()
    planned = target.stacks.plan(stack, given, text, target.stacks.chosen(stack))
    if not show(planned):
        target.stacks.discard(planned)
        return
    target.stacks.execute(planned)
    for function in functions:
        for key, body in registration_of(function).items():
            target.s3.put_object(Bucket=_bucket(target), Key=key, Body=body)
    release = Release(
        version=version_of(root, "worker"),
        code={IMAGE: image},
        deployed_at=timestamp(),
        registered={each.name: each.code for each in functions},
    )
    before = target.record.get_pool(pool)
    target.record.put_pool(pool, first(release, []) if before is None else before.replaced_by(release, []))


def rollback_pool(target: Target, pool: str, show: Show) -> ReleaseHistory | None:
    """Give a pool the image that it had before. Return its new record, or None if `show` refuses the change set.

    The functions of that image become the latest again.

    Raises DeployError, without any change, if no earlier image is recorded, or if more than code would change.
    """
    if not is_pool_name(pool):
        raise DeployError(not_a_pool_name(pool))
    restored = restore(target, pool_queue(pool), target.record.get_pool(pool), show)
    if restored is not None:
        for name, code in restored.registered.items():
            body = target.s3.get_object(Bucket=_bucket(target), Key=workload_key(name, code))["Body"].read()
            target.s3.put_object(Bucket=_bucket(target), Key=latest_workload_key(name), Body=body)
        target.record.put_pool(pool, restored)
    return restored


def _bucket(target: Target) -> str:
    return target.stacks.outputs(target.stack(PLATFORM))["Bucket"]
