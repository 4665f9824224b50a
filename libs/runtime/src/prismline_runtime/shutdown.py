"""The signal that this process shuts down. Responses without an end, such as event streams, then end."""

from __future__ import annotations

import threading

#: Set when the server begins to shut down.
stopping = threading.Event()
