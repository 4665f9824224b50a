"""URLs: each URL is a task. The worker fetches it."""

from __future__ import annotations

from prismline_contracts.tasks import UrlsManifest
from prismline_splitter.task_sources import source_of
from prismline_splitter.workload import TaskContext, TaskSource


class Urls:
    """The `urls` workload."""

    name = "urls"
    manifest = UrlsManifest

    def tasks(self, manifest: UrlsManifest, context: TaskContext) -> TaskSource:
        """The URLs of the manifest, of a staged list, of the batches of a job that was open, or of an earlier run."""
        return source_of(manifest, context)


WORKLOAD = Urls()
