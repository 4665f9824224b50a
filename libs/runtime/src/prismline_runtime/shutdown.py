"""That this process shuts down. Answers that have no end of their own, such as streams of events, end then."""

from __future__ import annotations

import threading

#: Set when the server begins to shut down.
stopping = threading.Event()
