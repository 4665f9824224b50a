"""Where a deployment records what it has deployed."""

from __future__ import annotations

#: Name of the SSM parameter of a service in an environment.
DEPLOYED_PARAMETERS = "/prismline/{environment}/deployed/{service}"
