"""Finds the endpoint of a caption model, before an attempt begins."""

from __future__ import annotations

import random
import time

from prismline_runtime import ResourceUnavailableError
from prismline_worker.caption_client import CaptionClient
from prismline_worker.gpu import Gpu

#: Seconds for which the addresses that were found are used again.
LOOK_SECONDS = 5.0


class ModelEndpoint:
    """The endpoint of the caption model on one of the running GPU instances.

    `find` looks for the instances and probes their models at most once in `seconds`, so that a backlog of windows does
    not flood a model that is down. Each look begins with another instance, so that all get work.
    """

    def __init__(self, gpu: Gpu, client: CaptionClient, *, base_url: str | None, seconds: float = LOOK_SECONDS) -> None:
        """base_url: an endpoint that replaces those on the instances."""
        self._gpu = gpu
        self._client = client
        self._base_url = base_url
        self._seconds = seconds
        #: The last look: the time (`time.monotonic` seconds) and the result.
        self._looked: tuple[float, str | ResourceUnavailableError] | None = None

    def find(self) -> str:
        """The base URL of a model that has just answered. Raises ResourceUnavailableError if there is none."""
        if self._looked is None or time.monotonic() - self._looked[0] >= self._seconds:
            self._looked = (time.monotonic(), self._look())
        found = self._looked[1]
        if isinstance(found, ResourceUnavailableError):
            raise type(found)(str(found), resource=found.resource)
        return found

    def _look(self) -> str | ResourceUnavailableError:
        try:
            urls = self._gpu.base_urls()
        except ResourceUnavailableError as error:
            return error
        if self._base_url:
            urls = [self._base_url]
        random.shuffle(urls)
        refused = ResourceUnavailableError("The instance has no address yet.", resource=self._gpu.resource)
        for url in urls:
            try:
                self._client.require(url)
            except ResourceUnavailableError as error:
                refused = error
            else:
                return url
        return refused
