"""The stack of a pool: a group of workers with the package of one author."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prismline_contracts.pools import is_pool_name, not_a_pool_name, pool_queue
from prismline_deploy.change_sets import NOT_CREATED
from prismline_deploy.errors import DeployError

if TYPE_CHECKING:
    from prismline_deploy.deploying import Show, Target

#: The template of a pool's stack, in a checkout.
POOL_TEMPLATE = "services/worker/pool.yaml"


def deploy_pool(target: Target, root: Path, pool: str, image: str, show: Show) -> None:
    """Deploy the stack of a pool, whose function runs `image`: the worker's image with the author's package.

    It is not in the record of releases: deploy an earlier image to return to it.

    Raises DeployError for a name that no pool can have, in an environment without workers, and with the reason of the
    first resource that failed.
    """
    if not is_pool_name(pool):
        raise DeployError(not_a_pool_name(pool))
    if target.stacks.state(target.stack("dlq-consumer")) in NOT_CREATED:
        raise DeployError(f"{target.environment} has no services yet. Deploy them before a pool.")
    stack = target.stack(pool_queue(pool))
    given = {**target.parameters, "Environment": target.environment, "Pool": pool, "ImageUri": image}
    text = (root / POOL_TEMPLATE).read_text()
    planned = target.stacks.plan(stack, given, text, target.stacks.chosen(stack))
    if show(planned):
        target.stacks.execute(planned)
    else:
        target.stacks.discard(planned)
