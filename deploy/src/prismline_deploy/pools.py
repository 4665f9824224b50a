"""The stack of a pool: a group of workers with the package of one author."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prismline_contracts.base import timestamp
from prismline_contracts.pools import is_pool_name, not_a_pool_name, pool_queue
from prismline_deploy.change_sets import NOT_CREATED
from prismline_deploy.deploying import IMAGE, restore
from prismline_deploy.errors import DeployError
from prismline_deploy.labels import version_of
from prismline_deploy.pool_template import POOL_TEMPLATE
from prismline_deploy.record import Release, ReleaseHistory, first

if TYPE_CHECKING:
    from prismline_deploy.deploying import Show, Target


def deploy_pool(target: Target, root: Path, pool: str, image: str, show: Show) -> None:
    """Deploy the stack of a pool, whose function runs `image`: the worker's image with the author's package.

    Raises DeployError for a name that no pool can have, in an environment without workers, and with the reason of the
    first resource that failed.
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
    release = Release(version=version_of(root, "worker"), code={IMAGE: image}, deployed_at=timestamp())
    before = target.record.get_pool(pool)
    target.record.put_pool(pool, first(release, []) if before is None else before.replaced_by(release, []))


def rollback_pool(target: Target, pool: str, show: Show) -> ReleaseHistory | None:
    """Give a pool the image that it had before. Return its new record, or None if `show` refuses the change set.

    Raises DeployError, without any change, if no earlier image is recorded, or if more than code would change.
    """
    if not is_pool_name(pool):
        raise DeployError(not_a_pool_name(pool))
    restored = restore(target, pool_queue(pool), target.record.get_pool(pool), show)
    if restored is not None:
        target.record.put_pool(pool, restored)
    return restored
