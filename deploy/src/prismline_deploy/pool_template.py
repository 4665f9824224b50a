"""Where the template of a pool's stack is. It imports nothing, because the container that deploys lacks packages."""

#: The template of a pool's stack, in a checkout.
POOL_TEMPLATE = "services/worker/pool.yaml"
