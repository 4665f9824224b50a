"""Captions: each window of a recording's frames is one chunk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prismline_contracts.base import chunk_id
from prismline_contracts.captions import CaptionsManifest, CaptionWindow, FrameWindow
from prismline_contracts.objects import chunk_key
from prismline_ledger import NewChunk
from prismline_splitter.workload import Source, Split

#: Windows that are written concurrently.
UPLOADS = 8


class CaptionsSplitter:
    """The `captions` workload. The splitter does not read the frames; the worker does."""

    name = "captions"
    manifest = CaptionsManifest

    def split(self, manifest: CaptionsManifest, source: Source) -> Split:
        """Write a `CaptionWindow` for each window. The chunk's id contains the window's index."""

        def write(window: FrameWindow) -> NewChunk:
            identifier = chunk_id(window.window_index)
            key = chunk_key(source.run_id, identifier, "json")
            document = CaptionWindow(
                session_id=manifest.session_id, user_id=manifest.user_id, **dict(window)
            ).model_dump_json()
            source.bucket.write(key, document.encode())
            return NewChunk(identifier, key, n_items=1)

        with ThreadPoolExecutor(UPLOADS) as pool:
            chunks = list(pool.map(write, manifest.windows))
        return Split(chunks, n_items=len(chunks))


WORKLOAD = CaptionsSplitter()
