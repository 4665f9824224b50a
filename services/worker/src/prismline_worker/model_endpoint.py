"""Finds the endpoint of the caption model, before an attempt begins."""

from __future__ import annotations

import time

from prismline_runtime import ResourceUnavailableError
from prismline_worker.caption_client import CaptionClient
from prismline_worker.gpu import Gpu

#: How long, in seconds, the result of a health probe is reused.
LOOK_SECONDS = 5.0


class ModelEndpoint:
    """The endpoint of the caption model on the current GPU instance.

    `find` reads the SSM parameter of the instance every time. It requests the instance's address and probes the model
    at most once in `seconds`, so that a backlog of windows does not flood a model that is down.
    """

    def __init__(self, gpu: Gpu, client: CaptionClient, *, base_url: str | None, seconds: float = LOOK_SECONDS) -> None:
        """base_url: an endpoint that replaces the one on the instance."""
        self._gpu = gpu
        self._client = client
        self._base_url = base_url
        self._seconds = seconds
        #: The last probe: the instance, the time (`time.monotonic` seconds), and the result.
        self._looked: tuple[str, float, str | ResourceUnavailableError] | None = None

    def find(self) -> str:
        """The base URL of a model that has just answered. Raises ResourceUnavailableError if there is none."""
        instance_id = self._gpu.instance_id()
        if self._looked is None or self._looked[0] != instance_id or self._is_old(self._looked[1]):
            self._looked = (instance_id, time.monotonic(), self._look(instance_id))
        found = self._looked[2]
        if isinstance(found, ResourceUnavailableError):
            raise ResourceUnavailableError(str(found), resource=found.resource)
        return found

    def _is_old(self, moment: float) -> bool:
        return time.monotonic() - moment >= self._seconds

    def _look(self, instance_id: str) -> str | ResourceUnavailableError:
        try:
            base_url = self._base_url or self._gpu.base_url(instance_id)
            self._client.require(base_url)
        except ResourceUnavailableError as error:
            return error
        return base_url
