"""A fitting kernel that misbehaves on purpose. The first channel of the spectrum chooses how."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from prismline_worker.fit_process import Fit

SLOW = 100.0
RAISES = 200.0
CRASHES = 300.0
KILLED_ONCE = 400.0
KILLED_ALWAYS = 500.0
OUT_OF_MEMORY = 600.0


def obey(spectrum, params):
    order = spectrum[0]
    if order == SLOW:
        sys.stdout.write("busy\n")
        sys.stdout.flush()
        while True:
            time.sleep(60)
    if order == RAISES:
        raise ZeroDivisionError("float division by zero")
    if order == OUT_OF_MEMORY:
        raise MemoryError
    if order == CRASHES:  # the pipe closes shortly before the process ends, as in an orderly exit
        os.closerange(3, 64)
        time.sleep(0.1)
        os._exit(7)
    if order == KILLED_ALWAYS:
        os.kill(os.getpid(), signal.SIGKILL)
    if order == KILLED_ONCE:
        marker = Path(os.environ["WORKER_KERNELS_MARKER"])
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return Fit(1.0, [(float(order), 2.0, 3.0)])
