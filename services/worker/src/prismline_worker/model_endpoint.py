"""Where the caption model answers, asked for before an attempt begins."""

from __future__ import annotations

import time

from prismline_runtime import ResourceUnavailableError
from prismline_worker.caption_client import CaptionClient
from prismline_worker.gpu import Gpu

#: For how long, in seconds, what a look at the model found is believed.
LOOK_SECONDS = 5.0


class ModelEndpoint:
    """The caption model's endpoint on the GPU instance that there is at this moment.

    The instance's parameter is read each time. Its address, and whether the model there answers, are asked for at most
    once in a few seconds, so that a queue full of windows is no load for a model that is down.
    """

    def __init__(self, gpu: Gpu, client: CaptionClient, *, base_url: str | None, seconds: float = LOOK_SECONDS) -> None:
        """base_url: the endpoint, where it is not that of the instance."""
        self._gpu = gpu
        self._client = client
        self._base_url = base_url
        self._seconds = seconds
        #: The instance that was looked at last, when (`time.monotonic` seconds), and what was found.
        self._looked: tuple[str, float, str | ResourceUnavailableError] | None = None

    def find(self) -> str:
        """The base URL of a model that answered a moment ago. Raises ResourceUnavailableError if there is none."""
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
